//! A counter put wrong on purpose, for a local stack and tests: what a careless operator would do by hand.

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::ids::PostId;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::unless_refused;
use super::names::counts::{LIKES, POST_ID, ROWS, VERSION};

/// Adds `by` to the total and to shard 0 of the counter of `post`; `false` where the post has no counter. Repeated it would add again, so it is sent once.
pub async fn inject_drift(connection: &Connection, post: &PostId, by: i64) -> Outcome<bool> {
    let table = &connection.tables.counts;
    let update = connection.once.update_item().table_name(table);
    let sent = update
        .key(POST_ID, AttributeValue::S(post.to_string()))
        .update_expression("ADD #likes :by, #shard :by")
        .condition_expression("attribute_exists(#version)")
        .expression_attribute_names("#likes", LIKES)
        .expression_attribute_names("#shard", format!("{ROWS}0"))
        .expression_attribute_names("#version", VERSION)
        .expression_attribute_values(":by", AttributeValue::N(by.to_string()))
        .send()
        .await;
    Ok(unless_refused(table, sent)?.is_some())
}
