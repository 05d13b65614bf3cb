//! Which listener serves what.

use std::net::SocketAddr;

use hapax::server::{Listeners, Server};
use hapax::telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::rig::{Opened, channel, config, text};
use crate::wire::{Wire, signed};

on_every_store! {
    the_admin_surface_on_its_own_port_is_not_on_the_public_one
}

async fn status_of(address: SocketAddr, request: &[u8]) -> u16 {
    let mut wire = Wire::open(address).await;
    wire.send(request).await;
    wire.hear().await.expect("an answer").status
}

async fn the_admin_surface_on_its_own_port_is_not_on_the_public_one(opened: Opened) {
    let server = Server::on(opened.store, opened.clock, config(vec![channel("shop", None)]), Telemetry::new()).await;
    let server = server.expect("the server opens");
    let (public, admin) = (TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
    let (public, admin) = (public.expect("a port"), admin.expect("a port"));
    let (public_at, admin_at) = (public.local_addr().expect("an address"), admin.local_addr().expect("an address"));
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(Listeners { public, admin: Some(admin) }, stop.clone()));

    let get = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: hapax\r\nauthorization: Bearer an admin token for tests\r\n\r\n").into_bytes()
    };
    for (path, on_public, on_admin) in
        [("/healthz", 200, 200), ("/readyz", 200, 200), ("/metrics", 404, 200), ("/v1/stats", 404, 200)]
    {
        assert_eq!(status_of(public_at, &get(path)).await, on_public, "{path} on the public port");
        assert_eq!(status_of(admin_at, &get(path)).await, on_admin, "{path} on the admin port");
    }
    let webhook = signed("shop", &text("wamid.A", "1"));
    assert_eq!(status_of(admin_at, &webhook).await, 404);
    assert_eq!(status_of(public_at, &webhook).await, 200);

    stop.cancel();
    running.await.expect("it ends").expect("it ends well");
}
