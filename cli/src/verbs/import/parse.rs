//! Parses the lines of a file of likes for `tally import`: a line is an event, blank, the heading of a CSV file, or
//! rejected for a reason.
//!
//! A line of CSV becomes JSON first. So the decoder of the consumer decides what an event is, in both formats.

use anyhow::{Context, bail};
use csv_core::{ReadRecordResult, Reader};
use serde_json::{Map, Value};
use tally_core::definitions::{Definition, Definitions, Direction};
use tally_core::event::{Deed, Rejection, Said, decode_value, encode};
use tally_core::ids::UserId;
use tally_core::time::UnixMillis;

use super::Format;
use super::lines::Line;

/// The most columns a CSV file may have.
const COLUMNS: usize = 256;

/// What a line turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// An empty line.
    Blank,
    /// The names of the columns.
    Header,
    Event(Event),
    Rejected(Wrong),
}

/// An event, with the key and the value of its record in Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// When the event happened, if the line says so.
    pub(super) at: Option<UnixMillis>,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// Why a line is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl From<Rejection> for Wrong {
    fn from(rejection: Rejection) -> Self {
        Self { reason: rejection.reason(), message: rejection.to_string() }
    }
}

/// Reads the lines of one file.
pub(super) struct Parser {
    csv: Option<Csv>,
    /// The columns of a CSV file, or the fields of the first event.
    names: Vec<String>,
    ts: Option<UnixMillis>,
    /// The earliest time that an event may have.
    earliest: UnixMillis,
}

/// Stands for the time of an event that states none. No event can state it: it is beyond the year 9999.
const UNSTATED: UnixMillis = UnixMillis(u64::MAX);

impl Parser {
    /// Sets up a parser for a file whose first line is `first`. Events that state no time happened at `ts`. Times
    /// before the year 2000 are rejected, unless `old_times` is set.
    ///
    /// # Errors
    /// The first line of a CSV file does not name the columns.
    pub(super) fn new(format: Format, first: &[u8], ts: Option<UnixMillis>, old_times: bool) -> anyhow::Result<Self> {
        let csv = match format {
            Format::Ndjson => None,
            Format::Csv => Some(Csv::new(first)?),
        };
        let names = match &csv {
            Some(csv) => csv.names.iter().map(|name| name.trim().to_owned()).collect(),
            None => serde_json::from_slice::<Map<String, Value>>(first)
                .map_or(Vec::new(), |said| said.into_iter().map(|field| field.0).collect()),
        };
        Ok(Self { csv, names, ts, earliest: if old_times { UnixMillis(0) } else { UnixMillis::YEAR_2000 } })
    }

    /// Returns the columns of a CSV file that are read, and those that are ignored. NDJSON has no columns: this returns
    /// the fields of its first line.
    pub(super) fn columns(&self) -> (Vec<String>, Vec<String>) {
        self.names.iter().cloned().partition(|name| COLUMNS_READ.contains(&name.as_str()))
    }

    /// Returns what a line is. An event that states no time happened at the time of `--ts`, or else at `now`.
    pub(super) fn fate(&mut self, line: &Line, now: UnixMillis) -> Fate {
        if line.len > line.text.len() {
            self.csv.iter_mut().for_each(|csv| csv.is_open ^= is_odd(&line.text));
            return Fate::Rejected(Rejection::TooLarge(line.len).into());
        }
        let text = &line.text;
        if text.trim_ascii().is_empty() {
            return Fate::Blank;
        }
        let (at, earliest) = (self.ts.unwrap_or(now), self.earliest);
        let event = match &mut self.csv {
            None => event(text, at, earliest),
            Some(_) if line.number == 1 => return Fate::Header,
            Some(csv) => csv.json(text).and_then(|json| event(&json, at, earliest)),
        };
        event.map_or_else(Fate::Rejected, Fate::Event)
    }
}

