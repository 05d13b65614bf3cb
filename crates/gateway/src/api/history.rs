//! `/v1/history`: what was counted over the last hour, day and week, kept by hapax itself.

pub(super) mod kept;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use self::kept::{OTHERS, Range, Series};
use super::list::Asked;
use super::time::rfc3339;
use super::{Api, Caller, Problem};
use crate::telemetry::{COUNTS, Count, Counted};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryParams {
    /// `hour` (in minutes; unless told), `day` (in ten minutes) or `week` (in hours).
    range: Option<String>,
    /// Only this channel; else all that the token may see, added up.
    channel: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = History)]
pub(super) struct Shown {
    range: &'static str,
    bucket_seconds: i64,
    /// Oldest first; the last one is not over yet.
    buckets: Vec<Bucket>,
    total: Numbers,
    /// The whole range by channel. Of very many channels those beyond the first 64 are counted together, as `*`.
    channels: Vec<OfChannel>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HistoryBucket)]
struct Bucket {
    at: String,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HistoryOfChannel)]
struct OfChannel {
    channel: String,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HistoryNumbers)]
pub(crate) struct Numbers {
    /// New events.
    pub(crate) accepted: u64,
    /// Suppressed, those with another content included.
    pub(crate) copies: u64,
    pub(crate) delivered: u64,
    pub(crate) sent: u64,
    pub(crate) failed: u64,
    pub(crate) parked: u64,
    /// Sends that came to be in doubt.
    pub(crate) unknown: u64,
    /// How long the bot took for what it did, on average; null when it did nothing.
    pub(crate) bot_mean_ms: Option<u64>,
    /// How much of it took no longer than this.
    pub(crate) bot_within_100ms: u64,
    pub(crate) bot_within_1s: u64,
    pub(crate) bot_within_10s: u64,
}

/// Tells what was counted over the last hour, day or week.
#[utoipa::path(
    get,
    path = "/history",
    operation_id = "history",
    tag = "upkeep",
    params(HistoryParams),
    responses((status = 200, description = "The numbers of each bucket, oldest first", body = Shown)),
)]
pub(super) async fn history(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<HistoryParams>,
) -> Result<Json<Shown>, Problem> {
    let asked = ask.range.as_deref().unwrap_or("hour");
    let Some(range) = Range::from_name(asked) else {
        let known = Range::ALL.map(Range::name).join(", ");
        return Err(Problem::bad_request(format!("`range` is one of {known}")));
    };
    let series = read(&api, &caller, range, ask.channel.as_deref()).await?;
    let bucket = |(nth, counted): (usize, Counted)| Bucket {
        at: rfc3339(series.from_ms + nth as i64 * range.bucket_ms()),
        numbers: counted.into(),
    };
    Ok(Json(Shown {
        range: range.name(),
        bucket_seconds: range.bucket_ms() / 1_000,
        buckets: series.added_up(range).into_iter().enumerate().map(bucket).collect(),
        total: sum(series.channels.values().flatten()).into(),
        channels: series
            .channels
            .iter()
            .map(|(channel, row)| OfChannel { channel: channel.clone(), numbers: sum(row).into() })
            .collect(),
    }))
}

/// The history of those channels that were asked for and that the caller may see.
pub(crate) async fn read(api: &Api, caller: &Caller, range: Range, channel: Option<&str>) -> Result<Series, Problem> {
    channel.map_or(Ok(()), |channel| caller.need_channel(channel))?;
    let mut series = api.history.read(range).await?;
    let sees = |name: &str| if name == OTHERS { !caller.is_limited() } else { caller.sees(name) };
    series.channels.retain(|name, _| channel.map_or_else(|| sees(name), |channel| channel == name));
    Ok(series)
}

impl Series {
    /// All channels together, bucket by bucket.
    pub(crate) fn added_up(&self, range: Range) -> Vec<Counted> {
        let at = |nth: usize| sum(self.channels.values().filter_map(|row| row.get(nth)));
        (0..range.buckets().unsigned_abs() as usize).map(at).collect()
    }
}

pub(crate) fn sum<'a>(rows: impl IntoIterator<Item = &'a Counted>) -> Counted {
    rows.into_iter().fold([0; COUNTS], |all, row| std::array::from_fn(|place| all[place].saturating_add(row[place])))
}

impl From<Counted> for Numbers {
    fn from(counted: Counted) -> Self {
        let n = |count: Count| counted[count as usize];
        Self {
            accepted: n(Count::Accepted),
            copies: n(Count::Copies),
            delivered: n(Count::Delivered),
            sent: n(Count::Sent),
            failed: n(Count::Failed),
            parked: n(Count::Parked),
            unknown: n(Count::Unknown),
            bot_mean_ms: n(Count::BotMs).checked_div(n(Count::Delivered)),
            bot_within_100ms: n(Count::Bot100Ms),
            bot_within_1s: n(Count::Bot1S),
            bot_within_10s: n(Count::Bot10S),
        }
    }
}
