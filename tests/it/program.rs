//! What tests of the real program share: its config, a folder on a real disk, and a provider's view of it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use hapax_testkit::process::Program;

use crate::rig::{SECRET, signature};

pub(crate) const ADMIN_TOKEN: &str = "an-admin-token-for-tests";

/// A folder where a sync means a sync; removed when dropped.
pub(crate) fn disk_folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("hapax-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the test")
}

/// The program with one WhatsApp channel `shop`; `limits` are lines of that section.
pub(crate) fn program(folder: &Path, target: Option<&str>, limits: &str) -> Program {
    program_with(folder, target, limits, "")
}

/// Like [`program`], with more lines for the channel.
pub(crate) fn program_with(folder: &Path, target: Option<&str>, limits: &str, more: &str) -> Program {
    let target = target.map_or_else(String::new, |target| format!("target = \"{target}\"\n"));
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n\
         [limits]\n{limits}\n[channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock knock\"\n\
         attempts = 1000\nbackoff = \"20ms\"\nbackoff_cap = \"100ms\"\n{target}{more}\n",
        store_path(folder).display()
    );
    Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config).expect("a config file")
}

pub(crate) fn store_path(folder: &Path) -> std::path::PathBuf {
    folder.join("hapax.db")
}

/// Posts as providers do; keeps connections.
#[derive(Clone)]
pub(crate) struct Poster(reqwest::Client);

/// What a provider hears.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    /// "accepted", "duplicate", or nothing of the kind.
    pub(crate) word: String,
    /// How many of its events were new.
    pub(crate) accepted: u64,
}

impl Poster {
    pub(crate) fn new() -> Self {
        Self(reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().expect("a client"))
    }

    /// Posts a signed webhook; nothing when there was no whole answer.
    pub(crate) async fn post(&self, address: SocketAddr, body: String) -> Option<Said> {
        self.post_to(address, "shop", body).await
    }

    pub(crate) async fn post_to(&self, address: SocketAddr, channel: &str, body: String) -> Option<Said> {
        let request = self.0.post(format!("http://{address}/in/{channel}")).header("content-type", "application/json");
        let response = request.header("x-hub-signature-256", signature(body.as_bytes())).body(body).send().await.ok()?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let answer: serde_json::Value = response.json().await.ok()?;
        let word = answer["status"].as_str().unwrap_or_default().to_owned();
        Some(Said { status, retry_after, word, accepted: answer["accepted"].as_u64().unwrap_or_default() })
    }

    /// Posts as providers do: what a busy machine refuses for now is sent again.
    pub(crate) async fn post_until_taken(&self, address: SocketAddr, body: String) -> Said {
        loop {
            match self.post(address, body.clone()).await.expect("an answer") {
                said if said.status == 503 => {}
                said => return said,
            }
        }
    }

    /// Asks as an operator does; nothing when there was no whole answer.
    pub(crate) async fn get(&self, address: SocketAddr, path: &str) -> Option<String> {
        let response = self.0.get(format!("http://{address}{path}")).bearer_auth(ADMIN_TOKEN).send().await.ok()?;
        response.text().await.ok()
    }

    /// Queues a message to send; nothing when there was no whole answer.
    pub(crate) async fn send(&self, address: SocketAddr, message: &serde_json::Value) -> Option<(u16, serde_json::Value)> {
        let request = self.0.post(format!("http://{address}/v1/messages")).bearer_auth(ADMIN_TOKEN).json(message);
        let response = request.send().await.ok()?;
        Some((response.status().as_u16(), response.json().await.ok()?))
    }

    /// Asks for something to be done; nothing when it was not, or there was no whole answer.
    pub(crate) async fn ask(&self, address: SocketAddr, path: &str, body: &serde_json::Value) -> Option<serde_json::Value> {
        let request = self.0.post(format!("http://{address}{path}")).bearer_auth(ADMIN_TOKEN).json(body);
        let response = request.send().await.ok()?.error_for_status().ok()?;
        response.json().await.ok()
    }

    /// How many items are on their way, as `/v1/stats` says; nothing when it cannot say.
    pub(crate) async fn on_their_way(&self, address: SocketAddr) -> Option<u64> {
        on_their_way(&self.get(address, "/v1/stats").await?)
    }
}

/// What waits or is leased, by the answer of `/v1/stats`.
pub(crate) fn on_their_way(stats: &str) -> Option<u64> {
    let stats: serde_json::Value = serde_json::from_str(stats).ok()?;
    let channels = stats["channels"].as_array()?;
    channels.iter().map(|channel| Some(channel["waiting"].as_u64()? + channel["leased"].as_u64()?)).sum()
}
