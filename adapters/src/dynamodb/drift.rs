//! A counter put wrong on purpose, for a local stack and tests: what a careless operator would do by hand.

use tally_core::ids::PostId;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::unless_refused;
use super::item::{number, text};

/// Adds `by` to the total and to shard 0 of the counter of `post`; `false` where the post has no counter. Repeated it would add again, so it is sent once.
pub async fn inject_drift(connection: &Connection, post: &PostId, by: i64) -> Outcome<bool> {
    let table = &connection.tables.counts;
    let update = connection.by_store_clock.update_item().table_name(table).key("post_id", text(post.to_string()));
    let sent = update
        .update_expression("ADD likes :by, s0 :by")
        .condition_expression("attribute_exists(version)")
        .expression_attribute_values(":by", number(by))
        .send()
        .await;
    Ok(unless_refused(table, sent)?.is_some())
}
