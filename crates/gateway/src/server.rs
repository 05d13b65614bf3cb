//! Composes all of it. Start: store, spool, token, sender, delivery, doors. Stop: delivery, then doors, spool and sender, then upkeep, store.

mod admin_token;
mod front;
mod stop_times;
mod upkeep;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use admin_token::AdminToken;

use hapax_store::clock::Clock;
use hapax_store::{Spelling, Store, StoreError, Unspelt};

use self::front::{Audience, Front, InTrouble, Vitals};
use self::stop_times::{StopTimes, Tasks, in_time, stillness, stop_in_order};
use self::upkeep::Upkeep;
use crate::api::{Api, Auth, PurgeLog};
use crate::channels::{Channel, Channels};
use crate::connections::accept_loop::{self, Allowance, Closing};
use crate::connections::peer::Proxies;
use crate::delivery::{Answers, Delivery};
use crate::http_client::BadCalls;
use crate::ingress::spool::Spool;
use crate::ingress::{Ingress, Links};
use crate::sender::Sender;
use crate::settings::Settings;
use crate::telemetry::Telemetry;
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
}

/// Everything that runs, ready to be run.
pub struct Server {
    settings: Settings,
    channels: Channels,
    store: Arc<dyn Store>,
    spool: Option<Arc<Spool>>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    token: AdminToken,
    stop_grace: Duration,
}

