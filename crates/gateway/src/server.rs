//! Composes all of it. Start: store, spool, token, sender, delivery, listeners. Stop: delivery, then listeners, spool and sender, then upkeep, store.

mod admin_token;
mod front;
mod stop_times;
mod upkeep;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use admin_token::AdminToken;

use hapax_domain::limits;
use hapax_store::clock::Clock;
use hapax_store::{Spelling, Store, StoreError, Unspelt};

use self::front::{Audience, Front, InTrouble, Vitals};
use self::stop_times::{StopTimes, Tasks, in_time, stillness, stop_in_order};
use self::upkeep::Upkeep;
use crate::api::auth::OperatorToken;
use crate::api::{
    Api, Audit, Auth, Feed, History, Notices, PurgeLog, Streams, TokenHash, nothing_here, other_method, sign_in_links,
};
use crate::backups::Backups;
use crate::channels::{Channel, Channels};
use crate::connections::accept_loop::{self, Allowance, Closing};
use crate::connections::peer::Proxies;
use crate::delivery::{Answers, Delivery, Pull};
use crate::dropin::{self, Books, DropInState, DropIns, Polling};
use crate::http_client::BadCalls;
use crate::ingress::spool::Spool;
use crate::ingress::{Ingress, Links};
use crate::resp::{self, Door};
use crate::sender::Sender;
use crate::settings::Settings;
use crate::takeover::{TakeoverStore, Takeovers};
use crate::telemetry::Telemetry;
use crate::telemetry::traces::Traces;
use crate::typing::Typing;
use crate::web::{ConfigFile, Hosts, LivePages, Web};
use crate::worker::{self, Plan, Work};

/// Why the server could not start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Calls(#[from] BadCalls),
}

/// The sockets, opened by the caller, so that tests own the port.
pub struct Listeners {
    pub public: TcpListener,
    /// Where the admin surface is when it is not beside `/in`.
    pub admin: Option<TcpListener>,
    /// Where bots are served by their provider's API, when that is not beside `/in`.
    pub dropin: Option<TcpListener>,
    /// The Redis door, where there is one.
    pub resp: Option<TcpListener>,
}

/// What the listeners open to.
struct Inside {
    ingress: Arc<Ingress>,
    purges: Arc<PurgeLog>,
    history: Arc<History>,
    backups: Arc<Backups>,
    auth: Arc<Auth>,
    pull: Arc<Pull>,
    feed: Arc<Feed>,
    books: Arc<Books>,
    bots: Option<Arc<DropIns>>,
}

/// Everything that runs, ready to be run.
pub struct Server {
    settings: Settings,
    channels: Channels,
    store: Arc<dyn Store>,
    takeovers: Arc<Takeovers>,
    /// The same, without what people have taken over: whoever gives events to bots leases here.
    for_delivery: Arc<dyn Store>,
    spool: Option<Arc<Spool>>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    token: AdminToken,
    config_file: Option<Arc<dyn ConfigFile>>,
    stop_grace: Duration,
}

