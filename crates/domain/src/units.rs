//! Times and sizes as people write them: `8d`, `500ms`, `4MB`.

const TIMES: [(&str, i64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 7 * 86_400_000)];

const SIZES: [(&str, i64); 4] = [("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10), ("B", 1)];

/// Reads a time with its unit, like `90s`.
pub fn read_ms(text: &str) -> Option<i64> {
    read(text, &TIMES)
}

/// Reads a size with its unit, like `4MB`.
pub fn read_bytes(text: &str) -> Option<i64> {
    read(text, &SIZES)
}

/// Writes a time in the largest unit that says it exactly.
pub fn write_ms(ms: i64) -> String {
    // Weeks are read and never written: `14d` is what people compare with a provider's docs.
    write(ms, TIMES[..5].iter().rev(), "s")
}

/// Writes a size in the largest unit that says it exactly.
pub fn write_bytes(bytes: i64) -> String {
    write(bytes, SIZES.iter(), "MB")
}

fn read(text: &str, units: &[(&str, i64)]) -> Option<i64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    number.parse::<i64>().ok()?.checked_mul(*factor)
}

/// Nothing at all is in every unit; `nothing` names the usual one.
fn write<'u>(value: i64, mut from_large: impl Iterator<Item = &'u (&'static str, i64)>, nothing: &str) -> String {
    match from_large.find(|(_, factor)| value != 0 && value % factor == 0) {
        Some((name, factor)) => format!("{}{name}", value / factor),
        None => format!("0{nothing}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_read_with_their_unit_only() {
        assert_eq!(read_ms("8d"), Some(691_200_000));
        assert_eq!(read_ms("500ms"), Some(500));
        assert_eq!(read_ms(" 30 s "), Some(30_000));
        assert_eq!(read_bytes("4mb"), Some(4 << 20));
        for odd in ["", "8", "d", "-1s", "1.5h", "8 days", "1h30m", "9223372036854775807d"] {
            assert_eq!(read_ms(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for ms in [0, 1, 999, 1_000, 90_000, 3_600_000, 86_400_000, 8 * 86_400_000] {
            assert_eq!(read_ms(&write_ms(ms)), Some(ms));
        }
        assert_eq!(write_ms(8 * 86_400_000), "8d");
        assert_eq!(write_bytes(26 << 20), "26MB");
        for bytes in [0, 1, 1 << 10, 26 << 20] {
            assert_eq!(read_bytes(&write_bytes(bytes)), Some(bytes));
        }
    }
}
