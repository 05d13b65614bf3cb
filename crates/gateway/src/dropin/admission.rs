//! Whose call it is, by its head alone: the provider's token that the channel sends with, or one of hapax's own.

use std::sync::Arc;

use axum::body::Body;
use hapax_providers::dropin::{DropIn, Head, Refusal, Routed};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use super::{DropIns, reply};
use crate::api::auth::hash_token;
use crate::channels::Channel;
use crate::connections::peer::Peer;
use crate::settings;
use crate::telemetry::{DropInTelemetry, Telemetry};

/// A channel whose provider's API is served.
pub(super) struct Served {
    pub(super) channel: Channel,
    pub(super) adapter: Arc<dyn DropIn>,
    pub(super) settings: settings::DropIn,
    pub(super) send: settings::Send,
    pub(super) telemetry: DropInTelemetry,
}

/// A call whose token is believed.
pub(super) struct Admitted {
    pub(super) served: Arc<Served>,
    pub(super) routed: Routed,
}

impl Served {
    /// `None`: its bot calls the provider itself.
    pub(super) fn new(channel: &Channel, telemetry: &Telemetry) -> Option<Self> {
        let settings = channel.settings.dropin.clone()?;
        let send = channel.settings.send.clone()?;
        let adapter = hapax_providers::build_dropin(&channel.settings.provider, send.token.as_ref())?;
        let telemetry = telemetry.dropin(channel.name());
        Some(Self { channel: channel.clone(), adapter, settings, send, telemetry })
    }

    /// A call's head as the adapter sees it; `None` when the path is not under the channel's prefix.
    pub(super) fn head<'h>(&self, head: &'h Parts) -> Option<Head<'h>> {
        let path = head.uri.path().strip_prefix(self.settings.prefix.as_str()).filter(|path| path.starts_with('/'))?;
        Some(Head { method: &head.method, path, query: head.uri.query(), headers: &head.headers })
    }

    fn is_token(&self, presented: &SecretString) -> bool {
        // By their hashes, so that not even the length is learned.
        let hash = |token: &SecretString| hash_token(token.expose_secret());
        self.send.token.as_ref().is_some_and(|own| bool::from(hash(own).ct_eq(&hash(presented))))
    }
}

impl DropIns {
    /// The channels whose provider has such a path.
    pub(super) fn candidates(&self, request: &Request<Incoming>) -> Vec<(Arc<Served>, Routed)> {
        let route = |served: &Arc<Served>| {
            let path = request.uri().path().strip_prefix(served.settings.prefix.as_str()).filter(|path| path.starts_with('/'))?;
            let head = Head { method: request.method(), path, query: request.uri().query(), headers: request.headers() };
            Some((Arc::clone(served), served.adapter.route(&head)?))
        };
        self.served.iter().filter_map(route).collect()
    }

    /// Finds the channel that is meant. Whoever is not believed hears what the provider would say, and hears it late.
    pub(super) async fn admit(&self, candidates: Vec<(Arc<Served>, Routed)>, head: &Parts) -> Result<Admitted, Response<Body>> {
        let Some((first, asked)) = candidates.first() else { return Err(reply::empty(StatusCode::NOT_FOUND)) };
        let stranger = Arc::clone(&first.adapter);
        let refuse = |why: Refusal| reply::of(stranger.reply(&why));
        let Some(token) = asked.token.clone() else { return Err(refuse(Refusal::Unauthorized)) };
        let own = |(served, routed): &(Arc<Served>, Routed)| routed.token.as_ref().is_some_and(|token| served.is_token(token));
        let mut own_token: Vec<_> = candidates.iter().filter(|candidate| own(candidate)).cloned().collect();
        if !own_token.is_empty() {
            let (served, routed) = own_token.swap_remove(self.which(&own_token).await);
            return Ok(Admitted { served, routed });
        }
        let peer = head.extensions.get::<Peer>().copied();
        let caller = self.auth.holder(token.expose_secret(), &head.headers, peer).await.map_err(|problem| {
            refuse(match problem.status() {
                StatusCode::TOO_MANY_REQUESTS => Refusal::SlowDown { seconds: 2 },
                StatusCode::UNAUTHORIZED => Refusal::Unauthorized,
                _ => Refusal::Unavailable,
            })
        })?;
        let meant = candidates.into_iter().find(|(served, _)| caller.sends_only_on(served.channel.name()));
        let (served, routed) = meant.ok_or_else(|| refuse(Refusal::Unauthorized))?;
        Ok(Admitted { served, routed })
    }

    /// Of channels that send with the same token, the one that knows the account; else the first.
    async fn which(&self, candidates: &[(Arc<Served>, Routed)]) -> usize {
        if candidates.len() == 1 {
            return 0;
        }
        for (at, (served, routed)) in candidates.iter().enumerate() {
            let Some(account) = routed.account.clone() else { continue };
            let channel = Some(served.channel.name().to_string());
            let query = hapax_store::ThreadQuery { channel, account: Some(account), before: None, limit: 1 };
            if self.store.threads(query).await.is_ok_and(|page| !page.rows.is_empty()) {
                return at;
            }
        }
        0
    }
}
