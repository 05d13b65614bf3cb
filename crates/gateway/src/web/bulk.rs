//! What is done to many rows at once: those that a filter finds, no younger than the page that offered it, and so many at most.

use futures_util::{StreamExt, stream};
use maud::{Markup, html};
use serde::Deserialize;

use super::components::{confirm, count, number};
use super::flash::Flash;
use crate::api::Problem;
use crate::api::list::ASKED_AT_ONCE;

/// As many rows as are looked for, counted and done at once.
pub(super) const MOST: usize = 200;

/// Until when something must have been there to be meant.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Until(i64);

impl Until {
    /// What came after the page was made nobody has seen there.
    pub(super) fn covers(self, at: &str) -> bool {
        at.parse::<jiff::Timestamp>().is_ok_and(|at| at.as_millisecond() <= self.0)
    }
}

/// An offer to do something to all of these.
pub(super) struct Offer<'o> {
    pub(super) action: &'o str,
    pub(super) verb: &'o str,
    pub(super) shape: &'o str,
    pub(super) many: usize,
    /// There are more than are counted.
    pub(super) more: bool,
    /// What it means, after how many they are.
    pub(super) words: &'o str,
}

impl Offer<'_> {
    /// One by itself has its own button.
    pub(super) fn show(&self, hidden: &[(&str, &str)], now_ms: i64) -> Markup {
        let until = now_ms.to_string();
        let hidden: Vec<(&str, &str)> = hidden.iter().copied().chain([("until", until.as_str())]).collect();
        let many = number(self.many as u64);
        let which = if self.more { format!("the first {many}") } else { many };
        let words = format!(
            "{}{}",
            count(self.many as u64, "is meant", "are meant"),
            if self.more { ", and more are left. " } else { ". " }
        );
        html! {
            @if self.many > 1 { (confirm(self.action, &format!("{} {which}", self.verb), self.shape, &(words + self.words), &hidden)) }
        }
    }
}

/// How it went.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    done: u64,
    /// They had changed meanwhile.
    left: u64,
    broke: Option<Problem>,
}

/// Does it to each. What has changed meanwhile is left as it is; when the store fails, the rest is left too.
pub(super) async fn each<T, F>(rows: impl IntoIterator<Item = T>, act: impl Fn(T) -> F) -> Outcome
where
    F: Future<Output = Result<u64, Problem>>,
{
    let acts: Vec<F> = rows.into_iter().map(act).collect();
    let mut done = stream::iter(acts).buffered(ASKED_AT_ONCE);
    let mut outcome = Outcome::default();
    while let Some(one) = done.next().await {
        match one {
            Ok(0) => outcome.left += 1,
            Ok(n) => outcome.done += n,
            Err(problem) if problem.status().is_client_error() => outcome.left += 1,
            Err(problem) => {
                outcome.broke = Some(problem);
                break;
            }
        }
    }
    outcome
}

impl Outcome {
    /// `one` and `many` say what became of them: `message is given up`.
    pub(super) fn told(self, one: &str, many: &str) -> Flash {
        let done = count(self.done, one, many);
        match (self.done, self.left, self.broke) {
            (_, _, Some(problem)) => Flash::failed(format!("{done}; then it broke off: {}", problem.told().1)),
            (0, _, None) => Flash::failed("Nothing of that is there any more."),
            (_, 0, None) => Flash::done(format!("{done}.")),
            (_, left, None) => Flash::done(format!("{done}; {} had changed meanwhile.", number(left))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Code;

    #[tokio::test]
    async fn what_changed_is_left_and_a_broken_store_ends_it() {
        let act = |n: u64| async move {
            match n {
                3 => Err(Problem::not_found("gone")),
                9 => Err(Problem::new(Code::StoreRefused, "no")),
                n => Ok(u64::from(n != 4)),
            }
        };
        let outcome = each([1, 2, 3, 4, 5], act).await;
        assert_eq!((outcome.done, outcome.left), (3, 2));
        assert_eq!(outcome.told("row is done", "rows are done").words, "3 rows are done; 2 had changed meanwhile.");
        let outcome = each([1, 9, 2], act).await;
        assert!(outcome.told("row is done", "rows are done").words.starts_with("1 row is done; then it broke off"));
        assert!(!each(Vec::<u64>::new(), act).await.told("a", "b").good);
    }

    #[test]
    fn only_what_was_there_is_meant() {
        let until = Until(1_700_000_000_000);
        assert!(until.covers("2023-11-14T22:13:20.000Z") && !until.covers("2023-11-14T22:13:20.001Z") && !until.covers("odd"));
    }

    #[test]
    fn an_offer_says_how_many() {
        let offer = Offer { action: "/x", verb: "Give up", shape: "cross", many: 200, more: true, words: "They are gone." };
        let html = offer.show(&[("q", "\"><script>")], 5).into_string();
        assert!(
            html.contains("Give up the first 200") && html.contains("200 are meant, and more are left. They are gone."),
            "{html}"
        );
        assert!(html.contains("name=\"until\" value=\"5\"") && !html.contains("<script>"), "{html}");
        assert_eq!(Offer { many: 1, ..offer }.show(&[], 5).into_string(), "");
    }
}
