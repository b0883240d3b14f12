//! The system's figures of this process, such as memory and open files, under the names that Prometheus' own clients
//! use. They are read from `/proc` at each scrape, and left out where there is no `/proc`. A crate would not do, since
//! the recorder has no counters of fractions.

use std::fmt::Write as _;
use std::fs::{read_dir, read_to_string};

/// Linux reports processor time in hundredths of a second on every machine.
const TICKS: f64 = 100.0;

/// The name, type, help and value of a metric in Prometheus' text format.
type Figure = (&'static str, &'static str, &'static str, Option<f64>);

/// Returns the figures of this process in Prometheus' text format.
pub fn render() -> String {
    let read = |file: &str| read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let open = read_dir("/proc/self/fd").ok().map(Iterator::count);
    let started = read_to_string("/proc/stat").ok().and_then(|stat| field(&stat, "btime "));
    let mut text = String::new();
    for (name, kind, help, value) in figures(&read("stat"), &read("status"), &read("limits"), open, started) {
        if let Some(value) = value {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
        }
    }
    text
}

/// Parses the system's texts; `open` is the number of open files, and `booted` the time at which the system started.
fn figures(stat: &str, status: &str, limits: &str, open: Option<usize>, booted: Option<f64>) -> [Figure; 7] {
    // The second field is the program's name, which may contain any characters.
    let stat = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |nth: usize| stat.split_whitespace().nth(nth).and_then(|ticks| ticks.parse::<f64>().ok());
    let cpu = ticks(11).zip(ticks(12)).map(|(user, system)| (user + system) / TICKS);
    let started = booted.zip(ticks(19)).map(|(booted, after)| booted + after / TICKS);
    let kilobytes = |name: &str| field(status, name).map(|kilobytes| kilobytes * 1024.0);
    #[expect(clippy::cast_precision_loss, reason = "a process has far fewer than 2^52 open files")]
    let open = open.map(|open| open as f64);
    [
        ("process_cpu_seconds_total", "counter", "Processor time used by all threads.", cpu),
        ("process_resident_memory_bytes", "gauge", "Resident memory.", kilobytes("VmRSS:")),
        ("process_virtual_memory_bytes", "gauge", "Virtual memory.", kilobytes("VmSize:")),
        ("process_threads", "gauge", "Threads.", field(status, "Threads:")),
        ("process_open_fds", "gauge", "Open file descriptors.", open),
        ("process_max_fds", "gauge", "Limit of open file descriptors.", field(limits, "Max open files")),
        ("process_start_time_seconds", "gauge", "Start time in seconds since 1970.", started),
    ]
}

/// Returns the first number of the line that begins with `name`.
fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_for_any_program_name() {
        let stat = "4242 (a) b (c)) S 1 4242 4242 0 -1 4194304 900 0 0 0 150 50 0 0 20 0 9 0 1200 99 7 1844 1 1 0 0";
        let status = "Name:\tx\nVmSize:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t9\n";
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 524288               files\n";
        let figures = figures(stat, status, limits, Some(12), Some(1_700_000_000.0));
        let values = figures.map(|figure| figure.3.unwrap());
        assert_eq!(values, [2.0, 1_048_576.0, 2_097_152.0, 9.0, 12.0, 1024.0, 1_700_000_012.0]);
    }

    #[test]
    fn figures_that_the_system_does_not_report_are_left_out() {
        assert!(figures("", "", "", None, None).iter().all(|figure| figure.3.is_none()));
        let unlimited =
            figures("", "", "Max open files            unlimited            unlimited            files", None, None);
        assert!(unlimited[5].3.is_none());
    }
}
