//! Strangers who hold sockets and send bodies that never end: those who have something to say are still heard.

use std::time::Duration;

use crate::program::{Poster, disk_folder, program};
use crate::rig::{Opened, Rig, channel, config, eventually, in_time, text};
use crate::wire::{Wire, signed};

on_every_store! {
    more_half_open_sockets_than_there_are_places
    stalled_bodies_do_not_take_the_room_of_real_ones
    one_address_has_its_share_of_the_places
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: hapax\r\n\r\n";

async fn status(mut wire: Wire, request: &[u8]) -> u16 {
    wire.send(request).await;
    in_time("an answer", wire.hear()).await.expect("an answer").status
}

async fn more_half_open_sockets_than_there_are_places(opened: Opened) {
    let mut config = config(vec![channel("shop", None)]);
    config.limits.connections = 40;
    let rig = Rig::start_with(opened, config).await;
    let mut held = Vec::new();
    for n in 0..120 {
        let mut wire = Wire::open_from([127, 0, 1, (n % 30) as u8 + 1], rig.address).await;
        wire.send_if_wanted(b"POST /in/shop HTTP/1.1\r\nhost: ha").await;
        held.push(wire);
    }
    for n in 0..10 {
        assert_eq!(status(Wire::open(rig.address).await, HEALTH).await, 200);
        let webhook = signed("shop", &text(&format!("wamid.{n}"), "1"));
        assert_eq!(status(Wire::open(rig.address).await, &webhook).await, 200);
    }
    assert!(rig.metric("hapax_connections_cut_total") >= 80, "strangers made room");
    drop(held);
    rig.stop().await;
}

async fn stalled_bodies_do_not_take_the_room_of_real_ones(opened: Opened) {
    let mut config = config(vec![channel("shop", None), channel("help", None)]);
    config.limits.bodies_bytes = 16 << 20;
    let rig = Rig::start_with(opened, config).await;
    let mut held = Vec::new();
    for n in 0..64_u8 {
        let name = if n % 2 == 0 { "shop" } else { "help" };
        let mut wire = Wire::open_from([127, 0, 2, n + 1], rig.address).await;
        let head = "host: hapax\r\nx-hub-signature-256: sha256=00\r\ncontent-length: 4194304\r\n\r\n";
        wire.send_if_wanted(format!("POST /in/{name} HTTP/1.1\r\n{head}").as_bytes()).await;
        // Together exactly what there is.
        wire.send_if_wanted(&vec![b'x'; 256 << 10]).await;
        held.push(wire);
    }
    for n in 0..10 {
        assert_eq!(status(Wire::open(rig.address).await, HEALTH).await, 200);
        // Large enough to come in pieces.
        let body = text(&format!("wamid.{n}"), "1").replace("this is", &"x".repeat(300_000));
        assert_eq!(status(Wire::open(rig.address).await, &signed("shop", &body)).await, 200);
    }
    drop(held);
    rig.stop().await;
}

async fn one_address_has_its_share_of_the_places(opened: Opened) {
    let mut config = config(vec![channel("shop", None)]);
    config.limits.connections = 80;
    let rig = Rig::start_with(opened, config).await;
    // Somebody who asked first, and is slow to go on.
    let mut first = Wire::open_from([127, 0, 3, 1], rig.address).await;
    assert!(!first.speaks_now().await);
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(Wire::open_from([127, 0, 3, 2], rig.address).await);
    }
    assert_eq!(status(Wire::open(rig.address).await, HEALTH).await, 200);
    first.send(HEALTH).await;
    assert_eq!(in_time("an answer", first.hear()).await.expect("it was not cut off").status, 200);
    eventually("a quarter of the places, and two more", async || rig.metric("hapax_connections") <= 22).await;
    rig.stop().await;
}

/// As many as the default allows, and more, on the real program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_half_open_sockets() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("one's own limit may be raised");
    // Where the system allows fewer files, fewer places are filled in the same way.
    let places = limit.maximum.map_or(10_000, |files| (files * 2 / 3).min(10_000)) as usize;
    let folder = disk_folder();
    let (process, address) = program(folder.path(), None, &format!("connections = {places}")).serve().await.expect("it serves");
    let mut held = Vec::new();
    for n in 0..places + 200 {
        let from = [127, 1, (n / 1_000) as u8, 1];
        let mut wire = Wire::open_from(from, address).await;
        wire.send_if_wanted(b"POST /in/shop HTTP/1.1\r\nhost: ha").await;
        held.push(wire);
    }
    let asked = tokio::time::Instant::now();
    assert_eq!(status(Wire::open(address).await, HEALTH).await, 200);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let said = Poster::new().post(address, text("wamid.A", "1")).await.expect("an answer");
    assert_eq!((said.status, said.word.as_str()), (200, "accepted"));
    drop(held);
    process.kill_nine().await.expect("it was there");
}
