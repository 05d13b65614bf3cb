use super::*;

#[test]
fn every_text_that_is_spelt_out_is_read_and_is_another_script() {
    let forms: std::collections::HashSet<String> = texts::SPELT.iter().filter_map(|(text, _)| lua::normalize(text)).collect();
    assert_eq!(forms.len(), texts::SPELT.len());
}

#[test]
fn a_script_is_known_by_its_hash_once_its_text_has_come() {
    let scripts = Scripts::default();
    let text = b"if redis.call('get', KEYS[1]) == ARGV[1] then\n  return redis.call('del', KEYS[1])\nelse\n  return 0\nend\n";
    let sha = hash(text);
    assert_eq!(scripts.by_hash(&sha), None);
    let (loaded, recipe) = scripts.load(text).expect("it is known");
    assert_eq!((loaded, recipe.action), (sha.clone(), Action::Release));
    assert_eq!(scripts.by_hash(&sha), Some(recipe));
    assert_eq!(scripts.load(b"return redis.call('flushall')"), None);
    assert_eq!(scripts.load(b"\xff"), None);
}

#[test]
fn the_memory_of_texts_is_bounded() {
    let scripts = Scripts::default();
    for blanks in 0..3 * REMEMBERED_MAX {
        let text = format!("return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]){}", " ".repeat(blanks));
        let _ = scripts.load(text.as_bytes());
    }
    assert!(scripts.known().len() <= REMEMBERED_MAX);
}

/// Each local stands for the next one: written out, a few kilobytes would be many megabytes.
#[test]
fn locals_that_grow_when_they_are_written_out_are_given_up() {
    let text = |locals: usize, uses: usize| {
        let locals: String = (0..locals).map(|n| format!("local a{n}=ARGV[a{}]\n", n + 1)).collect();
        format!("{locals}{}", "a0 ".repeat(uses))
    };
    assert_eq!(lua::normalize(&text(200, 1_000)), None);
    assert!(lua::normalize(&text(10, 10)).is_some());
    assert_eq!(lua::normalize(&text(10, 100)), None);
}

#[test]
fn a_script_that_names_its_first_key_looks_at_no_other() {
    let one = b"return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])";
    let all = b"local count = 0 for i, key in ipairs(KEYS) do
        if redis.call('get', key) == ARGV[1] then redis.call('del', key) count = count + 1 end end return count";
    let one_key = |text: &[u8]| recognize(text).map(|recipe| recipe.one_key);
    assert_eq!((one_key(one), one_key(all)), (Some(true), Some(false)));
}
