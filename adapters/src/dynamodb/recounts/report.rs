//! A window's report: everybody touched, in items of a bounded size, and a head that is written last and says how many.
//!
//! Users are cut into parts in their own order, so that two workers who write the same report write the same items.

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::Map;
use tally_core::ids::{RowKey, UserId};
use tally_core::ports::Outcome;
use tally_core::recount::{Report, RunId};
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, item, number, text};
use super::super::names::recounts::{KEY, LIKING, NOT_LIKING, PARTS, TTL};
use super::super::names::{PK, SK};
use super::{HOUR, Recounts, expiry, padded};

/// Where a report's head stands: behind every part.
const HEAD: &str = "head";
/// Bytes of user ids in one part: an item may have 400 KB, and a page of a query carries three of these.
const PART_BYTES: usize = 300_000;
/// What a member of a set costs besides its bytes, rounded up.
const MEMBER_BYTES: usize = 8;

impl Recounts {
    /// Safe to repeat, by any worker: every part of a run is the same whoever writes it, and only a head makes it count.
    pub(super) async fn write_report(&self, report: &Report, now: UnixMillis) -> Outcome<()> {
        let pk = pk(report.run);
        let parts = parts(&report.touched);
        for (index, users) in parts.iter().enumerate() {
            self.put(part(&pk, index, users, now)).await?;
        }
        let head = item([
            (PK, text(pk)),
            (SK, text(HEAD)),
            (KEY, text(report.key.to_string())),
            (PARTS, number(parts.len())),
            (TTL, expiry(now, HOUR)),
        ]);
        self.put(head).await
    }

    /// The report of `run`, if its head stands and every part with it.
    pub(super) async fn read_report(&self, key: &RowKey, run: RunId) -> Outcome<Option<Report>> {
        let found = self.all(&pk(run)).await?;
        let Some((head, parts)) = found.split_last() else { return Ok(None) };
        let head = Reader::new(self.table(), head);
        let complete = head.required_text(SK)? == HEAD
            && head.required_text(KEY)? == key.to_string()
            && head.required_number::<usize>(PARTS)? == parts.len();
        if !complete {
            return Ok(None);
        }
        let mut touched = Map::default();
        for part in parts {
            let reader = Reader::new(self.table(), part);
            for (name, likes) in [(LIKING, true), (NOT_LIKING, false)] {
                for user in reader.texts(name)? {
                    touched.insert(UserId::new(user).map_err(|error| reader.malformed(name, error))?, likes);
                }
            }
        }
        Ok(Some(Report { key: key.clone(), run, touched }))
    }
}

fn pk(run: RunId) -> String {
    format!("report#{run}")
}

/// Users in order, cut so that each part fits an item.
fn parts(touched: &Map<UserId, bool>) -> Vec<Vec<(&UserId, bool)>> {
    let mut users: Vec<_> = touched.iter().map(|(user, likes)| (user, *likes)).collect();
    users.sort_unstable();
    let mut parts: Vec<Vec<_>> = Vec::new();
    let mut room = 0;
    for user in users {
        let bytes = user.0.len() + MEMBER_BYTES;
        match parts.last_mut().filter(|_| bytes <= room) {
            Some(part) => part.push(user),
            None => {
                parts.push(vec![user]);
                room = PART_BYTES;
            }
        }
        room -= bytes;
    }
    parts
}

fn part(pk: &str, index: usize, users: &[(&UserId, bool)], now: UnixMillis) -> Item {
    let mut encoded = item([(PK, text(pk)), (SK, text(padded(index as u64))), (TTL, expiry(now, HOUR))]);
    for (name, wanted) in [(LIKING, true), (NOT_LIKING, false)] {
        let members = users.iter().filter(|(_, likes)| *likes == wanted).map(|(user, _)| user.to_string());
        let members: Vec<String> = members.collect();
        // The store takes no empty set.
        if !members.is_empty() {
            encoded.insert(name.to_owned(), AttributeValue::Ss(members));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_cut_the_same_way_whoever_writes_it_and_every_part_fits_an_item() {
        let user = |n: usize| UserId::new(&format!("{n:0>250}")).unwrap();
        let one: Map<_, _> = (0..5000).map(|n| (user(n), n % 3 == 0)).collect();
        let other: Map<_, _> = (0..5000).rev().map(|n| (user(n), n % 3 == 0)).collect();
        let cut = parts(&one);
        assert_eq!(cut, parts(&other));
        assert_eq!(cut.iter().map(Vec::len).sum::<usize>(), 5000);
        assert!(cut.len() > 1);
        for part in cut {
            let bytes: usize = part.iter().map(|(user, _)| user.len() + MEMBER_BYTES).sum();
            assert!(bytes <= PART_BYTES);
        }
        assert!(parts(&Map::default()).is_empty());
    }
}
