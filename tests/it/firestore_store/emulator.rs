//! The emulator as others see it: documents read and written past hapax.

use std::sync::Arc;

use hapax_store::clock::Clock;
use hapax_store::steps::ServerStore;
use hapax_store_firestore as firestore;
use hapax_store_firestore::FirestoreEngine;
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::servers::Engine;
use hapax_testkit::store_fixture::START_MS;
use serde_json::{Value, json};

pub(super) struct Emulator {
    pub(super) url: String,
    pub(super) clock: HandClock,
    pub(super) host: String,
    pub(super) project: String,
    http: reqwest::Client,
}

/// How a request says who makes it.
pub(super) enum As<'a> {
    Hapax,
    Nobody,
    User(&'a str),
}

impl Emulator {
    /// A project of its own on the emulator that all tests share. `None`: it is not installed.
    pub(super) async fn start() -> Option<Self> {
        let url = Engine::Firestore.shared().await?.fresh().await;
        let (project, host) =
            url.strip_prefix("firestore://").and_then(|rest| rest.split_once("?emulator=")).expect("its address");
        let (project, host) = (project.to_owned(), host.to_owned());
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        Some(Self { url, clock: HandClock::at(START_MS), host, project, http })
    }

    pub(super) async fn open(&self) -> ServerStore<FirestoreEngine> {
        self.open_at(&self.host).await
    }

    /// Opens the store by way of another address.
    pub(super) async fn open_at(&self, host: &str) -> ServerStore<FirestoreEngine> {
        let url = format!("firestore://{}?emulator={host}", self.project);
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        firestore::open(&url, Some(clock)).await.expect("the store opens")
    }

    fn address(&self, path: &str) -> String {
        format!("http://{}/v1/projects/{}/databases/(default)/documents/{path}", self.host, self.project)
    }

    async fn ask(&self, request: reqwest::RequestBuilder, who: As<'_>) -> (u16, Value) {
        let request = match who {
            As::Hapax => request.bearer_auth("owner"),
            As::Nobody => request,
            As::User(token) => request.bearer_auth(token),
        };
        let response = request.send().await.expect("the emulator answers");
        (response.status().as_u16(), response.json().await.unwrap_or(Value::Null))
    }

    pub(super) async fn read(&self, path: &str, who: As<'_>) -> (u16, Value) {
        self.ask(self.http.get(self.address(path)), who).await
    }

    /// The fields of a document.
    pub(super) async fn fields(&self, path: &str) -> Value {
        let (status, mut document) = self.read(path, As::Hapax).await;
        assert_eq!(status, 200, "{path}: {document}");
        document["fields"].take()
    }

    /// Writes a document that is not there yet.
    pub(super) async fn create(&self, collection: &str, id: &str, fields: Value, who: As<'_>) -> u16 {
        let address = format!("{}?documentId={id}", self.address(collection));
        self.ask(self.http.post(address).json(&json!({ "fields": fields })), who).await.0
    }

    /// Writes a document as a whole, as `setDoc` does.
    pub(super) async fn overwrite(&self, path: &str, fields: Value) {
        let (status, said) = self.ask(self.http.patch(self.address(path)).json(&json!({ "fields": fields })), As::Hapax).await;
        assert_eq!(status, 200, "{said}");
    }

    /// Sets some fields of a document, as `setDoc` with `merge` does.
    pub(super) async fn merge(&self, path: &str, fields: Value) {
        assert_eq!(self.merge_as(path, fields, As::Hapax).await, 200);
    }

    pub(super) async fn merge_as(&self, path: &str, fields: Value, who: As<'_>) -> u16 {
        let names: Vec<String> =
            fields.as_object().into_iter().flatten().map(|(name, _)| format!("updateMask.fieldPaths={name}")).collect();
        let address = format!("{}?{}", self.address(path), names.join("&"));
        self.ask(self.http.patch(address).json(&json!({ "fields": fields })), who).await.0
    }

    /// Writes a document that is not there yet, with `createdAt` as `serverTimestamp()`.
    pub(super) async fn create_stamped(&self, id: &str, fields: Value, who: As<'_>) -> u16 {
        let name = format!("projects/{}/databases/(default)/documents/outbox/{id}", self.project);
        let stamp = json!({ "fieldPath": "createdAt", "setToServerValue": "REQUEST_TIME" });
        let write = json!({
            "update": { "name": name, "fields": fields },
            "updateTransforms": [stamp],
            "currentDocument": { "exists": false },
        });
        let address = format!("http://{}/v1/projects/{}/databases/(default)/documents:commit", self.host, self.project);
        self.ask(self.http.post(address).json(&json!({ "writes": [write] })), who).await.0
    }

    /// Takes over security rules for this project.
    pub(super) async fn rule(&self, rules: &str) -> (u16, Value) {
        let address = format!("http://{}/emulator/v1/projects/{}:securityRules", self.host, self.project);
        let files = json!({ "rules": { "files": [{ "name": "firestore.rules", "content": rules }] } });
        self.ask(self.http.put(address).json(&files), As::Hapax).await
    }
}

/// A store that takes over documents of front ends, whatever their channel.
pub(super) fn adopting(store: ServerStore<FirestoreEngine>) -> ServerStore<FirestoreEngine> {
    store.engine().adopt_as(Arc::new(|_, to, _| Ok(to.to_owned())));
    store
}

/// What a front end writes.
pub(super) fn request(to: &str, words: &str) -> Value {
    json!({ "status": text("queued"), "channel": text("shop"), "account": text("acc"), "to": text(to), "text": text(words) })
}

pub(super) fn text(text: &str) -> Value {
    json!({ "stringValue": text })
}
