//! The same commands to a real Redis and to the door: the replies are the same bytes.

use std::net::{Ipv4Addr, SocketAddr};

use hapax_testkit::servers::Engine;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::OpenDoor;
use super::talk::{Talk, command};
use crate::rig::Opened;

on_every_store! {
    replies_are_those_of_redis
    random_commands_are_answered_as_redis_answers
    scripts_of_lock_libraries_answer_as_in_redis
    what_is_sent_together_is_answered_in_order
}

/// Keys, conditions and times. `@` stands before each key, and is another word in each run.
const COMMANDS: &str = "PING
PING hello
ECHO a
SET @a 1
GET @a
SET @a 2 NX
SET @a 2 NX EX 100
SET @a 2 XX EX 100
TTL @a
GET @a
SET @a 3 GET
SET @a 4 NX GET
GET @a
SET @b 1 NX GET EX 90
GET @b
TTL @b
SET @b 2 KEEPTTL
TTL @b
SET @b 3 EX 200 XX GET
TTL @b
SET @none 1 XX
SET @none 1 XX GET
GET @none
TTL @none
PTTL @none
EXPIRE @none 10
EXPIRE @b 77
TTL @b
PEXPIRE @b 50000
TTL @b
EXPIRE @b 120 XX
EXPIRE @b 30 NX
TTL @b
EXPIRE @b -1
EXISTS @b
SETNX @c x
SETNX @c y
GET @c
SETEX @c 130 z
GET @c
TTL @c
MGET @a @none @c
EXISTS @a @c @a @none
DEL @a @a @none
UNLINK @c @none
EXISTS @a @c
SET @d v EXAT 4102444800
GET @d
SET @e v PXAT 1
GET @e
SET
SET @a
SET @a 1 EX
SET @a 1 EX 0
SET @a 1 EX -5
SET @a 1 EX x
SET @a 1 EX 1 PX 1
SET @a 1 NX XX
SET @a 1 KEEPTTL EX 5
SET @a 1 WHAT
SETEX @a 0 v
SETEX @a x v
EXPIRE @a x
EXPIRE @a 1 WHAT
GET
GET a b
NOSUCHCOMMAND a b
SELECT 0
SELECT 99
SELECT x
CLIENT GETNAME
CLIENT SETNAME me
CLIENT GETNAME
EVALSHA 0000000000000000000000000000000000000000 1 a b
SCRIPT EXISTS 0000000000000000000000000000000000000000
EVAL x 2 a
EVAL x -1 a
EVAL x y a
GET @d
DEL @d";

