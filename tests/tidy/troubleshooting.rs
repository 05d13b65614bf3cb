//! What docs/troubleshooting.md says that hapax says, hapax says.

use super::{files_under, read, root};

/// One text, whatever its lines are.
fn flat(text: &str) -> String {
    let joined = text.replace("\\\n", " ").replace("\\\"", "\"");
    joined.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_message_in_the_table_of_troubles_is_in_the_code() {
    let page = read(&root().join("docs/troubleshooting.md"));
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what")).collect();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    let sources: Vec<String> = files_under(&root().join("crates"), "rs").iter().map(|path| flat(&read(path))).collect();
    let mut missing = Vec::new();
    for row in rows {
        let said = row.split('|').nth(2).and_then(|cell| cell.split('“').nth(1)).and_then(|rest| rest.split('”').next());
        match said {
            None => missing.push(format!("no message in “…”: {row}")),
            Some(said) if !sources.iter().any(|source| source.contains(said)) => missing.push(format!("nobody says “{said}”")),
            Some(_) => {}
        }
    }
    super::report(missing);
}
