//! The one way to narrow a list: `channel:shop state:parked since:1h type:invoice.paid text:"refund"`. Conditions are joined by spaces and all
//! must hold; `-` before one turns it round; a word without a name is looked for in the text.

use std::fmt;

use crate::units::read_ms;

/// How long a filter may be, and how many conditions it may have.
pub const FILTER_MAX_BYTES: usize = 1_000;
pub const CONDITIONS_MAX: usize = 20;

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Channel,
    Account,
    Thread,
    Kind,
    State,
    Type,
    Text,
    Since,
    Before,
    Scope,
    Key,
}

impl Word {
    pub const ALL: [Word; 11] = [
        Word::Channel,
        Word::Account,
        Word::Thread,
        Word::Kind,
        Word::State,
        Word::Type,
        Word::Text,
        Word::Since,
        Word::Before,
        Word::Scope,
        Word::Key,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Word::Channel => "channel",
            Word::Account => "account",
            Word::Thread => "thread",
            Word::Kind => "kind",
            Word::State => "state",
            Word::Type => "type",
            Word::Text => "text",
            Word::Since => "since",
            Word::Before => "before",
            Word::Scope => "scope",
            Word::Key => "key",
        }
    }
}

/// What a list can be narrowed by.
#[derive(Clone, Copy, Debug)]
pub struct Grammar {
    /// In the order in which they are named to people.
    pub words: &'static [Word],
    /// What `state:` may be.
    pub states: &'static [&'static str],
    /// What `kind:` may be.
    pub kinds: &'static [&'static str],
}

/// One thing that must hold, or must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub word: Word,
    pub value: String,
    pub not: bool,
}

/// A filter that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<Condition>,
    /// From `since:`, inclusive.
    pub since_ms: Option<i64>,
    /// From `before:`, exclusive.
    pub before_ms: Option<i64>,
}

/// Why a filter cannot be read, and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    #[error("the filter has more than {FILTER_MAX_BYTES} bytes or {CONDITIONS_MAX} conditions; use fewer")]
    TooLong,
    #[error("a quote is not closed; write text:\"two words\"")]
    OpenQuote,
    #[error("`{name}:` has no value; write `{name}:…`, in quotes where it has spaces")]
    NoValue { name: String },
    #[error("`{name}` is nothing this list can be filtered by{}; there are {known}", Meant(.nearest))]
    UnknownWord { name: String, nearest: Option<&'static str>, known: String },
    #[error("`{value}` is no {word}{}; there are {known}", Meant(.nearest))]
    UnknownValue { word: &'static str, value: String, nearest: Option<&'static str>, known: String },
    #[error("`{value}` is no time; write how long ago, as `1h` or `2d`, or when, as `2026-01-31T12:00:00Z` or `2026-01-31`")]
    NoTime { value: String },
    #[error("`{name}:` stands twice, and no row can be both; keep one of them")]
    Twice { name: &'static str },
    #[error("`-{name}:` cannot be turned round; write `{other}:`")]
    Turned { name: &'static str, other: &'static str },
}

struct Meant<'n>(&'n Option<&'static str>);

impl fmt::Display for Meant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(nearest) => write!(f, " (did you mean `{nearest}`?)"),
            None => Ok(()),
        }
    }
}

