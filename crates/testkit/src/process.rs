//! hapax as the operator runs it: the real program, with a config file, in a folder of its own, killed without a goodbye.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// How to start it, as often as wanted.
#[derive(Clone, Debug)]
pub struct Program {
    binary: PathBuf,
    config: PathBuf,
    /// True when it is started in the folder of its config, and finds that by itself.
    at_home: bool,
    /// A shell line that is run before, in the same process: `ulimit -f 100`.
    before: Option<String>,
    /// Handed over as a service manager does.
    socket: Option<Arc<TcpListener>>,
}

/// One run of the program.
pub struct Process {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

/// How a run ended that was not meant to go on.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    /// What it complained about.
    pub words: String,
}

impl Program {
    /// Writes the config into the folder, to be started with.
    pub fn new(binary: &str, folder: &Path, config: &str) -> io::Result<Self> {
        let path = folder.join("hapax.toml");
        std::fs::write(&path, config)?;
        Ok(Self { binary: PathBuf::from(binary), config: path, at_home: false, before: None, socket: None })
    }

    /// Starts it in the folder of its config and names none, as a new user does.
    #[must_use]
    pub fn at_home(self) -> Self {
        Self { at_home: true, ..self }
    }

    /// Runs a line of shell first, such as a limit that the program then lives under.
    #[must_use]
    pub fn after(self, shell: &str) -> Self {
        Self { before: Some(shell.to_owned()), ..self }
    }

    /// Hands it a socket that stays open between its runs, as systemd does (socket activation).
    #[must_use]
    pub fn on_socket(self, socket: TcpListener) -> Self {
        // A child gets it as its standard input, which is the one way without code that is unsafe.
        let before = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$".to_owned();
        Self { before: Some(before), socket: Some(Arc::new(socket)), ..self }
    }

    /// Starts and does not wait for anything.
    pub fn start(&self) -> io::Result<Process> {
        let mut child = self.command()?.stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
        Ok(Process { child, said: BufReader::new(said).lines() })
    }

    /// Starts and waits until it takes webhooks; gives the address.
    pub async fn serve(&self) -> io::Result<(Process, SocketAddr)> {
        let mut process = self.start()?;
        let address = process.address().await?;
        Ok((process, address))
    }

    /// Starts and waits for it to end by itself.
    pub async fn ends(&self) -> io::Result<Ended> {
        let output = self.command()?.stdout(Stdio::null()).stderr(Stdio::piped()).output().await?;
        Ok(Ended { code: output.status.code(), words: String::from_utf8_lossy(&output.stderr).into_owned() })
    }

    fn command(&self) -> io::Result<Command> {
        let mut line: Vec<OsString> = vec![self.binary.clone().into()];
        line.extend(["serve", "--json"].map(OsString::from));
        if !self.at_home {
            line.extend(["--config".into(), self.config.clone().into()]);
        }
        let mut command = match &self.before {
            None => Command::new(&line[0]),
            Some(before) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("{before}; exec \"$0\" \"$@\"")).arg(&line[0]);
                shell
            }
        };
        if let (true, Some(folder)) = (self.at_home, self.config.parent()) {
            command.current_dir(folder);
        }
        command.args(&line[1..]).stdin(Stdio::null()).env("NO_COLOR", "1").kill_on_drop(true);
        if let Some(socket) = &self.socket {
            command.stdin(Stdio::from(OwnedFd::from(socket.try_clone()?)));
        }
        Ok(command)
    }
}

impl Process {
    /// Waits until it says where it listens, which it does once the store is open.
    pub async fn address(&mut self) -> io::Result<SocketAddr> {
        while let Some(line) = self.said.next_line().await? {
            let value = line.trim().strip_prefix("\"listen\": \"http://").and_then(|rest| rest.split('"').next());
            if let Some(address) = value {
                return address.parse().map_err(io::Error::other);
            }
        }
        Err(io::Error::other("it ended before it listened"))
    }

    /// Lets it run for a while, then kills it with signal 9 and waits until it is gone.
    pub async fn kill_nine_after(mut self, run: Duration) -> io::Result<ExitStatus> {
        tokio::select! {
            // It may also die by itself: the caller sees that in the status.
            ended = self.child.wait() => return ended,
            () = tokio::time::sleep(run) => {}
        }
        self.child.start_kill()?;
        self.child.wait().await
    }

    pub async fn kill_nine(self) -> io::Result<ExitStatus> {
        self.kill_nine_after(Duration::ZERO).await
    }

    /// Asks it to stop as a service manager would, and waits until it did.
    pub async fn stop(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.child.wait().await
    }

    /// Tells it to read its config anew.
    pub fn hang_up(&self) -> io::Result<()> {
        self.signal(Signal::HUP)
    }

    /// Holds it where it is for a while, as a machine does that swaps or is moved: its connections stay, its time stands still.
    pub async fn pause_for(&self, time: Duration) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        tokio::time::sleep(time).await;
        self.signal(Signal::CONT)
    }

    /// To one that has ended already, nothing is sent.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(id.map_or(Ok(()), |id| kill_process(id, signal))?)
    }

    /// The memory it holds now, in MB, where the system tells.
    pub fn resident_mb(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1_024)
    }
}
