//! What every reader of foreign bytes has to survive: each target takes any input, and panics if a law is broken.
//!
//! The same functions run under cargo-fuzz (`e2e/fuzz`) and as a plain test over the committed corpus and mutations of it.

pub mod http;
mod store;

use std::time::Duration;

use clap::Parser;
use tally_core::definitions::{Definitions, Direction, Entry};
use tally_core::event::{Deed, MAX_AMOUNT, Said, decode_value, encode};
use tally_core::ids::{RowKey, UserId, check_id};
use tally_core::served::Served;
use tally_core::tally::{Fold, RawRecord, read};
use tally_core::time::UnixMillis;

/// A function that takes any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of its corpus's folder and of its cargo-fuzz target.
    pub name: &'static str,
    /// Panics if the bytes break a law.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 9] = [
    Target { name: "event", run: event },
    Target { name: "row_key", run: row_key },
    Target { name: "stream_record", run: store::stream_record },
    Target { name: "cache_value", run: cache_value },
    Target { name: "http", run: http::http },
    Target { name: "configuration", run: configuration },
    Target { name: "checkpoint", run: store::checkpoint },
    Target { name: "expression", run: store::expression },
    Target { name: "emulator_json", run: store::emulator_json },
];

/// A record's value is an event, or a rejection on the closed list; an event written again is the same event.
fn event(data: &[u8]) {
    const RECORDED: UnixMillis = UnixMillis(7);
    let definitions = four();
    let event = match decode_value(Some(data), RECORDED, &definitions) {
        Ok(event) => event,
        Err(rejection) => {
            assert!(tally_core::event::Rejection::REASONS.contains(&rejection.reason()));
            assert!(!rejection.to_string().is_empty());
            return;
        }
    };
    assert_eq!(check_id(event.subject()), Ok(()));
    let definition = definitions.named(event.counter.as_str()).expect("an event's counter is defined");
    let member = event.member().map(|member| UserId::new(member).expect("an event's member is valid"));
    let (direction, said) = match (&event.deed, &member) {
        (Deed::Member { present, .. }, Some(member)) => (*present, Said::Member(member)),
        (Deed::Amount(n), _) => {
            assert!((1..=MAX_AMOUNT).contains(&n.abs()));
            (*n > 0, Said::Amount(u32::try_from(n.abs()).expect("an amount is small")))
        }
        (Deed::Member { .. }, None) => unreachable!("a member's event has a member"),
    };
    let direction = if direction { Direction::Add } else { Direction::Remove };
    let written =
        encode(definition, event.subject(), direction, said, event.at).expect("it was said, so there is a way to");
    assert_eq!(decode_value(Some(&written), UnixMillis(0), &definitions), Ok(event));
}

/// Likes, another set, one of another subject, and a sum that goes both ways.
fn four() -> Definitions {
    let entry = |name: &str, kind: &str, add: &str| Entry {
        name: name.into(),
        kind: kind.into(),
        add: add.into(),
        remove: Some(format!("un{add}")),
        ..Entry::default()
    };
    let replies = Entry { member: Some("reply_id".into()), ..entry("replies", "set", "reply") };
    let tagged =
        Entry { subject: Some("hashtag".into()), member: Some("post_id".into()), ..entry("tagged", "set", "tag") };
    Definitions::new(&[replies, tagged, entry("views", "sum", "view")]).expect("they are well formed")
}

/// A text is a row key in one way only, and its post is everything before the last `#`.
fn row_key(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(key) = text.parse::<RowKey>() else { return };
    assert_eq!(key.to_string(), text);
    assert_eq!(text.rsplit_once('#').map(|(post, _)| post), Some(key.counter.post.as_str()));
}

/// A cached text is a count or is refused; a count written again is the same count.
fn cache_value(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(served) = text.parse::<Served>() else { return };
    assert_eq!(served.to_string().parse(), Ok(served));
    assert!(!served.replaces(&served));
}

/// A command line, one argument a line, is a configuration or an error that says something.
fn configuration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n');
    let program = lines.next().unwrap_or_default();
    let args: Vec<&str> = std::iter::once("tally").chain(lines).collect();
    match program {
        "consumer" => configured::<tally_consumer::Args, tally_consumer::Config>(&args),
        "change-streamer" => configured::<tally_change_streamer::Args, tally_change_streamer::Config>(&args),
        "count-api" => configured::<tally_count_api::Args, tally_count_api::Config>(&args),
        _ => configured::<tally_batch_recount::Args, tally_batch_recount::Config>(&args),
    }
}

fn configured<A: Parser, C: TryFrom<A, Error = tally_service::Invalid>>(args: &[&str]) {
    match A::try_parse_from(args) {
        Err(refused) => assert!(!refused.to_string().is_empty()),
        Ok(args) => {
            if let Err(invalid) = C::try_from(args) {
                assert!(!invalid.to_string().is_empty(), "what is refused is named");
            }
        }
    }
}

/// Reads records as the streamer does, and folds them.
fn fold(records: &[RawRecord]) {
    let mut fold = Fold::new(tally_core::tally::CutRules { records: 3, age: Duration::from_secs(1) });
    for raw in records {
        let Some(record) = read(raw) else { continue };
        assert!((-1..=1).contains(&record.delta()));
        if fold.push(&record, Duration::ZERO).is_err() {
            fold.take();
            assert_eq!(fold.push(&record, Duration::ZERO), Ok(()), "an empty prefix takes any record");
        }
    }
    assert!(fold.take().records <= records.len());
}
