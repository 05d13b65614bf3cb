//! Every method of the Bot API (10.0) that hapax does not simply pass through, and why.

use crate::dropin::What;

/// Where an effect says whom it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `chat_id`.
    Chat,
    /// `chat_id`, or `user_id` where that is missing.
    ChatOrUser,
    /// `user_id`.
    User,
    /// `business_connection_id`: done in the name of an account, to nobody in particular.
    Business,
}

/// Made twice, people see it twice or pay twice.
const EFFECTS: [(&str, Target); 30] = [
    ("sendMessage", Target::Chat),
    ("sendPhoto", Target::Chat),
    ("sendLivePhoto", Target::Chat),
    ("sendAudio", Target::Chat),
    ("sendDocument", Target::Chat),
    ("sendVideo", Target::Chat),
    ("sendAnimation", Target::Chat),
    ("sendVoice", Target::Chat),
    ("sendVideoNote", Target::Chat),
    ("sendPaidMedia", Target::Chat),
    ("sendMediaGroup", Target::Chat),
    ("sendLocation", Target::Chat),
    ("sendVenue", Target::Chat),
    ("sendContact", Target::Chat),
    ("sendPoll", Target::Chat),
    ("sendChecklist", Target::Chat),
    ("sendDice", Target::Chat),
    ("sendSticker", Target::Chat),
    ("sendGame", Target::Chat),
    ("sendInvoice", Target::Chat),
    ("forwardMessage", Target::Chat),
    ("forwardMessages", Target::Chat),
    ("copyMessage", Target::Chat),
    ("copyMessages", Target::Chat),
    // A second topic of the same name stays until somebody deletes it.
    ("createForumTopic", Target::Chat),
    // These three are paid for in Stars each time.
    ("sendGift", Target::ChatOrUser),
    ("giftPremiumSubscription", Target::User),
    ("transferBusinessAccountStars", Target::Business),
    // Everybody who follows the account sees both.
    ("postStory", Target::Business),
    ("repostStory", Target::Business),
];

/// Made twice, nobody can tell: what is there is changed, or an answer is given that can be given once only.
const REPEATABLE: [&str; 36] = [
    "editMessageText",
    "editMessageCaption",
    "editMessageMedia",
    "editMessageLiveLocation",
    "editMessageChecklist",
    "editMessageReplyMarkup",
    "stopMessageLiveLocation",
    "stopPoll",
    "deleteMessage",
    "deleteMessages",
    "deleteBusinessMessages",
    "readBusinessMessage",
    "setMessageReaction",
    "deleteMessageReaction",
    "deleteAllMessageReactions",
    "pinChatMessage",
    "unpinChatMessage",
    "unpinAllChatMessages",
    "unpinAllForumTopicMessages",
    "unpinAllGeneralForumTopicMessages",
    "approveSuggestedPost",
    "declineSuggestedPost",
    "editForumTopic",
    "closeForumTopic",
    "reopenForumTopic",
    "deleteForumTopic",
    "editStory",
    "deleteStory",
    "setGameScore",
    "answerCallbackQuery",
    "answerInlineQuery",
    "answerShippingQuery",
    "answerPreCheckoutQuery",
    // These two send a message for somebody else, and Telegram takes each query's id once.
    "answerWebAppQuery",
    "answerGuestQuery",
    // A draft is gone after seconds, and the next one of the same id takes its place.
    "sendMessageDraft",
];

/// They begin like sends and send nothing that stays.
const NO_SENDS: [&str; 2] = ["sendChatAction", "sendCustomRequest"];

/// What is in front of a method that came after this table was written, and sends.
const SENDS_BEGIN: [&str; 3] = ["send", "forward", "copy"];

/// What the method is, in whatever case it is written: Telegram reads all.
pub(super) fn what_of(method: &str) -> What {
    let is = |name: &str| method.eq_ignore_ascii_case(name);
    if let Some((name, _)) = EFFECTS.iter().find(|(name, _)| is(name)) {
        return What::Effect { method: (*name).to_owned() };
    }
    if REPEATABLE.iter().any(|name| is(name)) {
        return What::Repeatable;
    }
    match method.to_ascii_lowercase().as_str() {
        "setwebhook" => What::SetWebhook,
        "deletewebhook" => What::DeleteWebhook,
        "getwebhookinfo" => What::WebhookInfo,
        "getupdates" => What::Updates,
        "logout" => What::Refused { why: "logOut would take the bot away from Telegram's own server for all who use it" },
        "close" => What::Refused { why: "close would stop the bot at Telegram for all who use it" },
        // An unknown one that sends is treated as such: to send twice is worse than to wait in line.
        name if SENDS_BEGIN.iter().any(|begin| name.starts_with(begin))
            && name.bytes().all(|byte| byte.is_ascii_alphabetic())
            && !NO_SENDS.iter().any(|name| is(name)) =>
        {
            What::Effect { method: method.to_owned() }
        }
        _ => What::Through,
    }
}

/// Where the effect says whom it is for; for one that is not known, wherever it can be found.
pub(crate) fn target_of(method: &str) -> Target {
    let known = EFFECTS.iter().find(|(name, _)| method.eq_ignore_ascii_case(name));
    known.map_or(Target::ChatOrUser, |(_, target)| *target)
}
