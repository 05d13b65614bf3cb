//! Google's emulator of Firestore: a project is a store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::{Recipe, ServerError, in_path, words};

pub(super) struct Firestore;

const JAR: &str = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar";

#[async_trait]
impl Recipe for Firestore {
    fn name(&self) -> &'static str {
        "firestore"
    }

    fn how_to_install(&self) -> &'static str {
        "gcloud components install cloud-firestore-emulator, and java"
    }

    fn debian_has_it(&self) -> bool {
        false
    }

    /// The emulator itself: `gcloud` would start it as a child of a child, out of reach of a signal.
    fn program(&self) -> Option<PathBuf> {
        in_path("java")?;
        let gcloud = in_path("gcloud")?.canonicalize().ok()?;
        let jar = gcloud.parent()?.parent()?.join(JAR);
        jar.is_file().then_some(jar)
    }

    fn line(&self, program: &Path, _folder: &Path, port: u16) -> Vec<OsString> {
        let java = words(["java", "-Duser.language=en", "-Xmx2g", "-cp"]);
        let class = "com.google.cloud.datastore.emulator.firestore.CloudFirestore";
        let emulator = vec![program.into(), class.into(), "--host=127.0.0.1".into(), format!("--port={port}").into()];
        [java, emulator].concat()
    }

    async fn greet(&self, port: u16) -> Result<(), ServerError> {
        // Its port is open long before it has loaded what it needs to answer.
        let documents = "projects/hello/databases/(default)/documents";
        let asked = client()?.post(format!("http://127.0.0.1:{port}/v1/{documents}:batchGet")).bearer_auth("owner");
        asked.json(&serde_json::json!({ "documents": [format!("{documents}/a/b")] })).send().await?.error_for_status()?;
        Ok(())
    }

    async fn fresh(&self, port: u16, name: &str) -> Result<String, ServerError> {
        // A project's name has no underscores.
        Ok(format!("firestore://{}?emulator=127.0.0.1:{port}", name.replace('_', "-")))
    }

    async fn empty(&self, url: &str, _keep: &[String]) -> Result<(), ServerError> {
        let parts = url.strip_prefix("firestore://").and_then(|rest| rest.split_once("?emulator="));
        let (project, host) = parts.ok_or("not the emulator's address")?;
        let all = format!("http://{host}/emulator/v1/projects/{project}/databases/(default)/documents");
        client()?.delete(all).send().await?.error_for_status()?;
        Ok(())
    }
}

fn client() -> Result<reqwest::Client, ServerError> {
    Ok(reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?)
}
