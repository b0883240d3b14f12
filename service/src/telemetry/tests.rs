//! Tests of the process's log: an event stays on one line and keeps its values, events of requests are buffered so that
//! no request waits, and lines that cannot be written are dropped. Also `Captured`, by which other tests read the log.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::*;

/// What a subscriber wrote.
#[derive(Clone, Default)]
pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    /// Captures this thread's events until the guard is dropped.
    pub(crate) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(self.subscriber(LogFormat::Pretty))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }

    fn subscriber(&self, format: LogFormat) -> Box<dyn Subscriber + Send + Sync> {
        attend();
        let writer = self.clone();
        subscriber(format, Level::new(&"trace".parse().unwrap()), move || writer.clone())
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Registers every call site as of interest from its first event on. If a thread without a subscriber reaches a call
/// site first, tracing may disable it for all threads.
fn attend() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry()).expect("no other is set");
    });
}

fn logged(format: LogFormat, emit: impl FnOnce()) -> String {
    let captured = Captured::default();
    tracing::subscriber::with_default(captured.subscriber(format), emit);
    captured.text()
}

/// The one event that is logged as JSON.
fn event(emit: impl FnOnce()) -> Value {
    serde_json::from_str(&logged(LogFormat::Json, emit)).unwrap()
}

/// A subscriber that writes JSON to `writer`.
fn info<W: Write + Send + 'static>(writer: Gathered<W>) -> Box<dyn Subscriber + Send + Sync> {
    attend();
    subscriber(LogFormat::Json, Level::new(&"info".parse().unwrap()), writer)
}

/// Waits in real time, since the thread of the log knows no other.
fn soon(what: &str, holds: impl Fn() -> bool) {
    let began = tokio::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

/// Every byte value as a character, and the separators that only Unicode has.
fn hostile() -> impl Iterator<Item = String> {
    let bytes = (0..=u8::MAX).map(|byte| format!("a{}b", char::from(byte)));
    let lossy = (0..=u8::MAX).map(|byte| String::from_utf8_lossy(&[b'a', byte, b'b']).into_owned());
    bytes.chain(lossy).chain(["\u{2028}", "\u{2029}", "\r\n", "\u{1b}[2J"].map(str::to_owned))
}

#[test]
fn an_event_stays_on_one_line_whatever_bytes_it_contains_and_json_preserves_them() {
    for format in [LogFormat::Json, LogFormat::Pretty] {
        for text in hostile() {
            let error = anyhow::anyhow!("inner {text}").context(text.clone());
            let output = logged(format, || {
                let _span = tracing::info_span!("task", name = %text, debug = ?text).entered();
                tracing::info!(plain = text, shown = %text, debugged = ?text.as_bytes(), %error, "message {text}");
            });
            let line = output.strip_suffix('\n').expect("an event ends its line");
            let breaks = |c: char| c.is_control() || "\u{85}\u{2028}\u{2029}".contains(c);
            assert!(!line.is_empty() && !line.contains(breaks), "{format:?} {text:?}: {line:?}");
            if format == LogFormat::Json {
                let event: Value = serde_json::from_str(line).unwrap();
                assert_eq!((&event["plain"], &event["shown"]), (&text.clone().into(), &text.clone().into()));
                assert_eq!(event["message"], Value::from(format!("message {text}")));
                assert_eq!(event["spans"][0]["name"], Value::from("task"));
            }
        }
    }
}

#[test]
fn installing_twice_is_allowed_and_a_panic_is_logged() {
    let filter: Filter = "info".parse().unwrap();
    install(LogFormat::Json, &filter);
    install(LogFormat::Pretty, &filter);
    let event = event(|| {
        let _ = std::panic::catch_unwind(|| panic!("line one\nline two"));
    });
    assert_eq!(event["message"], "panicked: line one\nline two");
    assert!(event["location"].as_str().unwrap().contains("telemetry"), "{event}");
}

#[test]
fn request_events_are_buffered_and_any_other_event_flushes_them_in_order() {
    let (captured, gathered) = gathered();
    tracing::subscriber::with_default(info(gathered.clone()), || {
        tracing::info!(target: "tally_test::access", "first");
        tracing::info!(target: "tally_test::access", "second");
        assert_eq!(captured.text(), "");
        tracing::info!("third");
        assert_eq!(captured.text().lines().count(), 3);
        tracing::info!(target: "tally_test::access", "fourth");
        tracing::warn!(target: "tally_test::access", "fifth");
        assert_eq!(captured.text().lines().count(), 5);
        tracing::info!(target: "tally_test::access", "sixth");
    });
    gathered.write_out();
    let text = captured.text();
    let said = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["message"].clone());
    assert_eq!(said.collect::<Vec<_>>(), ["first", "second", "third", "fourth", "fifth", "sixth"]);
}

