use super::*;
use hapax_providers::settings::Settings;

const MINUTE_MS: i64 = 60_000;

fn watcher(window_ms: i64) -> Watcher {
    let provider = Settings::Telegram { secrets: vec![], bot: "bot".to_owned() };
    let plan = Plan { provider, checks: false, window_ms, to: String::new(), send_to: None };
    Watcher::new(&plan)
}

fn came(watcher: &mut Watcher, number: u64, update: u64, chat: i64, at_ms: i64) {
    let body = format!(r#"{{"update_id":{update},"message":{{"message_id":1,"date":1,"chat":{{"id":{chat}}},"text":"hi"}}}}"#);
    let request = RawRequest { method: Method::POST, query: String::new(), headers: HeaderMap::new(), body: Bytes::from(body) };
    watcher.see(Seen::Came(Came { number, at_ms, request }));
}

fn ended(watcher: &mut Watcher, number: u64, status: u16) {
    watcher.see(Seen::Ended { number, status: Some(status), gave_up: false });
}

fn says(watcher: &mut Watcher, chat: i64, text: &str, at_ms: i64) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, "application/json".parse().expect("a type"));
    let body = Bytes::from(format!(r#"{{"chat_id":{chat},"text":"{text}"}}"#));
    let path = "/bot1:abc/sendMessage".to_owned();
    watcher.see(Seen::Asked(Asked { at_ms, method: Method::POST, path, query: String::new(), headers, body }));
}

#[test]
fn copies_are_told_apart_by_what_the_bot_had_done_with_the_first() {
    let mut watcher = watcher(60 * MINUTE_MS);
    came(&mut watcher, 1, 100, 77, 0);
    came(&mut watcher, 2, 100, 77, 10);
    ended(&mut watcher, 1, 200);
    came(&mut watcher, 3, 100, 77, 20);
    ended(&mut watcher, 2, 500);
    ended(&mut watcher, 3, 200);
    came(&mut watcher, 4, 100, 77, 30);
    came(&mut watcher, 5, 200, 77, 40);
    ended(&mut watcher, 5, 500);
    came(&mut watcher, 6, 200, 77, 50);
    came(&mut watcher, 7, 300, 77, 60);
    watcher.see(Seen::Ended { number: 7, status: None, gave_up: true });
    came(&mut watcher, 8, 300, 77, 70);
    let copies = Copies { all: 5, at_work: 2, taken: 1, failed: 1, gave_up: 1 };
    assert_eq!((watcher.counts.events, &watcher.counts.copies, watcher.counts.webhooks), (8, &copies, 8));
}

#[test]
fn after_the_window_it_is_new_and_an_early_answer_counts() {
    let mut watcher = watcher(MINUTE_MS);
    ended(&mut watcher, 1, 200);
    came(&mut watcher, 1, 100, 77, 0);
    came(&mut watcher, 2, 100, 77, 10);
    assert_eq!(watcher.counts.copies, Copies { all: 1, taken: 1, ..Copies::default() }, "it was answered before all of it came");
    came(&mut watcher, 3, 100, 77, MINUTE_MS + 11);
    assert_eq!(watcher.counts.copies.all, 1);
}

#[test]
fn an_equal_send_to_the_same_person_after_a_copy_is_one_too_many() {
    let mut watcher = watcher(60 * MINUTE_MS);
    came(&mut watcher, 1, 100, 77, 0);
    says(&mut watcher, 77, "hello", 100);
    says(&mut watcher, 77, "hello", 200);
    assert_eq!((watcher.counts.repeated_sends, watcher.counts.double_sends), (1, 0), "nothing came twice");
    // The provider loses its patience while the first run is at work.
    came(&mut watcher, 2, 100, 77, 300);
    says(&mut watcher, 77, "done", 400);
    says(&mut watcher, 77, "hello", 500);
    says(&mut watcher, 77, "done", 600);
    says(&mut watcher, 78, "done", 700);
    says(&mut watcher, 77, "something else", 800);
    assert_eq!((watcher.counts.sends, watcher.counts.double_sends, watcher.counts.repeated_sends), (7, 2, 1));
    says(&mut watcher, 77, "done", 900);
    assert_eq!((watcher.counts.double_sends, watcher.counts.repeated_sends), (2, 2), "a copy explains one more of each");
    says(&mut watcher, 77, "done", 30 * MINUTE_MS);
    assert_eq!((watcher.counts.double_sends, watcher.counts.repeated_sends), (2, 2), "that long after, it is meant");
}

#[test]
fn what_is_no_webhook_of_the_provider_is_counted_and_harms_nothing() {
    let mut watcher = watcher(MINUTE_MS);
    for (number, body) in ["", "no json", "[1]", "\u{0}"].into_iter().enumerate() {
        let request =
            RawRequest { method: Method::POST, query: String::new(), headers: HeaderMap::new(), body: Bytes::from(body) };
        watcher.see(Seen::Came(Came { number: number as u64, at_ms: 0, request }));
    }
    assert_eq!((watcher.counts.webhooks, watcher.counts.unreadable), (4, 4));
}

#[test]
fn the_oldest_make_room() {
    let mut map = Bounded::new(2);
    for key in [1, 2, 1, 3] {
        map.entry(key, || key);
    }
    assert!(map.get(&1).is_none() && map.get(&2).is_some() && map.get(&3).is_some());
}
