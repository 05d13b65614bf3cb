//! The document that describes this server's HTTP surface, `/openapi.json`. Paths and schemas come from the handlers and wire types themselves;
//! here is what they have in common: who may call, and which answers every one of them can give.

use std::sync::OnceLock;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use hapax_domain::limits::REQUEST_ID_MAX_BYTES;
use http::header;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, ContentBuilder, OpenApi, PathItem, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{OpenApi as _, PartialSchema, ToSchema};

use super::problem::Wire;
use super::{Code, Scope, idempotency, outside};

const PATH: &str = "/openapi.json";
const BEARER: &str = "bearer";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "hapax",
        description = "An exactly-once gateway for messaging webhooks. docs/api.md tells what the words mean, how lists are paged and \
                       filtered, and what each error code asks for."
    ),
    paths(outside::webhook, outside::handshake, outside::healthz, outside::readyz, outside::metrics, outside::openapi)
)]
struct Outside;

/// The whole document.
fn document() -> OpenApi {
    let mut document = Outside::openapi();
    each_operation(&mut document, answer_with_problems);
    let mut document = document.nest("/v1", super::routes().into_openapi());
    let components = document.components.get_or_insert_with(Components::new);
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "A token of `hapax token create`, or the operator's own. Its scopes are `read`, `send`, `work` and `admin`.",
    ));
    components.security_schemes.insert(BEARER.to_owned(), RefOr::T(SecurityScheme::Http(scheme.build())));
    components.schemas.insert(Wire::name().into_owned(), Wire::schema());
    for status in statuses() {
        let codes: Vec<_> = codes_of(&status).map(|code| format!("`{}`", code.name())).collect();
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Wire::name()))).build();
        let response = ResponseBuilder::new()
            .description(format!("A problem; `code` is {}", codes.join(" or ")))
            .content("application/problem+json", content);
        components.responses.insert(component(&status), response.build().into());
    }
    document
}

/// The document as it is served and as docs/openapi.json holds it.
pub fn document_json() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| match document().to_pretty_json() {
        Ok(text) => text + "\n",
        Err(error) => format!("{{\"openapi\":\"3.1.0\",\"info\":{{\"title\":\"hapax\",\"description\":\"{error}\"}}}}\n"),
    })
}

/// Serves the document to whoever asks: it is the same for every hapax of a version, and tells nothing of this one.
pub(super) fn route() -> Router {
    let show = || async { ([(header::CONTENT_TYPE, "application/json")], Bytes::from_static(document_json().as_bytes())) };
    Router::new().route(PATH, get(show))
}

/// What there is below `/v1`, for those who ask for something else.
pub(super) fn resources() -> &'static [String] {
    static RESOURCES: OnceLock<Vec<String>> = OnceLock::new();
    RESOURCES.get_or_init(|| {
        let paths = super::routes().into_openapi().paths.paths.into_keys();
        let mut first: Vec<String> =
            paths.filter_map(|path| Some(format!("/v1/{}", path.trim_start_matches('/').split('/').next()?))).collect();
        first.sort_unstable();
        first.dedup();
        first
    })
}

/// Says of operations that they take a token of this scope, and what they answer when something is wrong.
pub(super) fn behind(document: &mut OpenApi, scope: Scope) {
    for (_, item) in document.paths.paths.iter_mut().filter(|(path, _)| !idempotency::has_key_of_its_own(path)) {
        item.post.iter_mut().for_each(take_a_key);
    }
    each_operation(document, |operation| {
        operation.security = Some(vec![SecurityRequirement::new(BEARER, [scope.name()])]);
        let takes = match scope {
            Scope::Admin => "Takes a token of scope `admin`.".to_owned(),
            scope => format!("Takes a token of scope `{}` or `admin`.", scope.name()),
        };
        operation.description = Some(takes);
        let mut also = vec!["400", "401", "403", "429", "500", "503"];
        if operation.request_body.is_some() {
            also.extend(["413", "415", "422"]);
        }
        for status in also {
            operation.responses.responses.insert(status.to_owned(), problem(status));
        }
        answer_with_problems(operation);
    });
}

