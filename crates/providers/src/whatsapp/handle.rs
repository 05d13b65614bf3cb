//! Our handle in Meta's `biz_opaque_callback_data`: on its way out in front of the caller's own value, on its way in taken out again.

use hapax_domain::MessageId;
use serde_json::value::RawValue;

use crate::json::{items, member, members, text, with_member_replaced, write_array, write_object};

/// Echoed by Meta on every status of the message it was sent with.
pub(crate) const MEMBER: &str = "biz_opaque_callback_data";
const MAX_CHARS: usize = 512;
const ID_CHARS: usize = MessageId::PREFIX.len() + 32;
/// What our id and the bar take of such a member.
pub(crate) const ROOM_CHARS: usize = ID_CHARS + 1;
/// What is left for the caller.
pub(crate) const OWN_MAX_CHARS: usize = MAX_CHARS - ROOM_CHARS;

pub(crate) fn write(id: MessageId, own: Option<&str>) -> String {
    match own {
        Some(own) => format!("{id}|{own}"),
        None => id.to_string(),
    }
}

/// Splits a value that begins with our handle into it and the caller's own.
pub(crate) fn read(value: &str) -> Option<(MessageId, Option<&str>)> {
    let (id, own) = match value.split_once('|') {
        Some((id, own)) => (id, Some(own)),
        None => (value, None),
    };
    Some((id.parse().ok()?, own))
}

/// The body with every handle of ours taken out of its statuses; `None` when there is none.
pub(super) fn restore(body: &str) -> Option<Vec<u8>> {
    if !may_be_in(body) {
        return None;
    }
    each(body, "entry", |entry| {
        each(entry, "changes", |change| {
            let value = each(member(change, "value")?.get(), "statuses", |status| without(status, MEMBER))?;
            with_member_replaced(change, "value", &value)
        })
    })
}

/// A quick look, for most bodies.
pub(crate) fn may_be_in(body: &str) -> bool {
    body.contains(MessageId::PREFIX)
}

/// The object with every item of its list changed that `change` has something else for; `None` when it has for none.
pub(crate) fn each(object: &str, list: &str, change: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let items: Vec<&RawValue> = items(member(object, list)?.get())?;
    let changed: Vec<Option<Vec<u8>>> = items.iter().map(|item| change(item.get())).collect();
    if changed.iter().all(Option::is_none) {
        return None;
    }
    let whole = items.iter().zip(&changed).map(|(item, changed)| changed.as_deref().unwrap_or(item.get().as_bytes()));
    let mut out = Vec::with_capacity(object.len());
    write_array(&mut out, whole);
    with_member_replaced(object, list, &out)
}

/// The object with our handle taken out of a member, and the member itself where nothing else was in it.
pub(crate) fn without(object: &str, name_of_member: &str) -> Option<Vec<u8>> {
    let value = text(member(object, name_of_member))?;
    let (_, own) = read(&value)?;
    match own {
        Some(own) => with_member_replaced(object, name_of_member, serde_json::Value::from(own).to_string().as_bytes()),
        None => {
            let members = members(object)?;
            let others = members.iter().filter(|(name, _)| name != name_of_member);
            let mut out = Vec::with_capacity(object.len());
            write_object(&mut out, others.map(|(name, raw)| (name.as_ref(), raw.get().as_bytes().into())));
            Some(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "msg_0190000000007000800000000000002a";

    fn webhook(statuses: &str) -> String {
        format!(
            r#"{{"object":"o","entry":[{{"id":"1","changes":[{{"field":"messages","value":{{"statuses":{statuses},"n":1.50}}}}]}}]}}"#
        )
    }

    #[test]
    fn the_bot_gets_its_own_value_back_and_nothing_of_ours() {
        let ours = format!(
            r#"[{{"id":"a","biz_opaque_callback_data":"{ID}"}},{{"id":"b","biz_opaque_callback_data":"{ID}|or\"der|7"}},
               {{"id":"c","biz_opaque_callback_data":"{ID}|"}},{{"id":"d","biz_opaque_callback_data":"msg_mine"}},{{"id":"e"}}]"#
        );
        let restored = restore(&webhook(&ours)).expect("something of ours");
        let expected = webhook(
            r#"[{"id":"a"},{"id":"b","biz_opaque_callback_data":"or\"der|7"},{"id":"c","biz_opaque_callback_data":""},{"id":"d","biz_opaque_callback_data":"msg_mine"},{"id":"e"}]"#,
        );
        assert_eq!(String::from_utf8(restored).expect("text"), expected);
    }

    #[test]
    fn a_body_without_our_handle_stays_as_it_is() {
        for body in [webhook(r#"[{"id":"a","biz_opaque_callback_data":"msg_x"}]"#), webhook("[]"), ID.to_owned(), "{}".to_owned()]
        {
            assert_eq!(restore(&body), None, "{body}");
        }
    }

    #[test]
    fn a_status_names_our_message_by_its_handle() {
        use crate::{Provider, RawRequest};
        let provider = crate::whatsapp::Whatsapp::new(&[secrecy::SecretString::from("a-long-secret")], None);
        let handle_in = |value: &str| {
            let status =
                format!(r#"[{{"id":"wamid.A","status":"sent","recipient_id":"55","biz_opaque_callback_data":{value}}}]"#);
            let body = webhook(&status).replace(r#""n":1.50"#, r#""metadata":{"phone_number_id":"106"}"#);
            let unsigned = crate::Unsigned { url: None, headers: &http::HeaderMap::new(), body: body.as_bytes() };
            let headers = provider.sign(unsigned, 0).into_iter().collect();
            let request = RawRequest { method: http::Method::POST, query: String::new(), headers, body: body.into() };
            let mut parsed = provider.parse(&provider.verify(&request, 0).expect("signed"));
            assert_eq!((parsed.events.len(), parsed.problems.len()), (1, 0));
            parsed.events.remove(0).handle
        };
        let ours = ID.parse().ok();
        assert_eq!(handle_in(&format!("\"{ID}\"")), ours);
        assert_eq!(handle_in(&format!("\"{ID}|order 7\"")), ours);
        for none in ["\"order 7\"".to_owned(), "7".to_owned(), "null".to_owned(), "\"\\ud83d\"".to_owned(), format!("\"{ID}0\"")]
        {
            assert_eq!(handle_in(&none), None, "{none}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let id: MessageId = ID.parse().expect("an id");
        for own in [None, Some(""), Some("a|b")] {
            assert_eq!(read(&write(id, own)), Some((id, own)));
        }
        assert_eq!(read("msg_12|x"), None);
        assert_eq!(write(id, Some(&"x".repeat(OWN_MAX_CHARS))).chars().count(), MAX_CHARS);
    }
}
