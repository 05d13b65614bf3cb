use super::*;
use hapax_domain::Event;
use hapax_testkit::store_fixture::{MemoryFixture, StoreFixture, accept_one, lease, message};

const NAMES: [&str; 2] = ["phone", "user"];

/// Somebody who was heard under two names, each by itself, so that there are two threads.
struct Desk {
    fixture: MemoryFixture,
    store: Arc<dyn Store>,
    takeovers: Arc<Takeovers>,
    /// What bots lease through.
    bots: Arc<dyn Store>,
}

impl Desk {
    async fn of_two_threads() -> Self {
        let fixture = MemoryFixture::new();
        let store = fixture.open();
        let takeovers = Arc::new(Takeovers::new(Arc::clone(&store), Arc::new(fixture.clock().clone())));
        let bots = TakeoverStore::around(&store, &takeovers);
        let desk = Self { fixture, store, takeovers, bots };
        for name in NAMES {
            accept_one(&*desk.store, message(name, name)).await;
        }
        assert_eq!(desk.given().await, 2);
        desk
    }

    /// A message says that both names are one person's.
    async fn join(&self) {
        accept_one(&*self.store, Event { aliases: vec!["user".to_owned()], ..message("both", "phone") }).await;
    }

    async fn person(&self, name: &str) -> ThreadRow {
        self.store.person(&thread(name)).await.expect("read").expect("somebody")
    }

    async fn pause(&self, name: &str, mode: Mode) {
        self.takeovers.pause(&self.person(name).await, mode, "ana").await.expect("paused");
    }

    async fn resume(&self, name: &str) -> Option<Pause> {
        self.takeovers.resume(&self.person(name).await).await.expect("handed back")
    }

    /// What is shown of the pause, by each name.
    async fn shown(&self) -> [Option<Mode>; 2] {
        let pauses = self.takeovers.list().await.expect("listed");
        let mut shown = [None; 2];
        for (name, shown) in NAMES.iter().zip(&mut shown) {
            *shown = self.takeovers.of(&pauses, &thread(name)).await.expect("read").map(|pause| pause.mode);
        }
        shown
    }

    /// How many items come to the bot, which does them.
    async fn given(&self) -> usize {
        let (mut given, done) = (0, Outcome::Delivered { status: 200, answer: None, replies: Vec::new() });
        loop {
            self.fixture.clock().advance(LOOK_AGAIN_MS.1);
            let leases = lease(&*self.bots, 10).await;
            if leases.is_empty() {
                return given;
            }
            given += leases.len();
            for held in leases {
                self.bots.settle_inbox(held.lane, held.fence, done.clone()).await.expect("settled");
            }
        }
    }

    async fn waits(&self) -> u64 {
        self.store.stats().await.expect("counted").channels.iter().map(|counts| counts.waiting).sum()
    }
}

fn thread(peer: &str) -> ThreadId {
    ThreadId { account: "acc".to_owned(), peer: peer.to_owned() }
}

#[tokio::test]
async fn a_person_is_handed_back_by_any_name_whatever_was_paused_before_the_names_were_one() {
    for paused in [&["phone"][..], &["user"], &["phone", "user"]] {
        for resumed in NAMES {
            let desk = Desk::of_two_threads().await;
            for name in paused {
                desk.pause(name, Mode::Wait).await;
            }
            desk.join().await;
            assert_eq!((desk.given().await, desk.shown().await), (0, [Some(Mode::Wait); 2]), "{paused:?}");
            assert!(desk.resume(resumed).await.is_some(), "{paused:?}, {resumed}");
            assert_eq!((desk.given().await, desk.shown().await), (1, [None; 2]), "{paused:?}, {resumed}");
            assert!(desk.resume(resumed).await.is_none(), "nothing of it is left");
        }
    }
}

#[tokio::test]
async fn a_person_is_taken_over_by_any_name() {
    for paused in NAMES {
        for resumed in NAMES {
            let desk = Desk::of_two_threads().await;
            desk.join().await;
            assert_eq!(desk.given().await, 1);
            desk.pause(paused, Mode::Wait).await;
            for name in NAMES {
                accept_one(&*desk.store, message(&format!("{name} again"), name)).await;
            }
            assert_eq!((desk.given().await, desk.shown().await), (0, [Some(Mode::Wait); 2]), "{paused}");
            desk.resume(resumed).await;
            assert_eq!(desk.given().await, 2, "{paused}, {resumed}");
        }
    }
}

#[tokio::test]
async fn what_waits_under_one_name_is_not_done_because_of_the_other() {
    for (waits, done) in [("phone", "user"), ("user", "phone")] {
        let desk = Desk::of_two_threads().await;
        desk.pause(waits, Mode::Wait).await;
        accept_one(&*desk.store, message("m2", waits)).await;
        desk.pause(done, Mode::Done).await;
        desk.join().await;
        assert_eq!((desk.given().await, desk.waits().await, desk.shown().await), (0, 2, [Some(Mode::Wait); 2]), "{waits}");
        // From now on there is one pause, and the last word counts.
        desk.pause(waits, Mode::Done).await;
        assert_eq!(desk.takeovers.list().await.expect("listed").len(), 1);
        assert_eq!((desk.given().await, desk.waits().await, desk.shown().await), (0, 0, [Some(Mode::Done); 2]), "{waits}");
    }
}