impl Filter {
    /// Reads a filter for a list with this grammar. Times that say how long ago count from `now_ms`.
    pub fn read(text: &str, grammar: &Grammar, now_ms: i64) -> Result<Self, BadFilter> {
        if text.len() > FILTER_MAX_BYTES {
            return Err(BadFilter::TooLong);
        }
        let mut filter = Self::default();
        for token in tokens(text)? {
            filter.add(token, grammar, now_ms)?;
        }
        Ok(filter)
    }

    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.since_ms.is_none() && self.before_ms.is_none()
    }

    /// What this must be, if anything is said about it.
    pub fn wanted(&self, word: Word) -> Option<&str> {
        self.conditions.iter().find(|condition| condition.word == word && !condition.not).map(|condition| &*condition.value)
    }

    pub fn asks(&self, word: Word) -> bool {
        self.conditions.iter().any(|condition| condition.word == word)
    }

    /// Whether all that is said about `word` holds, where `holds` tells whether one value does.
    pub fn allows(&self, word: Word, holds: impl Fn(&str) -> bool) -> bool {
        self.conditions
            .iter()
            .filter(|condition| condition.word == word)
            .all(|condition| holds(&condition.value) != condition.not)
    }

    /// The same filter without what is said about these words: somebody else sees to it.
    #[must_use]
    pub fn without(mut self, words: &[Word]) -> Self {
        self.conditions.retain(|condition| condition.not || !words.contains(&condition.word));
        self
    }

    /// Whether a time lies within `since:` and `before:`.
    pub fn allows_time(&self, at_ms: i64) -> bool {
        self.since_ms.is_none_or(|since_ms| at_ms >= since_ms) && self.before_ms.is_none_or(|before_ms| at_ms < before_ms)
    }

    /// Adds what was asked for beside the filter.
    pub fn and(mut self, word: Word, value: Option<String>) -> Result<Self, BadFilter> {
        match (self.wanted(word), value) {
            (Some(said), Some(value)) if said != value => Err(BadFilter::Twice { name: word.name() }),
            (None, Some(value)) => {
                self.conditions.push(Condition { word, value, not: false });
                Ok(self)
            }
            (_, _) => Ok(self),
        }
    }

    fn add(&mut self, token: Token, grammar: &Grammar, now_ms: i64) -> Result<(), BadFilter> {
        let Token { not, name, value } = token;
        let word = match &name {
            None => Word::Text,
            Some(name) => grammar.word(name)?,
        };
        if value.is_empty() {
            return Err(BadFilter::NoValue { name: word.name().to_owned() });
        }
        if name.is_none() && !grammar.words.contains(&Word::Text) {
            return Err(grammar.unknown(&value));
        }
        match word {
            Word::Since | Word::Before if not => {
                let other = if word == Word::Since { Word::Before } else { Word::Since };
                return Err(BadFilter::Turned { name: word.name(), other: other.name() });
            }
            Word::Since => return set_once(&mut self.since_ms, word, read_time(&value, now_ms)?),
            Word::Before => return set_once(&mut self.before_ms, word, read_time(&value, now_ms)?),
            Word::State => known(word, &value, grammar.states)?,
            Word::Kind => known(word, &value, grammar.kinds)?,
            _ => {}
        }
        if self.conditions.len() == CONDITIONS_MAX {
            return Err(BadFilter::TooLong);
        }
        if !not && word != Word::Text && self.wanted(word).is_some_and(|said| said != value) {
            return Err(BadFilter::Twice { name: word.name() });
        }
        self.conditions.push(Condition { word, value, not });
        Ok(())
    }
}

