//! What the commands that list have in common: how a page is asked for, and how it is shown.

use clap::Args;
use hapax_domain::limits::{PAGE_DEFAULT, PAGE_MAX};
use serde_json::Value;

use super::client::Client;
use super::output::text_of;
use super::{Failure, Output};

/// Which page of a list.
#[derive(Args, Debug)]
pub(super) struct Page {
    /// The next page: what the page before named
    #[arg(long, value_name = "NEXT")]
    cursor: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = PAGE_DEFAULT, value_parser = read_limit)]
    limit: usize,
}

/// What a list is narrowed by.
#[derive(Args, Debug)]
pub(super) struct Filter {
    /// Only what fits: channel:NAME state:STATE since:1h text:WORDS and so on, see docs/api.md; `-- -kind:status` leaves out
    #[arg(value_name = "FILTER")]
    words: Vec<String>,
}

impl From<Filter> for Option<String> {
    fn from(filter: Filter) -> Self {
        (!filter.words.is_empty()).then(|| hapax_domain::filter::join(&filter.words))
    }
}

fn read_limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit)).ok_or_else(|| format!("write 1 to {PAGE_MAX}"))
}

/// One list of the server.
pub(super) struct List<'l> {
    pub(super) path: &'l str,
    /// The member of the answer that holds the rows.
    pub(super) name: &'static str,
    pub(super) head: &'l [&'l str],
    /// Said when there are no rows.
    pub(super) none: &'l str,
}

impl List<'_> {
    /// Asks for a page, and prints it.
    pub(super) async fn show(
        &self,
        client: &Client,
        page: Page,
        filters: Vec<(&'static str, Option<String>)>,
        row: impl Fn(&Value) -> Vec<String>,
        output: &Output,
    ) -> Result<(), Failure> {
        let limit = ("limit", Some(page.limit.to_string()));
        let asked = filters.into_iter().chain([limit, ("cursor", page.cursor)]);
        let query: Vec<(&str, String)> = asked.filter_map(|(name, value)| Some((name, value?))).collect();
        let answer = client.get(self.path, &query).await?;
        let rows = answer[self.name].as_array().map(Vec::as_slice).unwrap_or_default();
        if output.json {
            output.json(&answer);
        } else {
            output.table(self.head, rows.iter().map(row).collect());
        }
        match answer["next"].as_str() {
            // Also without rows: where a token sees little of what there is, a page may show nothing and not be the last.
            Some(next) => match answer["looked_at"].as_u64() {
                Some(rows) => output.note(format_args!("looked at {rows}, there are more: --cursor {next}")),
                None => output.note(format_args!("there are more: --cursor {next}")),
            },
            None if rows.is_empty() => output.note(self.none),
            None => {}
        }
        Ok(())
    }
}

/// Rows that show these members.
pub(super) fn columns<const N: usize>(names: [&'static str; N]) -> impl Fn(&Value) -> Vec<String> {
    move |row| names.map(|name| text_of(row, name)).to_vec()
}
