//! Reads docs/troubleshooting.md, and compares what it says with what was heard.

/// After the words of a row that no test can bring about; the page says why.
const UNTRIED: char = '†';

/// One row: what is wrong, what hapax says, and all the places where it says so.
pub(super) struct Row {
    pub(super) wrong: String,
    said: String,
    places: Vec<String>,
    pub(super) is_tried: bool,
}

/// What was heard, place by place; nothing where this machine has no server to try it with.
pub(super) type Heard = Option<Vec<(&'static str, String)>>;

pub(super) fn rows() -> Vec<Row> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting.md")).expect("the page");
    page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what")).map(read).collect()
}

/// `| wrong | “words” in the log and `story`, exit code 3 | do |`
fn read(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [wrong, says, what_to_do] = cells[..] else { panic!("three cells: {line}") };
    assert!(!what_to_do.is_empty(), "it says what to do: {line}");
    let (said, places) =
        says.strip_prefix('“').and_then(|rest| rest.split_once('”')).unwrap_or_else(|| panic!("no “words”: {line}"));
    let places = places.trim_end_matches(UNTRIED).split(", ").flat_map(|part| part.split(" and ")).map(place);
    Row {
        wrong: wrong.to_owned(),
        said: said.to_owned(),
        places: places.filter(|place| !place.is_empty()).collect(),
        is_tried: !says.ends_with(UNTRIED),
    }
}

/// ``from `hapax check` `` is `hapax check`, `in the log` is `log`.
fn place(words: &str) -> String {
    let small = ["in", "the", "from", "at", "to"];
    words.split_whitespace().skip_while(|word| small.contains(word)).collect::<Vec<_>>().join(" ").replace('`', "")
}

/// Each place that the row names has the row's words; a place that begins with a figure is the figure itself.
pub(super) fn compare(wrong: &str, heard: Heard) {
    let row = rows().into_iter().find(|row| row.wrong == wrong).unwrap_or_else(|| panic!("the page has no row `{wrong}`"));
    assert!(!row.places.is_empty(), "{wrong}: it says where");
    let Some(heard) = heard else { return };
    let mut missing = Vec::new();
    for place in &row.places {
        let (wanted, place) = match place.split_once(' ') {
            Some((figure, place)) if figure.parse::<u16>().is_ok() => (figure, self::place(place)),
            _ => match place.strip_prefix("exit code ") {
                Some(code) => (code, "exit code".to_owned()),
                None => (row.said.as_str(), place.clone()),
            },
        };
        let there: Vec<&str> = heard.iter().filter(|(of, _)| *of == place).map(|(_, words)| words.as_str()).collect();
        if there.is_empty() || !there.iter().all(|words| flat(words).contains(&flat(wanted))) {
            missing.push(format!("“{wanted}” {place}: {there:#?}"));
        }
    }
    assert!(missing.is_empty(), "{wrong}\n{}", missing.join("\n"));
}

/// One text, whatever its lines are.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
