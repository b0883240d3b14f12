//! `tally verify --erased`: checks whether ids that were erased are in the table of rows again. If old events are read
//! once more, those before an erasure write the ids again, until the events that take them out are read, too.

use std::collections::BTreeSet;
use std::path::Path;

use futures_util::stream::TryStreamExt as _;
use serde::Serialize;
use tally_core::ids::{PostId, RowKey, UserId};

use crate::desk::{Desk, Where};
use crate::ended::Usage;
use crate::given::text_of;
use crate::said::{Answer, Table, ago};

/// How many rows are listed; the others are only counted.
const LISTED: usize = 100;

/// The ids that were erased.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ids {
    /// Users that were erased from every set.
    users: BTreeSet<UserId>,
    /// Users that were erased from the sets of one post.
    members: BTreeSet<(PostId, UserId)>,
}

/// A row of an id that was erased.
#[derive(Debug, Serialize)]
struct Again {
    post: String,
    counter: String,
    user: String,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Erased {
    ids: usize,
    /// How many rows have one of the ids.
    again: u64,
    /// The first of those rows.
    rows: Vec<Again>,
    /// How many tombstones have one of the ids. They keep it until the store deletes them.
    tombstones: u64,
    /// When the last of those tombstones may be deleted, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(skip)]
    left: String,
}

impl Answer for Erased {
    fn table(&self) -> String {
        let Self { ids, again, rows, tombstones, left, .. } = self;
        let mut text = match again {
            0 => format!("none of {ids} ids is in a row\n"),
            again => format!("{again} rows of ids that were erased: take them out by tally user erase\n"),
        };
        if *tombstones > 0 {
            text.push_str(&format!("{tombstones} tombstones keep an id, the last for {left} more\n"));
        }
        if rows.is_empty() {
            return text;
        }
        let mut table = Table::headed(["post", "counter", "user"]);
        for Again { post, counter, user } in rows {
            table.row([post, counter, user]);
        }
        text + &table.to_string()
    }

    fn found(&self) -> bool {
        self.again > 0
    }
}

impl Ids {
    /// Parses a file of ids.
    ///
    /// # Errors
    /// A line is neither a user nor a post, a tab and a user.
    fn of(text: &str) -> anyhow::Result<Self> {
        let mut ids = Self::default();
        for (nth, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
            let bad = |why: String| Usage(format!("line {nth} of the ids: {why}"));
            match line.split_once('\t') {
                None => _ = ids.users.insert(UserId::new(line).map_err(|error| bad(error.to_string()))?),
                Some((post, user)) => {
                    let post = PostId::new(post).map_err(|error| bad(error.to_string()))?;
                    ids.members.insert((post, UserId::new(user).map_err(|error| bad(error.to_string()))?));
                }
            }
        }
        Ok(ids)
    }

    fn has(&self, post: &PostId, user: &UserId) -> bool {
        self.users.contains(user) || self.members.contains(&(post.clone(), user.clone()))
    }
}

/// Reads every row, and returns those that have one of the ids in `file`.
pub(super) async fn look(file: &Path, of: Where) -> anyhow::Result<Erased> {
    let (ids, desk) = (Ids::of(&text_of(file)?)?, Desk::open(of).await?);
    let mut found = Erased { ids: ids.users.len() + ids.members.len(), ..Erased::default() };
    let mut pages = desk.every_row();
    while let Some(rows) = pages.try_next().await? {
        for row in rows {
            let (Ok(key), Ok(user)) = (row.pk.parse::<RowKey>(), UserId::new(&row.sort)) else { continue };
            if ids.has(&key.counter.post, &user) {
                found.take(&key, &user, row.gone);
            }
        }
    }
    let seconds = desk.clock.now().0 / 1_000;
    found.left = match found.until {
        Some(u64::MAX) => "ever".to_owned(),
        until => ago(std::time::Duration::from_secs(until.unwrap_or(0).saturating_sub(seconds))),
    };
    Ok(found)
}

impl Erased {
    fn take(&mut self, key: &RowKey, user: &UserId, gone: Option<u64>) {
        if gone.is_some() {
            self.tombstones += 1;
            self.until = self.until.max(gone);
            return;
        }
        self.again += 1;
        if self.rows.len() < LISTED {
            let (post, counter) = (key.counter.post.to_string(), key.counter.name.to_string());
            self.rows.push(Again { post, counter, user: user.to_string() });
        }
    }
}