/// Decodes a JSON text, and encodes the event anew: with a time, `now` if it states none, and without unknown fields.
fn event(json: &[u8], now: UnixMillis, earliest: UnixMillis) -> Result<Event, Wrong> {
    let event = decode_value(Some(json), UNSTATED, &Definitions::likes_alone())?;
    let stated = Some(event.at).filter(|at| *at != UNSTATED);
    let at = stated.unwrap_or(now);
    if at < earliest {
        let (reason, date) = ("old_timestamp", at.date());
        let message = format!("{at} milliseconds are {date}: were seconds meant? --allow-old-times takes it as it is");
        return Err(Wrong { reason, message });
    }
    let key = event.subject().as_bytes().to_vec();
    let Deed::Member { id, present } = &event.deed else { unreachable!("likes are a set") };
    let user = UserId::new(id).expect("the decoder takes no other");
    let direction = if *present { Direction::Add } else { Direction::Remove };
    let value =
        encode(&Definition::likes(), event.subject(), direction, Said::Member(&user), event.region().as_ref(), at);
    Ok(Event { at: stated, key, value: value.expect("likes have both actions") })
}

/// The columns that are read.
const COLUMNS_READ: [&str; 5] = ["post_id", "user_id", "action", "region", "ts"];

/// The reader of a CSV file, and the places of the columns.
struct Csv {
    reader: Reader,
    names: Vec<String>,
    /// The place of each column that is read, if the file has it.
    places: [Option<usize>; COLUMNS_READ.len()],
    /// A line has begun a value that it does not end, so the next one is no line of its own, whatever it looks like.
    is_open: bool,
}

impl Csv {
    fn new(first: &[u8]) -> anyhow::Result<Self> {
        let what = "the first line has to name the columns";
        if first.trim_ascii().is_empty() {
            bail!("the file is empty, or its first line is: {what}");
        }
        let mut reader = Reader::new();
        let names = split(&mut reader, first).map_err(|wrong| anyhow::anyhow!(wrong.message));
        let names = names.context(what)?;
        // Most likely it was meant, and without it an unlike would be taken for a like.
        let plain = |name: &str| name.to_lowercase().replace(|c: char| c.is_whitespace() || c == '_' || c == '-', "");
        for name in names.iter().map(|name| name.trim()) {
            let meant = COLUMNS_READ.iter().find(|read| **read != name && plain(read) == plain(name));
            if let Some(meant) = meant {
                bail!("the first line names a column `{name}`: write `{meant}`, or give it another name to ignore it");
            }
        }
        let places = COLUMNS_READ.map(|name| names.iter().position(|found| found.trim() == name));
        let [Some(_), Some(_), ..] = places else {
            bail!("{what} post_id and user_id; it names {}", names.join(", "));
        };
        Ok(Self { reader, names, places, is_open: false })
    }

    /// Returns the line as JSON.
    fn json(&mut self, line: &[u8]) -> Result<Vec<u8>, Wrong> {
        if self.is_open {
            self.is_open = !is_odd(line);
            return Err(no_csv("it goes on with a value that a line before began"));
        }
        let fields = split(&mut self.reader, line).inspect_err(|_| self.is_open = is_odd(line))?;
        let (found, named) = (fields.len(), self.names.len());
        if found != named {
            return Err(no_csv(format!("it has {found} fields, and the first line has {named}")));
        }
        let mut json = Map::from_iter([("action".to_owned(), "like".into())]);
        for (name, place) in COLUMNS_READ.into_iter().zip(self.places) {
            let value: Value = match (name, place.map(|at| fields[at].as_str())) {
                (_, None) | ("region" | "ts", Some("")) => continue,
                ("ts", Some(ts)) => ts.parse::<u64>().map_or_else(|_| ts.into(), Value::from),
                (_, Some(text)) => text.into(),
            };
            json.insert(name.to_owned(), value);
        }
        Ok(serde_json::to_vec(&json).expect("strings and integers always serialise"))
    }
}

/// Returns whether the line begins a value in quotes that it does not end, or ends one that it did not begin.
fn is_odd(line: &[u8]) -> bool {
    line.iter().filter(|byte| **byte == b'"').count() % 2 == 1
}