#[test]
fn the_buffer_is_bounded_in_bytes_and_in_time() {
    const EVENTS: usize = 1_000;
    let (captured, gathered) = gathered();
    let attended = gathered.clone();
    tracing::subscriber::with_default(info(gathered), || {
        for _ in 0..EVENTS {
            tracing::info!(target: "tally_test::access", text = "x".repeat(5_000), "request");
        }
        let written = captured.text().len();
        assert!(written > 4 * 1024 * 1024, "{written} bytes");
        std::thread::spawn(move || attended.attend());
        soon("every line is written", || captured.text().lines().count() == EVENTS);
        // The event is written after the time limit, although the buffer is nearly empty.
        tracing::info!(target: "tally_test::access", "request");
        soon("the last line is written", || captured.text().lines().count() == EVENTS + 1);
    });
}

#[test]
fn a_request_does_not_wait_for_the_disk_and_lines_keep_their_order() {
    const EVENTS: u64 = 3_000;
    let (captured, gathered) = gathered();
    let attended = gathered.clone();
    std::thread::spawn(move || attended.attend());
    // The disk accepts nothing while this lock is held.
    let disk = captured.0.lock();
    let (done, answered) = std::sync::mpsc::channel();
    let speaker = std::thread::spawn(move || {
        tracing::subscriber::with_default(info(gathered), || {
            for number in 0..EVENTS {
                tracing::info!(target: "tally_test::access", number, text = "x".repeat(1_000), "request");
            }
            done.send(()).unwrap();
            tracing::info!(number = EVENTS, "something else");
        });
    });
    answered.recv_timeout(std::time::Duration::from_secs(30)).expect("requests do not wait while nothing is written");
    drop(disk);
    speaker.join().unwrap();
    let text = captured.text();
    let numbers = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64().unwrap());
    assert!(numbers.eq(0..=EVENTS), "{} lines", text.lines().count());
}

/// A log on a disk with room for a limited number of bytes.
#[derive(Clone, Default)]
struct Disk {
    room: Arc<Mutex<usize>>,
    written: Captured,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut room = self.room.lock();
        let fits = bytes.len().min(*room);
        if fits == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *room -= fits;
        self.written.write(&bytes[..fits])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_that_cannot_be_written_are_dropped_and_reported_later_without_a_panic() {
    let disk = Disk::default();
    let gathered = Gathered::new(disk.clone());
    let attended = gathered.clone();
    let (subscribed, said) = (info(gathered.clone()), info(gathered));
    std::thread::spawn(move || tracing::subscriber::with_default(said, || attended.attend()));
    tracing::subscriber::with_default(subscribed, || {
        *disk.room.lock() = 20;
        tracing::info!("begun, and the disk is full");
        tracing::info!("lost");
        *disk.room.lock() = 1 << 20;
        tracing::info!("first");
    });
    soon("it is reported", || disk.written.text().contains("could not be written to standard error"));
    let text = disk.written.text();
    let (torn, whole) = text.split_once('\n').unwrap();
    assert_eq!(torn.len(), 20, "{torn}");
    let events: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["message"], &events[1]["lines"], events.len()), (&"first".into(), &2.into(), 2));
}

fn gathered() -> (Captured, Gathered<Captured>) {
    let captured = Captured::default();
    (captured.clone(), Gathered::new(captured))
}

#[test]
fn a_json_event_preserves_the_types_of_its_values() {
    let event = event(|| {
        let outer = tracing::info_span!("outer", depth = 1, later = tracing::field::Empty);
        let _outer = outer.enter();
        outer.record("later", "known now");
        let _inner = tracing::info_span!("inner", depth = 2).entered();
        let error = std::io::Error::other("a \"cause\"");
        let absent: Option<u64> = None;
        tracing::warn!(
            small = -1,
            large = u64::MAX,
            fraction = 0.125,
            no_number = f64::NAN,
            yes = true,
            absent,
            error = &error as &dyn std::error::Error,
            debugged = ?Some("x"),
            "back\\slash"
        );
    });
    let time = event["timestamp"].as_str().unwrap();
    assert!(time.ends_with('Z') && time.len() == "2026-01-02T03:04:05.678901Z".len(), "{time}");
    let expected = serde_json::json!({
        "timestamp": time,
        "level": "WARN",
        "small": -1,
        "large": u64::MAX,
        "fraction": 0.125,
        "no_number": null,
        "yes": true,
        "error": "a \"cause\"",
        "debugged": "Some(\"x\")",
        "message": "back\\slash",
        "target": "tally_service::telemetry::tests",
        "spans": [{ "name": "outer", "depth": 1, "later": "known now" }, { "name": "inner", "depth": 2 }],
    });
    assert_eq!(event, expected);
}

#[test]
fn a_field_cannot_replace_a_standard_member_of_a_json_event() {
    let event = event(|| tracing::info!(level = 7, timestamp = "then", spans = false, levels = 8, "said"));
    assert_eq!((&event["level"], &event["level_"], &event["levels"]), (&"INFO".into(), &7.into(), &8.into()));
    assert_eq!((&event["timestamp_"], &event["spans_"]), (&"then".into(), &false.into()));
    assert_ne!(event["timestamp"], "then");
}
