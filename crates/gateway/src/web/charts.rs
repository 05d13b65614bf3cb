//! Small pictures of numbers over time, as SVG inside the page.

use std::fmt::Write;

use maud::{Markup, html};

use super::components::number;

const WIDTH: u64 = 240;
const HEIGHT: u64 = 44;

/// Bars over equal stretches of time, oldest first, under their sum. One path for all of them: a page has many.
pub(super) fn bars(name: &str, tone: &str, values: &[u64]) -> Markup {
    let (sum, most) =
        (values.iter().fold(0_u64, |sum, value| sum.saturating_add(*value)), values.iter().copied().max().unwrap_or_default());
    let words = format!("{name}: {} in all, at most {} at once", number(sum), number(most));
    html! {
        figure class={ "chart " @if sum > 0 { (tone) } } {
            figcaption { span { (name) } strong { (number(sum)) } }
            svg role="img" aria-label=(words) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                title { (words) }
                path.ground d={ "M0 " (HEIGHT) "H" (WIDTH) } {}
                @if most > 0 { path.bars d=(path(values, most)) {} }
            }
        }
    }
}

fn path(values: &[u64], most: u64) -> String {
    let mut path = String::new();
    let count = values.len().max(1) as u64;
    for (place, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
        let (left, right) = (tenths(place as u64, count), tenths(place as u64 + 1, count));
        // Whatever is more than nothing can be seen.
        let top = HEIGHT - scaled(*value, most).clamp(2, HEIGHT - 2);
        let gap = if right - left > 20 { 5 } else { 0 };
        // Writing to a text cannot fail.
        let _ = write!(path, "M{} {HEIGHT}V{top}H{}V{HEIGHT}z", shown(left), shown(right - gap));
    }
    path
}

fn scaled(value: u64, most: u64) -> u64 {
    (u128::from(value) * u128::from(HEIGHT - 2) / u128::from(most.max(1))) as u64
}

/// Where a stretch begins, in tenths of the picture's unit.
fn tenths(place: u64, count: u64) -> u64 {
    place * WIDTH * 10 / count
}

fn shown(tenths: u64) -> String {
    if tenths.is_multiple_of(10) { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stretch_has_its_bar_and_nothing_has_none() {
        assert_eq!(path(&[0, 4, 2], 4), "M80 44V2H159.5V44zM160 44V23H239.5V44z");
        assert!(path(&[u64::MAX, 1], u64::MAX).contains("V42"), "the smallest can be seen");
        assert!(!bars("Sent", "good", &[0; 60]).into_string().contains("class=\"bars\""));
        assert!(bars("Sent", "good", &[1; 168]).into_string().len() < 5_000);
    }
}