impl Server {
    /// Runs on stores that are open already.
    pub async fn on(
        store: Arc<dyn Store>,
        spool: Option<Arc<Spool>>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        mut telemetry: Telemetry,
    ) -> Result<Self, StartError> {
        if let Some(otel) = &settings.otel {
            telemetry.trace_to(otel, &settings.instance.clone().unwrap_or_else(instance_name))?;
        }
        let token = AdminToken::settle(settings.admin_token.as_ref(), &*store, rand::random()).await?;
        telemetry.promise(&store.promise());
        let stop_grace = Duration::from_millis(settings.stop_grace_ms.unsigned_abs());
        let (channels, telemetry) = (Channels::new(&settings.channels), Arc::new(telemetry));
        let takeovers = Arc::new(Takeovers::new(Arc::clone(&store), Arc::clone(&clock)));
        let for_delivery = TakeoverStore::around(&store, &takeovers);
        Ok(Self {
            settings,
            channels,
            store,
            takeovers,
            for_delivery,
            spool,
            clock,
            telemetry,
            token,
            config_file: None,
            stop_grace,
        })
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn telemetry(&self) -> Arc<Telemetry> {
        Arc::clone(&self.telemetry)
    }

    pub fn admin_token(&self) -> &AdminToken {
        &self.token
    }

    /// Lets the pages see the file that channels stand in.
    #[must_use]
    pub fn with_config_file(self, file: Arc<dyn ConfigFile>) -> Self {
        Self { config_file: Some(file), ..self }
    }

    /// Sets how long a stop may take in all.
    #[must_use]
    pub fn with_stop_grace(self, stop_grace: Duration) -> Self {
        Self { stop_grace, ..self }
    }

    /// Serves until `stop`, then stops in order and by one deadline: nothing more is leased; the listeners and the sender stay until the handlers
    /// that are at work have ended, because they still send through us; what is not done by then is handed back.
    ///
    /// Ends by itself, with an error, when the store is gone for good.
    pub async fn run(self, listeners: Listeners, stop: CancellationToken) -> Result<(), StartError> {
        self.store.limit_outbox(self.settings.limits.outbox);
        self.store.limit_claims(self.settings.claims.max);
        let answers = Arc::new(Answers::new());
        let (store, clock, telemetry) = (&self.store, &self.clock, &self.telemetry);
        let typing = Arc::new(Typing::new(&self.channels, Arc::clone(store))?);
        let dropin = DropInState::new(store, rand::random());
        let delivery = Arc::new(Delivery::new(
            &self.channels,
            Arc::clone(&self.for_delivery),
            Arc::clone(clock),
            Arc::clone(&answers),
            Arc::clone(telemetry),
            Arc::clone(&typing),
            dropin.clone(),
        )?);
        let polling = self.polling(&typing, &dropin);
        let waiting = Arc::clone(&answers);
        let (for_sender, outcomes) = (Arc::clone(telemetry), Arc::clone(&dropin.outcomes));
        let sender = Sender::new(&self.channels, Arc::clone(store), Arc::clone(clock), for_sender, typing, outcomes)?;
        let sender = Arc::new(sender);
        let ingress = self.ingress(answers, &delivery);
        let purges = Arc::new(PurgeLog::default());
        let history = self.history();
        let auth = self.auth();
        let bots = self.for_bots(&auth, &dropin, &polling)?;
        let notices = self.notices()?;

        let stop = stop.child_token();
        let (mut sends, mut deliveries) = (Tasks::default(), Tasks::default());
        self.start_workers(&mut sends, &sender, sender.loops());
        self.start_workers(&mut deliveries, &delivery, delivery.loops());
        self.start_workers(&mut deliveries, &polling, polling.loops());
        let mut draining = Tasks::default();
        draining.set.spawn(Arc::clone(&ingress).drain(draining.stop.clone()));
        let stop_upkeep = CancellationToken::new();
        let exporter = telemetry.traces().and_then(Traces::exporter);
        let exporting = exporter.map(|exporter| tokio::spawn(exporter.run(stop_upkeep.clone())));
        let upkeep = tokio::spawn(self.upkeep(&ingress, &purges, &history).run(stop_upkeep.clone(), stop.clone()));
        let pull = Arc::new(self.pull(stop.clone()));
        let feed = Arc::new(Feed::new(Arc::clone(store), Arc::clone(clock), Arc::clone(telemetry), stop.clone()));
        let backups = self.backups();
        let backing_up = tokio::spawn(Arc::clone(&backups).run(stop_upkeep.clone()));
        let noticing = notices.map(|notices| tokio::spawn(notices.run(stop_upkeep.clone())));
        let inside = Inside { ingress, purges, history, backups, auth, pull, feed, books: dropin.books, bots };
        let listening = self.open_listeners(listeners, inside);

        stop.cancelled().await;
        let times = StopTimes::from(tokio::time::Instant::now(), self.stop_grace);
        let close = || {
            waiting.close();
            polling.close();
        };
        stop_in_order(deliveries, close, vec![listening, draining, sends], times).await;
        stop_upkeep.cancel();
        if let Some(exporting) = exporting {
            in_time(exporting, times).await;
        }
        // A copy that is under way has no name yet, and what was not told stands in the store.
        backing_up.abort();
        noticing.iter().for_each(JoinHandle::abort);
        // A panic in it has been reported already, and there is nothing left to stop.
        in_time(upkeep, times).await.and_then(Result::ok).unwrap_or(Ok(()))?;
        Ok(())
    }

    fn start_workers<W: Work>(&self, running: &mut Tasks, work: &Arc<W>, loops: HashMap<i64, Vec<(Arc<str>, usize)>>) {
        let worker: Arc<str> = Arc::from(self.settings.instance.clone().unwrap_or_else(instance_name));
        for (hold_ms, channels) in loops {
            let (clock, give_up) = (Arc::clone(&self.clock), running.cut.clone());
            let plan = Plan { worker: Arc::clone(&worker), channels, hold_ms, clock, give_up };
            let (work, store, stop) = (Arc::clone(work), Arc::clone(&self.store), running.stop.clone());
            running.set.spawn(worker::run(work, store, plan, Arc::clone(&self.telemetry), stop));
        }
    }

    fn upkeep(&self, ingress: &Arc<Ingress>, purges: &Arc<PurgeLog>, history: &Arc<History>) -> Upkeep {
        Upkeep {
            ingress: Arc::clone(ingress),
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            telemetry: Arc::clone(&self.telemetry),
            spool: self.spool.clone(),
            purges: Arc::clone(purges),
            history: Arc::clone(history),
            sending: self
                .channels
                .iter()
                .filter(|channel| channel.sending.is_some())
                .map(|channel| channel.name().to_string())
                .collect(),
            retention: self.channels.retention(),
        }
    }

    fn ingress(&self, answers: Arc<Answers>, delivery: &Arc<Delivery>) -> Arc<Ingress> {
        let links = Links {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            answers,
            spool: self.spool.clone(),
            delivery: Arc::clone(delivery),
            telemetry: Arc::clone(&self.telemetry),
            proxies: Proxies::new(self.settings.trusted_proxies.clone()),
        };
        Arc::new(Ingress::new(&self.channels, &self.settings.limits, links))
    }

    /// Who tells what is wrong, where somebody wants to hear it.
    fn notices(&self) -> Result<Option<Notices>, StartError> {
        let Some(notify) = &self.settings.notify else { return Ok(None) };
        let instance = self.settings.instance.clone().unwrap_or_else(instance_name);
        let (store, clock, telemetry) = (Arc::clone(&self.store), Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        Ok(Some(Notices::new(notify, store, clock, telemetry, instance)?))
    }

    fn backups(&self) -> Arc<Backups> {
        let (store, clock, telemetry) = (Arc::clone(&self.store), Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        Arc::new(Backups::new(store, clock, telemetry, self.settings.backups.clone()))
    }

    fn history(&self) -> Arc<History> {
        let (store, clock, telemetry) = (Arc::clone(&self.store), Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        Arc::new(History::new(store, clock, telemetry, rand::random()))
    }

    fn audit(&self) -> Arc<Audit> {
        let (store, clock, telemetry) = (Arc::clone(&self.store), Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        Arc::new(Audit::new(store, clock, telemetry, rand::random()))
    }

    fn pull(&self, stop: CancellationToken) -> Pull {
        let (store, clock, telemetry) = (Arc::clone(&self.for_delivery), Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        Pull::new(&self.channels, store, clock, telemetry, stop)
    }

    fn auth(&self) -> Arc<Auth> {
        let proxies = Proxies::new(self.settings.trusted_proxies.clone());
        let (clock, telemetry) = (Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        Arc::new(Auth::new(self.token.operator, Arc::clone(&self.store), clock, proxies, telemetry))
    }

    /// What serves the bots that poll.
    fn polling(&self, typing: &Arc<Typing>, dropin: &DropInState) -> Arc<Polling> {
        let (store, clock) = (Arc::clone(&self.for_delivery), Arc::clone(&self.clock));
        Arc::new(Polling::new(&self.channels, store, clock, self.telemetry(), Arc::clone(typing), dropin.clone()))
    }

    /// What serves the channels with drop-in sending.
    fn for_bots(
        &self,
        auth: &Arc<Auth>,
        dropin: &DropInState,
        polling: &Arc<Polling>,
    ) -> Result<Option<Arc<DropIns>>, StartError> {
        let links = dropin::Links {
            auth: Arc::clone(auth),
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            telemetry: Arc::clone(&self.telemetry),
            state: dropin.clone(),
            polling: Arc::clone(polling),
            body_timeout: Duration::from_millis(self.settings.limits.body_timeout_ms),
        };
        Ok(DropIns::new(&self.channels, links)?.map(Arc::new))
    }

    fn open_listeners(&self, listeners: Listeners, inside: Inside) -> Tasks {
        let Inside { ingress, purges, history, backups, auth, pull, feed, books, bots } = inside;
        let vitals = Vitals::new(Arc::clone(&self.store), self.in_trouble(), Arc::clone(&self.telemetry));
        let (memory, webhooks) = (Arc::clone(&ingress), Arc::clone(&ingress));
        let api = Arc::new(Api {
            store: Arc::clone(&self.store),
            channels: self.channels.clone(),
            auth: Arc::clone(&auth),
            clock: Arc::clone(&self.clock),
            cors_origins: self.settings.cors_origins.clone(),
            hide_payloads: self.settings.hide_payloads,
            public_url: self.settings.public_url.clone(),
            purges,
            history,
            audit: self.audit(),
            takeovers: Arc::clone(&self.takeovers),
            memory: Box::new(move || memory.memory()),
            spool: self.spool.clone(),
            backups,
            telemetry: Arc::clone(&self.telemetry),
            pull,
            feed,
            streams: Streams::default(),
            books,
            claims: crate::api::ClaimDesk::new(self.settings.claims),
            post: Box::new(move |request| {
                let webhooks = Arc::clone(&webhooks);
                Box::pin(async move { webhooks.handle(request).await })
            }),
        });
        let mut listening = Tasks::default();
        let closing = Closing { stop: listening.stop.clone(), cut: listening.cut.clone() };
        if let Some(listener) = listeners.resp {
            listening.set.spawn(self.door(&auth, listener, closing.clone()));
        }
        let with_token = Audience::TokenHolders(auth);
        let public = front::health(vitals.clone(), with_token.clone());
        let v1 = crate::api::router(Arc::clone(&api)).merge(crate::web::router(self.web(api)));
        let mut open = |listener, ingress, bots: Option<Arc<DropIns>>, routes: Router| {
            let allowance = self.allowance(bots.is_some());
            let routes = routes.fallback(nothing_here).method_not_allowed_fallback(other_method);
            let front = Arc::new(Front { ingress, bots, routes });
            let handle = move |request| Arc::clone(&front).handle(request);
            listening.set.spawn(accept_loop::serve(listener, allowance, handle, Arc::clone(&self.telemetry), closing.clone()));
        };
        let bots_beside = match listeners.dropin {
            None => bots,
            Some(listener) => {
                open(listener, None, bots, public.clone());
                None
            }
        };
        match listeners.admin {
            None => {
                open(listeners.public, Some(ingress), bots_beside, public.merge(front::metrics(vitals, with_token)).merge(v1));
            }
            Some(listener) => {
                open(listeners.public, Some(ingress), bots_beside, public);
                let audience =
                    front::health(vitals.clone(), Audience::Everyone).merge(front::metrics(vitals, Audience::Everyone));
                open(listener, None, None, audience.merge(v1));
            }
        }
        listening
    }

    /// What the pages work with.
    fn web(&self, api: Arc<Api>) -> Arc<Web> {
        let (hosts, proxies) = (Hosts::new(self.settings.hosts.clone()), Proxies::new(self.settings.trusted_proxies.clone()));
        let (live, config_file) = (LivePages::default(), self.config_file.clone());
        Arc::new(Web { api, hosts, proxies, live, config_file, shown: self.settings.shown() })
    }

    /// The path of a link that signs a browser in once, as the operator.
    pub async fn sign_in_link(&self) -> Result<String, StoreError> {
        let (OperatorToken::Configured(hash) | OperatorToken::Made(hash)) = self.token.operator;
        sign_in_links::new(&self.auth(), &*self.store, TokenHash(hash)).await
    }

    /// The Redis door, open until it is told to close.
    fn door(&self, auth: &Arc<Auth>, listener: TcpListener, closing: Closing) -> impl Future<Output = ()> + Send + use<> {
        let (ttl_ms, tls) = (self.settings.claims.ttl_ms, self.settings.resp_tls.clone());
        let door = Door::new(Arc::clone(&self.store), Arc::clone(auth), &self.telemetry, ttl_ms, tls);
        let limits = &self.settings.limits;
        let allowance = resp::Allowance {
            connections: limits.connections,
            sign_in: Duration::from_millis(limits.header_timeout_ms),
            patience: Duration::from_millis(limits.body_timeout_ms),
        };
        Arc::new(door).serve(listener, allowance, Arc::clone(&self.telemetry), closing)
    }

    /// What is done while the store is away.
    fn in_trouble(&self) -> InTrouble {
        let does = |channel: &Channel| (channel.name().to_string(), channel.settings.on_store_failure);
        InTrouble { channels: self.channels.iter().map(does).collect(), spool: self.spool.clone() }
    }

    fn allowance(&self, for_bots: bool) -> Allowance {
        Allowance {
            header_bytes: if for_bots { limits::BOT_HEADER_MAX_BYTES } else { limits::HEADER_MAX_BYTES },
            connections: self.settings.limits.connections,
            proxies: Proxies::new(self.settings.trusted_proxies.clone()),
            header_timeout: Duration::from_millis(self.settings.limits.header_timeout_ms),
            // As long as a client may take to send, it may take to read.
            write_timeout: Duration::from_millis(self.settings.limits.body_timeout_ms),
            stillness: stillness(self.stop_grace),
        }
    }
}

/// Spells whom a message is for as `POST /v1/messages` does, and lets out only what a front end may ask for. A channel that is not
/// configured here is spelt by whoever has it.
pub fn spelling(channels: &Channels) -> Spelling {
    let channels = channels.clone();
    Arc::new(move |channel, to, payload| {
        let sending = channels.get(channel).and_then(|channel| channel.sending.as_ref()).ok_or(Unspelt::NotHere)?;
        let peer = sending.peer(to);
        let checked = sending.check(&peer, payload).and_then(|()| sending.check_unattended(payload));
        checked.map(|()| peer).map_err(Unspelt::Wrong)
    })
}

fn instance_name() -> String {
    let host = std::fs::read_to_string("/etc/hostname").ok();
    let host = host.as_deref().map(str::trim).filter(|name| !name.is_empty()).unwrap_or("hapax");
    format!("{host}:{}", std::process::id())
}