/// Says of an operation that it is done once per `Idempotency-Key`.
fn take_a_key(operation: &mut Operation) {
    let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(REQUEST_ID_MAX_BYTES));
    let key = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Your name for this request: sent twice under one name, it is done once. Remembered for a day."))
        .schema(Some(text));
    operation.parameters.get_or_insert_default().push(RefOr::T(key.build()));
    for status in ["408", "409", "413", "422"] {
        operation.responses.responses.insert(status.to_owned(), problem(status));
    }
}

/// What an operation says it answers beside success is a problem.
fn answer_with_problems(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        let is_bare = matches!(response, RefOr::T(response) if response.content.is_empty());
        if is_bare && codes_of(status).next().is_some() {
            *response = problem(status);
        }
    }
}

fn problem(status: &str) -> RefOr<utoipa::openapi::Response> {
    RefOr::Ref(Ref::from_response_name(component(status)))
}

fn component(status: &str) -> String {
    format!("Problem{status}")
}

fn statuses() -> Vec<String> {
    let mut statuses: Vec<_> = Code::ALL.iter().map(|code| code.status().as_u16().to_string()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn codes_of(status: &str) -> impl Iterator<Item = Code> {
    Code::ALL.into_iter().filter(move |code| code.status().as_str() == status)
}

fn each_operation(document: &mut OpenApi, mut with: impl FnMut(&mut Operation)) {
    for item in document.paths.paths.values_mut() {
        operations(item).for_each(&mut with);
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn place(path: &str) -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
    }

    fn read(path: &str) -> String {
        let path = place(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn the_document_in_docs_is_the_one_that_is_served() {
        if std::env::var_os("HAPAX_WRITE_OPENAPI").is_some() {
            std::fs::write(place("docs/openapi.json"), document_json()).expect("written");
        }
        assert!(
            read("docs/openapi.json") == document_json(),
            "the API has changed: `make openapi` writes docs/openapi.json anew"
        );
    }

    #[test]
    fn every_path_that_is_routed_is_described_and_says_who_may_call() {
        let document: Value = serde_json::from_str(document_json()).expect("JSON");
        let paths = document["paths"].as_object().expect("paths");
        let routed = |file: &str| {
            let text = read(file);
            let paths = text.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next().map(str::to_owned));
            paths.collect::<Vec<_>>()
        };
        assert_eq!(
            routed("crates/gateway/src/api/mod.rs"),
            Vec::<String>::new(),
            "use `.routes(routes!(..))`, which describes too"
        );
        for path in routed("crates/gateway/src/server/front.rs") {
            assert!(paths.contains_key(&path), "{path} is not described");
        }
        let public = ["/in/{channel}", "/healthz", "/readyz", "/metrics", "/openapi.json"];
        let mut ids = Vec::new();
        for (path, item) in paths {
            for (method, operation) in item.as_object().expect("operations") {
                let secured = operation["security"][0][BEARER].is_array();
                assert_ne!(secured, public.contains(&path.as_str()), "{method} {path}");
                assert!(operation["summary"].is_string(), "{method} {path} has no summary");
                ids.push(operation["operationId"].as_str().expect("an id").to_owned());
                for (status, response) in operation["responses"].as_object().expect("answers") {
                    let described = response["description"].is_string() || response["$ref"].is_string();
                    assert!(described, "{method} {path} {status} is not described");
                }
            }
        }
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "operation ids are unique");
    }

    #[test]
    fn every_reference_leads_somewhere_and_no_two_types_share_a_name() {
        let document: Value = serde_json::from_str(document_json()).expect("JSON");
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
                let place = reference.trim_start_matches('#');
                assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
            }
            match value {
                Value::Object(members) => open.extend(members.values()),
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
    }
}
