//! Lists the members of a set, such as the users who like a post, page by page. Its rows are split into shards: they
//! are read one after the other, each in the order of its members. A cursor names the shard and the place in it, so any
//! process can give the next page, and a member that stays is listed exactly once.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tally_adapters::dynamodb::{Cursor, Like, Rows};
use tally_core::ids::{CounterId, RowKey, Shard, ShardCount};
use tally_core::ports::Outcome;
use utoipa::IntoParams;

use super::Handles;
use crate::error::{Parameter, Problem, Result};

/// How many members a page has without a `limit`.
const USUAL: u32 = 50;

/// The most members of a page.
const MOST: u32 = 100;

/// The most that is read for one page, in half read units. Reading may find only rows of users who took their like
/// back. More than reading 256 empty shards costs.
const MOST_READ: u64 = 1_000;

/// The query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LikersQuery {
    /// How many at most; 50 by default.
    #[param(minimum = 1, maximum = 100, default = 50, example = 50)]
    limit: Option<u32>,
    /// The `next` of the page before.
    #[param(example = "MS8wL3UtMQ")]
    cursor: Option<String>,
}

/// Returns a page of the members of `counter`, and the cursor of the next one.
pub(super) async fn listed(
    api: &Handles,
    counter: &CounterId,
    LikersQuery { limit, cursor }: LikersQuery,
) -> Result<(Vec<Like>, Option<String>)> {
    let limit = limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        let parameter = Some(Parameter::named("limit"));
        return Err(Problem::BadQuery { parameter, why: format!("it is from 1 to {MOST}") });
    }
    let place = match cursor {
        Some(cursor) => PagePosition::parse(&cursor).ok_or(Problem::BadCursor)?,
        None => PagePosition::default(),
    };
    let given = place.after.is_some();
    if place.shard >= api.shards.get() {
        return Err(Problem::BadCursor);
    }
    let read = api.table.read(Box::pin(page(&api.rows, counter, api.shards, place, limit))).await;
    let (likes, next) = read.map_err(|fault| match fault {
        Problem::Internal(_) if given => Problem::BadCursor,
        other => other,
    })?;
    Ok((likes, next.map(|place| place.to_string())))
}

/// Reads at most `limit` members of `counter` from `place` on. Returns them and where the rest begins. There are fewer
/// if many rows have to be skipped.
async fn page(
    rows: &Rows,
    counter: &CounterId,
    shards: ShardCount,
    place: PagePosition,
    limit: u32,
) -> Outcome<(Vec<Like>, Option<PagePosition>)> {
    let mut likes: Vec<Like> = Vec::new();
    let (mut after, mut read) = (place.after, 0);
    for shard in shards.all().skip(usize::from(place.shard)) {
        let key = RowKey { counter: counter.clone(), shard };
        loop {
            let left = limit - u32::try_from(likes.len()).unwrap_or(limit).min(limit);
            if left == 0 || read >= MOST_READ {
                return Ok((likes, Some(PagePosition { shard: shard.index(), after })));
            }
            let part = rows.likes(&key, after.as_ref(), Some(left)).await?;
            read += part.half_units;
            likes.extend(part.items);
            after = part.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok((likes, None))
}

/// Where a page begins: the shard, and the place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PagePosition {
    shard: u16,
    after: Option<Cursor>,
}

impl PagePosition {
    /// The format's version, so that other versions of this build refuse the cursor.
    const FORMAT: &str = "1";

    fn parse(text: &str) -> Option<Self> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let mut fields = text.splitn(3, '/');
        let (format, shard, after) = (fields.next()?, fields.next()?, fields.next()?);
        let shard = Shard::new(shard.parse().ok()?)?.index();
        let place =
            Self { shard, after: Some(after).filter(|after| !after.is_empty()).map(|after| Cursor(after.to_owned())) };
        (format == Self::FORMAT).then_some(place)
    }
}

impl std::fmt::Display for PagePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let after = self.after.as_ref().map_or("", |after| &after.0);
        f.write_str(&URL_SAFE_NO_PAD.encode(format!("{}/{}/{after}", Self::FORMAT, self.shard)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went_whatever_the_store_wrote_into_it() {
        for after in [None, Some("u-1"), Some("a/b/é#%\u{1}")] {
            let place = PagePosition { shard: 15, after: after.map(|after| Cursor(after.to_owned())) };
            let text = place.to_string();
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
            assert_eq!(PagePosition::parse(&text), Some(place));
        }
    }
}
