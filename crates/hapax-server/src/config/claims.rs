//! `[claims]`: what holds for claims whose callers say nothing else, and how many there may be.

use hapax_domain::limits;
use hapax_gateway::settings::Claims;

use super::mistake::Mistakes;
use super::section::{Section, refuse_unknown};
use super::tree::Table;

const KEYS: &[&str] = &["ttl", "lease", "max"];
const SECOND: i64 = 1_000;

pub(super) fn read(tables: Vec<(String, &Table)>, mistakes: &mut Mistakes) -> Claims {
    tables.iter().for_each(|(path, table)| refuse_unknown(table, path, KEYS, &[], mistakes));
    let section = Section::new(tables);
    let mut ms = |key: &str, most| section.get(key).and_then(|found| found.ms(SECOND..=most, mistakes)).unwrap_or_default();
    let (ttl_ms, lease_ms) = (ms("ttl", limits::CLAIM_KEEP_MAX_MS), ms("lease", limits::CLAIM_LEASE_MAX_MS));
    let max = section.get("max").and_then(|found| found.whole(1..=100_000_000, mistakes)).unwrap_or_default();
    Claims { ttl_ms, lease_ms, max: max as usize }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Environment, Flags, SourceFile, Sources, load};
    use super::*;

    fn load_text(text: &str) -> Result<Config, String> {
        let read_file: &dyn Fn(&str) -> std::io::Result<String> = &|_| Err(std::io::ErrorKind::NotFound.into());
        let file = Some(SourceFile { name: "hapax.toml".to_owned(), text: text.to_owned() });
        let sources = Sources { file, env: Environment { vars: Default::default(), read_file }, flags: Flags::default() };
        load(&sources).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn each_key_may_be_set_and_the_others_stay() {
        let usual = Claims { ttl_ms: 86_400_000, lease_ms: 60_000, max: limits::CLAIMS_MAX };
        assert_eq!(load_text("").expect("a good config").claims, usual);
        let set = load_text("[claims]\nttl = '7d'\nmax = 10").expect("a good config").claims;
        assert_eq!(set, Claims { ttl_ms: 7 * 86_400_000, max: 10, ..usual });
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_line() {
        for (text, said) in [
            ("[claims]\nttl = 5", "hapax.toml:2: claims.ttl: expected a time with its unit"),
            ("[claims]\nttl = '900d'", "hapax.toml:2: claims.ttl: 900d is out of range"),
            ("[claims]\nlease = '0s'", "hapax.toml:2: claims.lease: 0s is out of range"),
            ("[claims]\nmax = 0", "hapax.toml:2: claims.max: 0 is out of range"),
            ("[claims]\ntll = '1d'", "did you mean `ttl`?"),
        ] {
            let mistakes = load_text(text).expect_err("has mistakes");
            assert!(mistakes.contains(said), "{text}\n{mistakes}");
        }
    }
}
