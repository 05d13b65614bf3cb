//! Texts as TEXT can hold them. PostgreSQL refuses the character NUL, and providers do not promise to leave it out.

use std::borrow::Cow;

/// Writes NUL as `\1\1` and `\1` as `\1\2`. Different texts stay different, and in the same order when compared as bytes.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte < 2) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => escaped.push_str("\u{1}\u{1}"),
            '\u{1}' => escaped.push_str("\u{1}\u{2}"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Reads back what [`escape`] wrote.
pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1}') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1}' => plain.push(if characters.next() == Some('\u{1}') { '\0' } else { '\u{1}' }),
            other => plain.push(other),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All texts of up to four of the characters that matter.
    fn texts() -> Vec<String> {
        let mut all = vec![String::new()];
        for from in 0..85 {
            let longer: Vec<String> = ['\0', '\u{1}', '\u{2}', 'é'].iter().map(|last| format!("{}{last}", all[from])).collect();
            all.extend(longer);
        }
        all
    }

    #[test]
    fn every_text_reads_back_and_none_holds_a_nul() {
        for text in texts() {
            let escaped = escape(&text);
            assert!(!escaped.contains('\0'), "{text:?}");
            assert_eq!(unescape(&escaped), text);
        }
    }

    #[test]
    fn the_order_of_bytes_stays() {
        let mut texts = texts();
        assert_eq!(texts.len(), 341);
        texts.sort();
        let escaped: Vec<_> = texts.iter().map(|text| escape(text).into_owned()).collect();
        assert!(escaped.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_plain_text_is_not_copied() {
        assert!(matches!(escape("wamid.Ab"), Cow::Borrowed(_)));
        assert!(matches!(unescape("wamid.Ab"), Cow::Borrowed(_)));
    }
}
