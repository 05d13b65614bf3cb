//! One connection: what has come is carried out together and answered in order before more is read, so that nobody can send faster than he is
//! answered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Allowance;
use super::codec::{Decoder, ProtocolError, Reply, Words};
use super::session::Session;
use crate::connections::places::Standing;
use crate::connections::seldom::Seldom;

/// Commands that are carried out together.
const COMMANDS_AT_ONCE: usize = 128;
/// .. and how many values they may ask for, or somewhat more: these are held together until they are written.
const VALUES_AT_ONCE: usize = 16;
/// The longest value. There is room for so many of that length, in all connections together.
const VALUE_BYTES: usize = 1 << 20;
/// Less than this is not worth counting.
const SHORT_BYTES: usize = 64 << 10;
/// Read at once from a stranger, from others, and of a long argument.
const STRANGER_READ: usize = 512;
const READ: usize = 4 << 10;
const LONG_READ: usize = 64 << 10;
/// So long a piece of replies may lie untaken while hapax stops.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// Replies are written when they are so long, though others of the same commands are still to come.
const WRITE: usize = 64 << 10;

pub(super) struct Connection {
    session: Session,
    standing: Standing,
    allowance: Allowance,
    long: Arc<Semaphore>,
    values: Arc<Semaphore>,
    decoder: Decoder,
    came: BytesMut,
    replies: BytesMut,
}

/// How reading went.
enum Read {
    Some,
    /// The client left, we stop, or it took too long.
    End,
}

impl Connection {
    /// `long` has places for commands with a long argument, `values` for values that are told.
    pub(super) fn new(
        session: Session,
        standing: Standing,
        allowance: Allowance,
        long: Arc<Semaphore>,
        values: Arc<Semaphore>,
    ) -> Self {
        let (decoder, came, replies) = Default::default();
        Self { session, standing, allowance, long, values, decoder, came, replies }
    }

