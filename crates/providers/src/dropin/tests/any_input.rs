use proptest::prelude::*;

use super::*;

const PROVIDERS: [&str; 5] = ["telegram", "whatsapp", "gowa", "evolution", "waha"];
const PATHS: [(&str, &str); 10] = [
    ("telegram", "/bot9:x/sendMessage"),
    ("telegram", "/bot9:x/sendMediaGroup"),
    ("telegram", "/bot9:x/postStory"),
    ("whatsapp", "/v21.0/700001/messages"),
    ("gowa", "/send/message"),
    ("gowa", "/message/1/forward"),
    ("evolution", "/message/sendText/shop"),
    ("evolution", "/message/sendStatus/shop"),
    ("waha", "/api/sendText"),
    ("waha", "/api/shop/status/text"),
];
const SORTS: [&str; 5] = [
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
    "multipart/form-data",
    "text/plain",
];

proptest! {
    #[test]
    fn no_request_makes_it_panic(path in "/?(bot|file/bot|v2.0/|message/|api/)?[a-z0-9:%./]{0,20}/?.{0,20}", query in ".{0,40}") {
        for provider in PROVIDERS {
            let (dropin, _) = channel(provider);
            for method in [Method::POST, Method::GET] {
                let head = Head { method: &method, path: &path, query: Some(&query), headers: &HeaderMap::new() };
                let forward = dropin.forward(&head);
                let leads_on = dropin.route(&head).is_some_and(|routed| !matches!(routed.what, What::Refused { .. }) || routed.token.is_some());
                prop_assert_eq!(leads_on, forward.is_ok(), "{} {}", provider, path);
            }
        }
    }

    #[test]
    fn no_body_makes_it_panic(
        (provider, path) in prop::sample::select(PATHS.to_vec()),
        sort in prop::sample::select(SORTS.to_vec()),
        query in "(chat_id=7&|to=7&)?.{0,20}",
        body in prop::collection::vec(any::<u8>(), 0..100),
        text in r#"(\{"(chat_id|to|phone|number|chatId)":[0-9"-]{0,8},?)?[ -~]{0,40}\}?"#,
    ) {
        let (dropin, settings) = channel(provider);
        for body in [&body[..], text.as_bytes()] {
            let mut routed = route(&*dropin, path).expect("a path");
            dropin.peer_of(&routed, Some(&query), Some(sort), body);
            if routed.what == What::ByBody {
                routed.what = dropin.by_body(&routed, Some(&query), Some(sort), body);
            }
            let read = dropin.effect(&routed, Some(&query), &Whole { content_type: Some(sort), body, name: "n" });
            match read {
                Ok(effect) => drop(call_of(&settings, &effect)),
                Err(reply) => prop_assert!(!reply.status.is_success() && json_of(&reply).is_object()),
            }
        }
    }

    #[test]
    fn no_payload_makes_a_stand_in_panic(payload in any::<Vec<u8>>(), provider_id in ".{0,12}", at_ms in any::<i64>()) {
        for provider in PROVIDERS {
            let settled = Settled { peer: "77", payload: &payload, provider_id: &provider_id, at_ms };
            prop_assert!(json_of(&channel(provider).0.stand_in(&settled)).is_object());
        }
    }
}
