//! The ratios as bars: in the terminal, and as an SVG file.

use std::fmt::Write;

/// Places of a bar in the terminal for a ratio of 1.
const WIDTH: f64 = 24.0;

/// One bar of the SVG.
pub(super) struct Bar<'b> {
    pub(super) name: &'b str,
    pub(super) ratio: f64,
    /// What stands at its end.
    pub(super) words: String,
}

/// A bar of eighths of a place; what is beyond one and a half yardsticks is cut.
pub(super) fn bar(ratio: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if !ratio.is_finite() {
        return String::new();
    }
    let eighths = (ratio.clamp(0.0, 1.5) * WIDTH * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// A picture of the bars, readable on light and dark pages.
pub(super) fn svg(title: &str, bars: &[Bar<'_>]) -> String {
    const ROW: usize = 24;
    const LEFT: usize = 330;
    const SCALE: f64 = 380.0;
    let height = ROW * (bars.len() + 2);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 920 {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"920\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"10\" y=\"20\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (row, Bar { name, ratio, words }) in bars.iter().enumerate() {
        let ratio = if ratio.is_finite() { ratio.clamp(0.0, 1.2) } else { 0.0 };
        let (top, wide) = (ROW * (row + 1) + 10, ratio * SCALE);
        let (base, end) = (top + 12, LEFT as f64 + wide + 6.0);
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text>\n<rect x=\"{LEFT}\" y=\"{top}\" width=\"{wide:.0}\" \
             height=\"16\" fill=\"#4078c0\"/>\n<text x=\"{end:.0}\" y=\"{base}\">{}</text>\n",
            LEFT - 8,
            escaped(name),
            escaped(words)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_ratio() {
        assert_eq!(bar(1.0).chars().count(), 24);
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0 / 48.0), "▌");
        assert_eq!((bar(f64::NAN), bar(99.0)), (String::new(), "█".repeat(36)));
    }

    #[test]
    fn a_picture_has_a_bar_per_line_and_no_stray_marks() {
        let bars = [
            Bar { name: "a < b", ratio: 0.5, words: "0.50".to_owned() },
            Bar { name: "c", ratio: f64::NAN, words: String::new() },
        ];
        let svg = svg("ratios & more", &bars);
        assert_eq!(svg.matches("<rect").count(), 3, "{svg}");
        assert!(svg.contains("a &lt; b") && svg.contains("ratios &amp; more") && svg.contains("width=\"190\""), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
