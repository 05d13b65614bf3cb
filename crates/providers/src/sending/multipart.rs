//! `multipart/form-data` as some bots answer webhooks with. Fields only: a file cannot be kept in a message.

/// The fields in their order; `None` when it is not readable as such, or brings a file along.
pub(super) fn fields<'a>(body: &'a str, content_type: &str) -> Option<Vec<(&'a str, &'a str)>> {
    let boundary = parameter(content_type, "boundary")?;
    let delimiter = format!("--{boundary}");
    let mut parts = body.split(delimiter.as_str());
    parts.next()?;
    let mut fields = Vec::new();
    for part in parts {
        if part.starts_with("--") {
            return Some(fields);
        }
        let (head, value) = part.strip_prefix("\r\n")?.split_once("\r\n\r\n")?;
        let disposition = head.split("\r\n").find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))?;
        if parameter(disposition, "filename").is_some() || parameter(disposition, "filename*").is_some() {
            return None;
        }
        fields.push((parameter(disposition, "name")?, value.strip_suffix("\r\n")?));
    }
    // The last delimiter never came: it was cut off.
    None
}

/// A parameter of a header, with or without quotes.
fn parameter<'h>(header: &'h str, name: &str) -> Option<&'h str> {
    header.split(';').skip(1).find_map(|parameter| {
        let (found, value) = parameter.trim().split_once('=')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SORT: &str = "multipart/form-data; boundary=\"b1\"";

    #[test]
    fn fields_are_read_and_files_are_not() {
        let part = |head: &str, value: &str| {
            format!("--b1\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
        };
        let good = part("name=\"method\"", "sendMessage") + &part("name=text", "a\r\nb") + "--b1--\r\n";
        assert_eq!(fields(&good, SORT), Some(vec![("method", "sendMessage"), ("text", "a\r\nb")]));
        let with_file = part("name=\"photo\"; filename=\"x.png\"", "..") + "--b1--";
        for odd in [with_file.as_str(), "", "--b1", "--b1\r\n", &good[..good.len() - 12], "--b2--"] {
            assert_eq!(fields(odd, SORT), None, "{odd}");
        }
        assert_eq!(fields(&good, "multipart/form-data"), None);
    }
}
