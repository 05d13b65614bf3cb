//! What all lists have in common: they come a page at a time, over the channels that the caller sees.

use std::cmp::Ordering;

use axum::extract::{FromRequestParts, Query};
use futures_util::{StreamExt, TryStreamExt, stream};
use hapax_domain::limits::{PAGE_DEFAULT, PAGE_MAX};
use hapax_store::{Page, StoreError};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::Problem;

/// How many channels of a token are asked at the same time.
pub(crate) const ASKED_AT_ONCE: usize = 8;

/// What a list is asked for.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(ask) = Query::from_request_parts(parts, state).await?;
        Ok(Self(ask))
    }
}

/// Declares how one list is shown: its rows under a name of their own, and `next` unless it is the last page.
macro_rules! page {
    ($(#[$about:meta])* $page:ident { $rows:ident: $row:ty }) => {
        $(#[$about])*
        #[derive(serde::Serialize, utoipa::ToSchema)]
        pub(crate) struct $page {
            pub(crate) $rows: Vec<$row>,
            /// Give it as `cursor` to get the next page; there is none after the last.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) next: Option<String>,
            /// How many rows were looked at for this page, where a filter asked for what only a look can tell.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) looked_at: Option<usize>,
        }

        impl $page {
            fn new<R: Into<$row>>(rows: Vec<R>, next: Option<String>, looked_at: Option<usize>) -> Self {
                Self { $rows: rows.into_iter().map(Into::into).collect(), next, looked_at }
            }
        }
    };
}
pub(crate) use page;

/// One page of a list, from the pages of each part that the caller may see. What is in several of them is in it once.
pub(crate) async fn page_of<P, T, F>(
    parts: Vec<P>,
    limit: usize,
    ask: impl Fn(P) -> F,
    order: impl Fn(&T, &T) -> Ordering,
) -> Result<Page<T>, StoreError>
where
    F: Future<Output = Result<Page<T>, StoreError>>,
{
    let pages: Vec<Page<T>> = stream::iter(parts.into_iter().map(ask)).buffered(ASKED_AT_ONCE).try_collect().await?;
    let mut more = pages.iter().any(|page| page.more);
    let mut rows: Vec<T> = pages.into_iter().flat_map(|page| page.rows).collect();
    rows.sort_by(&order);
    rows.dedup_by(|a, b| order(a, b) == Ordering::Equal);
    more |= rows.len() > limit;
    rows.truncate(limit);
    Ok(Page { rows, more })
}

/// The page size that is used for the one asked for.
pub(crate) fn page_limit(asked: Option<usize>) -> usize {
    asked.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX)
}
