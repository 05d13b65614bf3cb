//! Composes all of it. Start: store, spool, token, sender, delivery, listeners. Stop: delivery, then listeners, spool and sender, then upkeep, store.

mod admin_token;
mod doors;
mod front;
mod generation;
mod reload;
mod stop_times;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use admin_token::AdminToken;
pub use reload::{LoadSettings, NewSettings, ReloadRequests, Reloaded, Reloads};

use hapax_domain::limits;
use hapax_store::clock::Clock;
use hapax_store::{Spelling, Store, StoreError, Unspelt};

use self::doors::{Doors, Fronts};
use self::front::{Audience, Front, InTrouble, Vitals};
use self::generation::{Generation, Lasting, Running};
use self::stop_times::{StopTimes, Tasks, in_time, stillness, stop_in_order};
use self::upkeep::{Tended, Tends, Upkeep};
use crate::api::auth::OperatorToken;
use crate::api::{Api, Audit, Auth, Counting, History, Notices, TokenHash, nothing_here, other_method, sign_in_links};
use crate::backups::Backups;
use crate::channels::{Channel, Channels};
use crate::connections::accept_loop::{self, Allowance, Closing};
use crate::connections::peer::Proxies;
use crate::http_client::BadCalls;
use crate::ingress::spool::Spool;
use crate::resp::{self, Door};
use crate::settings::Settings;
use crate::takeover::{TakeoverStore, Takeovers};
use crate::telemetry::Telemetry;
use crate::telemetry::traces::Traces;
use crate::web::{ConfigFile, Hosts, Web};

/// Why the server could not start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Calls(#[from] BadCalls),
    #[error("the Redis door cannot be opened: {0}")]
    Door(std::io::Error),
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

/// Which surfaces have listeners of their own, and do not stand beside `/in`.
#[derive(Clone, Copy)]
struct Beside {
    admin: bool,
    dropin: bool,
}

impl Beside {
    fn of(listeners: &Listeners) -> Self {
        Self { admin: listeners.admin.is_some(), dropin: listeners.dropin.is_some() }
    }
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
    load: Option<Arc<LoadSettings>>,
    reloads: Reloads,
    asked: ReloadRequests,
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
        let (reloads, asked) = Reloads::new();
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
            load: None,
            reloads,
            asked,
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

    /// Sets who reads the config anew.
    #[must_use]
    pub fn with_loader(self, load: LoadSettings) -> Self {
        Self { load: Some(Arc::new(load)), ..self }
    }

    /// How to have the config read anew.
    pub fn reloads(&self) -> Reloads {
        self.reloads.clone()
    }

