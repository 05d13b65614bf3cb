//! The wire: Firestore's REST methods, tokens, and what its errors mean.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use hapax_store::StoreError;
use hapax_store::steps::TxError;
use serde_json::{Value, json};

use super::address::Address;
use super::query::Query;
use super::value::{Doc, broken, micros};

/// Values of one `in` filter.
pub(super) const IN_MAX: usize = 30;
/// Documents of one `batchGet`.
const GET_MAX: usize = 300;
const SCOPES: &[&str] = &["https://www.googleapis.com/auth/datastore"];
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A read that takes longer is tried once more.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// After so long nothing is tried again.
const READ_PATIENCE: Duration = Duration::from_secs(4);
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// A commit of thousands of documents takes its time: so many bytes get a second more.
const WRITE_BYTES_PER_S: usize = 200_000;
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// An emulator shares its machine with all else that runs there: so much more patience it gets.
const EMULATOR_PATIENCE: u32 = 10;

pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    root: String,
    auth: Auth,
    /// By which all times are multiplied.
    patience: u32,
}

enum Auth {
    /// The emulator's word for somebody who may do everything.
    Owner,
    Google(Arc<dyn gcp_auth::TokenProvider>),
}

/// Why a call came to nothing.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server said so.
    Said { status: String, message: String },
    /// There was no answer, or none that can be read: it may have been done or not.
    Lost(String),
    /// The call never left.
    Unreached(String),
}

/// Documents as of one moment.
pub(super) struct Got {
    pub(super) docs: Vec<Doc>,
    /// Names of those that are not there.
    pub(super) missing: Vec<String>,
    pub(super) read_micros: i64,
}

impl Client {
    pub(super) async fn open(address: &Address) -> Result<Self, StoreError> {
        let builder = match address.emulator {
            // It speaks plain HTTP: reading the system's certificates would take longer than what it is asked.
            Some(_) => reqwest::Client::builder().no_proxy().tls_certs_only([]),
            None => reqwest::Client::builder(),
        };
        let http = builder
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(64)
            .tcp_nodelay(true)
            .http1_only()
            .build()
            .map_err(|error| failed("opening Firestore", false, &error))?;
        let auth = match address.emulator {
            Some(_) => Auth::Owner,
            None => Auth::Google(gcp_auth::provider().await.map_err(|error| no_credentials(&error))?),
        };
        let patience = if address.emulator.is_some() { EMULATOR_PATIENCE } else { 1 };
        Ok(Self { http, base: address.base(), root: address.root(), auth, patience })
    }

    /// The whole name of a document.
    pub(super) fn name(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }

    /// Writes, once; whoever calls decides what a fault means.
    pub(super) async fn call(&self, method: &str, body: &Value) -> Result<Value, Fault> {
        let body = body.to_string();
        let more = Duration::from_secs((body.len() / WRITE_BYTES_PER_S) as u64);
        self.post(method, body, WRITE_TIMEOUT * self.patience + more).await
    }

    async fn post(&self, method: &str, body: String, timeout: Duration) -> Result<Value, Fault> {
        let token = match &self.auth {
            Auth::Owner => "owner".to_owned(),
            Auth::Google(provider) => {
                let token = provider.token(SCOPES).await;
                token.map_err(|error| Fault::Unreached(format!("no token: {error}")))?.as_str().to_owned()
            }
        };
        let request = self.http.post(format!("{}:{method}", self.base)).bearer_auth(token);
        let request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body).timeout(timeout);
        let response = request.send().await.map_err(|error| match error.is_connect() {
            true => Fault::Unreached(causes(&error)),
            false => Fault::Lost(causes(&error)),
        })?;
        let ok = response.status().is_success();
        let answer: Value = response.json().await.map_err(|error| Fault::Lost(causes(&error)))?;
        if ok { Ok(answer) } else { Err(fault_of(&answer)) }
    }

    /// A call that changes nothing, so it may simply be made again.
    pub(super) async fn ask(&self, what: &'static str, method: &str, body: &Value) -> Result<Value, StoreError> {
        let (begun, mut wait) = (Instant::now(), FIRST_WAIT);
        loop {
            match self.post(method, body.to_string(), READ_TIMEOUT * self.patience).await {
                Ok(answer) => return Ok(answer),
                Err(fault) if fault.may_pass() && begun.elapsed() + wait < READ_PATIENCE * self.patience => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                Err(fault) => return Err(fault.error(what)),
            }
        }
    }

    /// Looks up documents by path; with `fields`, only these of each.
    pub(super) async fn get(&self, paths: &[String], fields: Option<&[&str]>) -> Result<Got, StoreError> {
        let gets = paths.chunks(GET_MAX).map(|paths| self.get_some(paths, fields));
        let mut all = Got { docs: vec![], missing: vec![], read_micros: 0 };
        for got in try_join_all(gets).await? {
            all.docs.extend(got.docs);
            all.missing.extend(got.missing);
            all.read_micros = got.read_micros;
        }
        Ok(all)
    }

    async fn get_some(&self, paths: &[String], fields: Option<&[&str]>) -> Result<Got, StoreError> {
        let names: Vec<_> = paths.iter().map(|path| self.name(path)).collect();
        let mut body = json!({ "documents": names });
        if let Some(fields) = fields {
            body["mask"] = json!({ "fieldPaths": fields });
        }
        let answer = self.ask("reading documents", "batchGet", &body).await?;
        let mut got = Got { docs: vec![], missing: vec![], read_micros: 0 };
        for mut row in rows(answer)? {
            if let Some(time) = row.get("readTime").and_then(Value::as_str).and_then(micros) {
                got.read_micros = time;
            }
            if let Some(name) = row.get("missing").and_then(Value::as_str) {
                got.missing.push(name.to_owned());
            } else if let Some(found) = row.get_mut("found").map(Value::take) {
                got.docs.push(Doc::read(found)?);
            }
        }
        Ok(got)
    }

    pub(super) async fn run(&self, query: &Query) -> Result<Vec<Doc>, StoreError> {
        let answer = self.ask("a query", "runQuery", &json!({ "structuredQuery": query.written() })).await?;
        let found = rows(answer)?.into_iter().filter_map(|mut row| row.get_mut("document").map(Value::take));
        found.map(Doc::read).collect()
    }

    /// Runs a query for each thirty of many values of one field; what comes is in no order.
    pub(super) async fn run_any(&self, query: &Query, field: &str, values: Vec<Value>) -> Result<Vec<Doc>, StoreError> {
        let queries: Vec<_> = values.chunks(IN_MAX).map(|some| query.clone().any_of(field, some.to_vec())).collect();
        let found = try_join_all(queries.iter().map(|query| self.run(query))).await?;
        Ok(found.into_iter().flatten().collect())
    }

    pub(super) async fn run_all(&self, queries: Vec<Query>) -> Result<Vec<Vec<Doc>>, StoreError> {
        try_join_all(queries.iter().map(|query| self.run(query))).await
    }

    pub(super) async fn count(&self, query: Query) -> Result<u64, StoreError> {
        let counted = json!({ "structuredQuery": query.written(), "aggregations": [{ "alias": "n", "count": {} }] });
        let answer = self.ask("counting", "runAggregationQuery", &json!({ "structuredAggregationQuery": counted })).await?;
        let n = answer.pointer("/0/result/aggregateFields/n/integerValue").and_then(Value::as_str);
        n.and_then(|n| n.parse().ok()).ok_or_else(|| broken("a count", "n"))
    }
}

