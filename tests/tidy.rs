//! House rules that no compiler checks: walls that crates do not express, sizes, links, and the tests named in the guarantee table.
//!
//! The rules look at code only; comments, strings and characters are blanked first (see [`code_of`]).

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use scan::{attributes_before, code_of, functions_of, line_of, places_of, test_modules};

#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/dependencies.rs"]
mod dependencies;
#[path = "tidy/providers.rs"]
mod providers;
#[path = "tidy/scan.rs"]
mod scan;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Words that may not stand in some part of the code.
struct Wall {
    inside: &'static [&'static str],
    except: &'static [&'static str],
    /// Whether modules under `#[cfg(test)]` must keep it too.
    in_tests_too: bool,
    forbids: &'static [&'static str],
    why: &'static str,
}

const WALLS: &[Wall] = &[
    Wall {
        inside: &["crates/domain/", "crates/providers/"],
        except: &[],
        in_tests_too: false,
        forbids: &["std::fs", "std::net", "std::env", "SystemTime", "Instant"],
        why: "domain and providers know no file, network, environment or clock; the rest of it they do not depend on",
    },
    Wall {
        inside: &["crates/"],
        // What `hapax` stores as JSON are the types of its callers.
        except: &[
            "crates/gateway/src/api/",
            "crates/hapax-server/src/cli/",
            "crates/store/src/steps/records.rs",
            "crates/hapax/src/",
        ],
        in_tests_too: true,
        forbids: &["Serialize"],
        why: "only api/, cli/ and the store's records turn our types into JSON; wire types are hand-made twins",
    },
    Wall {
        inside: &["crates/"],
        except: &["crates/gateway/src/web/"],
        in_tests_too: true,
        forbids: &["maud"],
        why: "only web/ turns our types into HTML",
    },
    Wall {
        inside: &["crates/hapax-server/"],
        except: &["crates/hapax-server/src/cli/", "crates/hapax-server/src/main.rs"],
        in_tests_too: false,
        forbids: &["anyhow"],
        why: "errors say what to do; anyhow is for cli/ and main.rs",
    },
    Wall {
        inside: &["crates/", "tests/"],
        except: &[],
        in_tests_too: true,
        forbids: &["todo!", "unimplemented!", "#[ignore", "should_panic", "#[allow", "#![allow"],
        why: "nothing unfinished, no test that does not run, `#[expect(lint, reason)]` and not `#[allow]`",
    },
];

#[test]
fn the_walls_stand() {
    let sources = sources();
    for wall in WALLS {
        let guarded = sources.iter().filter(|source| wall.guards(&source.path)).count();
        assert!(guarded > 0, "a wall around nothing: {:?}", wall.inside);
    }
    let broken = sources.iter().flat_map(|source| WALLS.iter().flat_map(|wall| wall.breaches(source)));
    report(broken.collect());
}

#[test]
fn files_and_functions_fit_in_a_head() {
    report(sources().iter().flat_map(Source::too_long).collect());
}

#[test]
fn tests_wait_for_signals_and_not_for_time() {
    report(sources().iter().flat_map(Source::sleeping_tests).collect());
}

#[test]
fn links_between_documents_resolve() {
    let pages = files_under(&root(), "md");
    assert!(pages.iter().any(|page| page.ends_with("README.md")), "no README.md found");
    let mut broken = Vec::new();
    for page in pages {
        let text = read(&page);
        let folder = page.parent().expect("a file is in a folder");
        let dead = local_links(&text).into_iter().filter(|link| !folder.join(link).exists());
        broken.extend(dead.map(|link| format!("{}: `{link}` leads nowhere", shown(&page))));
    }
    report(broken);
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let rows = guarantees(&read(&root().join("docs/guarantees.md")));
    let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11"]);

    let sources = sources();
    let mut broken = Vec::new();
    for row in &rows {
        if row.tests.is_empty() && !row.not_built {
            broken.push(format!("{}: names no test and does not say `not built yet`", row.id));
        }
        let missing = row.tests.iter().filter(|test| !sources.iter().any(|source| source.defines(test)));
        broken.extend(missing.map(|test| format!("{}: there is no test `{test}`", row.id)));
    }
    report(broken);
}

#[test]
fn every_control_names_tests_that_exist() {
    let text = read(&root().join("SECURITY.md"));
    let controls = text.split("## Controls").nth(1).expect("a section with the controls");
    let controls = controls.split("\n## ").next().expect("it has an end");
    let rows: Vec<&str> = controls.split("\n- ").skip(1).collect();
    assert!(rows.len() > 10, "the list is gone");
    let sources = sources();
    let mut broken = Vec::new();
    for row in rows {
        let tests: Vec<&str> = row.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
        let shown: String = row.chars().take(60).collect();
        if tests.is_empty() {
            broken.push(format!("SECURITY.md: `{shown}` names no test"));
        }
        let missing = tests.iter().filter(|test| !sources.iter().any(|source| source.defines(test)));
        broken.extend(missing.map(|test| format!("SECURITY.md: there is no test `{test}`")));
    }
    report(broken);
}

