//! All that is made from one config and replaced by the next. Two of them may work at the same time: what one has leased the other does not get.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::stop_times::Tasks;
use super::{Server, StartError, instance_name};
use crate::api::{Audit, Auth, ClaimDesk, Feed, History, PurgeLog, Streams};
use crate::backups::Backups;
use crate::channels::Channels;
use crate::connections::peer::Proxies;
use crate::delivery::{Answers, Delivery, Pull};
use crate::dropin::{self, DropInState, DropIns, Polling};
use crate::ingress::{Ingress, Links, Seen};
use crate::sender::Sender;
use crate::settings::{OnStoreFailure, Settings};
use crate::typing::Typing;
use crate::web::LivePages;
use crate::worker::{self, Plan, Work};

/// What lasts as long as the server, whatever the config says next: all that somebody may be waiting at.
pub(super) struct Lasting {
    pub(super) answers: Arc<Answers>,
    pub(super) dropin: DropInState,
    pub(super) polling: Arc<Polling>,
    typing: Arc<Typing>,
    /// What is surely taken stays taken, and copies are counted, whatever the config.
    pub(super) seen: Arc<Seen>,
    pub(super) purges: Arc<PurgeLog>,
    pub(super) history: Arc<History>,
    pub(super) audit: Arc<Audit>,
    pub(super) auth: Arc<Auth>,
    pub(super) feed: Arc<Feed>,
    pub(super) streams: Arc<Streams>,
    pub(super) live: Arc<LivePages>,
    pub(super) claims: Arc<ClaimDesk>,
    pub(super) backups: Arc<Backups>,
    pub(super) stop: CancellationToken,
    /// One takes from the spool at a time.
    draining: Arc<Mutex<()>>,
}

/// The tasks of all generations: they stop in order, and by one deadline.
#[derive(Default)]
pub(super) struct Running {
    pub(super) deliveries: Tasks,
    pub(super) sends: Tasks,
    pub(super) draining: Tasks,
}

pub(super) struct Generation {
    pub(super) settings: Settings,
    pub(super) channels: Channels,
    pub(super) ingress: Arc<Ingress>,
    pub(super) pull: Arc<Pull>,
    pub(super) bots: Option<Arc<DropIns>>,
    delivery: Arc<Delivery>,
    sender: Arc<Sender>,
    /// From then on it leases nothing more; what it has it ends.
    retired: CancellationToken,
}

impl Server {
    /// What is made once.
    pub(super) fn lasting(&self, stop: CancellationToken) -> Result<Lasting, StartError> {
        let (store, clock, telemetry) = (&self.store, &self.clock, &self.telemetry);
        let dropin = DropInState::new(store, rand::random());
        let typing = Arc::new(Typing::new(&self.channels, Arc::clone(store))?);
        let polling = Polling::new(
            &self.channels,
            Arc::clone(&self.for_delivery),
            Arc::clone(clock),
            Arc::clone(telemetry),
            Arc::clone(&typing),
            dropin.clone(),
        );
        Ok(Lasting {
            answers: Arc::new(Answers::new()),
            polling: Arc::new(polling),
            dropin,
            typing,
            seen: Arc::new(Seen::new(self.settings.limits.cache_keys)),
            purges: Arc::default(),
            history: self.history(),
            audit: self.audit(),
            auth: self.auth(),
            feed: Arc::new(Feed::new(Arc::clone(store), Arc::clone(clock), Arc::clone(telemetry), stop.clone())),
            streams: Arc::default(),
            live: Arc::default(),
            claims: Arc::new(ClaimDesk::new(self.settings.claims)),
            backups: self.backups(),
            stop,
            draining: Arc::default(),
        })
    }

