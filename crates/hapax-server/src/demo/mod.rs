//! `hapax demo`: a gateway between a provider that repeats itself and a bot that crashes, all in one process. What became of every message
//! is told from what the two have written down themselves, not from what hapax says of it.

mod bot;
mod journal;
mod provider;
mod wire;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use self::journal::{Journal, Tally};
use self::provider::Pretend;

/// One of the bot's calls may take this long.
const BOT_TIMEOUT_MS: u64 = 3_000;
/// How long is waited, when nothing more comes in, for what is still on its way.
const DRAIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);

/// Both sides of the gateway, listening.
pub struct Stage {
    pub journal: Arc<Journal>,
    bot: TcpListener,
    provider: TcpListener,
}

/// The bot and the provider at work.
pub struct Play {
    journal: Arc<Journal>,
    /// Ends new messages.
    enough: CancellationToken,
    /// Ends everything.
    stop: CancellationToken,
}

impl Stage {
    pub async fn open() -> std::io::Result<Self> {
        let port = || TcpListener::bind(("127.0.0.1", 0));
        Ok(Self { journal: Arc::default(), bot: port().await?, provider: port().await? })
    }

    /// The config of the gateway between them, with its data in `folder`.
    pub fn config(&self, folder: &Path, secret: &str) -> std::io::Result<String> {
        Ok(format!(
            "listen = \"127.0.0.1:0\"\nadmin_token = \"{secret}\"\nstore = \"sqlite:{}\"\nstop_grace = \"3s\"\n\
             [channel.demo]\nprovider = \"whatsapp\"\nsecret = \"{secret}\"\nverify_token = \"{secret}\"\n\
             target = \"http://{}/webhook\"\ntimeout = \"{BOT_TIMEOUT_MS}ms\"\nattempts = 1000\nbackoff = \"50ms\"\nbackoff_cap = \"400ms\"\n\
             token = \"{secret}\"\napi_base = \"http://{}\"\nrate = \"1000/s\"\nchat_rate = \"1000/s\"\n",
            folder.join("demo.db").display(),
            self.bot.local_addr()?,
            self.provider.local_addr()?,
        ))
    }

    /// Begins: the provider posts to the gateway at `gateway` until it is told that it is enough.
    pub fn begin(self, gateway: SocketAddr, secret: &str) -> Play {
        let play = Play { journal: self.journal, enough: CancellationToken::new(), stop: CancellationToken::new() };
        let journal = Arc::clone(&play.journal);
        tokio::spawn(wire::serve(self.bot, play.stop.clone(), move |asked| bot::hear(Arc::clone(&journal), asked)));
        let pretend = Arc::new(Pretend::new(gateway, secret, Arc::clone(&play.journal)));
        let posting = Arc::clone(&pretend);
        tokio::spawn(wire::serve(self.provider, play.stop.clone(), move |asked| Arc::clone(&pretend).hear(asked)));
        let enough = play.enough.clone();
        tokio::spawn(async move { posting.post_messages(enough).await });
        play
    }
}

impl Play {
    /// Posts nothing more, waits for what is on its way, and counts.
    pub async fn end(self) -> Tally {
        self.enough.cancel();
        let deadline = tokio::time::Instant::now() + DRAIN;
        while !self.journal.is_settled() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
        self.journal.tally()
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        self.enough.cancel();
        self.stop.cancel();
    }
}
