//! Where a message is sent from: finds the channel and the account that a request means, or says what to name.

use std::sync::Arc;

use hapax_domain::draft::check_name;
use hapax_domain::limits::PAGE_MAX;
use hapax_providers::sending::Sending;
use hapax_providers::settings::Settings;
use hapax_store::ThreadQuery;

use super::{Api, Caller, Problem};
use crate::channels::Channel;

pub(super) struct Origin<'a> {
    pub(super) channel: &'a Channel,
    pub(super) account: String,
    pub(super) sending: Arc<dyn Sending>,
}

/// Finds the one origin that is meant; with several possible ones nothing is guessed.
pub(super) async fn find<'a>(
    api: &'a Api,
    caller: &Caller,
    channel: Option<&str>,
    account: Option<&str>,
) -> Result<Origin<'a>, Problem> {
    let channel = match (channel, account) {
        (Some(name), _) => {
            caller.need_channel(name)?;
            named(api, caller, name)?
        }
        (None, Some(account)) => of_account(api, caller, account).await?,
        (None, None) => only(api, caller)?,
    };
    let sending = channel.sending.as_ref().ok_or_else(|| cannot_send(channel.name()))?;
    let account = match account {
        Some(account) => {
            check_account(channel, account)?;
            account.to_owned()
        }
        None => only_account(api, channel).await?,
    };
    Ok(Origin { channel, account, sending: Arc::clone(sending) })
}

/// Those that the caller may send through.
fn sending_channels<'a>(api: &'a Api, caller: &Caller) -> impl Iterator<Item = &'a Channel> {
    api.channels.iter().filter(|channel| channel.sending.is_some() && caller.sees(channel.name()))
}

fn names<'c>(channels: impl Iterator<Item = &'c Channel>) -> String {
    let names: Vec<_> = channels.map(|channel| format!("`{}`", channel.name())).collect();
    if names.is_empty() { "none; give a channel its `token`, or its `api_base`".to_owned() } else { names.join(", ") }
}

fn named<'a>(api: &'a Api, caller: &Caller, name: &str) -> Result<&'a Channel, Problem> {
    api.channels.get(name).ok_or_else(|| {
        let can = names(sending_channels(api, caller));
        Problem::unprocessable(format!("there is no channel `{}`; those that can send: {can}", short(name)))
    })
}

fn only<'a>(api: &'a Api, caller: &Caller) -> Result<&'a Channel, Problem> {
    let mut channels = sending_channels(api, caller);
    match (channels.next(), channels.next()) {
        (Some(channel), None) => Ok(channel),
        (None, _) => {
            let todo = "give one its `token`, or its `api_base`";
            Err(Problem::unprocessable(format!("no channel can send; {todo}")))
        }
        _ => {
            let can = names(sending_channels(api, caller));
            Err(Problem::unprocessable(format!("say with `channel` or `account` who sends; channels that can send: {can}")))
        }
    }
}

async fn of_account<'a>(api: &'a Api, caller: &Caller, account: &str) -> Result<&'a Channel, Problem> {
    check_name("account", account)?;
    let mut known = Vec::new();
    for channel in sending_channels(api, caller) {
        if knows(api, channel, account).await? {
            known.push(channel);
        }
    }
    match known.as_slice() {
        [channel] => return Ok(channel),
        [] => {}
        several => {
            let which = names(several.iter().copied());
            return Err(Problem::unprocessable(format!("account `{}` is in {which}: say which with `channel`", short(account))));
        }
    }
    let seen = ThreadQuery { account: Some(account.to_owned()), limit: 1, ..ThreadQuery::default() };
    if let Some(thread) = api.store.threads(seen).await?.rows.first().filter(|thread| caller.sees(&thread.channel)) {
        return Err(cannot_send(&thread.channel));
    }
    // Nobody has written to this account yet. With one channel there is no doubt whose it is.
    let mut channels = sending_channels(api, caller);
    match (channels.next(), channels.next()) {
        (Some(channel), None) => Ok(channel),
        _ => {
            let can = names(sending_channels(api, caller));
            let detail =
                format!("account `{}` is not known yet: name its `channel` too; those that can send: {can}", short(account));
            Err(Problem::unprocessable(detail))
        }
    }
}

async fn knows(api: &Api, channel: &Channel, account: &str) -> Result<bool, Problem> {
    if let Settings::Telegram { bot, .. } = &channel.settings.provider {
        return Ok(bot == account);
    }
    let (channel, account) = (Some(channel.name().to_string()), Some(account.to_owned()));
    let threads = api.store.threads(ThreadQuery { channel, account, before: None, limit: 1 }).await?;
    Ok(!threads.rows.is_empty())
}

/// The account of a channel that has one. A WhatsApp app has many phone numbers, so there it is always named.
async fn only_account(api: &Api, channel: &Channel) -> Result<String, Problem> {
    let name = channel.name();
    match &channel.settings.provider {
        Settings::Telegram { bot, .. } => return Ok(bot.clone()),
        Settings::Whatsapp { .. } => {
            let detail =
                format!("channel `{name}` may have several numbers: give the sending one's phone_number_id as `account`");
            return Err(Problem::unprocessable(detail));
        }
        _ => {}
    }
    let query = ThreadQuery { channel: Some(name.to_string()), limit: PAGE_MAX, ..ThreadQuery::default() };
    let threads = api.store.threads(query).await?;
    let first = threads.rows.first().map(|thread| &thread.id.account);
    match first {
        Some(account) if !threads.more && threads.rows.iter().all(|thread| thread.id.account == *account) => Ok(account.clone()),
        _ => Err(Problem::unprocessable(format!("channel `{name}` has no account that is the only one: name it with `account`"))),
    }
}

fn check_account(channel: &Channel, account: &str) -> Result<(), Problem> {
    check_name("account", account)?;
    match &channel.settings.provider {
        Settings::Telegram { bot, .. } if bot != account => Err(Problem::unprocessable(format!(
            "channel `{}` has no account `{}`; a bot goes by its channel's name: `{bot}`, or leave `account` out",
            channel.name(),
            short(account)
        ))),
        Settings::Whatsapp { .. } if !account.bytes().all(|byte| byte.is_ascii_digit()) => Err(Problem::unprocessable(format!(
            "`{}` is no account of channel `{}`: write the number's phone_number_id, digits only, as Meta's dashboard shows it",
            short(account),
            channel.name()
        ))),
        _ => Ok(()),
    }
}

fn cannot_send(channel: &str) -> Problem {
    let detail =
        format!("channel `{channel}` only receives: its provider cannot send, or its config lacks `token` or `api_base`");
    Problem::unprocessable(detail)
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}
