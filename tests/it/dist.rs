//! What `make dist` gives out, made here of the program under test: it is tried by the script itself, and looked into.

use std::path::Path;
use std::process::Command;

use crate::program::disk_folder;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_release_is_made_and_runs() {
    for needed in ["dpkg-deb", "strip", "readelf", "python3"] {
        if !has(needed) {
            return hapax_testkit::servers::skip(needed, "apt-get install dpkg binutils python3", true);
        }
    }
    let folder = disk_folder();
    let mut dist = Command::new(root().join("deploy/dist.sh"));
    let made = dist.arg(folder.path()).env("BINARY", env!("CARGO_BIN_EXE_hapax")).current_dir(root()).output().expect("it ran");
    let said = format!("{}{}", String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    assert!(made.status.success(), "{said}");
    for words in ["needs: ", "tried: the tarball takes a webhook once", "tried: the Debian package takes a webhook once"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let deb = names.iter().find(|name| name.ends_with(".deb")).unwrap_or_else(|| panic!("{names:?}"));
    let listed = Command::new("dpkg-deb").arg("-c").arg(folder.path().join(deb)).output().expect("it ran");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for file in [
        "./usr/bin/hapax",
        "./usr/lib/systemd/system/hapax.service",
        "./usr/lib/systemd/system/hapax.socket",
        "./usr/share/man/man1/hapax.1.gz",
        "./usr/share/man/man1/hapax-story.1.gz",
        "./usr/share/bash-completion/completions/hapax",
        "./usr/share/zsh/vendor-completions/_hapax",
        "./usr/share/fish/vendor_completions.d/hapax.fish",
        "./usr/share/doc/hapax/copyright",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(file)), "{file}: {listed}");
    }
    let sbom = names.iter().find(|name| name.ends_with(".cdx.json")).unwrap_or_else(|| panic!("{names:?}"));
    let sbom: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join(sbom)).expect("a file")).expect("JSON");
    let parts: Vec<&str> =
        sbom["components"].as_array().expect("a list").iter().filter_map(|part| part["name"].as_str()).collect();
    assert!(parts.contains(&"tokio") && parts.contains(&"rusqlite"), "{parts:?}");
    assert!(!parts.contains(&"proptest") && !parts.contains(&"hapax-testkit"), "what only tests need is not inside: {parts:?}");
}

#[test]
fn the_unit_the_image_and_the_sample_name_what_there_is() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"));
    let (service, socket) = (read("deploy/systemd/hapax.service"), read("deploy/systemd/hapax.socket"));
    for line in [
        "Type=notify",
        "ExecStart=/usr/bin/hapax serve --config /etc/hapax/hapax.toml",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
    ] {
        assert!(service.lines().any(|own| own == line), "{line}");
    }
    // The address of the starter config, to the letter.
    assert!(socket.lines().any(|line| line == "ListenStream=127.0.0.1:4272"), "{socket}");
    let image = read("Dockerfile");
    for words in ["USER nonroot", "HEALTHCHECK", "[\"/usr/bin/hapax\", \"ready\"]"] {
        assert!(image.contains(words), "{words}");
    }
    assert!(read("deploy/compose/compose.yaml").contains("../../examples:/bot:ro"));
    assert!(root().join("examples/flask_bot.py").exists());
}
