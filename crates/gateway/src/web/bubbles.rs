//! What was said in a thread, as bubbles: days, senders, media, ticks, and what is known of a message in trouble.

use maud::{Markup, html};

use super::components::{badge, beginning, confirm, count, short, when};
use super::icons::icon;
use super::visitor::Visitor;
use crate::api::chat::{Chat, Line, Trouble};
use crate::api::{Scope, rfc3339};

const DAY_MS: i64 = 86_400_000;
/// Lines of evidence that a message shows of itself.
const EVIDENCE: usize = 12;
/// More of a text than people write.
const TEXT_SHOWN_BYTES: usize = 24 << 10;

pub(super) fn all(chat: &Chat, visitor: &Visitor) -> Markup {
    let mut day = None;
    html! {
        @if chat.lines.is_empty() { p.quiet.none { "Nothing is left of what was said here." } }
        ol.bubbles {
            @for line in &chat.lines {
                @let on = (line.at_ms + visitor.zone_ms).div_euclid(DAY_MS);
                @if day.replace(on) != Some(on) { li.day { time datetime=(date(on)) { (day_words(on, visitor.now_ms + visitor.zone_ms)) } } }
                (bubble(line, visitor))
            }
        }
        span #end {}
    }
}

fn bubble(line: &Line, visitor: &Visitor) -> Markup {
    let pending = matches!(line.status, Some("queued" | "sending"));
    html! {
        li class={ "bubble " (line.direction) } id=(line.id) data-pending=[pending.then_some("1")] {
            @if let Some(sender) = &line.sender { p.sender { (short(sender)) } }
            @if let Some((shape, words)) = line.media { p.media { (icon(shape)) (words) } }
            @match &line.text {
                Some(text) => {
                    @let (shown, cut) = beginning(text, TEXT_SHOWN_BYTES);
                    p.text dir="auto" { (shown) @if cut { "…" } }
                    @if cut { p.quiet { "It goes on: " code { "hapax messages" } " has all of it." } }
                }
                None if line.media.is_none() => p.media { (icon("question")) "without text" },
                None => {},
            }
            p.foot {
                @if line.id.starts_with("evt_") { a href={ "/events/" (line.id) } { (when(line.at_ms, visitor.now_ms)) } } @else { (when(line.at_ms, visitor.now_ms)) }
                @if line.direction == "out" { (tick(line.status)) }
            }
            @if let Some(trouble) = &line.trouble { (evidence(&line.id, trouble, visitor)) }
        }
    }
}

/// How far a message has come. What was sent past hapax has no status.
fn tick(status: Option<&str>) -> Markup {
    let (shape, tone, words) = match status {
        Some("queued") => ("clock", "wait", "queued"),
        Some("sending") => ("up", "busy", "sending"),
        Some("sent") => ("check", "quiet", "sent"),
        Some("delivered") => ("checks", "quiet", "delivered"),
        Some("read" | "played") => ("checks", "read", "read"),
        Some("failed") => ("cross", "bad", "failed"),
        Some("unknown") => ("question", "doubt", "in doubt"),
        _ => ("dot", "quiet", "sent past hapax"),
    };
    html! { span class={ "tick " (tone) } title=(words) { (icon(shape)) span { (words) } } }
}

fn evidence(id: &str, trouble: &Trouble, visitor: &Visitor) -> Markup {
    let may = visitor.caller.may(Scope::Send);
    let in_doubt = trouble.status == "unknown";
    html! {
        details.evidence {
            summary { (badge(trouble.status)) span { @if in_doubt { "Nobody knows whether it went out" } @else { (trouble.why.as_deref().unwrap_or("why")) } } }
            @if in_doubt {
                p { "The answer to the send got lost, so hapax does not send it again by itself: people could get it twice. "
                    @if trouble.can_cancel { "It looks for the provider's own word. " } @else { "Somebody has given it up, so hapax looks no further. " }
                    "What is known:" }
            }
            @if let Some(why) = trouble.why.as_ref().filter(|_| in_doubt) { p { strong { (why) } } }
            ol.steps {
                @let skipped = trouble.steps.len().saturating_sub(EVIDENCE);
                @if skipped > 0 { li.quiet { (count(skipped as u64, "step", "steps")) " before" } }
                @for (at_ms, words) in trouble.steps.iter().skip(skipped) { li { (when(*at_ms, visitor.now_ms)) " " (short(words)) } }
            }
            @if may {
                div.actions {
                    @if trouble.can_retry {
                        (confirm(&format!("/messages/{id}/retry"), "Send once more", "repeat",
                            if in_doubt { "If the first try did go out, the person gets it twice. Send it once more?" } else { "It is put in line once more, with its failures forgotten." }, &[]))
                    }
                    @if trouble.can_cancel {
                        (confirm(&format!("/messages/{id}/cancel"), "Give it up", "cross",
                            if in_doubt { "It leaves the outbox and stays in doubt: hapax looks no further for the provider's word." }
                            else { "It leaves the outbox and counts as failed." }, &[]))
                    }
                }
            }
        }
    }
}

fn date(day: i64) -> String {
    rfc3339(day * DAY_MS).chars().take(10).collect()
}

fn day_words(day: i64, now_ms: i64) -> String {
    match now_ms.div_euclid(DAY_MS) - day {
        0 => "Today".to_owned(),
        1 => "Yesterday".to_owned(),
        _ => date(day),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_named_as_people_do() {
        let now_ms: i64 = 1_700_000_000_000;
        let today = now_ms.div_euclid(DAY_MS);
        assert_eq!(day_words(today, now_ms), "Today");
        assert_eq!(day_words(today - 1, now_ms), "Yesterday");
        assert_eq!(day_words(today - 2, now_ms), "2023-11-12");
    }

    #[test]
    fn each_status_has_a_word_and_a_shape_of_its_own() {
        let all = ["queued", "sending", "sent", "delivered", "failed", "unknown"].map(|status| tick(Some(status)).into_string());
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
