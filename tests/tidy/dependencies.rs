//! What we depend on: from where, under which licence, and how often. A check of our own, because `cargo deny` would have to be built first
//! wherever the tests run.

use std::collections::BTreeMap;
use std::process::Command;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Of these there are two versions, until those who depend on the older one have moved.
const TWICE: &[&str] = &[
    "base64",
    "bitflags",
    "block-buffer",
    "const-oid",
    "cpufeatures",
    "crypto-common",
    "digest",
    "fallible-iterator",
    "getrandom",
    "hashbrown",
    "rand",
    "rand_core",
    "sha1",
    "sha2",
    "syn",
    "untrusted",
];

/// A second way to do TLS would be one more to keep up to date.
const NEVER: &[&str] = &["openssl", "openssl-sys", "native-tls"];

#[test]
fn dependencies_come_from_one_registry_under_known_licences() {
    let mut broken = Vec::new();
    let lock = super::read(&super::root().join("Cargo.lock"));
    let foreign =
        lock.lines().filter_map(|line| line.strip_prefix("source = ")).filter(|source| source.trim_matches('"') != REGISTRY);
    broken.extend(foreign.map(|source| format!("Cargo.lock: {source} is another registry")));

    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages() {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let (name, licence) = (text("name"), text("license"));
        if NEVER.contains(&name.as_str()) {
            broken.push(format!("{name} must not be among them"));
        }
        if !is_known(&licence) {
            broken.push(format!("{name}: the licence `{licence}` is not on the list"));
        }
        versions.entry(name).or_default().push(text("version"));
    }
    let new = versions.iter().filter(|(name, versions)| versions.len() > 1 && !TWICE.contains(&name.as_str()));
    broken.extend(new.map(|(name, versions)| format!("{name} is there {} times: {}", versions.len(), versions.join(", "))));
    super::report(broken);
}

/// What is built here; packages of other systems need not have been fetched.
pub(super) fn packages() -> Vec<serde_json::Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let arguments = ["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host];
    let output = Command::new(cargo).args(arguments).current_dir(super::root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// Of everything that holds together, one choice of each must be known.
fn is_known(licence: &str) -> bool {
    let plain = licence.replace(['(', ')'], "").replace(" / ", " OR ").replace('/', " OR ");
    !plain.is_empty() && plain.split(" AND ").all(|all| all.split(" OR ").any(|one| LICENCES.contains(&one.trim())))
}

#[test]
fn a_licence_is_read_with_its_choices() {
    for (licence, known) in [
        ("MIT OR Apache-2.0", true),
        ("MIT/Apache-2.0", true),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0", false),
        ("", false),
    ] {
        assert_eq!(is_known(licence), known, "{licence}");
    }
}
