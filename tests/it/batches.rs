//! Webhooks that carry many events, some of them known.

use std::collections::HashSet;

use hapax_domain::Kind;
use hapax_store::{EventState, ItemState};
use hapax_testkit::fake_bot::{Call, FakeBot};
use hapax_testkit::store_fixture;

use crate::rig::{Opened, Rig, change, channel, message, signature, status, text, webhook};

on_every_store! {
    of_a_mixed_batch_only_the_new_ones_reach_the_bot_once_each_in_metas_shape
    sent_delivered_and_read_of_one_message_all_survive
    a_thousand_events_in_one_body_are_a_thousand_events
    a_part_that_cannot_be_cut_out_is_parked_and_never_sent_whole
    sixty_thousand_senders_hold_nobody_up
}

/// What a bot written for Meta reads: (kind, id, status) of everything in the body.
fn read_as_a_bot(call: &Call) -> Vec<(&'static str, String, String)> {
    // An unmodified bot first checks the signature over the raw body.
    assert_eq!(call.header("x-hub-signature-256"), signature(&call.body), "the bot's own check passes");
    let body: serde_json::Value = serde_json::from_slice(&call.body).expect("JSON");
    assert_eq!(body["object"], "whatsapp_business_account");
    let mut found = vec![];
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    for entry in body["entry"].as_array().expect("entries") {
        assert!(entry["id"].is_string());
        for change in entry["changes"].as_array().expect("changes") {
            assert_eq!(change["field"], "messages");
            let value = &change["value"];
            assert_eq!(value["metadata"]["phone_number_id"], "700001");
            for message in value["messages"].as_array().into_iter().flatten() {
                found.push(("message", text(&message["id"]), String::new()));
            }
            for status in value["statuses"].as_array().into_iter().flatten() {
                found.push(("status", text(&status["id"]), text(&status["status"])));
            }
        }
    }
    found
}

async fn of_a_mixed_batch_only_the_new_ones_reach_the_bot_once_each_in_metas_shape(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    // A third is known already: two messages and a status, of nine events.
    rig.accepted("shop", text("wamid.1", "1")).await;
    rig.accepted("shop", text("wamid.4", "2")).await;
    rig.accepted("shop", webhook(&[change(&[], &[status("wamid.OUT", "sent")])])).await;
    bot.called(3).await;
    rig.settled().await;

    let first = [
        change(&[message("wamid.1", "1"), message("wamid.2", "1")], &[]),
        change(&[], &[status("wamid.OUT", "sent"), status("wamid.OUT", "delivered")]),
        change(&[message("wamid.3", "2")], &[]),
    ];
    let second = [
        change(&[message("wamid.4", "2")], &[]),
        change(&[message("wamid.5", "1")], &[]),
        change(&[], &[status("wamid.OUT", "read"), status("wamid.OTHER", "sent")]),
    ];
    let body = serde_json::json!({"object": "whatsapp_business_account", "entry": [
        {"id": "900001", "changes": first},
        {"id": "900002", "changes": second},
    ]});
    let (http, answer) = rig.post("shop", body.to_string()).await;
    assert_eq!((http, answer), (200, serde_json::json!({"status": "accepted", "accepted": 6, "repeated": 3})));
    rig.settled().await;

    let mut heard: Vec<_> = bot.calls()[3..].iter().flat_map(read_as_a_bot).collect();
    heard.sort();
    let of = |kind, id: &str, status: &str| (kind, id.to_owned(), status.to_owned());
    let expected = [
        of("message", "wamid.2", ""),
        of("message", "wamid.3", ""),
        of("message", "wamid.5", ""),
        of("status", "wamid.OTHER", "sent"),
        of("status", "wamid.OUT", "delivered"),
        of("status", "wamid.OUT", "read"),
    ];
    assert_eq!(heard, expected);

    // All of it once more: nothing more reaches the bot.
    let calls = bot.calls().len();
    let (_, answer) = rig.post("shop", body.to_string()).await;
    assert_eq!(answer, serde_json::json!({"status": "duplicate", "accepted": 0, "repeated": 9}));
    rig.settled().await;
    assert_eq!(bot.calls().len(), calls);
}

async fn sent_delivered_and_read_of_one_message_all_survive(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    for word in ["read", "sent", "delivered", "sent", "read"] {
        rig.post("shop", webhook(&[change(&[], &[status("wamid.OUT", word)])])).await;
    }
    rig.settled().await;
    let mut heard: Vec<_> = bot.calls().iter().flat_map(read_as_a_bot).map(|(_, _, word)| word).collect();
    heard.sort();
    assert_eq!(heard, ["delivered", "read", "sent"]);
    assert!(rig.events().await.iter().all(|row| row.kind == Kind::Status && row.state == EventState::Delivered));
}

async fn a_thousand_events_in_one_body_are_a_thousand_events(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    let messages: Vec<_> = (0..1_000).map(|number| message(&format!("wamid.{number}"), &(number % 50).to_string())).collect();
    let (http, answer) = rig.post("shop", webhook(&[change(&messages, &[])])).await;
    assert_eq!((http, answer), (200, serde_json::json!({"status": "accepted", "accepted": 1_000, "repeated": 0})));
    rig.settled().await;
    let calls = bot.calls();
    assert_eq!(calls.len(), 50, "one item per thread");
    let heard: Vec<_> = calls.iter().flat_map(read_as_a_bot).map(|(_, id, _)| id).collect();
    assert_eq!(heard.len(), 1_000);
    assert_eq!(heard.iter().collect::<HashSet<_>>().len(), 1_000);

    let more: Vec<_> = (0..1_001).map(|number| message(&format!("wamid.more-{number}"), "1")).collect();
    let (http, answer) = rig.post("shop", webhook(&[change(&more, &[])])).await;
    assert_eq!((http, &answer["accepted"]), (200, &1_001.into()), "a thousand, and one part for the rest");
    rig.settled().await;
    let call = bot.calls().pop().expect("a call");
    assert_eq!(read_as_a_bot(&call).len(), 1_000);
    let left = rig.inbox().await;
    assert_eq!((left.len(), left[0].state.clone()), (1, ItemState::Quarantined));
    assert!(left[0].why.as_deref().expect("a reason").contains("more than 1000 events"));
}

/// As after a change of the channel's provider: the stored webhook is of a shape that it does not know.
async fn a_part_that_cannot_be_cut_out_is_parked_and_never_sent_whole(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    let two_lanes = store_fixture::webhook(vec![store_fixture::message("a", "1"), store_fixture::message("b", "2")]);
    rig.store.accept(two_lanes.into()).await.expect("accepted");
    rig.settled().await;
    let parked = rig.inbox().await;
    assert_eq!(parked.len(), 2);
    for row in parked {
        assert_eq!(row.state, ItemState::Parked);
        assert_eq!(row.why.as_deref(), Some("its part of the webhook could not be cut out for provider whatsapp"));
    }
    assert_eq!(bot.calls().len(), 0);
}

/// More people than the embedded store keeps in memory, all of them within seconds.
async fn sixty_thousand_senders_hold_nobody_up(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    for number in 0..60 {
        let senders = (0..1_000).map(|sender| number * 1_000 + sender);
        let messages: Vec<_> = senders.map(|sender| message(&format!("wamid.{sender}"), &format!("5511{sender}"))).collect();
        rig.accepted("shop", webhook(&[change(&messages, &[])])).await;
    }
    for sender in ["55110", "551159999", "551160000"] {
        rig.accepted("shop", text(&format!("wamid.late.{sender}"), sender)).await;
    }
    rig.stop().await;
}
