use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::*;

const IDLE: Idle = Idle { most: 8, time: Duration::from_secs(60) };
/// More than the buffers of two sockets hold.
const LARGE: usize = 32 << 20;
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// One that says so on each connection, request by request, and then closes it.
async fn other_side(connections: Vec<Vec<&'static str>>) -> (String, Arc<Mutex<Vec<usize>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}/hook?a=b", listener.local_addr().expect("an address"));
    let served = Arc::<Mutex<Vec<usize>>>::default();
    let counts = Arc::clone(&served);
    tokio::spawn(async move {
        for (at, answers) in connections.into_iter().enumerate() {
            let (stream, _) = listener.accept().await.expect("a connection");
            counts.lock().expect("no panic").push(0);
            tokio::spawn(serve(stream, answers.into(), at, Arc::clone(&counts)));
        }
    });
    (address, served)
}

async fn serve(mut stream: TcpStream, mut answers: VecDeque<&'static str>, at: usize, served: Arc<Mutex<Vec<usize>>>) {
    let mut heard = Vec::new();
    while let Some(answer) = answers.pop_front() {
        while !heard.ends_with(b"hello") {
            if stream.read_buf(&mut heard).await.unwrap_or(0) == 0 {
                return;
            }
        }
        assert!(heard.starts_with(b"POST /hook?a=b HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&heard));
        heard.clear();
        served.lock().expect("no panic")[at] += 1;
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

async fn post(client: &Client, address: &str) -> Result<Content, NoAnswer> {
    let to = client.named("target", &"shop".into(), address).expect("an address");
    let request = Request { to, method: Method::POST, headers: HeaderMap::new(), body: whole("hello") };
    Ok(read(call(request, soon()).await?, soon()).await)
}

fn is_hi(answer: &Result<Content, NoAnswer>) -> bool {
    matches!(answer, Ok(Content::Whole(body)) if body == "hi")
}

#[tokio::test]
async fn one_connection_carries_one_call_after_the_other() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n";
    let empty = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let (address, served) = other_side(vec![vec![OK, chunked, empty, OK]]).await;
    let client = Client::new(IDLE).expect("a client");
    assert!(is_hi(&post(&client, &address).await));
    assert!(is_hi(&post(&client, &address).await));
    assert!(matches!(post(&client, &address).await, Ok(Content::Whole(body)) if body.is_empty()));
    assert!(is_hi(&post(&client.clone(), &address).await));
    assert_eq!(*served.lock().expect("no panic"), [4]);
}

#[tokio::test]
async fn what_was_closed_meanwhile_costs_no_call() {
    let (address, served) = other_side(vec![vec![OK], vec![OK]]).await;
    let client = Client::new(IDLE).expect("a client");
    assert!(is_hi(&post(&client, &address).await));
    // Its end comes here, and the runtime looks now and then at what has come.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(is_hi(&post(&client, &address).await));
    assert_eq!(*served.lock().expect("no panic"), [1, 1]);
}

#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_ends_its_connection() {
    let begun = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi";
    let (address, served) = other_side(vec![vec![begun, OK], vec![OK]]).await;
    let client = Client::new(IDLE).expect("a client");
    let to = client.named("target", &"shop".into(), &address).expect("an address");
    let request = Request { to, method: Method::POST, headers: HeaderMap::new(), body: whole("hello") };
    drop(call(request, soon()).await.ok().expect("an answer"));
    assert!(is_hi(&post(&client, &address).await));
    assert_eq!(*served.lock().expect("no panic"), [1, 1]);
}

#[tokio::test]
async fn what_breaks_after_it_was_written_is_not_repeated() {
    let (address, served) = other_side(vec![vec![OK, "HTTP/1.1 20"], vec![OK]]).await;
    let client = Client::new(IDLE).expect("a client");
    assert!(is_hi(&post(&client, &address).await));
    assert!(matches!(post(&client, &address).await, Err(NoAnswer::Broken(_))));
    assert_eq!(*served.lock().expect("no panic"), [2]);
}

/// Answers when it has the head of a request, reads the rest when it is told to, and says how much it was; then it serves once more.
async fn answers_first(answer: Vec<u8>) -> (String, oneshot::Sender<()>, oneshot::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}/hook?a=b", listener.local_addr().expect("an address"));
    let ((go_on, told), (count, counted)) = (oneshot::channel(), oneshot::channel());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut heard = vec![0; 1_024];
        let first = stream.read(&mut heard).await.expect("a head");
        let head = heard[..first].windows(4).position(|four| four == b"\r\n\r\n").expect("the head's end") + 4;
        let (mut reads, mut writes) = stream.into_split();
        let answering = tokio::spawn(async move {
            writes.write_all(&answer).await.expect("somebody reads");
            writes
        });
        told.await.expect("the test goes on");
        let (mut body, mut buffer) = (first - head, vec![0; 1 << 20]);
        while body < LARGE {
            match reads.read(&mut buffer).await.unwrap_or(0) {
                0 => break,
                more => body += more,
            }
        }
        let _ = count.send(body);
        let stream = reads.reunite(answering.await.expect("no panic")).expect("the same");
        serve(stream, [OK].into(), 0, Arc::new(Mutex::new(vec![0]))).await;
    });
    (address, go_on, counted)
}

