//! Pages: what each takes with many events in the store against few, and what open pages cost whoever takes in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hapax::StoreUrl;
use hapax_store::clock::SystemClock;
use tokio_util::task::AbortOnDropHandle;

use super::child::{self, Child, Side};
use super::{BenchError, Progress, Stage, Subject, filled, load, requests};

const FEW: usize = 1_000;
/// How often each page is asked for in a round.
const LOOKS: usize = 30;
const OPEN_PAGES: usize = 200;
const CONNECTIONS: usize = 64;
const WATCHED: Duration = Duration::from_secs(30);
/// As long as the script of a page waits before it asks again.
const REST: Duration = Duration::from_millis(1_500);

/// Those that need nothing to be known.
const PAGES: [(&str, &str); 21] = [
    ("overview", "/"),
    ("overview of a week", "/?range=week"),
    ("events", "/events"),
    ("events of a channel", "/events?q=channel:bench"),
    ("events that wait", "/events?q=state:waiting"),
    ("events that are parked", "/events?q=state:parked"),
    ("events of the last hour", "/events?q=since:1h"),
    ("events with a word", "/events?q=text:ready"),
    ("threads", "/threads"),
    ("threads with a word", "/threads?q=text:ready"),
    ("outbox", "/outbox"),
    ("outbox of a channel", "/outbox?q=channel:bench"),
    ("parked", "/parked"),
    ("claims", "/claims"),
    ("claims of a scope", "/claims?scope=bench"),
    ("accounts", "/accounts"),
    ("channels", "/channels"),
    ("a channel", "/channels/bench"),
    ("tokens", "/tokens"),
    ("audit", "/audit"),
    ("settings", "/settings"),
];
/// Lists whose second page is looked at too.
const PAGED: [&str; 5] = ["/events", "/threads", "/outbox", "/parked", "/claims"];

impl Stage<'_> {
    /// Each page on a store that grows.
    pub(super) async fn pages(&mut self, subject: Subject<'_>, url: &StoreUrl, progress: Progress<'_>) -> Result<(), BenchError> {
        let tag = format!("{:x}", rand::random::<u32>());
        let file = self.new_store();
        let url = if subject.server.is_some() { url.clone() } else { StoreUrl::Sqlite(file.clone()) };
        let mut before = 0;
        for events in [FEW, self.plan.events] {
            let store = hapax::open_store(&url, &child::OPTIONS, Arc::new(SystemClock::new())).await?;
            let had = store.stats().await?.events;
            if before == 0 && had > FEW as u64 {
                let note = format!("{} has {had} events already, so its few are not few", subject.name);
                self.report.notes.push(note);
            }
            let words = subject.line(&format!("putting in {events} events"));
            filled::fill(&*store, &format!("{tag}.{events}"), events - before, before == 0, &mut |done| progress(&words, done))
                .await?;
            before = events;
            drop(store);
            let server = Child::start(subject.kind(&file), Side::Nobody).await?;
            let visit = Visit::sign_in(server.address).await?;
            let pages = visit.pages().await?;
            for round in 0..self.plan.rounds {
                (self.round, self.steps) = (round, 0);
                for (page, path) in &pages {
                    let line = |events: usize| subject.line(&format!("{page}, {events} events"));
                    self.say(&line(events), progress);
                    let measured = server.load(vec![visit.script(path)]).await?;
                    self.note(&line(events), &line(FEW), &measured, server.peak_mb());
                }
            }
            server.end().await?;
        }
        Ok(())
    }

    /// Taking in with nobody at the pages, and with many who look.
    pub(super) async fn watched(&mut self, subject: Subject<'_>, progress: Progress<'_>) -> Result<(), BenchError> {
        let line = |pages: usize| subject.line(&format!("fresh keys, {pages} open pages"));
        for round in 0..self.plan.rounds {
            (self.round, self.steps) = (round, 0);
            for pages in [0, OPEN_PAGES] {
                self.say(&line(pages), progress);
                let file = self.new_store();
                let server = Child::start(subject.kind(&file), Side::Nobody).await?;
                let tag = format!("{:x}", rand::random::<u32>());
                load::run(server.address, requests::fresh(&format!("{tag}w"), CONNECTIONS, 2_000)).await?;
                let visit = Visit::sign_in(server.address).await?;
                let asked = Arc::<AtomicUsize>::default();
                let open = visit.open(pages, &asked).await?;
                let measured = self.for_a_while(&server, &tag).await?;
                if open.iter().any(AbortOnDropHandle::is_finished) {
                    return Err("the stream of an open page ended".into());
                }
                if pages > 0 {
                    let rate = asked.load(Ordering::Relaxed) as f64 / measured.seconds;
                    let note = format!("{}: {pages} open pages asked for themselves {rate:.0} times a second", subject.name);
                    self.report.notes.push(note);
                }
                self.note(&line(pages), &line(0), &measured, server.peak_mb());
            }
        }
        Ok(())
    }
}

