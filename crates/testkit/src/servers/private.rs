//! A server that belongs to one test, which may stop it, kill it, hold it, and start it again on the same port and data.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::time::Instant;

use super::{Engine, PATIENCE, Server, ServerError, answers, free_ports, new_folder};

/// Reads the server's process id at every start. When nobody can tell it another, the test is gone: it ends the server and removes the
/// folder. `$0` is the folder, then comes the signal to stop on.
const GUARD: &str = r#"
while read -r next; do server=$next; done
kill -CONT $server
kill -"$1" $server
for tenth in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    kill -0 $server || break
    sleep 0.1
done
kill -9 $server
until rm -rf "$0"; do sleep 0.1; done
"#;

pub struct Private {
    server: Server,
    program: PathBuf,
    folder: PathBuf,
    child: Child,
    /// Closed when this process ends, however it ends: then the guard does its work.
    guard: ChildStdin,
}

impl Private {
    pub(super) async fn start(engine: Engine, program: PathBuf) -> Result<Self, ServerError> {
        let recipe = engine.recipe();
        let folder = new_folder(recipe.name())?;
        let mut guard = Command::new("sh");
        guard.arg("-c").arg(GUARD).arg(&folder).arg(recipe.stop_signal().as_raw().to_string()).current_dir("/").process_group(0);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let guard = guard.spawn()?.stdin.take().ok_or("a guard who cannot hear")?;
        recipe.prepare(&program, &folder).await?;
        let server = Server { engine, port: free_ports(recipe.ports())? };
        let child = spawn(&server, &program, &folder)?;
        let mut private = Self { server, program, folder, child, guard };
        private.up().await?;
        Ok(private)
    }

    pub fn server(&self) -> Server {
        self.server
    }

    pub async fn fresh(&self) -> String {
        self.server.fresh().await
    }

    /// Ends it without a goodbye, all of its processes at once, as a power cut would.
    pub async fn kill9(&mut self) {
        self.signal_all(Signal::KILL);
        self.ended().await;
    }

    /// Asks it to end, as its service manager would, and waits until it did.
    pub async fn stop(&mut self) {
        self.signal(self.server.engine.recipe().stop_signal());
        self.ended().await;
    }

    /// Starts it again after it was stopped or killed; resolves when it answers.
    pub async fn restart(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let started = match spawn(&self.server, &self.program, &self.folder) {
                Ok(child) => {
                    self.child = child;
                    self.up().await
                }
                Err(error) => Err(error),
            };
            match started {
                Ok(()) => return,
                // The last of its children may still be there, and then it refuses to start.
                Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(error) => self.server.engine.trouble("start it again", &*error),
            }
        }
    }

    /// Holds it where it is: connections stay and nothing answers.
    pub fn pause(&self) {
        self.signal_all(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal_all(Signal::CONT);
    }

    async fn up(&mut self) -> Result<(), ServerError> {
        if let Some(id) = self.child.id() {
            writeln!(self.guard, "{id}")?;
        }
        let child = &mut self.child;
        let gone = || child.try_wait().is_ok_and(|ended| ended.is_some());
        answers(self.server.engine.recipe(), self.server.port, &self.folder, gone).await
    }

    async fn ended(&mut self) {
        if let Err(error) = self.child.wait().await {
            self.server.engine.trouble("end it", &error);
        }
    }

    fn id(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }

    /// To one that has ended already, nothing is sent.
    fn signal(&self, signal: Signal) {
        if let Some(Err(error)) = self.id().map(|id| kill_process(id, signal)) {
            self.server.engine.trouble("send it a signal", &error);
        }
    }

    fn signal_all(&self, signal: Signal) {
        // It stands still meanwhile: it makes no more of them, and once it is gone nobody can tell whose they were.
        self.signal(Signal::STOP);
        // They come and go; one that has gone needs no signal.
        for child in self.id().map(children_of).unwrap_or_default() {
            let _ = kill_process(child, signal);
        }
        self.signal(signal);
    }
}

/// The processes that `parent` started, where the system tells: some servers have one for each client.
fn children_of(parent: Pid) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let child = |process: std::fs::DirEntry| {
        let status = std::fs::read_to_string(process.path().join("status")).ok()?;
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
        (value("PPid:")? == parent.as_raw_nonzero().get()).then_some(Pid::from_raw(value("Pid:")?)?)
    };
    processes.filter_map(child).collect()
}

/// In a process group of its own: the guard ends it, not whatever ends the test.
fn spawn(server: &Server, program: &std::path::Path, folder: &std::path::Path) -> Result<Child, ServerError> {
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log"))?;
    let line = server.engine.recipe().line(program, folder, server.port);
    let mut command = tokio::process::Command::new(&line[0]);
    command.args(&line[1..]).current_dir("/").process_group(0);
    Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?)
}