/// Splits a line into its fields.
fn split(reader: &mut Reader, line: &[u8]) -> Result<Vec<String>, Wrong> {
    std::str::from_utf8(line).map_err(|error| Rejection::NotUtf8(error.valid_up_to()))?;
    reader.reset();
    let mut ended = line.to_vec();
    ended.push(b'\n');
    let (mut bytes, mut ends) = (vec![0; ended.len()], [0; COLUMNS]);
    let (result, _, _, fields) = reader.read_record(&ended, &mut bytes, &mut ends);
    match result {
        ReadRecordResult::Record => {}
        ReadRecordResult::InputEmpty => return Err(no_csv("a quote is not closed in the line it was opened in")),
        _ => return Err(no_csv(format!("it has more than {COLUMNS} fields"))),
    }
    let starts = std::iter::once(&0).chain(&ends);
    let fields = starts.zip(&ends[..fields]).map(|(from, to)| String::from_utf8_lossy(&bytes[*from..*to]).into_owned());
    Ok(fields.collect())
}

fn no_csv(message: impl Into<String>) -> Wrong {
    Wrong { reason: "not_csv", message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(77);

    fn whole(line: impl AsRef<[u8]>) -> Line {
        let text = line.as_ref().to_vec();
        Line { number: 2, end: 0, crc: 0, len: text.len(), text }
    }

    /// Parses the lines after the header. Returns each event's key and value, or the reason why the line is no event.
    fn csv(header: &str, lines: &[&str]) -> Vec<String> {
        let mut parser = Parser::new(Format::Csv, header.as_bytes(), None, true).unwrap();
        assert_eq!(parser.fate(&Line { number: 1, ..whole(header) }, NOW), Fate::Header);
        lines.iter().map(|line| described(parser.fate(&whole(line), NOW))).collect()
    }

    fn described(fate: Fate) -> String {
        match fate {
            Fate::Blank => "blank".to_owned(),
            Fate::Header => "header".to_owned(),
            Fate::Rejected(wrong) => wrong.reason.to_owned(),
            Fate::Event(event) => {
                format!("{} {}", String::from_utf8_lossy(&event.key), String::from_utf8_lossy(&event.value))
            }
        }
    }

    fn said(post: &str, user: &str, action: &str, ts: u64) -> String {
        format!(r#"{post} {{"post_id":"{post}","user_id":"{user}","action":"{action}","ts":{ts}}}"#)
    }

    #[test]
    fn a_csv_line_is_an_event_by_the_names_of_its_columns() {
        let found =
            csv("created,user_id,ts,post_id", &["x,u,1700000000000,p", "x,\"a,\"\"b\"\"\",,p", " ", "x,u,5,p,"]);
        let quoted = r#"a,\"b\""#;
        assert_eq!(
            found,
            [
                said("p", "u", "like", 1_700_000_000_000),
                said("p", quoted, "like", 77),
                "blank".into(),
                "not_csv".into()
            ]
        );
        let found = csv("post_id,user_id,action", &["p,u,unlike", "p,u,", "p,u", ",u,like", "p,\u{1}u,like", "p,\"u"]);
        let unlike = said("p", "u", "unlike", 77);
        assert_eq!(found, [unlike.as_str(), "bad_action", "not_csv", "bad_post_id", "bad_user_id", "not_csv"]);
        let found = csv("post_id,region,user_id,ts", &["p,eu,u,5", "p,,u,5"]);
        let plain = said("p", "u", "like", 5);
        assert_eq!(found, [plain.replace(",\"ts\"", ",\"region\":\"eu\",\"ts\""), plain]);
        for ts in ["1.5", "2024-01-01", "-1", "253402300800000"] {
            assert_eq!(csv("post_id,user_id,ts", &[&format!("p,u,{ts}")]), ["bad_timestamp"], "{ts}");
        }
    }

    #[test]
    fn what_follows_a_line_break_in_a_value_is_no_line_of_its_own() {
        let lines = ["p,u,\"hi", "forged,victim,like", "", "still, \"\"in\"\", it", "end\"", "p,u,hi"];
        let like = said("p", "u", "like", 77);
        let found = csv("post_id,user_id,bio", &lines);
        assert_eq!(found, ["not_csv", "not_csv", "blank", "not_csv", "not_csv", like.as_str()]);
    }

    #[test]
    fn a_csv_file_has_to_name_its_columns_and_one_that_is_called_nearly_as_one_that_is_read_is_refused() {
        let refused =
            |header: &str| format!("{:#}", Parser::new(Format::Csv, header.as_bytes(), None, false).err().unwrap());
        for (header, is, meant) in [
            ("post_id,user_id,Action", "Action", "action"),
            ("post_id, userId ,action", "userId", "user_id"),
            ("post_id,user_id,TS", "TS", "ts"),
            ("Post-ID,user_id", "Post-ID", "post_id"),
            ("post_id,user_id,action,ACTION", "ACTION", "action"),
            ("POST_ID,USER_ID", "POST_ID", "post_id"),
        ] {
            let said = refused(header);
            assert!(said.contains(&format!("a column `{is}`: write `{meant}`, ")), "{header}: {said}");
        }
        for header in ["p,u", "post_id", "\"post_id"] {
            assert!(refused(header).starts_with("the first line has to name the columns"), "{}", refused(header));
        }
        assert!(Parser::new(Format::Csv, b"post_id, user_id ,actions,created_at", None, false).is_ok());
        assert!(refused("").starts_with("the file is empty, or its first line is: "), "{}", refused(""));
    }

    #[test]
    fn a_time_before_2000_is_refused_also_of_ts_and_a_line_without_one_is_not_dated() {
        let fate = |told: Option<u64>, ts: &str| {
            let line = whole(format!(r#"{{"post_id":"p","user_id":"u","action":"like"{ts}}}"#));
            Parser::new(Format::Ndjson, b"", told.map(UnixMillis), false).unwrap().fate(&line, UnixMillis::YEAR_2000)
        };
        for (told, ts) in [(None, r#","ts":946684799999"#), (Some(1_700_000_000), "")] {
            let Fate::Rejected(wrong) = fate(told, ts) else { panic!("{told:?} {ts} is taken") };
            assert_eq!(wrong.reason, "old_timestamp");
        }
        let at = |fate: Fate| if let Fate::Event(event) = fate { event.at } else { panic!("{fate:?}") };
        assert_eq!(at(fate(None, r#","ts":946684800000"#)), Some(UnixMillis::YEAR_2000));
        assert_eq!(at(fate(None, "")), None);
    }

    #[test]
    fn a_json_line_is_what_it_would_be_in_kafka_with_its_time_stated() {
        let mut parser = Parser::new(Format::Ndjson, b"", Some(UnixMillis(9)), true).unwrap();
        let line = r#"{"specversion":"1.0","data":{"post_id":"p","user_id":"u","action":"unlike","x":[1]}}"#;
        assert_eq!(described(parser.fate(&whole(line), NOW)), said("p", "u", "unlike", 9));
        let line = r#"{"post_id":"p","user_id":"u","action":"like","region":"eu","ts":5}"#;
        assert_eq!(described(parser.fate(&whole(line), NOW)), format!("p {line}"));
        let late = r#"{"post_id":"p","user_id":"u","action":"like","ts":1700000000000000}"#;
        let Fate::Rejected(wrong) = parser.fate(&whole(late), NOW) else { panic!("microseconds are taken") };
        assert!(wrong.message.ends_with("since the epoch, up to the year 9999"), "{}", wrong.message);
        assert_eq!(described(parser.fate(&whole("{"), NOW)), "not_json");
        assert_eq!(described(parser.fate(&whole(b"\"\xff\""), NOW)), "not_utf8");
        assert_eq!(described(parser.fate(&Line { len: 70_000, ..whole("") }, NOW)), "too_large");
        assert_eq!(described(parser.fate(&whole("  \t"), NOW)), "blank");
    }
}
