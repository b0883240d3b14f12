//! The statements of a member's row.

use aws_sdk_dynamodb::types::{AttributeValue, BatchStatementRequest};
use tally_core::register::{Attempt, Change, Write};

use super::super::item::{number, text};
use super::super::statement::statement;

/// The texts of all statements; what differs between two writes are parameters.
#[derive(Debug)]
pub(super) struct Texts {
    put: [String; 2],
    put_with_region: [String; 2],
    remove: [String; 2],
}

impl Texts {
    /// The statements of a table. A row has no attribute of what it was before.
    pub(super) fn of(table: &str) -> Self {
        Self {
            put: both(table, &["liked_at"], &["region", "gone"]),
            put_with_region: both(table, &["liked_at", "region"], &["gone"]),
            remove: both(table, &["gone"], &["liked_at", "region"]),
        }
    }

    /// The statement of an attempt.
    pub(super) fn statement(&self, attempt: &Attempt, gone: u64) -> BatchStatementRequest {
        let (write, replaces) = (&*attempt.write, attempt.replaces());
        let [pk, member, version] = key_and_version(write);
        let (mut parameters, condition) = if replaces {
            (vec![version.clone()], Some([pk, member, version]))
        } else {
            (vec![pk, member, text(&*write.row.key.counter.post), version], None)
        };
        let texts = match &write.change {
            Change::Put { liked_at, region } => {
                parameters.push(number(liked_at));
                parameters.extend(region.as_ref().map(|region| text(region.as_str())));
                if region.is_some() { &self.put_with_region } else { &self.put }
            }
            Change::Remove => {
                parameters.push(number(gone));
                &self.remove
            }
        };
        parameters.extend(condition.into_iter().flatten());
        statement(&*texts[usize::from(replaces)], parameters)
    }
}

fn key_and_version(write: &Write) -> [AttributeValue; 3] {
    [text(write.row.key.to_string()), text(write.row.member.as_str()), number(write.version)]
}

/// An `INSERT` and an `UPDATE`: beside key and version they set some attributes, and no row keeps the others.
fn both(table: &str, set: &[&str], removed: &[&str]) -> [String; 2] {
    let each = |names: &[&str], part: fn(&str) -> String| names.iter().map(|name| part(name)).collect::<String>();
    let put = each(set, |name| format!(",'{name}':?"));
    let (set, removed) =
        (each(set, |name| format!(" SET \"{name}\"=?")), each(removed, |name| format!(" REMOVE \"{name}\"")));
    [
        format!("INSERT INTO \"{table}\" VALUE {{'pk':?,'user_id':?,'post_id':?,'v':?{put}}}"),
        format!("UPDATE \"{table}\" SET \"v\"=?{set}{removed} WHERE \"pk\"=? AND \"user_id\"=? AND \"v\"<?"),
    ]
}
