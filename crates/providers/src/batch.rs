//! Meta's envelope around the events of several webhooks.

use super::json::{items, member, with_member_replaced, write_array};

/// The first envelope with the entries of all, in their order. `None` when one of them is no envelope.
pub(super) fn merge_entries(bodies: &[&[u8]]) -> Option<Vec<u8>> {
    let mut entries = Vec::new();
    for body in bodies {
        let body = std::str::from_utf8(body).ok()?;
        entries.extend(items(member(body, "entry")?.get())?.into_iter().map(|entry| entry.get().as_bytes()));
    }
    let mut list = Vec::new();
    write_array(&mut list, entries.into_iter());
    with_member_replaced(std::str::from_utf8(bodies.first()?).ok()?, "entry", &list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_stand_in_one_envelope_in_their_order() {
        let bodies: [&[u8]; 3] =
            [br#"{"object":"page","entry":[{"id":"1"}]}"#, br#"{"object":"page","entry":[]}"#, br#"{"entry":[{"id":"2"},3]}"#];
        let merged = merge_entries(&bodies).expect("merged");
        assert_eq!(std::str::from_utf8(&merged), Ok(r#"{"object":"page","entry":[{"id":"1"},{"id":"2"},3]}"#));
        for odd in [&b"[]"[..], b"{}", b"{\"entry\":7}", b"\xff"] {
            assert_eq!(merge_entries(&[bodies[0], odd]), None);
        }
        assert_eq!(merge_entries(&[]), None);
    }
}
