//! Icons, drawn once per page and used by name. Each state has one of its own shape: colour alone tells nothing to many.

use maud::{Markup, PreEscaped, html};

/// Name and path, on a field of 24 by 24.
const PATHS: &[(&str, &str)] = &[
    ("home", "M3 11 12 4l9 7M5.5 9.5V20h13V9.5M10 20v-6h4v6"),
    ("bolt", "M13 3 5 14h6l-1 7 8-11h-6z"),
    ("chat", "M4 5h16v11H9l-5 4z"),
    ("send", "M4 12 20 4l-5 16-3.5-6.5zM11.5 13.5 20 4"),
    ("pause", "M4 4h16v16H4zM10 9v6M14 9v6"),
    ("key", "M8 15a4 4 0 1 1 3.6-5.8H21v4h-3v3h-3.4v-3h-3A4 4 0 0 1 8 15z"),
    ("person", "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c.6-4.400 3.800-6 8-6s7.400 1.600 8 6"),
    ("phone", "M7 3h10v18H7zM10.500 17.800h3"),
    ("plug", "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4"),
    ("list", "M4 6h16M4 12h16M4 18h10"),
    (
        "gear",
        "M12 15.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM12 2.500v3M12 18.500v3M2.500 12h3M18.500 12h3M5.300 5.300l2.100 2.100M16.600 16.600l2.100 2.100M5.300 18.700l2.100-2.100M16.600 7.400l2.100-2.100",
    ),
    ("book", "M5 4h11a3 3 0 0 1 3 3v13H8a3 3 0 0 1-3-3zM5 17a3 3 0 0 1 3-3h11"),
    ("check", "M5 12.500 10 17.500 19.500 7"),
    ("checks", "M2.500 12.500 7 17l8.500-9.500M11.500 16l1 1L21.500 7.500"),
    ("clock", "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3.500 2"),
    ("arrow", "M4 12h15M13 6l6 6-6 6"),
    ("up", "M12 20V5M6 11l6-6 6 6"),
    (
        "question",
        "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.500 9.300a2.600 2.600 0 1 1 3.700 2.600c-.8.400-1.200.9-1.200 1.800M12 17v.1",
    ),
    ("cross", "M8 3h8l5 5v8l-5 5H8l-5-5V8zM9 9l6 6M15 9l-6 6"),
    ("alert", "M12 4 2.500 20h19zM12 10v4.500M12 17.300v.1"),
    ("shield", "M12 3 4.500 6v6c0 4.500 3.200 7.500 7.500 9 4.300-1.500 7.500-4.500 7.500-9V6zM12 8.500v4M12 15.500v.1"),
    ("archive", "M3.500 5h17v4h-17zM5 9v10h14V9M10 13h4"),
    ("copies", "M9 9h11v11H9zM5 15H4V4h11v1"),
    ("repeat", "M4 11V9a3 3 0 0 1 3-3h12M16 3l3 3-3 3M20 13v2a3 3 0 0 1-3 3H5M8 21l-3-3 3-3"),
    ("in", "M12 3v12M7 10l5 5 5-5M4 20h16"),
    ("search", "M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13zM15.500 15.500 21 21"),
    ("left", "M14.500 5.500 8 12l6.500 6.500"),
    ("right", "M9.500 5.500 16 12l-6.500 6.500"),
    ("out", "M14 4h5v16h-5M4 12h11M11 8l4 4-4 4"),
    ("copy", "M9 9h11v11H9zM5 15H4V4h11v1"),
    ("dot", "M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6z"),
];

/// All of them, unseen, for the page to use.
pub(super) fn sheet() -> Markup {
    html! {
        svg.sheet aria-hidden="true" width="0" height="0" {
            @for (name, path) in PATHS {
                symbol id={ "i-" (name) } viewBox="0 0 24 24" { path d=(path) {} }
            }
        }
    }
}

/// One of them, for those who see; words stand beside it.
pub(super) fn icon(name: &str) -> Markup {
    debug_assert!(PATHS.iter().any(|(known, _)| *known == name), "there is no icon `{name}`");
    PreEscaped(format!("<svg class=\"i\" aria-hidden=\"true\"><use href=\"#i-{name}\"></use></svg>"))
}