    /// Makes all that the config asks for; nothing of it works yet. `before` is what it is to take the place of.
    pub(super) fn generation(
        &self,
        settings: Settings,
        lasting: &Lasting,
        before: Option<&Generation>,
    ) -> Result<Generation, StartError> {
        let channels = Channels::new(&settings.channels);
        let (store, clock, telemetry) = (&self.store, &self.clock, &self.telemetry);
        let typing = Arc::new(Typing::new(&channels, Arc::clone(store))?.beside(&lasting.typing));
        let delivery = Arc::new(Delivery::new(
            &channels,
            Arc::clone(&self.for_delivery),
            Arc::clone(clock),
            Arc::clone(&lasting.answers),
            Arc::clone(telemetry),
            Arc::clone(&typing),
            lasting.dropin.clone(),
        )?);
        let outcomes = Arc::clone(&lasting.dropin.outcomes);
        let sender = Sender::new(&channels, Arc::clone(store), Arc::clone(clock), Arc::clone(telemetry), typing, outcomes)?;
        let sender = Arc::new(match before {
            Some(before) => sender.at_the_pace_of(&before.sender),
            None => sender,
        });
        let bots = self.for_bots(&channels, &settings, lasting)?;
        if let Some(spool) = &self.spool {
            let spools = settings.channels.iter().filter(|channel| channel.on_store_failure == OnStoreFailure::Spool);
            spool.admit(spools.map(|channel| Arc::clone(&channel.name)));
        }
        let ingress = Ingress::new(
            &channels,
            &settings.limits,
            Links {
                store: Arc::clone(store),
                clock: Arc::clone(clock),
                answers: Arc::clone(&lasting.answers),
                spool: self.spool.clone(),
                delivery: Arc::clone(&delivery),
                telemetry: Arc::clone(telemetry),
                seen: Arc::clone(&lasting.seen),
                proxies: Proxies::new(self.settings.trusted_proxies.clone()),
            },
        );
        let (for_pull, stop) = (Arc::clone(telemetry), lasting.stop.clone());
        let pull = Arc::new(Pull::new(&channels, Arc::clone(&self.for_delivery), Arc::clone(clock), for_pull, stop));
        let (ingress, retired) = (Arc::new(ingress), CancellationToken::new());
        Ok(Generation { settings, channels, ingress, pull, bots, delivery, sender, retired })
    }

    /// Lets it work beside those before it.
    pub(super) fn start(&self, generation: &Generation, lasting: &Lasting, running: &mut Running) {
        self.store.limit_outbox(generation.settings.limits.outbox);
        let Generation { delivery, sender, retired, .. } = generation;
        self.start_workers(&mut running.sends, retired, sender, sender.loops());
        self.start_workers(&mut running.deliveries, retired, delivery, delivery.loops());
        let (ingress, turn) = (Arc::clone(&generation.ingress), Arc::clone(&lasting.draining));
        let (stop, retired) = (running.draining.stop.clone(), generation.retired.clone());
        running.draining.set.spawn(async move {
            if let Some(_turn) = stop.run_until_cancelled(turn.lock()).await {
                ingress.drain(stop.clone(), retired).await;
            }
        });
    }

    /// Starts loops that lease until `retired`, or until all of their kind are to stop.
    pub(super) fn start_workers<W: Work>(
        &self,
        running: &mut Tasks,
        retired: &CancellationToken,
        work: &Arc<W>,
        loops: HashMap<i64, Vec<(Arc<str>, usize)>>,
    ) {
        let worker: Arc<str> = Arc::from(self.settings.instance.clone().unwrap_or_else(instance_name));
        for (hold_ms, channels) in loops {
            let (clock, give_up) = (Arc::clone(&self.clock), running.cut.clone());
            let plan = Plan { worker: Arc::clone(&worker), channels, hold_ms, clock, give_up };
            let (work, store, stop) = (Arc::clone(work), Arc::clone(&self.store), either(&running.stop, retired));
            running.set.spawn(worker::run(work, store, plan, Arc::clone(&self.telemetry), stop));
        }
        while running.set.try_join_next().is_some() {}
    }

    /// What serves the channels with drop-in sending.
    fn for_bots(&self, channels: &Channels, settings: &Settings, lasting: &Lasting) -> Result<Option<Arc<DropIns>>, StartError> {
        let links = dropin::Links {
            auth: Arc::clone(&lasting.auth),
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            telemetry: Arc::clone(&self.telemetry),
            state: lasting.dropin.clone(),
            polling: Arc::clone(&lasting.polling),
            body_timeout: Duration::from_millis(settings.limits.body_timeout_ms),
        };
        Ok(DropIns::new(channels, links)?.map(Arc::new))
    }
}

impl Generation {
    /// It takes up nothing more. Its handlers and sends end by themselves, in their own time; so do requests that are inside.
    pub(super) fn retire(&self) {
        self.retired.cancel();
        self.delivery.retire();
    }
}

/// Cancelled when either is.
fn either(one: &CancellationToken, other: &CancellationToken) -> CancellationToken {
    let both = one.child_token();
    let (ends, other) = (both.clone(), other.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = other.cancelled() => ends.cancel(),
            () = ends.cancelled() => {}
        }
    });
    both
}
