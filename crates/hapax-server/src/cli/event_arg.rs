//! How an event is named on the command line.

use hapax_domain::EventId;

/// Said in the help of every command that takes one.
pub(super) const HOW: &str = "\
An ID is what lists show: the short form (evt_1mgk0ca1a), the whole of it
(--wide, --json), any beginning of either that only one of the newest 10,000
events has, or `latest`.";

/// Checks the spelling; which event a beginning or `latest` means, the server knows.
pub(super) fn read(text: &str) -> Result<String, String> {
    let prefixed = match text.starts_with(EventId::PREFIX) || text == "latest" {
        true => text.to_owned(),
        false => format!("{}{text}", EventId::PREFIX),
    };
    let digits = prefixed.strip_prefix(EventId::PREFIX).unwrap_or_default();
    match prefixed.parse::<EventId>() {
        _ if text == "latest" || EventId::may_begin_with(digits) => Ok(prefixed),
        Ok(id) => Ok(id.to_string()),
        Err(_) => Err("expected an id as `hapax events` shows it, its beginning, or `latest`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_named_by_its_id_a_beginning_or_as_the_latest() {
        let whole = "evt_0199c81b24007000800000000000002a";
        assert_eq!(read(whole).as_deref(), Ok(whole));
        let short = whole.parse::<EventId>().expect("an id").short();
        assert_eq!(read(&short).as_deref(), Ok(&*short), "the server knows whether it is whole");
        assert_eq!(read(short.trim_start_matches("evt_")).as_deref(), Ok(&*short), "without its prefix");
        assert_eq!(read("1meey").as_deref(), Ok("evt_1meey"));
        assert_eq!(read("evt_0199").as_deref(), Ok("evt_0199"));
        assert_eq!(read("0199c81b").as_deref(), Ok("evt_0199c81b"));
        assert_eq!(read("latest").as_deref(), Ok("latest"));
        for wrong in ["", "nil", "evt_", "msg_0199c81b24007000800000000000002a", "a/b", "0199?x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
