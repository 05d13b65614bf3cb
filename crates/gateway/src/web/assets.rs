//! The style sheet, the script and the mark. Their names carry a hash of what is in them, so browsers keep them for good.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

pub(super) const ROUTE: &str = "/assets/{name}";

pub(super) struct Asset {
    /// With the hash in it.
    name: String,
    kind: &'static str,
    text: &'static str,
}

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("hapax", "css", "text/css; charset=utf-8", include_str!("assets/hapax.css")));
pub(super) static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("hapax", "js", "text/javascript; charset=utf-8", include_str!("assets/hapax.js")));
pub(super) static MARK: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("mark", "svg", "image/svg+xml", include_str!("assets/mark.svg")));

impl Asset {
    fn new(stem: &str, ending: &str, kind: &'static str, text: &'static str) -> Self {
        let hash = blake3::hash(text.as_bytes()).to_hex();
        Self { name: format!("{stem}-{}.{ending}", &hash[..12]), kind, text }
    }

    pub(super) fn path(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

/// To whoever asks: they are the same in every hapax of a version.
pub(super) async fn serve(Path(name): Path<String>) -> Response {
    let all: [&Asset; 3] = [&STYLE, &SCRIPT, &MARK];
    match all.into_iter().find(|asset| asset.name == name) {
        Some(asset) => {
            let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
            (headers, asset.text).into_response()
        }
        None => (StatusCode::NOT_FOUND, "no such file; reload the page\n").into_response(),
    }
}
