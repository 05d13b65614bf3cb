//! Signed WhatsApp webhooks of about 700 bytes, made before the clock starts.

use std::sync::Arc;

use hapax_providers::{self, Provider, Unsigned, settings::Settings};

/// The secret both sides of the benchmark use.
pub(super) const SECRET: &str = "only for benchmarks";
/// The admin token of the servers, and the token they send with.
pub(super) const TOKEN: &str = "only for benchmarks, on loopback";
/// How many messages exist for copies to be made of.
pub(super) const COPIED: usize = 10_000;
/// How many people there are: so many that hardly two messages are one's.
const PEERS: usize = 100_000_000;
/// Messages of one connection, at most; those of another go to other people.
const PER_CONNECTION: usize = 1_000_000;

/// The requests of one connection: one text after the other, with their borders.
pub(super) struct Script {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Script {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.text[start..end])
    }
}

pub(super) fn settings() -> Settings {
    Settings::Whatsapp { secrets: vec![SECRET.into()], verify_token: None }
}

/// The channel whose events wait, and the one whose events are delivered.
pub(super) const WAITING: &str = "bench";
pub(super) const DELIVERED: &str = "delivered";

/// About `total` messages that nobody has seen, over this many connections.
pub(super) fn fresh(tag: &str, connections: usize, total: usize) -> Vec<Script> {
    fresh_on(WAITING, tag, connections, total)
}

pub(super) fn fresh_on(channel: &str, tag: &str, connections: usize, total: usize) -> Vec<Script> {
    scripts(channel, connections, total, |connection, n| format!("{tag}.{connection}.{n}"))
}

/// Like [`fresh`], but one in `one_in` is a copy of one of the first [`COPIED`] messages of `fresh(tag, connections, COPIED)`.
pub(super) fn mixed(tag: &str, connections: usize, total: usize, one_in: usize) -> Vec<Script> {
    let known = COPIED.div_ceil(connections);
    scripts(WAITING, connections, total, |connection, n| match n % one_in {
        0 => format!("{tag}.{connection}.{}", n % known),
        _ => format!("{tag}x.{connection}.{n}"),
    })
}

fn scripts(channel: &str, connections: usize, total: usize, id: impl Fn(usize, usize) -> String) -> Vec<Script> {
    let provider = hapax_providers::build(&settings());
    let each = total.div_ceil(connections);
    let script = |connection: usize| {
        let mut script = Script { text: Vec::with_capacity(each * 960), ends: Vec::with_capacity(each) };
        for n in 0..each {
            let id = id(connection, n);
            append(&mut script, &provider, channel, &id, spread(&id));
        }
        script
    };
    (0..connections).map(script).collect()
}

/// The calls that a sender without hapax would make to the provider. Each tag has people of its own: in a database that outlives its
/// server, the last messages to those of another may still be held by who was killed.
pub(super) fn direct_sends(tag: &str, connections: usize, total: usize) -> Vec<Script> {
    let first = spread(tag);
    plain_scripts(connections, total, |connection, n| {
        let to = recipient(first, connection, n);
        let body = format!(
            r#"{{"messaging_product":"whatsapp","to":"{to:011}","type":"text","text":{{"body":"Your order is ready, number {n}."}}}}"#
        );
        (format!("POST /v25.0/700001/messages HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"), body)
    })
}

/// The same messages, submitted to hapax.
pub(super) fn submits(tag: &str, connections: usize, total: usize) -> Vec<Script> {
    let first = spread(tag);
    plain_scripts(connections, total, |connection, n| {
        let to = recipient(first, connection, n);
        let body = format!(
            r#"{{"channel":"bench","account":"700001","to":"{to:011}","text":"Your order is ready, number {n}.","request_id":"{tag}.{connection}.{n}"}}"#
        );
        (format!("POST /v1/messages HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"), body)
    })
}