    /// Serves until `stop`, then stops in order and by one deadline: nothing more is leased; the listeners and the sender stay until the handlers
    /// that are at work have ended, because they still send through us; what is not done by then is handed back.
    ///
    /// Ends by itself, with an error, when the store is gone for good.
    pub async fn run(mut self, listeners: Listeners, stop: CancellationToken) -> Result<(), StartError> {
        self.store.limit_claims(self.settings.claims.max);
        self.telemetry.config_read(self.clock.now_ms());
        let stop = stop.child_token();
        let asked = std::mem::take(&mut self.asked);
        let lasting = self.lasting(stop.clone())?;
        let now = self.generation(self.settings.clone(), &lasting, None)?;
        let notices = self.notices()?;
        let mut running = Running::default();
        self.start(&now, &lasting, &mut running);
        let (polling, never) = (&lasting.polling, CancellationToken::new());
        self.start_workers(&mut running.deliveries, &never, polling, polling.loops());
        let stop_upkeep = CancellationToken::new();
        let exporter = self.telemetry.traces().and_then(Traces::exporter);
        let exporting = exporter.map(|exporter| tokio::spawn(exporter.run(stop_upkeep.clone())));
        let tended = Tended::new(Tends::new(&now.channels, &now.ingress));
        let upkeep = tokio::spawn(self.upkeep(&tended, &lasting).run(stop_upkeep.clone(), stop.clone()));
        let backing_up = tokio::spawn(Arc::clone(&lasting.backups).run(stop_upkeep.clone()));
        let noticing = notices.map(|notices| tokio::spawn(notices.run(stop_upkeep.clone())));
        let doors = Doors::new(self.fronts(&now, &lasting, &tended, Beside::of(&listeners)));
        let listening = self.open_listeners(listeners, &doors, &lasting, now.bots.is_some())?;

        self.reload_until_stop(asked, now, &lasting, &tended, &doors, &mut running).await;
        let times = StopTimes::from(tokio::time::Instant::now(), self.stop_grace);
        let close = || {
            lasting.answers.close();
            lasting.polling.close();
        };
        let Running { deliveries, sends, draining } = running;
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

    fn upkeep(&self, tended: &Arc<Tended>, lasting: &Lasting) -> Upkeep {
        Upkeep {
            tended: Arc::clone(tended),
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            telemetry: Arc::clone(&self.telemetry),
            spool: self.spool.clone(),
            purges: Arc::clone(&lasting.purges),
            history: Arc::clone(&lasting.history),
        }
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

    fn auth(&self) -> Arc<Auth> {
        let proxies = Proxies::new(self.settings.trusted_proxies.clone());
        let (clock, telemetry) = (Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        Arc::new(Auth::new(self.token.operator, Arc::clone(&self.store), clock, proxies, telemetry))
    }

    /// What the listeners show of a generation.
    fn fronts(&self, now: &Generation, lasting: &Lasting, tended: &Arc<Tended>, beside: Beside) -> Fronts {
        let vitals = Vitals::new(Arc::clone(&self.store), self.in_trouble(&now.channels), Arc::clone(&self.telemetry));
        let with_token = Audience::TokenHolders(Arc::clone(&lasting.auth));
        let health = front::health(vitals.clone(), with_token.clone());
        let api = self.api(now, lasting, tended);
        let v1 = crate::api::router(Arc::clone(&api)).merge(crate::web::router(self.web(api, now, lasting)));
        let front = |ingress, bots, routes: Router| Front {
            ingress,
            bots,
            routes: routes.fallback(nothing_here).method_not_allowed_fallback(other_method),
        };
        let (ingress, bots) = (Some(Arc::clone(&now.ingress)), now.bots.clone());
        let dropin = beside.dropin.then(|| front(None, bots.clone(), health.clone()));
        let bots = bots.filter(|_| !beside.dropin);
        if !beside.admin {
            let routes = health.merge(front::metrics(vitals, with_token)).merge(v1);
            return Fronts { public: front(ingress, bots, routes), admin: None, dropin };
        }
        let audience = front::health(vitals.clone(), Audience::Everyone).merge(front::metrics(vitals, Audience::Everyone));
        let admin = Some(front(None, None, audience.merge(v1)));
        Fronts { public: front(ingress, bots, health), admin, dropin }
    }

    /// A stream that stays open keeps this; so it holds nothing large of its generation.
    fn api(&self, now: &Generation, lasting: &Lasting, tended: &Arc<Tended>) -> Arc<Api> {
        let (seen, webhooks) = (Arc::clone(&lasting.seen), Arc::clone(tended));
        Arc::new(Api {
            store: Arc::clone(&self.store),
            channels: now.channels.clone(),
            auth: Arc::clone(&lasting.auth),
            clock: Arc::clone(&self.clock),
            cors_origins: now.settings.cors_origins.clone(),
            hide_payloads: now.settings.hide_payloads,
            public_url: now.settings.public_url.clone(),
            purges: Arc::clone(&lasting.purges),
            history: Arc::clone(&lasting.history),
            audit: Arc::clone(&lasting.audit),
            takeovers: Arc::clone(&self.takeovers),
            memory: Box::new(move || seen.memory()),
            spool: self.spool.clone(),
            backups: Arc::clone(&lasting.backups),
            telemetry: Arc::clone(&self.telemetry),
            pull: Arc::clone(&now.pull),
            feed: Arc::clone(&lasting.feed),
            streams: Arc::clone(&lasting.streams),
            books: Arc::clone(&lasting.dropin.books),
            claims: Arc::clone(&lasting.claims),
            reloads: self.reloads.clone(),
            post: Box::new(move |request| {
                let webhooks = Arc::clone(&webhooks.now().ingress);
                Box::pin(async move { webhooks.handle(request, None).await })
            }),
        })
    }

    fn open_listeners(
        &self,
        listeners: Listeners,
        doors: &Doors,
        lasting: &Lasting,
        for_bots: bool,
    ) -> Result<Tasks, StartError> {
        let mut listening = Tasks::default();
        let closing = Closing { stop: listening.stop.clone(), cut: listening.cut.clone() };
        if let Some(listener) = listeners.resp {
            listening.set.spawn(self.door(&lasting.auth, listener, closing.clone())?);
        }
        let bots_beside = for_bots && listeners.dropin.is_none();
        let open = [
            (Some(listeners.public), Some(&doors.public), bots_beside),
            (listeners.admin, doors.admin.as_ref(), false),
            (listeners.dropin, doors.dropin.as_ref(), for_bots),
        ];
        for (listener, door, for_bots) in open {
            let (Some(listener), Some(door)) = (listener, door.cloned()) else { continue };
            let handle = move |request, client| door.handle(request, client);
            let (allowance, telemetry) = (self.allowance(for_bots), Arc::clone(&self.telemetry));
            listening.set.spawn(accept_loop::serve(listener, allowance, handle, telemetry, closing.clone()));
        }
        Ok(listening)
    }

    /// What the pages work with.
    fn web(&self, api: Arc<Api>, now: &Generation, lasting: &Lasting) -> Arc<Web> {
        let (hosts, proxies) = (Hosts::new(now.settings.hosts.clone()), Proxies::new(self.settings.trusted_proxies.clone()));
        let (live, config_file) = (Arc::clone(&lasting.live), self.config_file.clone());
        Arc::new(Web { api, hosts, proxies, live, counting: Counting::default(), config_file, shown: now.settings.shown() })
    }

    /// The path of a link that signs a browser in once, as the operator.
    pub async fn sign_in_link(&self) -> Result<String, StoreError> {
        let (OperatorToken::Configured(hash) | OperatorToken::Made(hash)) = self.token.operator;
        sign_in_links::new(&self.auth(), &*self.store, TokenHash(hash)).await
    }

    /// The Redis door, open until it is told to close.
    fn door(
        &self,
        auth: &Arc<Auth>,
        listener: TcpListener,
        closing: Closing,
    ) -> Result<impl Future<Output = ()> + Send + use<>, StartError> {
        let (ttl_ms, tls) = (self.settings.claims.ttl_ms, self.settings.resp_tls.clone());
        let door = Door::new(Arc::clone(&self.store), Arc::clone(auth), &self.telemetry, ttl_ms, tls);
        let limits = &self.settings.limits;
        let allowance = resp::Allowance {
            connections: limits.connections,
            sign_in: Duration::from_millis(limits.header_timeout_ms),
            patience: Duration::from_millis(limits.body_timeout_ms),
        };
        Arc::new(door).open(listener, allowance, Arc::clone(&self.telemetry), closing).map_err(StartError::Door)
    }

    /// What is done while the store is away.
    fn in_trouble(&self, channels: &Channels) -> InTrouble {
        let does = |channel: &Channel| (channel.name().to_string(), channel.settings.on_store_failure);
        InTrouble { channels: channels.iter().map(does).collect(), spool: self.spool.clone() }
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
