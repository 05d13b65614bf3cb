//! What all pages have around them.

use maud::{DOCTYPE, Markup, html};

use super::components::flash_message;
use super::trouble::Trouble;
use super::visitor::Visitor;
use super::{assets, icons};

/// The largest page: people open them on phones.
const PAGE_MAX_BYTES: usize = 96 << 10;

/// Where in the pages one is. The order is that of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nav {
    Overview,
    Events,
    Threads,
    Outbox,
    Parked,
    Claims,
    Accounts,
    Channels,
    Tokens,
    Audit,
    Settings,
    Docs,
}

impl Nav {
    const ALL: [Nav; 12] = [
        Nav::Overview,
        Nav::Events,
        Nav::Threads,
        Nav::Outbox,
        Nav::Parked,
        Nav::Claims,
        Nav::Accounts,
        Nav::Channels,
        Nav::Tokens,
        Nav::Audit,
        Nav::Settings,
        Nav::Docs,
    ];

    /// Path, name, icon, and the key that leads there after `g`.
    fn about(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Nav::Overview => ("/", "Overview", "home", "o"),
            Nav::Events => ("/events", "Events", "bolt", "e"),
            Nav::Threads => ("/threads", "Threads", "chat", "t"),
            Nav::Outbox => ("/outbox", "Outbox", "send", "x"),
            Nav::Parked => ("/parked", "Parked", "pause", "p"),
            Nav::Claims => ("/claims", "Claims", "key", "c"),
            Nav::Accounts => ("/accounts", "Accounts", "phone", "a"),
            Nav::Channels => ("/channels", "Channels", "plug", "h"),
            Nav::Tokens => ("/tokens", "Tokens", "shield", "k"),
            Nav::Audit => ("/audit", "Audit", "list", "u"),
            Nav::Settings => ("/settings", "Settings", "gear", "s"),
            Nav::Docs => ("/docs", "API", "book", "d"),
        }
    }

    fn is_for_admins(self) -> bool {
        matches!(self, Nav::Tokens | Nav::Audit | Nav::Settings)
    }
}

/// A page for somebody who has signed in.
pub(super) fn page(visitor: &Visitor, title: &str, here: impl Into<Option<Nav>>, body: Markup) -> Markup {
    let here = here.into();
    let menu = html! {
        header.side {
            a.home href="/" aria-label="hapax, overview" { (brand()) span.word { "hapax" } }
            nav aria-label="Pages" {
                @for nav in Nav::ALL.into_iter().filter(|nav| !nav.is_for_admins() || visitor.is_admin()) {
                    @let (path, name, icon, key) = nav.about();
                    a href=(path) aria-current=[(Some(nav) == here).then_some("page")] data-key-go=(key) { (icons::icon(icon)) span { (name) } }
                }
            }
            details.who {
                summary aria-label={ "Signed in as " (visitor.caller.name) } { (icons::icon("person")) span.name { (visitor.caller.name) } }
                div {
                    p.quiet { "Signed in with the token " code { (visitor.caller.name) } "." }
                    form method="post" action="/sign-out" { button type="submit" { (icons::icon("out")) "Sign out" } }
                    form method="post" action="/sign-out" {
                        button type="submit" name="everywhere" value="1" { "Sign out everywhere" }
                    }
                }
            }
        }
    };
    let body = html! {
        a.skip href="#main" { "To the content" }
        (menu)
        main #main tabindex="-1" {
            @if let Some(flash) = &visitor.flash { (flash_message(flash)) }
            (body)
        }
        div #live-state role="status" data-source="/live" hidden { "The connection is gone; trying again." }
    };
    document(title, "signed-in", body)
}

/// A page with as many rows as fit on it. What strangers write may be long, and is longer still when it is written as HTML.
pub(super) async fn fitting<M, F>(most: usize, make: M) -> Result<Markup, Trouble>
where
    M: Fn(usize) -> F,
    F: Future<Output = Result<Markup, Trouble>>,
{
    let mut rows = most;
    loop {
        let page = make(rows).await?;
        if page.0.len() <= PAGE_MAX_BYTES || rows == 1 {
            return Ok(page);
        }
        // Rows are of different lengths: so many would fit if they were alike.
        rows = (rows * PAGE_MAX_BYTES / page.0.len()).min(rows * 3 / 4).max(1);
    }
}

/// A page for anybody.
pub(super) fn bare(title: &str, body: Markup) -> Markup {
    document(title, "outside", html! { main #main { (body) } })
}

/// The mark, as a picture that words stand beside.
pub(super) fn brand() -> Markup {
    html! { img.mark src=(assets::MARK.path()) alt="" width="28" height="28"; }
}

fn document(title: &str, class: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                title { (title) " · hapax" }
                link rel="icon" type="image/svg+xml" href=(assets::MARK.path());
                link rel="stylesheet" href=(assets::STYLE.path());
                script type="module" src=(assets::SCRIPT.path()) {}
            }
            body class=(class) {
                (icons::sheet())
                (body)
            }
        }
    }
}