    /// Serves until the client leaves, says something that cannot be read, or `stop`.
    pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        mut self,
        mut stream: S,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        let sign_in_by = Instant::now() + self.allowance.sign_in;
        // Since when the command that is coming in does so, and the right to send a long one.
        let (mut begun, mut permit) = (None, None);
        let mut stopping = Seldom::new(stop.cancelled());
        loop {
            let (commands, broken) = self.commands();
            let came = !commands.is_empty();
            if came {
                (begun, permit) = (None, None);
                self.carry_out(commands, &mut stream, stop).await?;
            }
            if let Some(error) = broken.filter(|_| !self.session.over) {
                return self.hang_up(error, &mut stream, stop).await;
            }
            if self.session.over {
                return stream.shutdown().await;
            }
            if came {
                continue;
            }
            if begun.is_none() && (!self.came.is_empty() || self.decoder.is_within()) {
                begun = Some(Instant::now() + self.allowance.patience);
            }
            let by = if self.session.is_known() { begun } else { Some(sign_in_by) };
            // Who never stops sending would otherwise be read from for ever.
            if by.is_some_and(|by| by <= Instant::now()) {
                return stream.shutdown().await;
            }
            let read = tokio::select! {
                // Who never stops asking hears of a stop all the same.
                biased;
                () = &mut stopping => Read::End,
                read = self.read(&mut stream, by, &mut permit) => read?,
            };
            if matches!(read, Read::End) {
                return stream.shutdown().await;
            }
        }
    }

    /// What has come in whole, and why no more can be read, if so.
    fn commands(&mut self) -> (Vec<Words>, Option<ProtocolError>) {
        let mut commands = Vec::new();
        // A stranger's are taken one by one: who has proved himself by one may send more with the next.
        let most = if self.session.is_known() { COMMANDS_AT_ONCE } else { 1 };
        let mut values = 0;
        while commands.len() < most && values < VALUES_AT_ONCE {
            match self.decoder.next(&mut self.came, self.session.bounds()) {
                Ok(Some(words)) => {
                    values += values_of(&words);
                    commands.push(words);
                }
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
        (commands, None)
    }

    async fn carry_out<S: AsyncWrite + Unpin>(
        &mut self,
        commands: Vec<Words>,
        stream: &mut S,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        // Who is known is at work from here on, and not cut off.
        if self.session.is_known() {
            self.standing.proved()
        } else {
            self.standing.asks()
        }
        let was_known = self.session.is_known();
        let mut room = self.room_for(&commands).await;
        let replies = self.session.run(commands).await;
        // What turned out to be short needs no room, and what is long has it until it is written.
        let bytes: usize = replies.iter().map(Reply::value_bytes).sum();
        let long = if bytes < SHORT_BYTES { 0 } else { bytes.div_ceil(VALUE_BYTES) };
        let _room = room.as_mut().and_then(|room| room.split(long.min(room.num_permits())));
        drop(room);
        for reply in replies {
            reply.write(self.session.protocol, &mut self.replies);
            if self.replies.len() >= WRITE {
                self.write(stream, stop).await?;
            }
        }
        self.write(stream, stop).await?;
        if self.session.is_known() && !was_known {
            self.standing.proved();
        }
        self.standing.answered();
        Ok(())
    }

    /// Waits until there is room for the values that are asked for, as long as they may be. Who has proved nothing is told none.
    async fn room_for(&self, commands: &[Words]) -> Option<OwnedSemaphorePermit> {
        let values: usize = commands.iter().map(values_of).sum();
        if values == 0 || !self.session.is_known() {
            return None;
        }
        Arc::clone(&self.values).acquire_many_owned(u32::try_from(values).ok()?).await.ok()
    }

    /// While hapax stops, nobody who does not read keeps it waiting.
    async fn write<S: AsyncWrite + Unpin>(&mut self, stream: &mut S, stop: &CancellationToken) -> io::Result<()> {
        let written = async {
            stream.write_all(&self.replies).await?;
            stream.flush().await
        };
        let stalled = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_PATIENCE).await;
        };
        tokio::select! {
            biased;
            written = written => written?,
            () = stalled => return Err(io::ErrorKind::TimedOut.into()),
        }
        // Room that one long reply needed is not kept.
        if self.replies.capacity() > 2 * WRITE {
            self.replies = BytesMut::new()
        } else {
            self.replies.clear()
        }
        Ok(())
    }

    async fn hang_up<S: AsyncWrite + Unpin>(
        &mut self,
        error: ProtocolError,
        stream: &mut S,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        self.session.broken(error);
        Reply::error(format!("ERR Protocol error: {error}")).write(self.session.protocol, &mut self.replies);
        self.write(stream, stop).await?;
        stream.shutdown().await
    }

    async fn read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        by: Option<Instant>,
        permit: &mut Option<OwnedSemaphorePermit>,
    ) -> io::Result<Read> {
        let usual = if self.session.is_known() { READ } else { STRANGER_READ };
        let wanted = self.decoder.wants(&self.came);
        let reading = async {
            if wanted > LONG_READ && permit.is_none() {
                *permit = Arc::clone(&self.long).acquire_owned().await.ok();
            }
            self.came.reserve(wanted.clamp(usual, LONG_READ));
            stream.read_buf(&mut self.came).await
        };
        let read = match by {
            None => reading.await?,
            Some(by) => match timeout_at(by, reading).await {
                Ok(read) => read?,
                Err(_) => return Ok(Read::End),
            },
        };
        Ok(if read == 0 { Read::End } else { Read::Some })
    }
}

/// How many values a command is told, or the store has to look at for it; of many keys, as many as it looks at together.
fn values_of(words: &Words) -> usize {
    let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
    let keys = |from: usize| words.len().saturating_sub(from).min(VALUES_AT_ONCE);
    if is("get") || is("ttl") || is("pttl") {
        1
    } else if is("mget") || is("exists") {
        keys(1)
    } else if is("eval") || is("evalsha") {
        let named = words.get(2).and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
        named.unwrap_or(0).min(keys(3))
    } else if is("set") {
        usize::from(words.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"get")))
    } else {
        0
    }
}
