//! What machines see of a running hapax: its metrics, from the first scrape on; that dashboards and alerts name what there is; its traces; and
//! its log as JSON.

mod log_lines;
mod traces;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::fake_provider::FakeProvider;
use hapax_testkit::process::Program;

use crate::program::{ADMIN_TOKEN, Poster, disk_folder, store_path};
use crate::rig::{SECRET, eventually, text};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// A hapax that has something of everything: it sends, serves bots, and has the Redis door.
fn everything(folder: &Path, bot: &FakeBot, provider: &FakeProvider) -> Program {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let config = format!(
        "listen = \"127.0.0.1:0\"\nresp_listen = \"127.0.0.1:{port}\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n\
         [log]\nfilter = \"off\"\n[channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock knock\"\n\
         token = \"a-token\"\napi_base = \"{}\"\ndropin = true\ntarget = \"{}\"\n[channel.quiet]\nprovider = \"stripe\"\nsecret = \"{SECRET}\"\n",
        store_path(folder).display(),
        provider.url(),
        bot.url(),
    );
    Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config).expect("a config file")
}

async fn scrape(poster: &Poster, address: SocketAddr) -> String {
    poster.get(address, "/metrics").await.expect("the metrics")
}

/// Every series by name and labels, without its value.
fn series(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect()
}

