//! The load: every connection sends its next request when the answer to the last one is there.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::BenchError;
use super::requests::Script;

/// What one run of the load showed.
pub(super) struct Measured {
    pub(super) requests: usize,
    pub(super) seconds: f64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    /// Processor time that the server took for each request; 0 where nobody looked.
    pub(super) cpu_us: f64,
}

impl Measured {
    /// `took` in microseconds, in any order.
    pub(super) fn new(mut took: Vec<u32>, seconds: f64) -> Self {
        took.sort_unstable();
        let at = |part: f64| took.get((took.len() as f64 * part) as usize).copied().unwrap_or_default().into();
        Self { requests: took.len(), seconds, p50_us: at(0.5), p99_us: at(0.99), cpu_us: 0.0 }
    }

    /// With the processor time that the server took for all of it.
    pub(super) fn with_cpu(self, took: Duration) -> Self {
        Self { cpu_us: took.as_secs_f64() * 1e6 / self.requests.max(1) as f64, ..self }
    }

    pub(super) fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}

/// Sends everything; an answer other than 2xx ends the run.
pub(super) async fn run(address: SocketAddr, scripts: Vec<Script>) -> Result<Measured, BenchError> {
    let mut streams = Vec::with_capacity(scripts.len());
    for script in scripts {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        streams.push((stream, script));
    }
    let started = Instant::now();
    let tasks: Vec<_> = streams.into_iter().map(|(stream, script)| tokio::spawn(converse(stream, script))).collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    Ok(Measured::new(took, started.elapsed().as_secs_f64()))
}

async fn converse(mut stream: TcpStream, script: Script) -> Result<Vec<u32>, BenchError> {
    let mut took = Vec::with_capacity(script.len());
    let mut buffer = vec![0; 4_096];
    for request in script.iter() {
        let started = Instant::now();
        stream.write_all(request).await?;
        read_answer(&mut stream, &mut buffer).await?;
        took.push(started.elapsed().as_micros() as u32);
    }
    Ok(took)
}

async fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(), BenchError> {
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Err("the server closed the connection".into());
        }
        filled += read;
        if let Some(whole) = answer_length(&buffer[..filled])
            && filled >= whole
        {
            break;
        }
    }
    if !buffer.starts_with(b"HTTP/1.1 2") {
        return Err(format!("the server answered: {}", String::from_utf8_lossy(&buffer[..filled.min(400)])).into());
    }
    Ok(())
}

/// The length of head and body, once the head is there.
pub(super) fn answer_length(text: &[u8]) -> Option<usize> {
    let head = text.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    const NAME: &[u8] = b"content-length:";
    let at = text[..head].windows(NAME.len()).position(|part| part.eq_ignore_ascii_case(NAME))? + NAME.len();
    let digits = text[at..head].iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
    Some(head + digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is_there() {
        assert_eq!(answer_length(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"), Some(39 + 12));
        assert_eq!(answer_length(b"HTTP/1.1 200 OK\r\nContent-Le"), None);
    }
}