#[test]
fn the_way_of_a_webhook_names_what_there_is() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let way = text.split("### The way of one webhook").nth(1).expect("a section with the way");
    let rows = way.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let names: Vec<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(|name| !name.contains('/')).collect();
    assert!(names.len() > 20, "the table is gone");
    let sources = sources();
    let is_there = |name: &&str| {
        let (within, last) = name.rsplit_once("::").unwrap_or(("", name));
        let within = within.rsplit("::").next().unwrap_or_default();
        let kinds: &[&str] = if last.starts_with(char::is_uppercase) { &["struct ", "trait "] } else { &["fn "] };
        sources.iter().filter(|source| source.path.starts_with("crates/")).any(|source| {
            let defined =
                |kind: &&str| [" ", "(", "<", ";"].iter().any(|end| source.code.contains(&format!("{kind}{last}{end}")));
            kinds.iter().any(defined) && (source.path.contains(within) || source.code.contains(within))
        })
    };
    report(names.iter().filter(|name| !is_there(name)).map(|name| format!("ARCHITECTURE.md: there is no `{name}`")).collect());
}

fn report(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

struct Source {
    /// From the root of the repository, with `/`.
    path: String,
    code: String,
    /// Where in `code` the modules under `#[cfg(test)]` are; all of it for files that hold nothing but tests.
    tests: Vec<Range<usize>>,
}

impl Source {
    fn new(path: String, text: &str) -> Self {
        let code = code_of(text);
        let only_tests =
            path.starts_with("tests/") || path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/api_tests/");
        let tests = if only_tests { std::iter::once(0..code.len()).collect() } else { test_modules(&code) };
        Self { path, code, tests }
    }

    fn in_tests(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    fn at(&self, at: usize) -> String {
        format!("{}:{}", self.path, line_of(&self.code, at))
    }

    fn too_long(&self) -> Vec<String> {
        let lines = self.code.lines().count();
        let mut found = Vec::new();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines, more than {FILE_LINES_MAX}", self.path));
        }
        for function in functions_of(&self.code) {
            let lines = function.lines(&self.code);
            if lines > FUNCTION_LINES_MAX {
                let at = self.at(function.all.start);
                found.push(format!("{at}: `{}` has {lines} lines, more than {FUNCTION_LINES_MAX}", function.name));
            }
        }
        found
    }

    /// Sleeping is fine where time is paused: nobody waits.
    fn sleeping_tests(&self) -> Vec<String> {
        let in_tests = functions_of(&self.code).into_iter().filter(|function| self.in_tests(function.all.start));
        let asleep = in_tests.filter(|function| {
            let body = &self.code[function.all.clone()];
            let sleeps = ["sleep", "sleep_until"].iter().any(|call| !places_of(body, call).is_empty());
            sleeps && !attributes_before(&self.code, function.all.start).contains("start_paused = true")
        });
        asleep.map(|function| format!("{}: `{}` sleeps", self.at(function.all.start), function.name)).collect()
    }

    /// Whether this file has the function that `test` (a path such as `it::storm::name`) ends in.
    fn defines(&self, test: &str) -> bool {
        let name = test.rsplit("::").next().unwrap_or(test);
        functions_of(&self.code).iter().any(|function| function.name == name)
    }
}

impl Wall {
    fn guards(&self, path: &str) -> bool {
        self.inside.iter().any(|part| path.starts_with(part)) && !self.except.iter().any(|part| path.starts_with(part))
    }

    fn breaches(&self, source: &Source) -> Vec<String> {
        if !self.guards(&source.path) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for word in self.forbids {
            let places = places_of(&source.code, word).into_iter().filter(|&at| self.in_tests_too || !source.in_tests(at));
            found.extend(places.map(|at| format!("{}: names `{word}`; {}", source.at(at), self.why)));
        }
        found
    }
}

/// Lists where the links of a page lead that stay inside the repository, without their `#section`.
fn local_links(page: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut in_fence = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        if in_fence {
            continue;
        }
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let paths = targets.map(|target| target.split('#').next().unwrap_or(target));
        links.extend(paths.filter(|path| !path.is_empty() && !path.contains(':')));
    }
    links
}

struct Guarantee {
    id: String,
    tests: Vec<String>,
    not_built: bool,
}

/// Reads the sections `### G1`; tests are the paths in backquotes.
fn guarantees(page: &str) -> Vec<Guarantee> {
    let sections = page.split("\n### G").skip(1).map(|section| section.split("\n#").next().unwrap_or_default());
    let read = sections.map(|section| {
        let (number, proof) = section.split_once('\n').unwrap_or((section, ""));
        let quoted = proof.split('`').skip(1).step_by(2);
        Guarantee {
            id: format!("G{number}"),
            tests: quoted.filter(|name| name.contains("::")).map(str::to_owned).collect(),
            not_built: proof.contains("not built yet"),
        }
    });
    read.collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/hapax-server is two below").to_owned()
}

