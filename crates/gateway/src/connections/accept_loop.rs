//! Takes connections and serves HTTP/1 on them, with a limit on everything a stranger can make us hold.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hapax_domain::limits;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::alarm::Alarm;
use super::client::Client;
use super::patience::{Moved, Patience};
use super::peer::{Peer, Proxies};
use super::places::{HeldPlace, NoPlace, Places, Standing};
use super::seldom::Seldom;
use crate::telemetry::Telemetry;

/// What one listener allows its clients.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// Open connections at once; for more, those that have proved nothing make room.
    pub connections: usize,
    /// Who brings the connections of many.
    pub proxies: Proxies,
    /// Request line and headers of a request.
    pub header_bytes: usize,
    /// Time to send all headers; also the longest a connection may idle between requests.
    pub header_timeout: Duration,
    /// The longest a client may leave an answer lying without taking any of it.
    pub write_timeout: Duration,
    /// How long, once we stop, a connection may lie still that has no believed request at work.
    pub stillness: Duration,
}

/// How a listener is told to end.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// No more connections are taken; requests in flight may end.
    pub stop: CancellationToken,
    /// Their time is over.
    pub cut: CancellationToken,
}

/// After a failed `accept` (out of file descriptors), the pause before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long the request of a connection that was just taken may be on its way when hapax stops.
const FIRST_BYTES: Duration = Duration::from_secs(1);
const FIRST_BYTES_LOOK: Duration = Duration::from_millis(5);

