//! One row key with two users and the changes of its items, as the models of its recount share it.

use tally_core::counter::{Counter, ShardTally};
use tally_core::ids::{MemberKey, RowKey, Sequence};
use tally_core::ports::Cursor;
use tally_core::tally::{Record, RecordKind};
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;
use tally_core::window::{Input, Marker, Report, Roster, WindowRun};

/// A set of the two users, a bit each.
pub(super) type Users = u8;

pub(super) fn has(set: Users, user: usize) -> bool {
    set >> user & 1 == 1
}

/// What a stream says of the row key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Row { user: usize, likes: bool },
    Marker(Marker),
}

/// The rows after `entries`, which began with `first`.
pub(super) fn folded<'a>(first: Users, entries: impl IntoIterator<Item = &'a Entry>) -> Users {
    entries.into_iter().fold(first, |rows, entry| match *entry {
        Entry::Row { user, likes: true } => rows | 1 << user,
        Entry::Row { user, likes: false } => rows & !(1 << user),
        Entry::Marker(_) => rows,
    })
}

/// The position of a stream's entry, counted from 0.
pub(super) fn sequence(at: usize) -> Sequence {
    Sequence::from(at as u64 + 1)
}

/// A report in small: users touched, and those of them who like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Touched {
    pub(super) run: WindowRun,
    pub(super) touched: Users,
    pub(super) likes: Users,
}

/// The row key and its users by their real names.
pub(super) struct TwoUsers {
    pub(super) key: RowKey,
    pub(super) users: [MemberKey; 2],
    /// A roster without rows, of which all others are copies.
    pub(super) roster: Roster,
}

impl TwoUsers {
    pub(super) fn new() -> Self {
        let users = ["0", "1"].map(|user| MemberKey::new(user).expect("a digit is an id"));
        let roster = Roster::new(|sort| sort.bytes().fold(0, |print, byte| print << 8 | u128::from(byte)));
        Self { key: "p#0".parse().expect("a row key"), users, roster }
    }

    /// What the stream says at `at`, as the fold reads it.
    pub(super) fn record(&self, entry: Entry, at: usize) -> Record {
        let key = self.key.clone();
        let kind = match entry {
            Entry::Row { user, likes } => {
                let (before, after) = (Weight::of_presence(!likes), Weight::of_presence(likes));
                RecordKind::Row { key, member: self.users[user].clone(), before, after }
            }
            Entry::Marker(marker) => RecordKind::Marker { key, marker },
        };
        Record { sequence: sequence(at), written: UnixMillis(0), kind }
    }

    /// The page of rows that begins at `user`: one user a page.
    pub(super) fn page(&self, rows: Users, user: usize) -> Input {
        let row = has(rows, user).then(|| (self.users[user].clone(), Weight::ONE));
        Input::Rows(row.into_iter().collect(), (user == 0).then(|| Cursor("1".to_owned())))
    }

    pub(super) fn touched(&self, report: &Report) -> Touched {
        let set = |wanted: fn(&Weight) -> bool| {
            let users = self.users.iter().enumerate();
            let among = users.filter(|(_, user)| report.touched.get(*user).is_some_and(wanted));
            among.fold(0, |set, (user, _)| set | 1 << user)
        };
        Touched { run: report.run, touched: set(|_| true), likes: set(|weight| *weight == Weight::ONE) }
    }

    /// The report of a run that saw `touched`, and who of them likes.
    pub(super) fn report(&self, run: WindowRun, touched: Users, likes: Users) -> Report {
        let touched = (0..2).filter(|user| has(touched, *user));
        let touched = touched.map(|user| (self.users[user].clone(), Weight::of_presence(has(likes, user)))).collect();
        Report { key: self.key.clone(), run, touched }
    }

    /// A counter of `rows` with one shard as `tally` has it, and the count wrong by `drift`.
    pub(super) fn counter(&self, rows: Users, drift: i64, mut tally: ShardTally) -> Counter {
        let counted = i64::from(rows.count_ones()) + drift;
        tally.rows = counted;
        Counter { likes: counted, shards: [(self.key.shard, tally)].into(), ..Counter::default() }
    }
}
