//! What the gateways to WhatsApp Web (GOWA, WAHA, Evolution) have in common when they tell of messages.
//!
//! WhatsApp names people and chats by phone number, by LID, by group. One person comes under several names.

use std::borrow::Cow;

use hapax_domain::{EventKey, Kind};

use super::reading::peer_of;

pub(super) fn is_phone(jid: &str) -> bool {
    jid.ends_with("@s.whatsapp.net") || jid.ends_with("@c.us")
}

pub(super) fn is_lid(jid: &str) -> bool {
    jid.ends_with("@lid")
}

/// `5511:3@s.whatsapp.net` is the third device of `5511@s.whatsapp.net`, and the same person.
pub(super) fn without_device(jid: &str) -> Cow<'_, str> {
    let bare = jid.split_once('@').filter(|_| is_phone(jid) || is_lid(jid)).and_then(|(user, server)| {
        let (user, device) = user.split_once(':')?;
        device.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("{user}@{server}"))
    });
    bare.map_or(Cow::Borrowed(jid), Cow::Owned)
}

/// Tells apart what we wrote and what was written to us: a contact may have given it the same id.
pub(super) fn whose(from_me: bool) -> &'static str {
    if from_me { "from_me" } else { "from_them" }
}

/// A message, or something that is done to one: `tag` says what.
#[derive(Clone, Copy)]
pub(super) struct Named<'m> {
    pub(super) provider: &'m str,
    pub(super) account: &'m str,
    pub(super) kind: Kind,
    pub(super) id: &'m str,
    pub(super) from_me: bool,
    pub(super) tag: Option<&'m str>,
}

impl Named<'_> {
    pub(super) fn key(&self, sender: &str) -> EventKey {
        let parts = [sender, whose(self.from_me), self.tag.unwrap_or_default()];
        let parts = if self.tag.is_some() { &parts[..] } else { &parts[..2] };
        EventKey::new(self.provider, self.account, self.kind, self.id, parts)
    }

    /// The same for a webhook that names who wrote by phone number and LID, and for another that knows the LID alone.
    pub(super) fn guard(&self, lid: Option<&str>) -> Option<EventKey> {
        lid.map(|lid| self.key(lid).with(b"lid"))
    }
}

/// Who is in a message, by the best name known: a phone number before a LID.
pub(super) struct People {
    /// The chat's names, best first.
    chat: Vec<String>,
    sender: String,
    lid: Option<String>,
}

impl People {
    /// Takes every name that a webhook has for the chat and for whoever wrote, the chat's main name first.
    pub(super) fn new(chat: &[Option<&str>], sender: &[Option<&str>], from_me: bool) -> Self {
        let chat = bare(chat);
        // What we wrote says nothing about the person at the other end.
        let mut sender = if from_me { Vec::new() } else { bare(sender) };
        let chat = match chat.first() {
            Some(main) if is_person(main) => {
                sender.extend(chat.into_iter().filter(|name| is_person(name)));
                if from_me { best_first(std::mem::take(&mut sender)) } else { best_first(sender.clone()) }
            }
            Some(group) => vec![group.clone()],
            None => best_first(sender.clone()),
        };
        let lid = sender.iter().find(|name| is_lid(name)).cloned();
        let sender = best_first(sender).into_iter().next().unwrap_or_default();
        Self { chat, sender, lid }
    }

    /// Part of the key, because the sender's phone chooses message ids: a hostile contact can reuse another's. Empty for ourselves, and when
    /// nobody says who it was.
    pub(super) fn sender(&self) -> &str {
        &self.sender
    }

    /// The name of whoever wrote that webhooks may know alone.
    pub(super) fn lid(&self) -> Option<&str> {
        self.lid.as_deref()
    }

    /// The chat is the peer; in a chat with one person, that person's other names are its aliases.
    pub(super) fn peer(&self) -> Result<(Option<String>, Vec<String>), String> {
        let names: Vec<Option<&str>> = self.chat.iter().map(|name| Some(name.as_str())).collect();
        peer_of(&names)
    }
}

fn is_person(jid: &str) -> bool {
    is_phone(jid) || is_lid(jid)
}

fn bare(names: &[Option<&str>]) -> Vec<String> {
    names.iter().flatten().filter(|name| !name.is_empty()).map(|name| without_device(name).into_owned()).collect()
}

/// Phone numbers first. The sort is stable: otherwise the order stays.
fn best_first(mut names: Vec<String>) -> Vec<String> {
    names.sort_by_key(|name| !is_phone(name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHONE: &str = "551188887777@s.whatsapp.net";

    fn read(chat: &[Option<&str>], sender: &[Option<&str>], from_me: bool) -> (String, Option<String>, Vec<String>) {
        let people = People::new(chat, sender, from_me);
        let (peer, aliases) = people.peer().expect("short names");
        (people.sender().to_owned(), peer, aliases)
    }

    #[test]
    fn a_phone_and_a_lid_of_one_chat_are_one_person() {
        let expected = (PHONE.to_owned(), Some(PHONE.to_owned()), vec!["99@lid".to_owned()]);
        assert_eq!(read(&[Some(PHONE), Some("99@lid")], &[], false), expected);
        assert_eq!(read(&[Some("99@lid"), Some(PHONE)], &[], false), expected);
        assert_eq!(read(&[Some("99@lid")], &[Some("551188887777:3@s.whatsapp.net")], false), expected);
    }

    #[test]
    fn a_group_is_the_peer_and_its_participant_the_sender() {
        let group = Some("12@g.us");
        assert_eq!(read(&[group], &[Some("99@lid"), Some(PHONE)], false), (PHONE.to_owned(), Some("12@g.us".to_owned()), vec![]));
        assert_eq!(read(&[group], &[None, Some("")], false), (String::new(), Some("12@g.us".to_owned()), vec![]));
    }

    #[test]
    fn what_we_wrote_has_no_sender_and_names_the_other_end() {
        let expected = (String::new(), Some(PHONE.to_owned()), vec!["99@lid".to_owned()]);
        assert_eq!(read(&[Some("99@lid"), Some(PHONE)], &[Some("me@s.whatsapp.net")], true), expected);
        assert_eq!(read(&[None], &[Some("me@s.whatsapp.net")], true), (String::new(), None, vec![]));
    }
}
