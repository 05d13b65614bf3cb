//! Writes a small Lua script down in one form, so that scripts that differ only in spelling are equal: blanks, comments, quotes, names of
//! locals, the case of commands, and the places where `else return 0 end` and `end return 0` mean the same.
//!
//! What is equal afterwards does the same. What is not recognised is refused, so the form need not be complete.

/// No script that is known has more words and signs, also when its locals are written out.
const TOKENS_MAX: usize = 1_000;

/// The script in one form; `None` when it cannot be read.
pub(super) fn normalize(text: &str) -> Option<String> {
    let tokens = tokens(text)?;
    let tokens = without_noise(tokens);
    let tokens = inlined(tokens)?;
    let tokens = renamed(tokens);
    let mut written = tokens.join(" ");
    // The last branch that returns needs no `else`.
    if let Some(rest) = written.strip_suffix(" end")
        && let Some((before, after)) = rest.rsplit_once(" else return ")
        && !after.contains(" end")
        && !after.contains(" if ")
        && !after.contains("return")
    {
        written = format!("{before} end return {after}");
    }
    Some(written)
}

/// Words, numbers, strings (in double quotes and small letters, as Redis takes commands in any case) and signs.
fn tokens(text: &str) -> Option<Vec<String>> {
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let (token, after) = if let Some(comment) = rest.strip_prefix("--") {
            let end = match comment.strip_prefix("[[") {
                Some(block) => rest.len() - block.len() + block.find("]]")? + 2,
                None => rest.find('\n').unwrap_or(rest.len()),
            };
            (None, &rest[end..])
        } else if first == '"' || first == '\'' {
            let end = rest[1..].find(first)? + 1;
            let inside = &rest[1..end];
            if inside.contains('\\') {
                return None;
            }
            (Some(format!("\"{}\"", inside.to_lowercase())), &rest[end + 1..])
        } else if first.is_ascii_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            (Some(rest[..end].to_owned()), &rest[end..])
        } else {
            let two = rest.get(..2).filter(|two| ["==", "~=", "<=", ">=", ".."].contains(two));
            let sign = two.unwrap_or(&rest[..first.len_utf8()]);
            (Some(sign.to_owned()), &rest[sign.len()..])
        };
        tokens.extend(token);
        if tokens.len() > TOKENS_MAX {
            return None;
        }
        rest = after.trim_start();
    }
    Some(tokens)
}

/// Drops what changes nothing: semicolons, `tonumber` around an argument, brackets around a whole condition. `pcall` of a command that
/// cannot fail is `call`.
fn without_noise(tokens: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => {}
            "pcall" => kept.push("call".to_owned()),
            "tonumber" if closing(&tokens, at + 1) == Some(at + 6) => {
                kept.extend_from_slice(&tokens[at + 2..at + 6]);
                at += 6;
            }
            word @ ("if" | "elseif") => {
                kept.push(word.to_owned());
                let end = closing(&tokens, at + 1).filter(|end| tokens.get(end + 1).is_some_and(|next| next == "then"));
                if let Some(end) = end {
                    kept.extend_from_slice(&tokens[at + 2..end]);
                    at = end;
                }
            }
            other => kept.push(other.to_owned()),
        }
        at += 1;
    }
    kept
}

/// Where the bracket that opens at `at` is closed.
fn closing(tokens: &[String], at: usize) -> Option<usize> {
    if tokens.get(at)? != "(" {
        return None;
    }
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

/// Puts a local that is set once in the places where it is used, when it stands for an argument or for what `get` has said of the first key.
/// No known form has a `get` behind a write, so one that was carried past a write is equal to none. `None`: there is no end to it.
fn inlined(mut tokens: Vec<String>) -> Option<Vec<String>> {
    let mut from = 0;
    while let Some(at) = tokens[from..].iter().position(|token| token == "local").map(|at| from + at) {
        from = at + 1;
        let (Some(name), Some(length)) = (tokens.get(at + 1).cloned(), value_length(&tokens, at + 3)) else { continue };
        let set_again = tokens[at + 3..].windows(2).any(|pair| pair[0] == name && pair[1] == "=");
        if tokens.get(at + 2).is_none_or(|sign| sign != "=") || set_again {
            continue;
        }
        let value: Vec<String> = tokens[at + 3..at + 3 + length].to_vec();
        let rest = tokens.split_off(at + 3 + length);
        tokens.truncate(at);
        for token in rest {
            if token == name { tokens.extend_from_slice(&value) } else { tokens.push(token) }
        }
        if tokens.len() > TOKENS_MAX {
            return None;
        }
        from = at;
    }
    Some(tokens)
}

/// How many tokens `KEYS[1]`, `ARGV[n]` or a `get` of the first key have that begins here, if one does.
fn value_length(tokens: &[String], at: usize) -> Option<usize> {
    let begins =
        |with: &[&str]| tokens.len() >= at + with.len() && tokens[at..].iter().zip(with).all(|(token, with)| token == with);
    if begins(&["KEYS", "["]) || begins(&["ARGV", "["]) {
        return (tokens.get(at + 3)? == "]").then_some(4);
    }
    begins(&["redis", ".", "call", "(", "\"get\"", ",", "KEYS", "[", "1", "]", ")"]).then_some(11)
}

/// Names locals in the order in which they come.
fn renamed(mut tokens: Vec<String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for at in 1..tokens.len() {
        let declares = match tokens[at - 1].as_str() {
            "local" => tokens[at] != "function",
            "for" => true,
            "function" => at >= 2 && tokens[at - 2] == "local",
            // `for a, b in`
            "," => at >= 3 && tokens[at - 3] == "for",
            _ => false,
        };
        if declares && !names.contains(&tokens[at]) {
            names.push(tokens[at].clone());
        }
    }
    for token in &mut tokens {
        if let Some(place) = names.iter().position(|name| name == token) {
            *token = format!("v{place}");
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_makes_no_difference() {
        let plain =
            normalize(r#"if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end"#);
        for same in [
            "if redis.call('GET', KEYS[1])==ARGV[1] then\n\treturn redis.call('DEL', KEYS[1]);\nend\nreturn 0",
            "-- mine?\nlocal held = redis.call('get', KEYS[1])\nif held == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "--[[ a\nblock ]] local key = KEYS[1] local own = ARGV[1] if (redis.call('get', key) == own) then return redis.pcall('del', key) end return 0",
        ] {
            assert_eq!(normalize(same), plain, "{same}");
        }
        for other in [
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[2] then return redis.call('del', KEYS[1]) else return 0 end",
            "if redis.call('get', KEYS[2]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 1 end",
            "local x = redis.call('get', KEYS[1]) redis.call('del', KEYS[1]) if x == ARGV[1] then return 1 end return 0",
        ] {
            assert_ne!(normalize(other), plain, "{other}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_nothing() {
        for text in ["'open", "--[[ open", r#"return "a\"b""#, "if (((", "tonumber(", "local", "for", "local x", "é§", ""] {
            let _ = normalize(text);
        }
        assert_eq!(normalize("'open"), None);
    }
}
