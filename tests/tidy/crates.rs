//! The crates are the walls, and their manifests say where they stand: arrows only downwards.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const ENGINES: [&str; 5] =
    ["hapax-store-firestore", "hapax-store-mysql", "hapax-store-postgres", "hapax-store-redis", "hapax-store-sqlite"];

/// What each crate of the product may depend on, among our own.
fn allowed() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut allowed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::from([
        ("hapax-domain", BTreeSet::new()),
        ("hapax-providers", BTreeSet::from(["hapax-domain"])),
        ("hapax-store", BTreeSet::from(["hapax-domain"])),
        ("hapax-gateway", BTreeSet::from(["hapax-domain", "hapax-providers", "hapax-store"])),
        ("hapax", ENGINES.into_iter().chain(["hapax-domain", "hapax-store"]).collect()),
        ("hapax-server", BTreeSet::from(["hapax", "hapax-domain", "hapax-gateway", "hapax-providers", "hapax-store"])),
        ("hapax-testkit", BTreeSet::from(["hapax-domain", "hapax-providers", "hapax-store", "hapax-store-sqlite"])),
    ]);
    allowed.extend(ENGINES.map(|engine| (engine, BTreeSet::from(["hapax-domain", "hapax-store"]))));
    allowed
}

/// Runtimes, HTTP and databases: what plain rules and adapters must not know.
const DOES_IO: &[&str] = &["tokio", "reqwest", "hyper", "axum", "rusqlite", "redis", "mysql_async", "tokio-postgres"];

#[test]
fn each_crate_depends_only_on_those_above_it() {
    let allowed = allowed();
    let mut broken = Vec::new();
    let packages = super::dependencies::packages();
    let ours = packages.iter().filter(|package| package["source"].is_null());
    let mut seen = BTreeSet::new();
    for package in ours {
        let name = package["name"].as_str().expect("a name").to_owned();
        let Some(may) = allowed.get(name.as_str()) else {
            broken.push(format!("{name}: say in tests/tidy/crates.rs what it may depend on"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().expect("a list").iter();
        // What only tests use is not in the product.
        for dependency in dependencies.filter(|dependency| dependency["kind"].is_null()) {
            let on = dependency["name"].as_str().expect("a name");
            if on.starts_with("hapax") && !may.contains(on) {
                broken.push(format!("{name} must not depend on {on}"));
            }
            if ["hapax-domain", "hapax-providers"].contains(&name.as_str()) && DOES_IO.contains(&on) {
                broken.push(format!("{name} does no I/O and must not depend on {on}"));
            }
        }
        seen.insert(name);
    }
    let missing = allowed.keys().filter(|name| !seen.contains(**name));
    broken.extend(missing.map(|name| format!("there is no crate {name}")));
    super::report(broken);
}

/// What a program would have to build that only wants claims, with the layer and the embedded store.
const OF_THE_SERVER: &[&str] =
    &["hapax-gateway", "hapax-providers", "hapax-server", "hapax-testkit", "axum", "clap", "hyper", "reqwest", "rustls", "tower"];

#[test]
fn the_library_does_not_pull_in_the_server() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let arguments = ["tree", "-p", "hapax", "--features", "tower", "-e", "normal", "--prefix", "none", "--locked", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(super::root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains("hapax-store-sqlite") && names.contains("tower-layer"), "this is another tree");
    let pulled = OF_THE_SERVER.iter().filter(|name| names.contains(**name));
    super::report(pulled.map(|name| format!("hapax must not depend on {name}, which only the server needs")).collect());
}
