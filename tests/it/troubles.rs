//! Each row of docs/troubleshooting.md is brought about with the real program, and where the row says that hapax says so, it is heard.

mod coming_in;
mod commands;
mod page;
mod people;
pub(crate) mod stage;
mod starting;
mod the_bot;

use std::collections::BTreeSet;

use page::rows;

/// One test for each row, named by the row's first cell.
macro_rules! troubles {
    ($($scene:path as $name:ident: $wrong:literal)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            page::compare($wrong, $scene().await);
        })*

        const BROUGHT_ABOUT: &[&str] = &[$($wrong),*];
    };
}

troubles! {
    coming_in::wrong_secret as wrong_secret: "wrong secret, or a proxy that changes the body"
    coming_in::no_signature as no_signature: "the provider has no secret, or a stranger posts"
    coming_in::clock_off as clock_off: "this machine's clock is off"
    coming_in::wrong_address as wrong_address: "wrong address at the provider"
    coming_in::handshake as handshake: "Meta does not save the callback URL"
    coming_in::disk_full as disk_full: "the disk is full"
    coming_in::store_away as store_away: "the store is away"
    coming_in::no_room_at_the_balancer as load_balancer: "the load balancer takes it out"
    starting::port_taken as port_taken: "the port is taken"
    starting::slip as slip: "the config has a slip"
    starting::new_config_refused as new_config_refused: "a new config is refused"
    starting::second_process as second_process: "a second process on one file"
    starting::foreign_socket as foreign_socket: "systemd's socket is not the config's"
    starting::own_header as own_header: "a header of `target_headers` is hapax's own"
    starting::store_not_there as store_not_there: "the store's server is not there, or the address is wrong"
    the_bot::not_running as not_running: "the bot is not running"
    the_bot::wrong_path as wrong_path: "wrong path"
    the_bot::guessed_path as guessed_path: "`hapax listen 3000`, and the bot listens on another path than `/webhook`"
    the_bot::other_secret as other_secret: "the bot checks with another secret"
    the_bot::no_post as no_post: "the path takes no POST"
    the_bot::redirects as redirects: "the bot redirects"
    the_bot::slow as slow: "the bot is slow"
    the_bot::always_fails as always_fails: "the bot fails every time"
    the_bot::no_target_at_all as no_target_at_all: "no target at all"
    the_bot::no_target as no_target: "no target for an account"
    the_bot::behind_a_gateway as behind_a_gateway: "a gateway before the bot wants a key or a certificate"
    the_bot::down as target_down: "the channel's target is down"
    people::no_token as no_token: "no `token`"
    people::bad_reply as bad_reply: "the bot's reply cannot be read"
    people::account_stopped as account_stopped: "the provider has stopped the account"
    people::outbox_full as outbox_full: "the outbox is full"
    people::lost_answer as lost_answer: "the answer to a send was lost"
    commands::nobody_runs as nobody_runs: "nobody runs"
    commands::scrape_without_token as scrape_without_token: "Prometheus gets 401"
    commands::scrape_with_another_scope as scrape_with_another_scope: "Prometheus gets 403"
    commands::no_collector as no_collector: "the collector of traces is away"
    commands::wrong_token as wrong_token: "no token, or a wrong one"
    commands::lost_token as lost_token: "the token of the first start is lost"
    commands::unknown_id as unknown_id: "an id that nobody has"
    commands::not_hapax as not_hapax: "another server answers on that port"
    commands::forget_too_early as forget_too_early: "somebody is to be forgotten, and not all is over"
}

#[test]
fn every_row_is_brought_about_or_says_why_not() {
    let tried: BTreeSet<&str> = BROUGHT_ABOUT.iter().copied().collect();
    let rows = rows();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    let written: BTreeSet<&str> = rows.iter().filter(|row| row.is_tried).map(|row| row.wrong.as_str()).collect();
    assert_eq!(written.difference(&tried).collect::<Vec<_>>(), Vec::<&&str>::new(), "rows that nobody brings about");
    assert_eq!(tried.difference(&written).collect::<Vec<_>>(), Vec::<&&str>::new(), "scenes that the page does not have");
}
