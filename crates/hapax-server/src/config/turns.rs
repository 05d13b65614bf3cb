//! `coalesce`: whether the messages of a thread are gathered into turns, and how a turn looks.

use hapax_domain::Coalesce;
use hapax_domain::limits::TURN_MEMBERS_MAX;
use hapax_domain::units::write_ms;
use hapax_gateway::settings::{Mode, TurnFormat, Turns};

use super::mistake::Mistakes;
use super::section::Section;

/// Those whose webhooks hold any number of events.
const WITH_BATCHES: [&str; 3] = ["whatsapp", "messenger", "instagram"];
/// Those whose webhooks are no JSON.
const WITH_FORMS: [&str; 1] = ["twilio"];

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const MAX_DEFAULT: i64 = 30 * SECOND;

/// `polled`: its bot asks for updates, as Telegram's own API gives them.
pub(super) fn read(section: &Section<'_>, provider: &str, mode: Mode, polled: bool, mistakes: &mut Mistakes) -> Option<Turns> {
    let max = section.get("coalesce_max");
    let format = section.get("coalesce_format");
    let given = format.as_ref().and_then(|found| found.choice(&[("array", TurnFormat::Array)], &[], mistakes));
    let Some(found) = section.get("coalesce") else {
        for lonely in [max, format].into_iter().flatten() {
            lonely.refuse(
                mistakes,
                "there is no `coalesce`, the quiet time after which a turn is delivered; add it, or take this out",
            );
        }
        return None;
    };
    let quiet_ms = found.ms(100..=5 * MINUTE, mistakes)?;
    let max_ms = max.as_ref().and_then(|max| max.ms(SECOND..=10 * MINUTE, mistakes)).unwrap_or(MAX_DEFAULT.max(quiet_ms));
    if let Some(max) = max.filter(|_| max_ms < quiet_ms) {
        max.refuse(mistakes, format!("{} is shorter than the quiet time {}; raise it", write_ms(max_ms), write_ms(quiet_ms)));
    }
    if mode == Mode::Proxy {
        found.refuse(
            mistakes,
            "mode \"proxy\" answers each webhook with what the target says to it, and a turn has several; write \"queue\"",
        );
    }
    if polled {
        found.refuse(
            mistakes,
            "the bot asks for its updates with `getUpdates`, which gives them one by one and not in turns; add a `target`, or take it out",
        );
        return None;
    }
    if WITH_FORMS.contains(&provider) {
        found.refuse(
            mistakes,
            format!("webhooks of \"{provider}\" are forms, and several of them do not fit in one; take it out"),
        );
    } else if given.is_none() && format.is_none() && !WITH_BATCHES.contains(&provider) {
        let what = format!(
            "webhooks of \"{provider}\" hold one event each; add coalesce_format = \"array\" if your bot reads a list of them, or take `coalesce` out"
        );
        found.refuse(mistakes, what);
    }
    Some(Turns { coalesce: Coalesce { quiet_ms, max_ms, members: TURN_MEMBERS_MAX }, format: given.unwrap_or(TurnFormat::Batch) })
}