async fn redis() -> Option<Talk> {
    let server = Engine::Redis.shared().await?;
    Some(Talk::open(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await)
}

async fn replies_are_those_of_redis(opened: Opened) {
    let Some(mut redis) = redis().await else { return };
    let door = OpenDoor::start(opened).await;
    let mut hapax = Talk::signed_in(door.at).await;
    for protocol in ["2", "3"] {
        let tag = format!("like-{:x}-{protocol}-", rand::random::<u64>());
        redis.ask(&["HELLO", protocol]).await;
        assert!(hapax.ask(&["HELLO", protocol]).await.contains(&format!("proto\r\n:{protocol}\r\n")));
        for line in COMMANDS.lines().map(|line| line.replace('@', &tag)) {
            let (ours, theirs) = (hapax.line(&line).await, redis.line(&line).await);
            assert!(
                ours == theirs || line.starts_with("TTL") && near(&ours, &theirs),
                "{line} by RESP{protocol}: {ours} and {theirs}"
            );
        }
        redis.ask(&["CLIENT", "SETNAME", ""]).await;
        hapax.ask(&["CLIENT", "SETNAME", ""]).await;
    }
    door.stop().await;
}

/// A few keys, and all that can be asked of them. Each key has an end: one without is where the door differs.
fn random_command(random: &mut StdRng, tag: &str) -> Vec<String> {
    let key = |random: &mut StdRng| format!("{tag}{}", random.random_range(0..4));
    let value = |random: &mut StdRng| ["me", "you"][random.random_range(0..2)].to_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (one, other, held) = (key(random), key(random), value(random));
    let mut command = match random.random_range(0..10) {
        0..=2 => {
            let mut set = words(&["SET", &one, &held]);
            match random.random_range(0..4) {
                0 => set.extend(words(&["NX", "EX", "100"])),
                1 => set.extend(words(&["XX", "PX", "100000"])),
                2 => set.extend(words(&["KEEPTTL", "XX"])),
                _ => set.extend(words(&["EX", "200"])),
            }
            set
        }
        3 => words(&["GET", &one]),
        4 => words(&["DEL", &one, &other]),
        5 => words(&["MGET", &one, &other, &one]),
        6 => words(&["EXISTS", &one, &other]),
        7 => words(&["EXPIRE", &one, ["100", "-1", "300"][random.random_range(0..3)]]),
        8 => words(&["TTL", &one]),
        _ => words(&["EVAL", SCRIPTS[random.random_range(0..SCRIPTS.len())], "1", &one, &held, "30000", "0"]),
    };
    if command[0] == "SET" && random.random_ratio(1, 3) {
        command.push("GET".to_owned());
    }
    command
}

async fn random_commands_are_answered_as_redis_answers(opened: Opened) {
    let Some(mut redis) = redis().await else { return };
    let door = OpenDoor::start(opened).await;
    let mut hapax = Talk::signed_in(door.at).await;
    let seed = 4_272;
    let (mut random, tag) = (StdRng::seed_from_u64(seed), format!("random-{:x}-", rand::random::<u64>()));
    for n in 0..1_500 {
        let command = random_command(&mut random, &tag);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let (ours, theirs) = (hapax.ask(&words).await, redis.ask(&words).await);
        assert!(ours == theirs || words[0] == "TTL" && near(&ours, &theirs), "{n}, seed {seed}, {words:?}: {ours} and {theirs}");
    }
    door.stop().await;
}

/// Times that are left, told a moment apart.
fn near(ours: &str, theirs: &str) -> bool {
    let seconds = |reply: &str| reply.trim_end().strip_prefix(':').and_then(|number| number.parse::<i64>().ok());
    matches!((seconds(ours), seconds(theirs)), (Some(ours), Some(theirs)) if (ours - theirs).abs() <= 8 && ours.signum() == theirs.signum())
}

/// Each script with a holder, a stranger, and nobody.
async fn scripts_of_lock_libraries_answer_as_in_redis(opened: Opened) {
    let Some(mut redis) = redis().await else { return };
    let door = OpenDoor::start(opened).await;
    let mut hapax = Talk::signed_in(door.at).await;
    for (n, script) in SCRIPTS.iter().enumerate() {
        for (state, holder) in [("mine", Some("me")), ("another's", Some("you")), ("free", None)] {
            let key = format!("script-{:x}-{n}", rand::random::<u64>());
            for talk in [&mut redis, &mut hapax] {
                if let Some(holder) = holder {
                    talk.ask(&["SET", &key, holder, "EX", "50"]).await;
                }
            }
            let call = ["EVAL", script, "1", &key, "me", "30000", "0"];
            assert_eq!(hapax.ask(&call).await, redis.ask(&call).await, "{state}: {script}");
            let [ours, theirs] = [hapax.ask(&["GET", &key]).await, redis.ask(&["GET", &key]).await];
            assert_eq!(ours, theirs, "{state}, after {script}");
            let [ours, theirs] = [hapax.ask(&["TTL", &key]).await, redis.ask(&["TTL", &key]).await];
            assert!(near(&ours, &theirs), "{state}, after {script}: {ours} and {theirs}");
        }
        let (loaded, known) = (redis.ask(&["SCRIPT", "LOAD", script]).await, hapax.ask(&["SCRIPT", "LOAD", script]).await);
        assert_eq!(known, loaded);
        let sha = known.lines().nth(1).expect("a hash").to_owned();
        let call = ["EVALSHA", &sha, "1", "nobody's", "me", "1", "0"];
        assert!(!hapax.ask(&call).await.starts_with("-NOSCRIPT"), "{script}");
    }
    door.stop().await;
}

/// Idioms as people write them.
const SCRIPTS: &[&str] = &[
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    "if redis.call('GET', KEYS[1]) == ARGV[1] then\n  redis.call('DEL', KEYS[1])\n  return true\nend\nreturn false",
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end",
    "local v = redis.call('get', KEYS[1])\nif v == ARGV[1] then return redis.call('del', KEYS[1])\nelseif v == false then return -1\nelse return 0 end",
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) \
     else return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) end",
    "local held = redis.call('GET', KEYS[1]) if held == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return true \
     elseif not held then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return true end return false",
    "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
    "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 else return 0 end",
    "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])",
];

async fn what_is_sent_together_is_answered_in_order(opened: Opened) {
    let door = OpenDoor::start(opened).await;
    let mut talk = Talk::signed_in(door.at).await;
    let mut sent = Vec::new();
    for n in 0..1_000 {
        let (key, value) = (format!("k{}", n % 10), n.to_string());
        sent.extend(command(&["SET", &key, &value, "EX", "60"]));
        sent.extend(command(&["GET", &key]));
        sent.extend(command(&["ECHO", &value]));
        sent.extend(b"GET too many words\r\n");
    }
    talk.send(&sent).await;
    for n in 0..1_000 {
        let bulk = format!("${}\r\n{n}\r\n", n.to_string().len());
        for expected in ["+OK\r\n", &bulk, &bulk, "-ERR wrong number of arguments for 'get' command\r\n"] {
            assert_eq!(talk.hear().await.as_deref(), Some(expected), "{n}");
        }
    }
    assert_eq!(door.metric("hapax_resp_commands_total"), 4_001);
    door.stop().await;
}
