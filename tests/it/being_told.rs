//! `notify`: whoever has to look is told, at least once, and it is signed.

use hapax_testkit::fake_bot::{Call, FakeBot, Say};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::program::{Poster, disk_folder, program};
use crate::rig::{in_time, text};

const SECRET: &str = "a secret for notices";

fn is_signed(call: &Call) -> bool {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any length will do");
    mac.update(format!("{}.{}.", call.header("webhook-id"), call.header("webhook-timestamp")).as_bytes());
    mac.update(&call.body);
    let encoded = call.header("webhook-signature").strip_prefix("v1,").unwrap_or_default();
    let signature = base64_of(encoded);
    mac.verify_slice(&signature).is_ok()
}

/// As every library of the standard does it.
fn base64_of(text: &str) -> Vec<u8> {
    let value = |sign: u8| match sign {
        b'A'..=b'Z' => sign - b'A',
        b'a'..=b'z' => sign - b'a' + 26,
        b'0'..=b'9' => sign - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let bits: Vec<u8> = text.bytes().filter(|sign| *sign != b'=').map(value).collect();
    let whole = bits.chunks(4).flat_map(|four| {
        let word = four.iter().fold(0u32, |word, bits| (word << 6) | u32::from(*bits)) << (6 * (4 - four.len()));
        word.to_be_bytes()[1..four.len()].to_vec()
    });
    whole.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_parked_is_told_until_somebody_hears_it() {
    let folder = disk_folder();
    let bot = FakeBot::start(|_| Say::Status(400)).await.expect("a bot");
    // The first time nobody takes it.
    let ear = FakeBot::start(|call| Say::Status(if call.number == 0 { 500 } else { 204 })).await.expect("an ear");
    let hapax = program(folder.path(), Some(&bot.url()), "");
    let config = folder.path().join("hapax.toml");
    let with_notify = format!(
        "notify = \"{}\"\nnotify_secret = \"{SECRET}\"\n{}",
        ear.url(),
        std::fs::read_to_string(&config).expect("a config")
    );
    std::fs::write(&config, with_notify).expect("written");
    let (process, address) = hapax.serve().await.expect("it starts");
    assert_eq!(Poster::new().post_until_taken(address, text("m1", "ana")).await.word, "accepted");
    let first = in_time("a notice", ear.called(1)).await.remove(0);
    process.kill_nine().await.expect("killed");

    let (process, _) = hapax.serve().await.expect("it starts again");
    let again = in_time("the same notice", ear.called(2)).await.remove(1);
    assert_eq!((again.header("webhook-id"), &again.body), (first.header("webhook-id"), &first.body), "the same, as it was");
    for call in [&first, &again] {
        assert!(is_signed(call), "{call:?}");
    }
    let told: serde_json::Value = serde_json::from_slice(&first.body).expect("JSON");
    assert_eq!((&told["type"], &told["data"]["channels"][0]["parked"]), (&"items.parked".into(), &1.into()), "{told}");
    assert!(!first.body.windows(3).any(|part| part == b"ana"), "nobody's name is in it");
    assert!(process.stop().await.expect("it stops").success());
    assert_eq!(ear.calls().len(), 2, "what was heard is not told again");
}
