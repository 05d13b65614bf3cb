//! What hapax looks at in Meta's JSON. Everything else passes through untouched.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::lenient::{Integer, List, Object, Text};
use crate::tape::Part;

#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(super) entry: List<Object<Entry<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Entry<'a> {
    /// The WhatsApp business account.
    pub(super) id: Text<'a>,
    /// When Meta made the notification; the only thing that tells two equal changes apart.
    pub(super) time: Option<Part<'a>>,
    pub(super) changes: List<Object<Change<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Change<'a> {
    field: Text<'a>,
    value: Object<Value<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Value<'a> {
    pub(super) metadata: Object<Metadata<'a>>,
    pub(super) contacts: List<Object<Contact<'a>>>,
    messages: List<Part<'a>>,
    message_echoes: List<Part<'a>>,
    statuses: List<Part<'a>>,
    errors: List<Part<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Metadata<'a> {
    #[serde(borrow, default)]
    pub(super) phone_number_id: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Contact<'a> {
    pub(super) wa_id: Text<'a>,
    pub(super) user_id: Text<'a>,
}

/// The lists of a value, in the order in which their elements are numbered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListName {
    Messages,
    Echoes,
    Statuses,
    Errors,
}

impl ListName {
    pub(super) fn member(self) -> &'static str {
        match self {
            ListName::Messages => "messages",
            ListName::Echoes => "message_echoes",
            ListName::Statuses => "statuses",
            ListName::Errors => "errors",
        }
    }
}

/// What a change turns out to be. Parsing and re-wrapping both number by it, so they cannot disagree.
pub(super) enum Shape<'c, 'a> {
    /// One event per element of its lists; a list that is no array counts as one.
    Lists(&'c Value<'a>),
    /// One event, known by its content.
    Whole,
    /// One problem.
    Odd(&'static str),
    /// Nothing at all.
    Empty,
}

impl<'a> Change<'a> {
    pub(super) fn shape(&self) -> Shape<'_, 'a> {
        let Some(field) = self.field.name() else {
            return Shape::Odd("a change without a field name");
        };
        if !matches!(field, "messages" | "smb_message_echoes") {
            return Shape::Whole;
        }
        let Some(value) = &self.value.0 else {
            return Shape::Odd("a change whose value is no object");
        };
        match (value.count(), value.lists().iter().any(|(_, list)| !matches!(list, List::Absent))) {
            (0, true) => Shape::Empty,
            (0, false) => Shape::Whole,
            _ => Shape::Lists(value),
        }
    }
}

impl<'a> Value<'a> {
    pub(super) fn lists(&self) -> [(ListName, &List<Part<'a>>); 4] {
        [
            (ListName::Messages, &self.messages),
            (ListName::Echoes, &self.message_echoes),
            (ListName::Statuses, &self.statuses),
            (ListName::Errors, &self.errors),
        ]
    }

    pub(super) fn count(&self) -> usize {
        self.lists().iter().map(|(_, list)| places_of(list)).sum()
    }
}

/// How many indexes a list takes up.
pub(super) fn places_of<T>(list: &List<T>) -> usize {
    match list {
        List::Absent => 0,
        List::Items(items) => items.len(),
        List::Odd => 1,
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Message<'a> {
    pub(super) id: Text<'a>,
    pub(super) from: Text<'a>,
    pub(super) from_user_id: Text<'a>,
    /// Whom an echo went to.
    pub(super) to: Text<'a>,
    pub(super) timestamp: Text<'a>,
    #[serde(rename = "type")]
    pub(super) kind: Text<'a>,
    pub(super) text: Object<Wording<'a>>,
    pub(super) image: Object<Wording<'a>>,
    pub(super) video: Object<Wording<'a>>,
    pub(super) document: Object<Wording<'a>>,
    pub(super) button: Object<Wording<'a>>,
    pub(super) interactive: Object<Interactive<'a>>,
    pub(super) reaction: Object<Wording<'a>>,
    pub(super) errors: List<Object<ErrorCode>>,
}

/// The member that holds what a person reads: the first of [`Wording::NAMES`] that is there. Kept raw, because half an emoji must
/// not cost the message.
pub(super) struct Wording<'a>(pub(super) Option<Part<'a>>);

impl Wording<'_> {
    const NAMES: [&'static str; 5] = ["body", "caption", "text", "title", "emoji"];
}

impl<'de: 'a, 'a> Deserialize<'de> for Wording<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Wording<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Wording<'de>, A::Error> {
                let mut best: Option<(usize, Part<'de>)> = None;
                while let Some(name) = members.next_key::<Text<'de>>()? {
                    let rank = Wording::NAMES.iter().position(|known| name.get() == Some(known));
                    match rank {
                        Some(rank) if best.is_none_or(|(so_far, _)| rank < so_far) => best = Some((rank, members.next_value()?)),
                        _ => drop(members.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Wording(best.map(|(_, raw)| raw)))
            }
        }
        reader.deserialize_map(Read)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Interactive<'a> {
    pub(super) button_reply: Object<Wording<'a>>,
    pub(super) list_reply: Object<Wording<'a>>,
}

#[derive(Deserialize)]
pub(super) struct ErrorCode {
    #[serde(default)]
    pub(super) code: Integer,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct StatusUpdate<'a> {
    pub(super) id: Text<'a>,
    pub(super) status: Text<'a>,
    pub(super) timestamp: Text<'a>,
    pub(super) recipient_id: Text<'a>,
    pub(super) recipient_user_id: Text<'a>,
    pub(super) recipient_participant_id: Text<'a>,
    /// Kept raw: half an emoji in the caller's part must not cost the status.
    pub(super) biz_opaque_callback_data: Option<Part<'a>>,
}