/// Claims of fresh keys.
pub(super) fn claims(tag: &str, connections: usize, total: usize) -> Vec<Script> {
    plain_scripts(connections, total, |connection, n| {
        let body = format!(r#"{{"key":"{tag}:{connection}:{n}","holder":"host-1","ttl":3600}}"#);
        (format!("POST /v1/claims HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"), body)
    })
}

/// One page, asked for again and again.
pub(super) fn looks(path: &str, cookie: &str, times: usize) -> Script {
    let mut script = Script { text: Vec::new(), ends: Vec::with_capacity(times) };
    for _ in 0..times {
        script.text.extend_from_slice(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n").as_bytes());
        script.ends.push(script.text.len());
    }
    script
}

fn plain_scripts(connections: usize, total: usize, request: impl Fn(usize, usize) -> (String, String)) -> Vec<Script> {
    let each = total.div_ceil(connections);
    let script = |connection: usize| {
        let mut script = Script { text: Vec::new(), ends: Vec::with_capacity(each) };
        for n in 0..each {
            let (head, body) = request(connection, n);
            let rest = format!("Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
            script.text.extend_from_slice(format!("{head}{rest}{body}").as_bytes());
            script.ends.push(script.text.len());
        }
        script
    };
    (0..connections).map(script).collect()
}

fn recipient(first: usize, connection: usize, n: usize) -> usize {
    55_119_000_000 + (first + connection * PER_CONNECTION + n) % PEERS
}

/// The same id always comes from the same person.
fn spread(id: &str) -> usize {
    blake3::hash(id.as_bytes()).as_bytes()[..4].iter().fold(0, |sum, &byte| sum * 256 + usize::from(byte)) % PEERS
}

fn append(script: &mut Script, provider: &Arc<dyn Provider>, channel: &str, id: &str, peer: usize) {
    let body = format!(
        concat!(
            r#"{{"object":"whatsapp_business_account","entry":[{{"id":"900001","changes":[{{"field":"messages","value":{{"#,
            r#""messaging_product":"whatsapp","metadata":{{"display_phone_number":"15550009999","phone_number_id":"700001"}},"#,
            r#""contacts":[{{"profile":{{"name":"Ana Maria de Souza"}},"wa_id":"55119{peer:08}","user_id":"BR.{peer:020}"}}],"#,
            r#""messages":[{{"from":"55119{peer:08}","from_user_id":"BR.{peer:020}","id":"wamid.{id:_<48}","timestamp":"1760000000","#,
            r#""type":"text","text":{{"body":"Hello, is my order ready? I would like to pick it up this afternoon, at about five."#,
            r#" If it is not, please tell me when I can come. Thank you very much and have a nice day!"}}}}]}}}}]}}]}}"#
        ),
        peer = peer,
        id = id
    );
    let mut head = format!(
        "POST /in/{channel} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nUser-Agent: facebookexternalua\r\nContent-Length: {}\r\n",
        body.len()
    );
    let unsigned = Unsigned { url: None, headers: &http::HeaderMap::new(), body: body.as_bytes() };
    for (name, value) in provider.sign(unsigned, 0) {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
    }
    head.push_str("\r\n");
    script.text.extend_from_slice(head.as_bytes());
    script.text.extend_from_slice(body.as_bytes());
    script.ends.push(script.text.len());
}

/// Like [`fresh`], with bodies that are not the signed ones.
#[cfg(test)]
pub(super) fn forged(tag: &str, connections: usize, total: usize) -> Vec<Script> {
    let mut scripts = fresh(tag, connections, total);
    for script in &mut scripts {
        script.ends.iter().for_each(|&end| script.text[end - 1] = b' ');
    }
    scripts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_of_the_size_they_claim_and_differ() {
        let scripts = fresh("t", 2, 10);
        let all: Vec<&[u8]> = scripts.iter().flat_map(Script::iter).collect();
        assert_eq!(all.len(), 10);
        let body = all[0].windows(4).position(|at| at == b"\r\n\r\n").map(|at| all[0].len() - at - 4);
        assert!(body.is_some_and(|bytes| (650..850).contains(&bytes)), "{body:?}");
        assert_ne!(all[0], all[1]);
    }

    #[test]
    fn each_tag_sends_to_people_of_its_own() {
        let people = |tag: &str| -> Vec<Vec<u8>> {
            direct_sends(tag, 4, 40).iter().flat_map(|script| script.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()).collect()
        };
        let (one, other) = (people("one"), people("other"));
        assert_eq!(one, people("one"));
        assert!(one.iter().all(|call| !other.contains(call)));
    }

    #[test]
    fn copies_are_copies() {
        let known: Vec<Vec<u8>> =
            fresh("t", 4, COPIED).iter().flat_map(|script| script.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()).collect();
        let mixed = mixed("t", 4, 40, 2);
        let copies = mixed.iter().flat_map(Script::iter).filter(|request| known.iter().any(|one| one == request)).count();
        assert_eq!(copies, 20);
    }
}