impl Fault {
    /// Whether the same call may succeed in a moment.
    fn may_pass(&self) -> bool {
        const PASSING: [&str; 7] =
            ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED"];
        match self {
            Fault::Lost(_) | Fault::Unreached(_) => true,
            Fault::Said { status, .. } => PASSING.contains(&status.as_str()),
        }
    }

    /// Whether a commit may have been done all the same.
    pub(super) fn in_doubt(&self) -> bool {
        const DOUBTFUL: [&str; 5] = ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED"];
        match self {
            Fault::Lost(_) => true,
            Fault::Unreached(_) => false,
            Fault::Said { status, .. } => DOUBTFUL.contains(&status.as_str()),
        }
    }

    /// Whether somebody else was faster: a document was made, changed or removed meanwhile.
    pub(super) fn crossed(&self) -> bool {
        const CROSSED: [&str; 4] = ["ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED", "NOT_FOUND"];
        matches!(self, Fault::Said { status, .. } if CROSSED.contains(&status.as_str()))
    }

    pub(super) fn exists_already(&self) -> bool {
        matches!(self, Fault::Said { status, .. } if status == "ALREADY_EXISTS")
    }

    pub(super) fn trouble(self, what: &'static str) -> TxError {
        let crossed = self.crossed();
        match self {
            Fault::Said { status, message } if crossed => TxError::Conflict(format!("{status}: {message}")),
            fault => TxError::Failed(fault.error(what)),
        }
    }

    pub(super) fn error(self, what: &'static str) -> StoreError {
        let retryable = self.may_pass();
        match self {
            Fault::Said { status, message } if status == "PERMISSION_DENIED" || status == "UNAUTHENTICATED" => {
                StoreError::Refused(format!(
                    "Firestore refuses {what}: {message}. Give hapax's service account the role `roles/datastore.user` in this project"
                ))
            }
            Fault::Said { status, message } if status == "FAILED_PRECONDITION" => StoreError::Refused(format!(
                "Firestore refuses {what}: {message}. Deploy the indexes of deploy/firestore/firestore.indexes.json"
            )),
            Fault::Said { status, message } => failed(what, retryable, &format!("{status}: {message}")),
            Fault::Lost(why) | Fault::Unreached(why) => failed(what, retryable, &why),
        }
    }
}

/// Errors of streaming methods come inside a list.
fn fault_of(answer: &Value) -> Fault {
    let error = answer.get("error").or_else(|| answer.pointer("/0/error"));
    let part = |name: &str| error.and_then(|error| error.get(name)).and_then(Value::as_str);
    match part("status") {
        Some(status) => Fault::Said { status: status.to_owned(), message: part("message").unwrap_or_default().to_owned() },
        None => Fault::Lost("an error without a status".to_owned()),
    }
}

fn rows(answer: Value) -> Result<Vec<Value>, StoreError> {
    match answer {
        Value::Array(rows) => Ok(rows),
        _ => Err(broken("an answer", "list of rows")),
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn failed(what: &'static str, retryable: bool, why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Failed { what, retryable, source: why.to_string().into() }
}

fn no_credentials(error: &gcp_auth::Error) -> StoreError {
    StoreError::Refused(format!(
        "no Google credentials were found ({error}): run on Google Cloud with a service account, or set GOOGLE_APPLICATION_CREDENTIALS to its key file"
    ))
}