impl Stage<'_> {
    /// Loads it for so long that each page hears of it several times. What counts is the whole of it.
    async fn for_a_while(&self, server: &Child, tag: &str) -> Result<load::Measured, BenchError> {
        let (begun, before) = (Instant::now(), server.cpu());
        let mut all: Vec<load::Measured> = Vec::new();
        while begun.elapsed() < WATCHED {
            let tag = format!("{tag}.{}", all.len());
            all.push(load::run(server.address, requests::fresh(&tag, CONNECTIONS, self.plan.requests)).await?);
        }
        let requests = all.iter().map(|part| part.requests).sum();
        let seconds = all.iter().map(|part| part.seconds).sum();
        let [p50_us, p99_us] = [|part: &load::Measured| part.p50_us, |part: &load::Measured| part.p99_us]
            .map(|of| all.iter().map(of).max().unwrap_or_default());
        Ok(server.with_cpu(load::Measured { requests, seconds, p50_us, p99_us, cpu_us: 0.0 }, before))
    }
}

/// Somebody who has signed in.
#[derive(Clone)]
struct Visit {
    address: SocketAddr,
    client: reqwest::Client,
    cookie: String,
}

impl Visit {
    async fn sign_in(address: SocketAddr) -> Result<Self, BenchError> {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?;
        let form = client.post(format!("http://{address}/sign-in")).header("origin", format!("http://{address}"));
        let form = form.header("content-type", "application/x-www-form-urlencoded");
        let answer = form.body(format!("token={}", requests::TOKEN.replace(' ', "+"))).send().await?;
        let cookie = answer.headers().get("set-cookie").and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.and_then(|cookie| cookie.split(';').next()).ok_or("nobody could sign in")?.to_owned();
        Ok(Self { address, client, cookie })
    }

    async fn see(&self, path: &str) -> Result<String, BenchError> {
        Ok(self.get(path).send().await?.error_for_status()?.text().await?)
    }

    /// As the script of an open page does.
    async fn look_again(&self, path: &str) -> Result<String, BenchError> {
        Ok(self.get(path).header("hapax-live", "1").send().await?.error_for_status()?.text().await?)
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("http://{}{path}", self.address)).header("cookie", &self.cookie)
    }

    /// All pages, with an event, a thread, and the second page of what is long.
    async fn pages(&self) -> Result<Vec<(String, String)>, BenchError> {
        let mut pages: Vec<_> = PAGES.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect();
        for (name, list) in [("an event", "/events"), ("a thread", "/threads")] {
            let html = self.see(list).await?;
            let first = links(&html).find(|(path, _)| path.starts_with(&format!("{list}/"))).ok_or("the list is empty")?;
            pages.push((name.to_owned(), first.0));
        }
        for list in PAGED {
            let html = self.see(list).await?;
            // With few events some lists end on their first page.
            let next = links(&html).find(|(_, is_next)| *is_next).map_or_else(|| list.to_owned(), |(path, _)| path);
            pages.push((format!("second page of {}", list.trim_start_matches('/')), next));
        }
        Ok(pages)
    }

    fn script(&self, path: &str) -> requests::Script {
        requests::looks(path, &self.cookie, LOOKS)
    }

    /// So many pages that listen, and ask for themselves when they hear of something.
    async fn open(&self, pages: usize, asked: &Arc<AtomicUsize>) -> Result<Vec<AbortOnDropHandle<()>>, BenchError> {
        let mut open = Vec::with_capacity(pages);
        for _ in 0..pages {
            let live = self.get("/live").send().await?.error_for_status()?;
            let (visit, asked) = (self.clone(), Arc::clone(asked));
            open.push(AbortOnDropHandle::new(tokio::spawn(async move {
                // The stream ends with the server.
                let _ = visit.listen(live, &asked).await;
            })));
        }
        Ok(open)
    }

    async fn listen(&self, mut live: reqwest::Response, asked: &AtomicUsize) -> Result<(), BenchError> {
        while let Some(heard) = live.chunk().await? {
            if heard.windows(11).any(|part| part == b"event: news") {
                let begun = Instant::now();
                self.look_again("/events").await?;
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(REST.saturating_sub(begun.elapsed())).await;
            }
        }
        Ok(())
    }
}

/// Where the links of a page lead, and whether it is to the next page of the list.
fn links(html: &str) -> impl Iterator<Item = (String, bool)> {
    html.split("<a ").skip(1).filter_map(|link| {
        let tag = link.split('>').next()?;
        let path = tag.split("href=\"").nth(1)?.split('"').next()?;
        Some((path.replace("&amp;", "&"), tag.contains("rel=\"next\"")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_a_page() {
        let html = r#"<a href="/events/evt_1">one</a><a class="button" href="/events?q=a&amp;cursor=x" rel="next">Further</a>"#;
        let found: Vec<_> = links(html).collect();
        assert_eq!(found, [("/events/evt_1".to_owned(), false), ("/events?q=a&cursor=x".to_owned(), true)]);
    }
}
