//! Instances that share a store, and where they are.

use std::net::SocketAddr;

use hapax_testkit::process::{Process, Program};
use tokio::sync::watch;

use crate::conversation::Listening;
use crate::program::ADMIN_TOKEN;
use crate::rig::SECRET;

/// As short as a lease may be.
pub(crate) const LEASE: std::time::Duration = std::time::Duration::from_secs(5);

/// One instance that may be started, with its folder.
pub(crate) struct Member {
    pub(crate) program: Program,
    _folder: tempfile::TempDir,
}

/// The program under a name of its own, with one WhatsApp channel `shop`; `more` are lines of that section.
pub(crate) fn member(name: &str, store: &str, target: &str, lease: &str, more: &str) -> Member {
    let folder = crate::quick_folder();
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"{store}\"\ninstance = \"{name}\"\n\
         [log]\nfilter = \"off\"\n[channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock knock\"\n\
         attempts = 1000\nbackoff = \"20ms\"\nbackoff_cap = \"100ms\"\nlease = \"{lease}\"\nconcurrency = 64\ntarget = \"{target}\"\n{more}\n",
    );
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
    Member { program, _folder: folder }
}

/// Several instances at once.
pub(crate) struct Fleet {
    members: Vec<Member>,
    running: Vec<(Process, SocketAddr)>,
    there: watch::Sender<Vec<SocketAddr>>,
}

impl Fleet {
    pub(crate) async fn start(members: Vec<Member>) -> Self {
        let mut running = Vec::new();
        for member in &members {
            running.push(member.program.serve().await.expect("it starts"));
        }
        let fleet = Self { members, running, there: watch::Sender::default() };
        fleet.open();
        fleet
    }

    /// Three of them, with the shortest lease.
    pub(crate) async fn of_three(store: &str, target: &str, more: &str) -> Self {
        Self::start(["one", "two", "three"].map(|name| member(name, store, target, "5s", more)).into()).await
    }

    /// Three of them, with a lease that no busy machine outlasts: whatever is called twice is called twice by mistake.
    pub(crate) async fn unhurried(store: &str, target: &str) -> Self {
        Self::start(["one", "two", "three"].map(|name| member(name, store, target, "10m", "")).into()).await
    }

    pub(crate) fn listening(&self) -> Listening {
        self.there.subscribe()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.running.iter().map(|(_, at)| *at).collect()
    }

    fn open(&self) {
        self.there.send_replace(self.addresses());
    }

    /// Kills one with signal 9 and starts it again, while the others go on.
    pub(crate) async fn kill_and_restart(&mut self, which: usize) {
        let member = self.members.remove(which);
        let (process, _) = self.running.remove(which);
        process.kill_nine().await.expect("it was there");
        self.open();
        self.running.push(member.program.serve().await.expect("it starts again"));
        self.members.push(member);
        self.open();
    }

    /// Stops all, cleanly.
    pub(crate) async fn stop(self) {
        for (process, _) in self.running {
            assert!(process.stop().await.expect("it stops").success());
        }
    }
}