fn answer_of(length: usize) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + length, b'x');
    answer
}

fn large(client: &Client, address: &str) -> Request {
    let to = client.named("target", &"shop".into(), address).expect("an address");
    Request { to, method: Method::POST, headers: HeaderMap::new(), body: whole(vec![b'b'; LARGE]) }
}

#[tokio::test]
async fn an_answer_that_comes_first_does_not_cut_its_request_off() {
    for length in [0, 2, 100_000] {
        let (address, go_on, counted) = answers_first(answer_of(length)).await;
        let client = Client::new(IDLE).expect("a client");
        let response = call(large(&client, &address), soon()).await.ok().expect("an answer");
        let Content::Whole(answer) = read(response, soon()).await else { panic!("not whole: {length}") };
        assert_eq!(answer.len(), length);
        go_on.send(()).expect("it listens");
        assert_eq!(counted.await, Ok(LARGE));
        // The other side has heard all of it before this one knows that it has said all.
        let to = client.named("target", &"shop".into(), &address).expect("an address");
        while !to.host.has_one_free() {
            tokio::task::yield_now().await;
        }
        assert!(is_hi(&post(&client, &address).await), "the connection is used again: {length}");
    }
}

#[tokio::test]
async fn a_request_goes_on_while_nobody_reads_its_answer() {
    for length in [2, 100_000] {
        let (address, go_on, counted) = answers_first(answer_of(length)).await;
        let client = Client::new(IDLE).expect("a client");
        let response = call(large(&client, &address), soon()).await.ok().expect("an answer");
        go_on.send(()).expect("it listens");
        assert_eq!(counted.await, Ok(LARGE));
        let Content::Whole(answer) = read(response, soon()).await else { panic!("not whole: {length}") };
        assert_eq!(answer.len(), length);
        // The other side has heard all of it before this one knows that it has said all.
        let to = client.named("target", &"shop".into(), &address).expect("an address");
        while !to.host.has_one_free() {
            tokio::task::yield_now().await;
        }
        assert!(is_hi(&post(&client, &address).await), "the connection is used again: {length}");
    }
}

#[tokio::test]
async fn a_short_answer_that_is_kept_keeps_no_buffer() {
    let (address, _) = other_side(vec![vec![OK, OK]]).await;
    let client = Client::new(IDLE).expect("a client");
    assert!(matches!(post(&client, &address).await, Ok(Content::Whole(body)) if body.is_unique()));
}

#[tokio::test]
async fn an_answer_that_breaks_off_and_one_that_never_ends_are_told_apart() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi";
    let (address, _) = other_side(vec![vec![cut], vec![cut, "never"]]).await;
    let client = Client::new(IDLE).expect("a client");
    assert!(matches!(post(&client, &address).await, Ok(Content::BrokeOff)));
    let to = client.named("target", &"shop".into(), &address).expect("an address");
    let request = Request { to, method: Method::POST, headers: HeaderMap::new(), body: whole("hello") };
    let response = call(request, soon()).await.ok().expect("a head");
    assert!(matches!(read(response, Instant::now()).await, Content::TimedOut));
}

#[tokio::test]
async fn who_cannot_be_reached_gets_nothing_and_a_cause_is_words_without_address_and_number() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port()
    };
    let client = Client::new(IDLE).expect("a client");
    let Err(NoAnswer::Unreachable(why)) = post(&client, &format!("http://127.0.0.1:{port}/secret-token")).await else {
        panic!("nobody listens")
    };
    assert_eq!(why, "Connection refused");
}

#[test]
fn a_path_leads_where_its_address_does() {
    let client = Client::new(IDLE).expect("a client");
    let bases =
        ["http://api.example", "https://api.example:8443", "http://[::1]:9", "http://api.example/v1", "http://api.example/v1/"];
    let paths = [
        "/bot12:a_B-c/sendMessage",
        "/a b/\u{e9}",
        "/a/../b",
        "/a%2fb?c=d&e=\u{e9}",
        "/",
        "//b/c",
        "/a#b",
        "/it's|{x}",
        "/v25.0/7/messages",
        "/a/./b",
    ];
    for base in bases {
        let begins = client.base("api_base", &"shop".into(), base).expect("an address");
        for path in paths {
            let url = Url::parse(&format!("{base}{path}")).expect("an address");
            let (place, known) = (begins.at(path).expect("a place"), client.place(&url).expect("a place"));
            assert_eq!((&place.path, place.host.name()), (&known.path, known.host.name()), "{base}{path}");
            assert!(Arc::ptr_eq(&place.host, &known.host));
        }
    }
}

#[test]
fn only_addresses_of_http_are_places() {
    let client = Client::new(IDLE).expect("a client");
    for address in ["ftp://a.example/", "data:x", "no address"] {
        assert!(client.named("target", &"shop".into(), address).is_err(), "{address}");
    }
    let place = |address: &str| client.named("target", &"shop".into(), address).expect("a place");
    assert_eq!(place("https://user:pass@a.example:443/x").host.name(), "a.example");
    assert_eq!(place("http://a.example:443/x").host.name(), "a.example:443");
}
