//! The command while it runs: its output goes on and is kept, signals go to it, and a heartbeat holds the claim.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::group::{Group, asked_to_end};
use super::kept::Kept;
use super::words::Words;
use crate::cli::Failure;
use crate::cli::client::Client;
use hapax_domain::units::write_ms;

/// So long a command may take to end when it was asked to; less with a short lease.
const GRACE: Duration = Duration::from_secs(10);
/// The parts of a lease after which a silent server means that the claim is lost, and in which the command may end by itself.
const SILENCE: f64 = 0.8;
const ENDING: f64 = 0.15;
/// Tries to release it. Without a release the next caller waits for the end of the lease, no more.
const TRIES: u32 = 6;
/// What became of it is said again and again for so long, or for a lease if that is longer.
const TOLD_AT_LEAST: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How the command ended.
pub(super) enum Ended {
    Code(u8),
    Signal(u8),
    /// It was ended, since the claim was lost.
    Lost(String),
}

/// A claim that is held while a command runs.
pub(super) struct Holding<'h> {
    pub(super) client: &'h Client,
    /// Key, scope and token.
    pub(super) name: &'h Value,
    pub(super) lease: Duration,
    /// The claim was asked for then: the lease began no earlier.
    pub(super) asked: Instant,
}

impl Holding<'_> {
    /// Runs the command to its end, whatever that is.
    pub(super) async fn run(&self, command: &[String]) -> std::io::Result<(Ended, Kept)> {
        let held_from = match self.held_from().await {
            Ok(instant) => instant,
            Err(why) => return Ok((Ended::Lost(why), Kept::default())),
        };
        let mut command_line = Command::new(&command[0]);
        command_line.args(&command[1..]).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let (mut child, group) = Group::start(&mut command_line)?;
        let mut words = Words::of(&mut child)?;
        let heartbeat = self.beat(held_from);
        tokio::pin!(heartbeat);
        let ended = tokio::select! {
            status = child.wait() => how(status?),
            why = &mut heartbeat => {
                self.end(&mut child, group).await;
                Ended::Lost(why)
            }
            () = group.pass_signals() => Ended::Lost("signals cannot be passed on".to_owned()),
        };
        if !matches!(ended, Ended::Code(_)) {
            group.kill_rest();
        }
        if !matches!(ended, Ended::Lost(_)) {
            tokio::select! {
                () = words.last() => {}
                _ = &mut heartbeat => {}
                () = asked_to_end() => {}
            }
        }
        Ok((ended, words.kept()))
    }

    /// The claim is ours at least for a lease from then on. A request that waited at the server says little about when it became so.
    async fn held_from(&self) -> Result<Instant, String> {
        if self.asked.elapsed() < self.lease / 4 {
            return Ok(self.asked);
        }
        self.extend(Instant::now() + self.lease.mul_f64(SILENCE)).await
    }

    /// Extends the claim while the command runs; ends with the reason when it is lost, or nobody has heard of us for most of a lease.
    async fn beat(&self, mut held_from: Instant) -> String {
        loop {
            tokio::time::sleep(self.lease / 3).await;
            match self.extend(held_from + self.lease.mul_f64(SILENCE)).await {
                Ok(asked) => held_from = asked,
                Err(why) => return why,
            }
        }
    }

    /// Extends the claim until the server has answered, and says when it was asked to.
    async fn extend(&self, held_until: Instant) -> Result<Instant, String> {
        let mut ask = self.name.clone();
        ask["lease"] = json!(write_ms(self.lease.as_millis() as i64));
        loop {
            let asked = Instant::now();
            match tokio::time::timeout_at(held_until, self.client.post_any("/v1/claims/extend", ask.clone(), &[])).await {
                Ok(Ok((200, _))) => return Ok(asked),
                Ok(Ok((409 | 404, _))) => return Err("the claim was lost to another".to_owned()),
                Ok(Ok((status, _))) if status < 500 => return Err(format!("the server refused the heartbeat ({status})")),
                Ok(_) if Instant::now() + PAUSE < held_until => tokio::time::sleep(PAUSE).await,
                _ => return Err("the heartbeat has not reached the server for most of the lease".to_owned()),
            }
        }
    }

    pub(super) async fn release(&self) -> Result<(), Failure> {
        let mut left = TRIES;
        let again = || {
            left -= 1;
            left > 0
        };
        self.tell("/v1/claims/release", self.name.clone(), again).await
    }

    /// Writes down what became of it, and holds the claim until that is answered.
    pub(super) async fn complete(&self, result: Value) -> Result<(), Failure> {
        let mut ask = self.name.clone();
        ask["result"] = result;
        let deadline = Instant::now() + self.lease.max(TOLD_AT_LEAST);
        let held = async {
            // A claim that is lost now is still completed, as long as nobody else has begun.
            self.beat(Instant::now()).await;
            std::future::pending().await
        };
        tokio::select! {
            told = self.tell("/v1/claims/complete", ask, || Instant::now() < deadline) => told,
            told = held => told,
        }
    }

    /// Says it until it is answered, it is not worth another try, or we are asked to end.
    async fn tell(&self, path: &str, ask: Value, mut again: impl FnMut() -> bool) -> Result<(), Failure> {
        let mut pause = PAUSE;
        loop {
            let failure = match self.client.post_any(path, ask.clone(), &[]).await {
                Ok((200, _)) => return Ok(()),
                Ok((status, answer)) if status < 500 => return Err(self.client.refusal(status, &answer)),
                Ok((status, answer)) => Failure::Unreachable(self.client.refusal(status, &answer).to_string()),
                Err(failure) => failure,
            };
            if !again() {
                return Err(failure);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = asked_to_end() => return Err(failure),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks the command to end, and makes it when it does not: before another may begin.
    async fn end(&self, child: &mut Child, group: Group) {
        group.send(Signal::TERM);
        if tokio::time::timeout(GRACE.min(self.lease.mul_f64(ENDING)), child.wait()).await.is_err() {
            group.send(Signal::KILL);
            let _ = child.wait().await;
        }
    }
}

fn how(status: std::process::ExitStatus) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code as u8),
        (None, signal) => Ended::Signal(signal.unwrap_or_default() as u8),
    }
}
