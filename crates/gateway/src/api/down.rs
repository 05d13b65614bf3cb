//! Targets that are taken for dead, as people are told of them.

use std::sync::Arc;

use hapax_domain::address::hide_userinfo;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::time::rfc3339;
use crate::settings;
use crate::telemetry::DownTarget;

/// A target that is taken for dead: nothing is charged for what waits for it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Down {
    /// The first account that goes there; null: it is the channel's default.
    pub(crate) account: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) since: String,
    pub(crate) next_try_at: String,
    pub(crate) why: String,
}

/// Those of one channel.
pub(crate) fn of_channel(api: &Api, channel: &settings::Channel) -> Vec<Down> {
    let shown = |down: DownTarget| Down {
        url: url_of(channel, down.target.as_deref()),
        account: down.target.as_deref().map(str::to_owned),
        since: rfc3339(down.since_ms),
        next_try_at: rfc3339(down.next_ms),
        why: down.why,
    };
    api.telemetry.down_targets().into_iter().filter(|down| down.channel == channel.name).map(shown).collect()
}

/// The target of one account, if it is taken for dead.
pub(crate) fn of_account(api: &Api, channel: &Arc<settings::Channel>, account: &str) -> Option<DownTarget> {
    let address = channel.targets.get(account).or(channel.target.as_ref())?;
    api.telemetry.down_targets().into_iter().filter(|down| down.channel == channel.name).find(|down| {
        let there = down.target.as_deref().and_then(|first| channel.targets.get(first)).or(channel.target.as_ref());
        there == Some(address)
    })
}

/// Where an account's events go, without what may be secret in the address: user, password and query.
pub(crate) fn url_of(channel: &settings::Channel, account: Option<&str>) -> Option<String> {
    let address = account.and_then(|account| channel.targets.get(account)).or(channel.target.as_ref())?;
    Some(hide_userinfo(address).split(['?', '#']).next().unwrap_or_default().to_owned())
}
