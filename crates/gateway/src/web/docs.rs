//! `/docs`: the API, from the document that describes it.

use std::sync::LazyLock;

use maud::{Markup, html};
use serde_json::Value;

use super::components::with_code;
use super::layout::{Nav, page};
use super::visitor::Visitor;
use crate::api::document_json;

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(document_json()).unwrap_or_default());

pub(super) async fn show(visitor: Visitor) -> Markup {
    let groups = groups();
    let body = html! {
        header.head {
            h1 { "API" }
            p.quiet { "Everything that these pages do can be done by a program, with a token in " code { "Authorization: Bearer" } ". "
                a href="/openapi.json" { "openapi.json" } " is the same for machines." }
        }
        nav.toc aria-label="Groups" { @for (group, _) in &groups { a href={ "#" (group) } { (group) } } }
        @for (group, operations) in &groups {
            section #(group) { h2 { (group) } @for operation in operations { (shown(operation)) } }
        }
    };
    page(&visitor, "API", Nav::Docs, body)
}

struct Operation {
    method: String,
    path: &'static str,
    about: &'static Value,
}

/// What has one tag.
type Group = (&'static str, Vec<Operation>);

/// By tag, in the order of the document.
fn groups() -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (path, item) in DOCUMENT["paths"].as_object().into_iter().flatten() {
        for (method, about) in item.as_object().into_iter().flatten() {
            let tag = about["tags"][0].as_str().unwrap_or("other");
            let operation = Operation { method: method.to_uppercase(), path, about };
            match groups.iter_mut().find(|(group, _)| *group == tag) {
                Some((_, operations)) => operations.push(operation),
                None => groups.push((tag, vec![operation])),
            }
        }
    }
    groups
}

fn shown(operation: &Operation) -> Markup {
    let text = |key: &str| operation.about[key].as_str().unwrap_or_default();
    let parameters = operation.about["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let body = body_of(operation.about);
    html! {
        details.operation {
            summary { span class={ "method " (operation.method.to_lowercase()) } { (operation.method) } code { (operation.path) } span.quiet { (with_code(text("summary"))) } }
            @if !text("description").is_empty() { p { (with_code(text("description"))) } }
            @if !parameters.is_empty() {
                h3 { "Parameters" }
                dl.pairs { @for parameter in parameters {
                    @let of = |key: &str| parameter[key].as_str().unwrap_or_default();
                    div { dt { code { (of("name")) } span.tag { (of("in")) } } dd { (of("description")) } }
                } }
            }
            @if let Some((name, fields)) = &body { (fields_of("Body", name, fields)) }
            h3 { "Answers" }
            dl.pairs { @for (status, answer) in operation.about["responses"].as_object().into_iter().flatten() {
                @let answer = resolved(answer);
                div { dt { code { (status) } } dd {
                    (answer["description"].as_str().unwrap_or_default())
                    @if let Some(name) = answer["content"]["application/json"]["schema"]["$ref"].as_str() { " " span.tag { (last(name)) } }
                } }
            } }
        }
    }
}

fn fields_of(title: &str, name: &str, fields: &[Field]) -> Markup {
    html! {
        h3 { (title) " " span.tag { (name) } }
        dl.pairs { @for (field, kind, about) in fields { div { dt { code { (field) } span.tag { (kind) } } dd { (about) } } } }
    }
}

/// Name, kind, and what it is.
type Field = (&'static str, String, &'static str);

/// The fields of what an operation takes.
fn body_of(operation: &'static Value) -> Option<(&'static str, Vec<Field>)> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let name = schema["$ref"].as_str().map(last)?;
    let properties = resolved(schema)["properties"].as_object()?;
    let field = |(name, about): (&'static String, &'static Value)| {
        (name.as_str(), kind_of(about), about["description"].as_str().unwrap_or_default())
    };
    Some((name, properties.iter().map(field).collect()))
}

fn kind_of(about: &Value) -> String {
    let one = |kind: &Value| kind.as_str().filter(|kind| *kind != "null").map(str::to_owned);
    match &about["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(one).collect::<Vec<_>>().join(" or "),
        kind => one(kind).unwrap_or_else(|| "object".to_owned()),
    }
}

/// What a reference leads to.
fn resolved(value: &'static Value) -> &'static Value {
    match value["$ref"].as_str() {
        Some(reference) => DOCUMENT.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null),
        None => value,
    }
}

fn last(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}