impl Server {
    /// Runs on stores that are open already.
    pub async fn on(
        store: Arc<dyn Store>,
        spool: Option<Arc<Spool>>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        telemetry: Telemetry,
    ) -> Result<Self, StartError> {
        let token = AdminToken::settle(settings.admin_token.as_ref(), &*store, rand::random()).await?;
        telemetry.promise(&store.promise());
        let stop_grace = Duration::from_millis(settings.stop_grace_ms.unsigned_abs());
        let (channels, telemetry) = (Channels::new(&settings.channels), Arc::new(telemetry));
        Ok(Self { settings, channels, store, spool, clock, telemetry, token, stop_grace })
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

    /// Sets how long a stop may take in all.
    #[must_use]
    pub fn with_stop_grace(self, stop_grace: Duration) -> Self {
        Self { stop_grace, ..self }
    }

    /// Serves until `stop`, then stops in order and by one deadline: nothing more is leased; the doors and the sender stay until the handlers
    /// that are at work have ended, because they still send through us; what is not done by then is handed back.
    ///
    /// Ends by itself, with an error, when the store is gone for good.
    pub async fn run(self, listeners: Listeners, stop: CancellationToken) -> Result<(), StartError> {
        self.store.learn_spelling(spelling(&self.channels));
        self.store.limit_outbox(self.settings.limits.outbox);
        let answers = Arc::new(Answers::new());
        let (store, clock, telemetry) = (&self.store, &self.clock, &self.telemetry);
        let delivery = Arc::new(Delivery::new(
            &self.channels,
            Arc::clone(store),
            Arc::clone(clock),
            Arc::clone(&answers),
            Arc::clone(telemetry),
        )?);
        let waiting = Arc::clone(&answers);
        let sender = Arc::new(Sender::new(&self.channels, Arc::clone(store), Arc::clone(clock), Arc::clone(telemetry))?);
        let ingress = Arc::new(Ingress::new(
            &self.channels,
            &self.settings.limits,
            Links {
                store: Arc::clone(store),
                clock: Arc::clone(clock),
                answers,
                spool: self.spool.clone(),
                delivery: Arc::clone(&delivery),
                telemetry: Arc::clone(telemetry),
                proxies: Proxies::new(self.settings.trusted_proxies.clone()),
            },
        ));
        let purges = Arc::new(PurgeLog::default());

        let stop = stop.child_token();
        let sends = self.start_workers(&sender, sender.loops());
        let deliveries = self.start_workers(&delivery, delivery.loops());
        let mut draining = Tasks::default();
        draining.set.spawn(Arc::clone(&ingress).drain(draining.stop.clone()));
        let stop_upkeep = CancellationToken::new();
        let upkeep = tokio::spawn(self.upkeep(&ingress, &purges).run(stop_upkeep.clone(), stop.clone()));
        let doors = self.open_doors(listeners, ingress, purges);

        stop.cancelled().await;
        let times = StopTimes::from(tokio::time::Instant::now(), self.stop_grace);
        stop_in_order(deliveries, || waiting.close(), vec![doors, draining, sends], times).await;
        stop_upkeep.cancel();
        // A panic in it has been reported already, and there is nothing left to stop.
        in_time(upkeep, times).await.and_then(Result::ok).unwrap_or(Ok(()))?;
        Ok(())
    }

    fn start_workers<W: Work>(&self, work: &Arc<W>, loops: HashMap<i64, Vec<(Arc<str>, usize)>>) -> Tasks {
        let worker: Arc<str> = Arc::from(self.settings.instance.clone().unwrap_or_else(instance_name));
        let mut running = Tasks::default();
        for (hold_ms, channels) in loops {
            let (clock, give_up) = (Arc::clone(&self.clock), running.cut.clone());
            let plan = Plan { worker: Arc::clone(&worker), channels, hold_ms, clock, give_up };
            let (work, store, stop) = (Arc::clone(work), Arc::clone(&self.store), running.stop.clone());
            running.set.spawn(worker::run(work, store, plan, Arc::clone(&self.telemetry), stop));
        }
        running
    }

    fn upkeep(&self, ingress: &Arc<Ingress>, purges: &Arc<PurgeLog>) -> Upkeep {
        Upkeep {
            ingress: Arc::clone(ingress),
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            telemetry: Arc::clone(&self.telemetry),
            spool: self.spool.clone(),
            purges: Arc::clone(purges),
            sending: self
                .channels
                .iter()
                .filter(|channel| channel.sending.is_some())
                .map(|channel| channel.name().to_string())
                .collect(),
            retention: self.channels.retention(),
        }
    }

    fn open_doors(&self, listeners: Listeners, ingress: Arc<Ingress>, purges: Arc<PurgeLog>) -> Tasks {
        let vitals = Vitals::new(Arc::clone(&self.store), self.in_trouble(), Arc::clone(&self.telemetry));
        let proxies = Proxies::new(self.settings.trusted_proxies.clone());
        let (clock, telemetry) = (Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        let auth = Arc::new(Auth::new(self.token.operator, Arc::clone(&self.store), clock, proxies, telemetry));
        let (memory, door) = (Arc::clone(&ingress), Arc::clone(&ingress));
        let api = Arc::new(Api {
            store: Arc::clone(&self.store),
            channels: self.channels.clone(),
            auth: Arc::clone(&auth),
            clock: Arc::clone(&self.clock),
            purges,
            memory: Box::new(move || memory.memory()),
            spool: self.spool.clone(),
            telemetry: Arc::clone(&self.telemetry),
            post: Box::new(move |request| {
                let door = Arc::clone(&door);
                Box::pin(async move { door.handle(request).await })
            }),
        });
        let with_token = Audience::TokenHolders(auth);
        let public = front::health(vitals.clone(), with_token.clone());
        let v1 = crate::api::router(api);
        let mut doors = Tasks::default();
        let closing = Closing { stop: doors.stop.clone(), cut: doors.cut.clone() };
        let mut open = |listener, ingress, routes: Router| {
            let front = Arc::new(Front { ingress, routes });
            let handle = move |request| Arc::clone(&front).handle(request);
            doors.set.spawn(accept_loop::serve(listener, self.allowance(), handle, Arc::clone(&self.telemetry), closing.clone()));
        };
        match listeners.admin {
            None => open(listeners.public, Some(ingress), public.merge(front::metrics(vitals, with_token)).merge(v1)),
            Some(listener) => {
                open(listeners.public, Some(ingress), public);
                let audience =
                    front::health(vitals.clone(), Audience::Everyone).merge(front::metrics(vitals, Audience::Everyone));
                open(listener, None, audience.merge(v1));
            }
        }
        doors
    }

    /// What is done while the store is away.
    fn in_trouble(&self) -> InTrouble {
        let does = |channel: &Channel| (channel.name().to_string(), channel.settings.on_store_failure);
        InTrouble { channels: self.channels.iter().map(does).collect(), spool: self.spool.clone() }
    }

    fn allowance(&self) -> Allowance {
        Allowance {
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
fn spelling(channels: &Channels) -> Spelling {
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
