//! `tally verify --erased`: checks whether ids that were erased are in the table of rows again. If old events are read
//! once more, those before an erasure write the ids again, until the events that take them out are read, too.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures_util::stream::TryStreamExt as _;
use serde_json::json;
use tally_core::ids::{BadId, CounterId, PostId, RowKey, UserId};

use crate::desk::{Desk, Where};
use crate::ended::Usage;
use crate::given::text_of;
use crate::said::{Answer, Table, ago};

/// How many rows are listed; the others are only counted.
const LISTED: usize = 100;

/// The ids that were erased, each from the sets of one post, or from every set.
type Ids = BTreeSet<(Option<PostId>, UserId)>;

/// Parses a file of ids.
///
/// # Errors
/// A line is neither a user nor a post, a tab and a user.
fn parse(text: &str) -> anyhow::Result<Ids> {
    let mut ids = Ids::new();
    for (nth, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        let bad = |why: BadId| Usage(format!("line {nth} of the ids: {why}"));
        let (post, user) = line.split_once('\t').map_or((None, line), |(post, user)| (Some(post), user));
        let post = post.map(PostId::new).transpose().map_err(bad)?;
        ids.insert((post, UserId::new(user).map_err(bad)?));
    }
    Ok(ids)
}

/// Reads every row, and lists those that have one of the ids in `file`.
pub(super) async fn look(file: &Path, of: Where) -> anyhow::Result<Answer> {
    let (ids, desk) = (parse(&text_of(file)?)?, Desk::open(of).await?);
    let (mut table, mut listed) = (Table::headed(["post", "counter", "user"]), Vec::new());
    let (mut again, mut tombstones, mut until, mut pages) = (0_u64, 0_u64, None, desk.every_row());
    while let Some(rows) = pages.try_next().await? {
        for row in rows {
            let (Ok(key), Ok(user)) = (row.pk.parse::<RowKey>(), UserId::new(&row.sort)) else { continue };
            let CounterId { post, name } = &key.counter;
            let is_erased = |from: Option<&PostId>| ids.contains(&(from.cloned(), user.clone()));
            if !is_erased(None) && !is_erased(Some(post)) {
                continue;
            }
            if row.gone.is_some() {
                tombstones += 1;
                until = until.max(row.gone);
                continue;
            }
            again += 1;
            if listed.len() < LISTED {
                table.row([post, name, &user]);
                listed.push(json!({"post": post.to_string(), "counter": name.to_string(), "user": user.to_string()}));
            }
        }
    }
    let ids = ids.len();
    let mut text = match again {
        0 => format!("{ids} ids: no like or other row of theirs is left\n"),
        again => format!("{again} rows of ids that were erased: take them out by tally user erase\n"),
    };
    let mut json = json!({"ids": ids, "again": again, "rows": listed, "tombstones": tombstones});
    // Tombstones keep an id until the store deletes them.
    if let Some(until) = until {
        let left = Duration::from_secs(until.saturating_sub(desk.clock.now().0 / 1_000));
        let left = if until == u64::MAX { "ever".to_owned() } else { ago(left) };
        text.push_str(&format!("tombstones that still hold an id: {tombstones}, the last for {left} more\n"));
        json["until"] = json!(until);
    }
    if again > 0 {
        text.push_str(&table.to_string());
    }
    Ok(Answer::new(json, text).wrong_if(again > 0))
}
