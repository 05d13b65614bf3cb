//! How long a bot's library waits for an answer, by what it calls itself.

use std::time::Duration;

/// Less than the 5 s at which the hastiest give up (python-telegram-bot, httpx).
const SHORT: Duration = Duration::from_secs(4);
/// Less than the 30 s at which the next one does (pyTelegramBotAPI).
const LONG: Duration = Duration::from_secs(25);

/// Words of those that wait for 30 s or longer.
const PATIENT: [&str; 3] = [
    // 60 s.
    "aiogram/",
    // pyTelegramBotAPI goes by the name of what it calls with, and waits for 30 s; by itself that waits for ever.
    "python-requests/",
    // So do telegraf and grammY on Node, which wait for 500 s; by itself that waits for ever.
    "node-fetch",
];

/// How long hapax may take before it says "slow down". Whoever is not known gets the short wait.
pub fn wait_of(user_agent: Option<&str>) -> Duration {
    let name = user_agent.unwrap_or_default().to_ascii_lowercase();
    if PATIENT.iter().any(|known| name.contains(known)) { LONG } else { SHORT }
}