fn names(text: &str) -> BTreeSet<String> {
    series(text).into_iter().map(|series| series.split('{').next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_series_is_there_from_the_first_scrape_and_none_comes_later() {
    let folder = disk_folder();
    let replies = vec![("content-type", "application/vnd.hapax.replies+json".to_owned())];
    let say = move |_: &hapax_testkit::fake_bot::Call| Say::Answer {
        status: 200,
        headers: replies.clone(),
        body: r#"{"replies":[{"text":"hello"}]}"#.to_owned(),
    };
    let (bot, provider) = (FakeBot::start(say).await.expect("a bot"), FakeProvider::willing().await.expect("a provider"));
    let (process, at) = everything(folder.path(), &bot, &provider).serve().await.expect("it starts");
    let poster = Poster::new();
    let first = scrape(&poster, at).await;
    for line in [
        r#"hapax_events_accepted_total{channel="quiet"} 0"#,
        r#"hapax_deliveries_total{channel="shop"} 0"#,
        r#"hapax_accept_seconds_count{channel="shop"} 0"#,
        r#"hapax_delivery_seconds_bucket{channel="shop",le="+Inf"} 0"#,
        r#"hapax_outbox_oldest_seconds{channel="shop"} 0"#,
        r#"hapax_outbox_full{channel="shop"} 0"#,
        r#"hapax_spool_items{channel="shop",state="parked"} 0"#,
        r#"hapax_items_without_target_total{channel="shop"} 0"#,
        r#"hapax_claims_asked_total{answer="claimed"} 0"#,
        "hapax_connections_failed_total 0",
        "hapax_spans_dropped_total 0",
    ] {
        assert!(first.lines().any(|shown| shown == line), "{line}: {first}");
    }
    assert!(first.contains(concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"")), "{first}");
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "process_start_time_seconds"] {
        assert!(names(&first).contains(name), "{name}: {first}");
    }

    for _ in 0..2 {
        assert_eq!(poster.post(at, text("wamid.1", "5511900001")).await.expect("an answer").status, 200);
    }
    assert_eq!(poster.post_to(at, "quiet", "{}".to_owned()).await.expect("an answer").status, 401);
    assert_eq!(poster.post_to(at, "nowhere", "{}".to_owned()).await.expect("an answer").status, 401);
    bot.called(1).await;
    eventually("sizes are measured", async || {
        let text = scrape(&poster, at).await;
        text.contains(r#"hapax_events_duplicate_total{channel="shop"} 1"#) && text.contains("\nhapax_store_events 1\n")
    })
    .await;
    let later = series(&scrape(&poster, at).await);
    let (first, empty) = (series(&first), BTreeSet::new());
    assert_eq!(later.difference(&first).collect::<BTreeSet<_>>(), empty.iter().collect(), "came later");
    assert_eq!(first.difference(&later).collect::<BTreeSet<_>>(), empty.iter().collect(), "went away");
    process.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboards_alerts_and_documents_name_metrics_that_there_are() {
    let folder = disk_folder();
    let (bot, provider) = (FakeBot::willing().await.expect("a bot"), FakeProvider::willing().await.expect("a provider"));
    let (process, at) = everything(folder.path(), &bot, &provider).serve().await.expect("it starts");
    let shown = names(&scrape(&Poster::new(), at).await);
    process.stop().await.expect("it stops");
    let mut missing = Vec::new();
    for page in
        ["contrib/grafana/hapax.json", "contrib/prometheus/hapax.rules.yml", "docs/operations.md", "docs/troubleshooting.md"]
    {
        let named = named_in(&read(page));
        assert!(!named.is_empty() || page.ends_with("troubleshooting.md"), "{page} names no metric");
        let there = |name: &String| match name.strip_suffix('_') {
            // "hapax_dropin_*": all that begin so.
            Some(_) => shown.iter().any(|shown| shown.starts_with(name.as_str())),
            None => shown.contains(name) || shown.contains(&format!("{name}_count")),
        };
        missing.extend(named.into_iter().filter(|name| !there(name)).map(|name| format!("{page}: {name}")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// What looks like the name of a metric.
fn named_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_'));
    let ours = |word: &&str| word.starts_with("hapax_") || word.starts_with("process_");
    // The files of a release are called so too, with their version.
    let plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    words.filter(ours).filter(plain).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_is_one_that_grafana_can_load() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("contrib/grafana/hapax.json")).expect("JSON");
    assert_eq!(dashboard["uid"], "hapax");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(ids.len(), panels.len(), "ids are told apart");
    for panel in panels {
        assert!(panel["description"].as_str().is_some_and(|words| !words.is_empty()), "{panel}");
        let (x, w) = (panel["gridPos"]["x"].as_u64().expect("x"), panel["gridPos"]["w"].as_u64().expect("w"));
        assert!(x + w <= 24, "{panel}");
        for target in panel["targets"].as_array().expect("targets") {
            assert_is_query(target["expr"].as_str().expect("a query"));
        }
    }
}

/// Reads the rules as Prometheus does, as far as they are written here: a list of flat entries.
#[test]
fn the_alerts_are_rules_that_prometheus_can_load() {
    let rules = read("contrib/prometheus/hapax.rules.yml");
    let (head, body) = rules.split_once("    rules:\n").expect("a list of rules");
    assert!(head.contains("groups:\n  - name: hapax\n"), "{head}");
    let alerts: Vec<&str> = body.split("      - alert: ").skip(1).collect();
    assert!(alerts.len() >= 15, "{}", alerts.len());
    let mut seen = BTreeSet::new();
    for alert in alerts {
        let value = |key: &str| {
            let line = alert.lines().find_map(|line| line.trim_start().strip_prefix(key));
            line.unwrap_or_else(|| panic!("no `{key}` in {alert}")).trim().to_owned()
        };
        assert!(seen.insert(alert.lines().next().expect("a name").to_owned()), "twice: {alert}");
        let expression = value("expr:");
        let inner = expression.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).expect("a quoted query");
        assert_is_query(&inner.replace("''", "'"));
        let lasts = value("for:");
        assert!(lasts.strip_suffix('m').is_some_and(|minutes| minutes.parse::<u32>().is_ok()), "{lasts}");
        assert!(["critical", "warning"].contains(&value("severity:").as_str()), "{alert}");
        for key in ["summary:", "description:"] {
            let text: String = serde_json::from_str(&value(key)).expect("a quoted text");
            assert!(!text.is_empty());
        }
    }
}

/// Not a parser of PromQL: brackets and quotes that close, and at least one metric.
fn assert_is_query(query: &str) {
    let (mut open, mut quoted) = (Vec::new(), false);
    for sign in query.chars() {
        match sign {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '{' | '[' => open.push(sign),
            ')' | '}' | ']' => {
                let wanted = [('(', ')'), ('{', '}'), ('[', ']')];
                assert!(wanted.contains(&(open.pop().unwrap_or(' '), sign)), "{query}");
            }
            _ => {}
        }
    }
    assert!(open.is_empty() && !quoted, "{query}");
    assert!(!named_in(query).is_empty() || query.starts_with("up{"), "{query}");
}
