//! The real program with one channel, its log in a file, and the commands beside it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use hapax_testkit::process::{Process, Program};
use tokio::process::{Child, Command};

use crate::program::{ADMIN_TOKEN, Poster, disk_folder, store_path};
use crate::rig::{SECRET, eventually, in_time};

/// Lines of a config with the channel `shop` on the embedded store; `top` stands before the channel, `more` in it.
pub(crate) fn config(folder: &Path, top: &str, more: &str) -> String {
    config_on(&format!("sqlite:{}", store_path(folder).display()), top, more)
}

pub(crate) fn config_on(store: &str, top: &str, more: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"{store}\"\n{top}\n[channel.shop]\n\
         provider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock knock\"\nbackoff = \"20ms\"\n{more}\n"
    )
}

/// `target` of a channel.
pub(crate) fn target(url: &str) -> String {
    format!("target = \"{url}\"")
}

/// A port of this machine where nobody listens.
pub(crate) fn closed_port() -> u16 {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    port.local_addr().expect("an address").port()
}

/// How a command ended, and what it said on both streams.
pub(crate) struct Ended {
    pub(crate) code: String,
    pub(crate) words: String,
}

/// A folder with a config, and no hapax yet.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(disk_folder())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.path().join("hapax.toml")
    }

    pub(crate) fn write(&self, config: &str) {
        std::fs::write(self.config_file(), config).expect("a config");
    }

    /// Runs a command of the program to its end.
    pub(crate) async fn run(&self, words: &[&str]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        // Before everything else: `once KEY -- COMMAND` would take it for the command's.
        command.arg(words[0]).arg("--config").arg(self.config_file()).args(&words[1..]).current_dir(self.path());
        let output = in_time("its end", command.env("NO_COLOR", "1").stdin(Stdio::null()).output()).await.expect("it runs");
        let words = [output.stdout, output.stderr].concat();
        let code = output.status.code().map(|code| code.to_string()).unwrap_or_default();
        Ended { code, words: String::from_utf8_lossy(&words).into_owned() }
    }
}

/// A hapax that runs.
pub(crate) struct Stage {
    pub(crate) folder: Folder,
    pub(crate) at: SocketAddr,
    /// Ends when dropped.
    process: Process,
    pub(crate) poster: Poster,
}

impl Stage {
    /// Starts the program with this config, as an operator does: its log says what it says by itself.
    pub(crate) async fn start(folder: Folder, config: &str) -> Self {
        let log = folder.path().join("log").display().to_string();
        let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), config).expect("a config file");
        let (process, at) = program.after(&format!("exec 2>>'{log}'")).serve().await.expect("it starts");
        Self { folder, at, process, poster: Poster::new() }
    }

    /// With one channel, whose lines these are.
    pub(crate) async fn with(top: &str, more: &str) -> Self {
        let folder = Folder::new();
        let config = config(folder.path(), top, more);
        Self::start(folder, &config).await
    }

    /// Ends it; gives its folder back.
    pub(crate) async fn stop(self) -> Folder {
        assert!(self.process.stop().await.expect("it stops").success());
        self.folder
    }

    pub(crate) async fn run(&self, words: &[&str]) -> Ended {
        let server = format!("http://{}", self.at);
        self.folder.run(&[&words[..1], &["--server", &server], &words[1..]].concat()).await
    }

    /// Runs a command until it says this; gives its words, whether or not they came.
    pub(crate) async fn until(&self, words: &[&str], wanted: &str) -> String {
        let mut said = String::new();
        eventually(&format!("“{wanted}” from {words:?}"), async || {
            said = self.run(words).await.words;
            said.contains(wanted)
        })
        .await;
        said
    }

    /// What the log has, once a line with this is there.
    pub(crate) async fn log(&self, wanted: &str) -> String {
        let mut log = String::new();
        eventually(&format!("“{wanted}” in the log"), async || {
            log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            log.contains(wanted)
        })
        .await;
        log
    }

    /// Posts what it was given, signed by nobody; gives the status.
    pub(crate) async fn post_raw(&self, channel: &str, headers: &[(&str, &str)], body: String) -> String {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let request = client.post(format!("http://{}/in/{channel}", self.at)).header("content-type", "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(body).send().await.expect("an answer").status().as_u16().to_string()
    }

    /// A message that is taken in.
    pub(crate) async fn take(&self, id: &str) {
        assert_eq!(self.poster.post_until_taken(self.at, crate::rig::text(id, "5511900001")).await.status, 200);
    }
}

/// `hapax listen` beside a stage, with a store of its own.
pub(crate) struct Listening {
    folder: Folder,
    pub(crate) at: SocketAddr,
    _child: Child,
}

impl Listening {
    pub(crate) async fn start(bot: &str) -> Self {
        let folder = Folder::new();
        folder.write(&config(folder.path(), "", ""));
        let out = std::fs::File::create(folder.path().join("out")).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        command.args(["listen", bot, "--config"]).arg(folder.config_file()).current_dir(folder.path());
        let child = command.env("NO_COLOR", "1").stdout(out).stdin(Stdio::null()).kill_on_drop(true).spawn().expect("it runs");
        let mut at = None;
        eventually("it listens", async || {
            let said = std::fs::read_to_string(folder.path().join("out")).unwrap_or_default();
            let ready = said.contains("Stop with Ctrl-C");
            at = said.split("listens on http://").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            ready
        })
        .await;
        Self { folder, at: at.expect("an address"), _child: child }
    }

    /// Posts a message, and waits until the terminal shows this.
    pub(crate) async fn shows(&self, wanted: &str) -> String {
        assert_eq!(Poster::new().post_until_taken(self.at, crate::rig::text("wamid.1", "5511900001")).await.status, 200);
        let mut said = String::new();
        eventually(&format!("“{wanted}” from listen"), async || {
            said = std::fs::read_to_string(self.folder.path().join("out")).unwrap_or_default();
            said.contains(wanted)
        })
        .await;
        said
    }
}
