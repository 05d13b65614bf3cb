//! A storm of copies over three instances at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hapax_testkit::fake_bot::FakeBot;
use hapax_testkit::servers::Private;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use super::fleet::Fleet;
use crate::conversation::{SEED, all_done};
use crate::program::Poster;
use crate::rig::{change, message, webhook};

super::on_every_server! {
    copies_spread_over_three_instances_are_delivered_once
}

const IDS: usize = 20_000;
const COPIES: usize = 10;
/// Messages in one webhook; each copy of a message comes in the company of others.
const TOGETHER: usize = 10;
const PEOPLE: usize = 2_000;
const CALLERS: usize = 48;

async fn copies_spread_over_three_instances_are_delivered_once(server: Private) {
    let bot = FakeBot::willing().await.expect("a bot");
    let fleet = Fleet::unhurried(&server.fresh().await, &bot.url()).await;
    let at = fleet.addresses();
    let mut random = StdRng::seed_from_u64(SEED);
    let webhooks = Arc::new(storm(&mut random));
    let (next, accepted, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (webhooks, at, poster) = (Arc::clone(&webhooks), at.clone(), Poster::new());
        let (next, accepted, refused) = (Arc::clone(&next), Arc::clone(&accepted), Arc::clone(&refused));
        callers.spawn(async move {
            while let Some((to, body)) = webhooks.get(next.fetch_add(1, Ordering::Relaxed)) {
                // As providers do, until it is taken.
                loop {
                    match poster.post(at[*to], body.clone()).await {
                        Some(said) if said.status == 200 => {
                            accepted.fetch_add(said.accepted, Ordering::Relaxed);
                            break;
                        }
                        _ => refused.fetch_add(1, Ordering::Relaxed),
                    };
                }
            }
        });
    }
    callers.join_all().await;
    // One that was refused, or not answered, may have been taken in all the same; nothing is ever new twice.
    let (accepted, refused) = (accepted.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    assert!(accepted <= IDS as u64 && (accepted == IDS as u64 || refused > 0), "{accepted} were new, {refused} refused");
    all_done(at[0]).await;
    let mut times = HashMap::<String, usize>::new();
    for call in bot.calls() {
        let body: serde_json::Value = serde_json::from_slice(&call.body).expect("JSON");
        for message in body["entry"][0]["changes"][0]["value"]["messages"].as_array().expect("messages") {
            *times.entry(message["id"].as_str().expect("an id").to_owned()).or_default() += 1;
        }
    }
    assert_eq!(times.len(), IDS, "each was delivered");
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(doubled.is_empty(), "delivered more than once: {doubled:?}");
    fleet.stop().await;
}

/// Who gets which webhook, in the order of posting.
fn storm(random: &mut StdRng) -> Vec<(usize, String)> {
    let mut webhooks = Vec::new();
    let mut ids: Vec<usize> = (0..IDS).collect();
    for _ in 0..COPIES {
        ids.shuffle(random);
        for some in ids.chunks(TOGETHER) {
            let messages: Vec<_> =
                some.iter().map(|id| message(&format!("wamid.{id}"), &format!("5511{}", id % PEOPLE))).collect();
            webhooks.push((random.random_range(0..3), webhook(&[change(&messages, &[])])));
        }
    }
    webhooks.shuffle(random);
    webhooks
}