fn sources() -> Vec<Source> {
    let folders = ["crates", "tests"].map(|folder| files_under(&root().join(folder), "rs"));
    folders.into_iter().flatten().map(|path| Source::new(shown(&path), &read(&path))).collect()
}

fn files_under(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
            files.extend(files_under(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// The rules above are only worth something if they see what they forbid.
mod the_rules {
    use super::*;

    fn broken_by(path: &str, text: &str) -> Vec<String> {
        let source = Source::new(path.to_owned(), text);
        WALLS.iter().flat_map(|wall| wall.breaches(&source)).collect()
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn see_forbidden_words_where_they_are_forbidden() {
        for line in ["use std::{fs, io};", "let t = Instant::now();", "use std::env;", "std::net::Ipv4Addr"] {
            assert_eq!(broken_by("crates/providers/src/x.rs", line).len(), 1, "{line}");
            assert_eq!(broken_by("crates/gateway/src/delivery/x.rs", line).len(), 0, "{line}");
        }
        for (path, line) in [
            ("crates/domain/src/x.rs", "#[derive(Clone, Serialize)]"),
            ("crates/hapax-server/src/config/x.rs", "use anyhow::Result;"),
            ("crates/hapax-server/src/cli/x.rs", "fn later() { todo!() }"),
            ("crates/hapax-server/src/cli/x.rs", "#[allow(dead_code)]"),
            ("tests/it/x.rs", "#[ignore = \"slow\"]"),
        ] {
            assert_eq!(broken_by(path, line).len(), 1, "{path}: {line}");
        }
    }

    #[test]
    fn do_not_see_comments_strings_or_parts_of_words() {
        let harmless = "// Instant\n/* /* Instant */ todo!() */\nlet a = \"Instant \\\" todo!()\"; let b = r#\"Instant \" x\"#; let instant_ms = '\"';";
        assert_eq!(broken_by("crates/domain/src/x.rs", harmless), Vec::<String>::new());
        assert_eq!(broken_by("crates/domain/src/x.rs", &format!("{harmless} Instant")).len(), 1);
    }

    #[test]
    fn name_the_line_and_spare_test_modules_where_they_may() {
        let text = "//! a\nuse std::fs;\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nuse std::net;\n";
        let found = broken_by("crates/providers/src/x.rs", text);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("crates/providers/src/x.rs:2:"), "{found:?}");
        assert!(found[1].starts_with("crates/providers/src/x.rs:7:"), "{found:?}");
    }

    #[test]
    fn measure_files_and_functions() {
        let long = |text: &str| Source::new("src/x.rs".to_owned(), text).too_long();
        assert_eq!(long(&function_of(FUNCTION_LINES_MAX)), Vec::<String>::new());
        assert_eq!(long(&function_of(FUNCTION_LINES_MAX + 1)), ["src/x.rs:1: `long` has 71 lines, more than 70"]);
        assert_eq!(long(&"//\n".repeat(FILE_LINES_MAX)), Vec::<String>::new());
        assert_eq!(long(&"//\n".repeat(FILE_LINES_MAX + 1)), ["src/x.rs: 601 lines, more than 600"]);
    }

    #[test]
    fn hear_sleeping_tests_unless_time_is_paused() {
        let asleep = |path: &str, text: &str| Source::new(path.to_owned(), text).sleeping_tests().len();
        let body = "fn x() { tokio::time::sleep(second).await; }";
        assert_eq!(asleep("tests/it/x.rs", body), 1);
        assert_eq!(asleep("crates/gateway/src/worker/x.rs", body), 0);
        assert_eq!(asleep("crates/gateway/src/worker/x.rs", &format!("#[cfg(test)]\nmod tests {{\n{body}\n}}")), 1);
        assert_eq!(asleep("tests/it/x.rs", &format!("#[tokio::test(start_paused = true)]\nasync {body}")), 0);
        assert_eq!(asleep("tests/it/x.rs", &format!("#[tokio::test(start_paused = true)]\nfn y() {{}}\n{body}")), 1);
    }

    #[test]
    fn follow_links_and_read_the_table() {
        let page = "[a](docs/a.md#x) ![b](b.png) [c](https://c.example/) [d](#d)\n```\n[e](e.md)\n```\n";
        assert_eq!(local_links(page), ["docs/a.md", "b.png"]);

        let rows = guarantees(
            "# Promises\n\n### G1\n\n- `it::a::b`, `kill -9`\n\n### G2\n\nLater: not built yet.\n\n## More\n\n`it::c::d`\n",
        );
        let read: Vec<_> = rows.iter().map(|row| (row.id.as_str(), row.tests.len(), row.not_built)).collect();
        assert_eq!(read, [("G1", 1, false), ("G2", 0, true)]);
        assert!(Source::new("tests/it/a.rs".to_owned(), "fn b() {}").defines("it::a::b"));
        assert!(!Source::new("tests/it/a.rs".to_owned(), "// fn b() {}\nfn bb() {}").defines("it::a::b"));
    }
}