/// Serves until it is told to stop, then finishes what is in flight until it is cut.
pub async fn serve<H, F, B>(listener: TcpListener, allowance: Allowance, handle: H, telemetry: Arc<Telemetry>, closing: Closing)
where
    H: Fn(Request<Incoming>, Client) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let places = Arc::new(Places::new(allowance.connections, allowance.proxies.clone()));
    let open = TaskTracker::new();
    loop {
        let (stream, peer, place) = tokio::select! {
            () = closing.stop.cancelled() => break,
            taken = next(&listener, &places, &telemetry) => taken,
        };
        // Webhooks and their answers are small: waiting to fill a packet only adds latency.
        let _ = stream.set_nodelay(true);
        let (handle, client) = (handle.clone(), Client { peer, standing: place.standing(), alarm: Alarm::default() });
        let service = service_fn(move |request: Request<Incoming>| {
            client.standing.asks();
            let (answer, standing) = (handle(request, client.clone()), client.standing.clone());
            async move {
                let answer = answer.await;
                standing.answered();
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let stream = Patience::new(stream, allowance.write_timeout);
        let moved = stream.moved();
        let connection = protocol(&allowance).serve_connection(TokioIo::new(stream), service);
        let (closing, telemetry, stillness) = (closing.clone(), Arc::clone(&telemetry), allowance.stillness);
        open.spawn(async move {
            telemetry.connection_opened();
            let mut connection = std::pin::pin!(connection);
            // A connection that ends in an error ended: the client left, was too slow, or spoke no HTTP.
            let ended = tokio::select! {
                biased;
                _ = connection.as_mut() => true,
                () = Seldom::new(place.cut.cancelled()) => true,
                () = Seldom::new(closing.stop.cancelled()) => false,
            };
            // Where nothing has come yet, a graceful shutdown closes at once, although the request may be on its way.
            let ended = ended || {
                tokio::select! {
                    biased;
                    _ = connection.as_mut() => true,
                    () = first_bytes(&moved, stillness.min(FIRST_BYTES)) => false,
                    () = closing.cut.cancelled() => false,
                }
            };
            if !ended {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    _ = connection => {}
                    () = lies_still(place.standing(), &moved, stillness) => {}
                    () = closing.cut.cancelled() => {}
                }
            }
            telemetry.connection_closed();
        });
    }
    drop(listener);
    open.close();
    open.wait().await;
}

/// Waits until something came, and no longer than it may take on the way.
async fn first_bytes(moved: &Moved, at_most: Duration) {
    let look = async {
        while moved.bytes() == 0 {
            tokio::time::sleep(FIRST_BYTES_LOOK).await;
        }
    };
    let _ = tokio::time::timeout(at_most, look).await;
}

/// Resolves when nothing has come or gone for a while, and nobody is at work on a request that was believed: a stranger who stalls holds
/// up no stop, and whoever is only slow is let finish.
async fn lies_still(standing: Standing, moved: &Moved, stillness: Duration) {
    loop {
        let before = moved.bytes();
        tokio::time::sleep(stillness).await;
        if moved.bytes() == before && !standing.is_at_work() {
            return;
        }
    }
}

/// Of one connection: it has an alarm of its own.
fn protocol(allowance: &Allowance) -> http1::Builder {
    let mut http = http1::Builder::new();
    // Without a timer the header timeout would silently do nothing.
    http.timer(Alarm::default())
        .header_read_timeout(allowance.header_timeout)
        .max_headers(limits::HEADER_COUNT_MAX)
        .max_header_size(allowance.header_bytes);
    http
}

/// The next connection that has a place. While everybody is at work who may not be cut off, the kernel holds those that come.
pub(crate) async fn next(listener: &TcpListener, places: &Arc<Places>, telemetry: &Telemetry) -> (TcpStream, Peer, HeldPlace) {
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(taken) => taken,
            Err(error) => {
                telemetry.connection_not_taken(&error);
                // The system has none left: those that nobody needs give some back.
                places.cut_one();
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        loop {
            let freed = places.freed();
            match places.enter(from.ip()) {
                Ok((place, made_room)) => {
                    if made_room {
                        telemetry.connection_cut();
                    }
                    return (stream, Peer(from.ip()), place);
                }
                Err(NoPlace::Full) => freed.await,
                Err(NoPlace::TooManyOfOne) => {
                    telemetry.connection_cut();
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    async fn asks(at: std::net::SocketAddr, request: &str) -> TcpStream {
        let mut socket = TcpStream::connect(at).await.expect("a connection");
        socket.write_all(request.as_bytes()).await.expect("sent");
        socket
    }

    async fn hears(mut socket: TcpStream) -> String {
        let mut heard = String::new();
        // Whoever is cut may hear of it by an error.
        let _ = socket.read_to_string(&mut heard).await;
        heard
    }

    /// Once we stop: a stranger who stalls is cut soon, a request that was believed has the time that is left, and not more.
    /// A stop that comes between the connection and its request refuses nothing.
    #[tokio::test]
    async fn a_request_that_is_on_its_way_when_it_stops_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let handle = |_: Request<Incoming>, _: Client| async { Response::new(Full::new(Bytes::from_static(b"done"))) };
        let allowance = Allowance {
            connections: 10,
            header_bytes: limits::HEADER_MAX_BYTES,
            proxies: Proxies::default(),
            header_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            stillness: Duration::from_secs(60),
        };
        let (closing, telemetry) = (Closing::default(), Arc::new(Telemetry::new()));
        let serving = tokio::spawn(serve(listener, allowance, handle, Arc::clone(&telemetry), closing.clone()));
        let mut socket = TcpStream::connect(at).await.expect("a connection");
        while !telemetry.render().contains("hapax_connections 1") {
            tokio::task::yield_now().await;
        }
        closing.stop.cancel();
        tokio::task::yield_now().await;
        socket.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        assert!(hears(socket).await.ends_with("done"));
        serving.await.expect("it ends");
    }

    #[tokio::test]
    async fn a_slow_request_that_was_believed_outlives_the_one_that_stalls() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handle = {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            move |request: Request<Incoming>, client: Client| {
                let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
                async move {
                    if request.uri().path() != "/stranger" {
                        client.standing.proved();
                    }
                    begun.notify_one();
                    match request.uri().path() {
                        "/slow" => finish.notified().await,
                        _ => std::future::pending().await,
                    }
                    Response::new(Full::new(Bytes::from_static(b"done")))
                }
            }
        };
        let allowance = Allowance {
            connections: 10,
            header_bytes: limits::HEADER_MAX_BYTES,
            proxies: Proxies::default(),
            header_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            stillness: Duration::from_millis(1),
        };
        let closing = Closing::default();
        let serving = tokio::spawn(serve(listener, allowance, handle, Arc::new(Telemetry::new()), closing.clone()));
        let mut sockets = Vec::new();
        for path in ["/stranger", "/slow", "/endless"] {
            sockets.push(asks(at, &format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n{{")).await);
            begun.notified().await;
        }
        let silent = asks(at, "POST /half HTTP/1.1\r\n").await;
        let [stranger, slow, endless] = <[TcpStream; 3]>::try_from(sockets).expect("three of them");
        closing.stop.cancel();
        assert_eq!(hears(stranger).await, "");
        assert_eq!(hears(silent).await, "");
        finish.notify_one();
        assert!(hears(slow).await.ends_with("done"), "the time of the others was over, not its own");
        assert!(!serving.is_finished());
        closing.cut.cancel();
        assert_eq!(hears(endless).await, "");
        serving.await.expect("it ends");
    }
}
