//! `coalesce`: turns, as they stand in the file.

use super::*;
use hapax_gateway::settings::TurnFormat;

const WHATSAPP: &str = "[channel.c]\nprovider = 'whatsapp'\nsecret = 'a-secret-of-24-characters'\ntarget = 'https://b'\n";

#[test]
fn turns_are_read_with_their_defaults() {
    let read =
        |rest: &str| load_with(&format!("{WHATSAPP}{rest}"), &[], Flags::default()).expect("a good config").channels[0].turns;
    assert_eq!(read(""), None);
    let turns = read("coalesce = '3s'").expect("turns");
    assert_eq!((turns.coalesce.quiet_ms, turns.coalesce.max_ms, turns.format), (3_000, 30_000, TurnFormat::Batch));
    let turns = read("coalesce = '2s'\ncoalesce_max = '10s'\ncoalesce_format = 'array'").expect("turns");
    assert_eq!((turns.coalesce.max_ms, turns.format), (10_000, TurnFormat::Array));
}

#[test]
fn what_is_wrong_with_turns_is_told_with_its_line() {
    let telegram = "[channel.c]\nprovider = 'telegram'\nsecret = 'a-secret-of-24-characters'\ntarget = 'https://b'\n";
    for (head, rest, said) in [
        (telegram, "coalesce = '3s'", "hapax.toml:5: channel.c.coalesce: webhooks of \"telegram\" hold one event each"),
        (WHATSAPP, "coalesce_max = '3s'", "hapax.toml:5: channel.c.coalesce_max: there is no `coalesce`"),
        (WHATSAPP, "coalesce = '9s'\ncoalesce_max = '3s'", "hapax.toml:6: channel.c.coalesce_max: 3s is shorter"),
        (WHATSAPP, "coalesce = '9s'\nmode = 'proxy'", "hapax.toml:5: channel.c.coalesce: mode \"proxy\""),
        (WHATSAPP, "coalesce = '9s'\ncoalesce_format = 'list'", "hapax.toml:6: channel.c.coalesce_format: `list`"),
        (WHATSAPP, "coalesce = '0s'", "hapax.toml:5: channel.c.coalesce: 0s is out of range"),
    ] {
        let mistakes = load_with(&format!("{head}{rest}"), &[], Flags::default()).expect_err("a mistake").to_string();
        assert!(mistakes.contains(said), "{mistakes}");
    }
    let polled = "[channel.c]\nprovider = 'telegram'\nsecret = 'a-secret-of-24-characters'\ntoken = '123456:a-hidden-token-of-a-bot-of-35-chars'\ndropin = true\n";
    let turns = "coalesce = '3s'\ncoalesce_format = 'array'\n";
    let mistakes = load_with(&format!("{polled}{turns}"), &[], Flags::default()).expect_err("a mistake").to_string();
    assert!(mistakes.contains("hapax.toml:6: channel.c.coalesce: the bot asks for its updates"), "{mistakes}");
    let posted_to = format!("{polled}{turns}target = 'https://b'");
    assert!(load_with(&posted_to, &[], Flags::default()).is_ok(), "it is for bots that poll only");
    let good = format!("{telegram}coalesce = '3s'\ncoalesce_format = 'array'");
    assert!(load_with(&good, &[], Flags::default()).is_ok());
}