impl Grammar {
    fn word(&self, name: &str) -> Result<Word, BadFilter> {
        self.words.iter().copied().find(|word| word.name() == name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> BadFilter {
        let names: Vec<_> = self.words.iter().map(|word| word.name()).collect();
        let known = names.iter().map(|name| format!("`{name}:`")).collect::<Vec<_>>().join(", ");
        BadFilter::UnknownWord { name: short(name), nearest: nearest(name, &names), known }
    }
}

fn set_once(place: &mut Option<i64>, word: Word, at_ms: i64) -> Result<(), BadFilter> {
    match place.replace(at_ms) {
        None => Ok(()),
        Some(_) => Err(BadFilter::Twice { name: word.name() }),
    }
}

fn known(word: Word, value: &str, values: &[&'static str]) -> Result<(), BadFilter> {
    if values.contains(&value) {
        return Ok(());
    }
    let known = values.join(", ");
    Err(BadFilter::UnknownValue { word: word.name(), value: short(value), nearest: nearest(value, values), known })
}

/// How long ago, a time of the calendar, or a day (in UTC).
fn read_time(value: &str, now_ms: i64) -> Result<i64, BadFilter> {
    let no_time = || BadFilter::NoTime { value: short(value) };
    if let Some(ago_ms) = read_ms(value) {
        return Ok(now_ms.saturating_sub(ago_ms));
    }
    if let Ok(time) = value.parse::<jiff::Timestamp>() {
        return Ok(time.as_millisecond());
    }
    let day: jiff::civil::Date = value.parse().map_err(|_| no_time())?;
    let time = day.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| no_time())?;
    Ok(time.timestamp().as_millisecond())
}

struct Token {
    not: bool,
    name: Option<String>,
    value: String,
}

/// Splits at spaces outside of quotes. Within them `\"` and `\\` stand for `"` and `\`.
fn tokens(text: &str) -> Result<Vec<Token>, BadFilter> {
    let mut tokens = Vec::new();
    let mut signs = text.chars().peekable();
    loop {
        while signs.next_if(|sign| sign.is_whitespace()).is_some() {}
        let Some(first) = signs.peek() else { return Ok(tokens) };
        let not = *first == '-';
        if not {
            signs.next();
        }
        let (mut name, mut value, mut quoted) = (None, String::new(), false);
        while let Some(sign) = signs.next_if(|sign| !sign.is_whitespace()) {
            match sign {
                ':' if name.is_none() && !quoted => name = Some(std::mem::take(&mut value)),
                '"' => {
                    quoted = true;
                    read_quoted(&mut signs, &mut value)?;
                }
                sign => value.push(sign),
            }
        }
        tokens.push(Token { not, name, value });
    }
}

fn read_quoted(signs: &mut std::iter::Peekable<std::str::Chars<'_>>, value: &mut String) -> Result<(), BadFilter> {
    loop {
        match signs.next().ok_or(BadFilter::OpenQuote)? {
            '"' => return Ok(()),
            '\\' => match signs.next().ok_or(BadFilter::OpenQuote)? {
                sign @ ('"' | '\\') => value.push(sign),
                sign => value.extend(['\\', sign]),
            },
            sign => value.push(sign),
        }
    }
}

/// One condition as it is written, in quotes where it needs them.
pub fn written(word: Word, value: &str) -> String {
    format!("{}:{}", word.name(), quoted(value))
}

fn quoted(text: &str) -> String {
    if text.contains(|sign: char| sign.is_whitespace() || sign == '"') {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        text.to_owned()
    }
}

/// Makes one filter of the arguments of a command line, where the shell has taken the quotes away.
pub fn join(arguments: &[String]) -> String {
    let argument = |text: &String| match text.split_once(':') {
        Some((name, value)) if !name.contains(char::is_whitespace) && !value.starts_with('"') => {
            format!("{name}:{}", quoted(value))
        }
        Some(_) => text.clone(),
        None => quoted(text),
    };
    arguments.iter().map(argument).collect::<Vec<_>>().join(" ")
}

/// The known word that is most like this one, if one is.
fn nearest(word: &str, known: &[&'static str]) -> Option<&'static str> {
    let distances = known.iter().map(|candidate| (distance(word, candidate), *candidate));
    distances.min().filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4).map(|(_, candidate)| candidate)
}

/// How many letters have to be put in, taken out or changed.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().take(64).enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = corner + usize::from(a != *b);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[to.len()]
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;
    const GRAMMAR: Grammar = Grammar {
        words: &[Word::Channel, Word::Kind, Word::State, Word::Type, Word::Text, Word::Since, Word::Before],
        states: &["waiting", "parked"],
        kinds: &["message", "status"],
    };

    fn read(text: &str) -> Result<Filter, BadFilter> {
        Filter::read(text, &GRAMMAR, NOW_MS)
    }

    fn said(text: &str) -> String {
        read(text).expect_err(text).to_string()
    }

    #[test]
    fn conditions_are_read_with_quotes_times_and_words_of_no_name() {
        let filter =
            read(r#"  channel:shop state:parked since:1h type:invoice.paid text:"a \"refund\" now" please -kind:status "#);
        let filter = filter.expect("a filter");
        assert_eq!(filter.wanted(Word::Channel), Some("shop"));
        assert_eq!(filter.wanted(Word::Type), Some("invoice.paid"));
        assert_eq!(filter.since_ms, Some(NOW_MS - 3_600_000));
        let text = "Please, a \"refund\" now!".to_lowercase();
        assert!(filter.allows(Word::Text, |value| text.contains(value)));
        assert!(!filter.allows(Word::Text, |value| "a refund".contains(value)));
        assert!(filter.allows(Word::Kind, |value| value == "message") && !filter.allows(Word::Kind, |value| value == "status"));
        assert_eq!(filter.wanted(Word::Kind), None, "what must not be is not wanted");
        assert!(read("").expect("nothing").is_empty() && !filter.is_empty());
    }

    #[test]
    fn times_are_ago_of_the_calendar_or_a_day() {
        let filter = read("since:2023-11-14 before:2023-11-14T22:13:20Z").expect("a filter");
        assert_eq!(filter.before_ms, Some(NOW_MS));
        assert_eq!(filter.since_ms, Some(1_699_920_000_000));
        assert!(filter.allows_time(NOW_MS - 1) && !filter.allows_time(NOW_MS) && !filter.allows_time(0));
        assert!(said("since:soon").contains("`1h`"));
        assert!(said("-since:1h").contains("write `before:`"));
    }

    #[test]
    fn a_mistake_is_answered_with_what_there_is() {
        assert_eq!(
            said("chanel:shop"),
            "`chanel` is nothing this list can be filtered by (did you mean `channel`?); there are `channel:`, `kind:`, `state:`, `type:`, \
             `text:`, `since:`, `before:`"
        );
        assert_eq!(said("state:parkd"), "`parkd` is no state (did you mean `parked`?); there are waiting, parked");
        assert!(said("zebra:1").starts_with("`zebra` is nothing this list can be filtered by; there are"));
        assert!(said("channel:").contains("has no value"));
        assert!(said("text:\"open").contains("quote"));
        assert!(said("channel:a channel:b").contains("stands twice"));
        assert!(said("since:1h since:2h").contains("stands twice"));
        assert!(said(&"x ".repeat(21)).contains("use fewer") && said(&"x".repeat(1_001)).contains("use fewer"));
        let bare = Grammar { words: &[Word::Key], ..GRAMMAR };
        assert!(Filter::read("loose", &bare, 0).is_err(), "a list without a text has no words of no name");
    }

    #[test]
    fn what_a_shell_took_apart_reads_as_it_was_meant() {
        let typed =
            ["channel:shop", "text:two words", "say \"hi\"", r"text:a\b c", "since:2023-11-14T22:13:20Z"].map(str::to_owned);
        let filter = read(&join(&typed)).expect("a filter");
        let mut texts = Vec::new();
        for condition in filter.conditions.iter().filter(|condition| condition.word == Word::Text) {
            texts.push(condition.value.as_str());
        }
        assert_eq!(texts, ["two words", "say \"hi\"", r"a\b c"]);
        assert_eq!(filter.since_ms, Some(NOW_MS));
    }

    #[test]
    fn a_value_is_written_as_it_reads_back() {
        for value in ["plain", "two words", r"back\slash", r#"a "quote" and \ and \" both"#, "\u{202e}\t-x:y"] {
            let filter = read(&written(Word::Channel, value)).expect(value);
            assert_eq!(filter.wanted(Word::Channel), Some(value));
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_is_typed_makes_it_panic(text in ".{0,60}") {
            let _ = read(&text);
            let _ = read(&join(&[text]));
        }
    }
}
