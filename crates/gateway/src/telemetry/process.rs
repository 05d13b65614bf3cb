//! What the system says of this process, under the names that every dashboard knows. Where there is no `/proc`, nothing.

use std::fmt::Write;
use std::sync::OnceLock;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// What `/proc/self/stat` tells, in its own units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    /// After the machine's start.
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// The second field is the program's name and may hold anything, blanks and brackets too: fields are counted behind its last bracket.
fn read(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // By the numbers of proc(5), of which the first here is 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        started_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

/// When the machine was started, in seconds since 1970. It is asked for once: after that it only moves with the clock.
fn booted_s() -> u64 {
    static BOOTED_S: OnceLock<u64> = OnceLock::new();
    *BOOTED_S.get_or_init(|| {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()).unwrap_or_default()
    })
}

/// Adds them to the text of `/metrics`. Counters of seconds have parts of a second, which the recorder's do not.
pub(super) fn show(text: &mut String) {
    let Some(stat) = std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(read) else { return };
    let ticks = clock_ticks_per_second().max(1) as f64;
    let mut add = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
    };
    add("process_cpu_seconds_total", "counter", "User and system CPU time spent", stat.cpu_ticks as f64 / ticks);
    add("process_resident_memory_bytes", "gauge", "Memory that is held in RAM", stat.resident_pages as f64 * page_size() as f64);
    add("process_virtual_memory_bytes", "gauge", "Addresses in use", stat.virtual_bytes as f64);
    add("process_threads", "gauge", "Threads", stat.threads as f64);
    let started_s = booted_s() as f64 + stat.started_ticks as f64 / ticks;
    add("process_start_time_seconds", "gauge", "When the process was started", started_s);
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        // One of them is the folder itself, which is closed again.
        add("process_open_fds", "gauge", "Open files, sockets included", files.count().saturating_sub(1) as f64);
    }
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    add("process_max_fds", "gauge", "Files that may be open", most as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "4711 (ha) pax 7) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 20 0 17 0 88000 1048576 300 18446744073709551615 1";
        let stat = read(stat).expect("readable");
        assert_eq!((stat.cpu_ticks, stat.threads, stat.started_ticks), (200, 17, 88_000));
        assert_eq!((stat.virtual_bytes, stat.resident_pages), (1 << 20, 300));
        assert_eq!(read("4711 (hapax) S 1"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_shows_what_it_uses() {
        let mut text = String::new();
        show(&mut text);
        for name in ["process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds", "process_max_fds"] {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            assert!(value.and_then(|value| value.parse::<f64>().ok()).is_some_and(|value| value > 0.0), "{name}: {text}");
        }
    }
}
