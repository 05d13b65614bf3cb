//! Takes connections and serves HTTP/1 on them, with a limit on everything a stranger can make us hold.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::patience::Patience;
use super::peer::{Peer, Proxies};
use super::places::{NoPlace, Place, Places};
use crate::domain::limits;
use crate::telemetry::Telemetry;

/// What one listener allows its clients.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// Open connections at once; for more, those that have proved nothing make room.
    pub connections: usize,
    /// Who brings the connections of many.
    pub proxies: Proxies,
    /// Time to send all headers; also the longest a connection may idle between requests.
    pub header_timeout: Duration,
    /// The longest a client may leave an answer lying without taking any of it.
    pub write_timeout: Duration,
    /// How long requests in flight may take to finish once we stop.
    pub stop_grace: Duration,
}

/// After a failed `accept` (out of file descriptors), the pause before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`, then finishes what is in flight, at most for the grace period.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    allowance: Allowance,
    handle: H,
    telemetry: Arc<Telemetry>,
    stop: CancellationToken,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let http = protocol(&allowance);
    let places = Arc::new(Places::new(allowance.connections, allowance.proxies.clone()));
    let open = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let (stream, peer, place) = tokio::select! {
            () = stop.cancelled() => break,
            taken = next(&listener, &places, &telemetry) => taken,
        };
        // Webhooks and their answers are small: waiting to fill a packet only adds latency.
        let _ = stream.set_nodelay(true);
        let (handle, standing) = (handle.clone(), place.standing());
        let service = service_fn(move |mut request: Request<Incoming>| {
            standing.asks();
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(standing.clone());
            let (answer, standing) = (handle(request), standing.clone());
            async move {
                let answer = answer.await;
                standing.answered();
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let connection = http.serve_connection(TokioIo::new(Patience::new(stream, allowance.write_timeout)), service);
        let (stop, cut, telemetry) = (stop.child_token(), cut.child_token(), Arc::clone(&telemetry));
        open.spawn(async move {
            telemetry.connection_opened();
            let mut connection = std::pin::pin!(connection);
            // A connection that ends in an error ended: the client left, was too slow, or spoke no HTTP.
            let ended = tokio::select! {
                _ = connection.as_mut() => true,
                () = place.cut.cancelled() => true,
                () = stop.cancelled() => false,
            };
            if !ended {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    _ = connection => {}
                    () = cut.cancelled() => {}
                }
            }
            telemetry.connection_closed();
        });
    }
    drop(listener);
    open.close();
    if tokio::time::timeout(allowance.stop_grace, open.wait()).await.is_err() {
        cut.cancel();
        open.wait().await;
    }
}

fn protocol(allowance: &Allowance) -> http1::Builder {
    let mut http = http1::Builder::new();
    // Without a timer the header timeout would silently do nothing.
    http.timer(TokioTimer::new())
        .header_read_timeout(allowance.header_timeout)
        .max_headers(limits::HEADER_COUNT_MAX)
        .max_header_size(limits::HEADER_MAX_BYTES);
    http
}

/// The next connection that has a place. While everybody is at work who may not be cut off, the kernel holds those that come.
async fn next(listener: &TcpListener, places: &Arc<Places>, telemetry: &Telemetry) -> (TcpStream, Peer, Place) {
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
