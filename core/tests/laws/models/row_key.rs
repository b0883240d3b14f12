//! One row key with two rows and the changes of its items, as the models of its recount share it.

use tally_core::counter::{Counter, ShardTally};
use tally_core::ids::{MemberKey, RowKey, Sequence};
use tally_core::ports::Cursor;
use tally_core::tally::{Image, RawRecord, Record, RecordKind, read};
use tally_core::time::UnixMillis;
use tally_core::weight::{Stated, Weight};
use tally_core::window::{Input, Marker, Report, Roster, WindowRun};

/// What stands under a sort key: nothing, or a row and what it states of its weight.
pub(super) type Row = Option<Stated>;
pub(super) type Rows = [Row; 2];

/// What the two rows are, and what one write may make of either.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Two members, who come and go.
    Members,
    /// A cell that gains 2 or loses 1, and a member who comes and goes.
    CellAndMember,
    /// The same cell; nothing is written to the member.
    CellAlone,
    /// A cell whose weight becomes 7, 5 or unreadable, and a member to whom nothing is written.
    DamagedCell,
}

/// What a stream says of the row key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Row { row: usize, before: Row, after: Row },
    Marker(Marker),
}

/// The rows after `entries`, which began with `first`.
pub(super) fn folded<'a>(first: Rows, entries: impl IntoIterator<Item = &'a Entry>) -> Rows {
    entries.into_iter().fold(first, |mut rows, entry| {
        if let Entry::Row { row, after, .. } = *entry {
            rows[row] = after;
        }
        rows
    })
}

/// The position of a stream's entry, counted from 0.
pub(super) fn sequence(at: usize) -> Sequence {
    Sequence::from(at as u64 + 1)
}

/// A report in small: what the rows that were touched weigh at the closing marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Touched {
    pub(super) run: WindowRun,
    pub(super) weights: [Option<Weight>; 2],
}

/// The row key and its rows by their real names.
pub(super) struct TwoRows {
    pub(super) key: RowKey,
    kind: Kind,
    members: [MemberKey; 2],
    /// A roster without rows, of which all others are copies.
    pub(super) roster: Roster,
}

impl TwoRows {
    pub(super) fn new(kind: Kind) -> Self {
        let (key, first) = match kind {
            Kind::Members => ("p#0", "0"),
            Kind::CellAndMember | Kind::CellAlone | Kind::DamagedCell => ("p#+views.0", "\u{1}cell/v/0"),
        };
        let members = [first, "1"].map(|member| MemberKey::new(member).expect("a sort key that counts"));
        let roster = Roster::new(|sort| sort.bytes().fold(0, |print, byte| print << 8 | u128::from(byte)));
        Self { key: key.parse().expect("a row key"), kind, members, roster }
    }

    /// Rows of these weights. One that weighs nothing is not there.
    pub(super) fn rows(&self, weights: [i64; 2]) -> Rows {
        let row = |row: usize| {
            (weights[row] != 0).then(|| if self.is_cell(row) { amount(weights[row]) } else { Stated::Nothing })
        };
        [row(0), row(1)]
    }

    /// What one write may make of `row`, which is `now`.
    pub(super) fn written(&self, row: usize, now: Row) -> Vec<Row> {
        let weight = self.weight_of(row, now);
        match (self.kind, row) {
            (Kind::Members, _) | (Kind::CellAndMember, 1) => vec![now.is_none().then_some(Stated::Nothing)],
            (Kind::DamagedCell, 0) => {
                let outcomes = [amount(7), amount(5), Stated::Unreadable].map(Some);
                outcomes.into_iter().filter(|after| *after != now).collect()
            }
            (_, 0) => [2, -1].map(|added| Some(amount(weight.expect("it is readable").get() + added))).to_vec(),
            _ => Vec::new(),
        }
    }

    /// Whether a weight may become unreadable.
    pub(super) fn may_be_damaged(&self) -> bool {
        self.kind == Kind::DamagedCell
    }

    /// What the rows weigh together, where that can be said.
    pub(super) fn weight(&self, rows: Rows) -> Option<i64> {
        Some(self.weight_of(0, rows[0])?.get() + self.weight_of(1, rows[1])?.get())
    }

    fn weight_of(&self, row: usize, stands: Row) -> Option<Weight> {
        stands.map_or(Some(Weight::ABSENT), |stated| stated.weight(self.is_cell(row)))
    }

    fn is_cell(&self, row: usize) -> bool {
        self.members[row].is_cell()
    }

    /// What the stream says at `at`, as the fold reads it.
    pub(super) fn record(&self, entry: Entry, at: usize) -> Record {
        let image = |row: Row| row.map(|stated| Image { stated, ..Image::default() });
        let (sequence, written) = (sequence(at), UnixMillis(0));
        match entry {
            Entry::Row { row, before, after } => {
                let raw = RawRecord {
                    sequence: sequence.to_string(),
                    written,
                    pk: Some(self.key.to_string()),
                    sort: Some(self.members[row].to_string()),
                    before: image(before),
                    after: image(after),
                };
                read(&raw).expect("its position is readable")
            }
            Entry::Marker(marker) => {
                Record { sequence, written, kind: RecordKind::Marker { key: self.key.clone(), marker } }
            }
        }
    }

    /// The page of `rows` that begins at `row`: one row a page.
    pub(super) fn page(&self, rows: Rows, row: usize) -> Input {
        let Some(weight) = self.weight_of(row, rows[row]) else { return Input::Unreadable };
        let read = rows[row].map(|_| (self.members[row].clone(), weight));
        Input::Rows(read.into_iter().collect(), (row == 0).then(|| Cursor("1".to_owned())))
    }

    pub(super) fn touched(&self, report: &Report) -> Touched {
        Touched { run: report.run, weights: self.members.each_ref().map(|member| report.touched.get(member).copied()) }
    }

    /// A report in full.
    pub(super) fn report(&self, touched: Touched) -> Report {
        let weights = self.members.iter().zip(touched.weights);
        let touched_rows = weights.filter_map(|(member, weight)| Some((member.clone(), weight?))).collect();
        Report { key: self.key.clone(), run: touched.run, touched: touched_rows }
    }

    /// A counter of `rows` with one shard as `tally` has it, and the count wrong by `drift`.
    pub(super) fn counter(&self, rows: Rows, drift: i64, mut tally: ShardTally) -> Counter {
        let counted = self.weight(rows).expect("they are readable at first") + drift;
        tally.rows = counted;
        Counter { likes: counted, shards: [(self.key.shard, tally)].into(), ..Counter::default() }
    }
}

fn amount(n: i64) -> Stated {
    Stated::Amount(Weight::new(n).expect("a model counts in single digits"))
}
