//! A connection that never comes to be is nobody's failure, and surely sent nothing.

use hapax_gateway::settings::Channel;
use hapax_store::OutboxState;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::phones::{ACCOUNT, Phones, message, sending, submit, with_send};
use crate::rig::{Opened, Rig, channel, eventually, text};

/// An address behind which packets are dropped: nobody takes connections there, and the line is full.
struct Silent {
    at: std::net::SocketAddr,
    _listener: TcpListener,
    _waiting: TcpStream,
}

impl Silent {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let listener = socket.listen(0).expect("it listens");
        let at = listener.local_addr().expect("an address");
        let waiting = TcpStream::connect(at).await.expect("the one that fits");
        Self { at, _listener: listener, _waiting: waiting }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_drops_packets_is_dead_and_nothing_is_charged() {
    let silent = Silent::start().await;
    let quick = Channel { timeout_ms: 100, ..channel("shop", Some(format!("http://{}/", silent.at))) };
    let rig = Rig::start(Opened::memory(), vec![quick]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    eventually("the circuit opens", async || rig.metric(r#"hapax_circuit_open{channel="shop"}"#) == 1).await;
    eventually("it was handed back", async || rig.store.stats().await.expect("stats").channels[0].waiting == 1).await;
    let row = rig.inbox().await.remove(0);
    assert_eq!((row.attempt, row.failures), (0, 0), "{row:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_drops_packets_leaves_no_message_in_doubt() {
    let silent = Silent::start().await;
    let phones = Phones::willing().await;
    let base = format!("http://{}", silent.at);
    let quick = with_send(sending("shop", None, &phones), |send| (send.timeout_ms, send.api_base) = (100, base));
    let rig = Rig::start(Opened::memory(), vec![quick]).await;
    let id = submit(&rig.store, ACCOUNT, "5511900001", "hello").await;
    eventually("it was tried", async || !message(&rig.store, id).await.tries.is_empty()).await;
    let row = message(&rig.store, id).await;
    let place = row.outbox.expect("it waits");
    assert!(matches!(place.state, OutboxState::Waiting { .. }) && place.failures == 0, "{place:?}: {:?}", row.why);
}
