//! A window's report: every row touched, in items of a bounded size, and a head that is written last and says how many.
//!
//! Members are cut into parts in their own order, so that two workers who write the same report write the same items.

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::Map;
use tally_core::ids::{MemberKey, RowKey};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tally_core::weight::{Stated, Weight};
use tally_core::window::{Report, WindowRun};

use super::super::item::{Item, Reader, item, number, text};
use super::super::names::recounts::{KEY, LIKING, NOT_LIKING, PARTS, TTL, WEIGHTS};
use super::super::names::{PK, SK};
use super::{HOUR, Recounts, expiry, padded};

/// Where a report's head stands: behind every part.
const HEAD: &str = "head";
/// Bytes of members in one part: an item may have 400 KB, and a page of a query carries three of these.
const PART_BYTES: usize = 300_000;
/// What a member of a set costs besides its bytes, rounded up.
const MEMBER_BYTES: usize = 8;
/// What a member of a map and its weight cost besides the member's bytes, rounded up.
const WEIGHED_BYTES: usize = 32;
/// The sets that members of the usual weights are kept in, as reports of likes alone always were.
const SETS: [(&str, Weight); 2] = [(LIKING, Weight::ONE), (NOT_LIKING, Weight::ABSENT)];

impl Recounts {
    /// Safe to repeat, by any worker: every part of a run is the same, whichever worker writes it, and only a head makes it count.
    pub(super) async fn write_report(&self, report: &Report, now: UnixMillis) -> Outcome<()> {
        let pk = pk(report.run);
        let parts = parts(&report.touched);
        for (index, members) in parts.iter().enumerate() {
            self.put(part(&pk, index, members, now)).await?;
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
    pub(super) async fn read_report(&self, key: &RowKey, run: WindowRun) -> Outcome<Option<Report>> {
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
            for (name, weight) in SETS {
                for member in reader.texts(name)? {
                    touched.insert(read_member(&reader, name, member)?, weight);
                }
            }
            for (member, n) in reader.numbers(WEIGHTS)? {
                let weight = Stated::number(n).weight(true);
                let weight = weight.ok_or_else(|| reader.malformed(WEIGHTS, "no weight of a row"))?;
                touched.insert(read_member(&reader, WEIGHTS, member)?, weight);
            }
        }
        Ok(Some(Report { key: key.clone(), run, touched }))
    }
}

fn pk(run: WindowRun) -> String {
    format!("report#{run}")
}

fn read_member(reader: &Reader<'_>, name: &str, member: &str) -> Outcome<MemberKey> {
    MemberKey::new(member).ok_or_else(|| reader.malformed(name, "no member of a counter"))
}

fn is_usual(weight: Weight) -> bool {
    SETS.iter().any(|(_, usual)| *usual == weight)
}

/// What a member takes of its part.
fn bytes((member, weight): (&MemberKey, Weight)) -> usize {
    member.as_str().len() + if is_usual(weight) { MEMBER_BYTES } else { WEIGHED_BYTES }
}

/// Members in order, cut so that each part fits an item.
fn parts(touched: &Map<MemberKey, Weight>) -> Vec<Vec<(&MemberKey, Weight)>> {
    let mut members: Vec<_> = touched.iter().map(|(member, weight)| (member, *weight)).collect();
    members.sort_unstable();
    let mut parts: Vec<Vec<_>> = Vec::new();
    let mut room = 0;
    for member in members {
        let bytes = bytes(member);
        match parts.last_mut().filter(|_| bytes <= room) {
            Some(part) => part.push(member),
            None => {
                parts.push(vec![member]);
                room = PART_BYTES;
            }
        }
        room -= bytes;
    }
    parts
}

fn part(pk: &str, index: usize, members: &[(&MemberKey, Weight)], now: UnixMillis) -> Item {
    let mut encoded = item([(PK, text(pk)), (SK, text(padded(index as u64))), (TTL, expiry(now, HOUR))]);
    for (name, wanted) in SETS {
        let set = members.iter().filter(|(_, weight)| *weight == wanted).map(|(member, _)| member.to_string());
        let set: Vec<String> = set.collect();
        // The store takes no empty set.
        if !set.is_empty() {
            encoded.insert(name.to_owned(), AttributeValue::Ss(set));
        }
    }
    let others = members.iter().filter(|(_, weight)| !is_usual(*weight));
    let others: Item = others.map(|(member, weight)| (member.to_string(), number(weight))).collect();
    if !others.is_empty() {
        encoded.insert(WEIGHTS.to_owned(), AttributeValue::M(others));
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_cut_the_same_way_whoever_writes_it_and_every_part_fits_an_item() {
        let member = |n: i64| (MemberKey::new(&format!("{n:0>250}")).unwrap(), Weight::new(n % 3).unwrap());
        let one: Map<_, _> = (0..5000).map(member).collect();
        let other: Map<_, _> = (0..5000).rev().map(member).collect();
        let cut = parts(&one);
        assert_eq!(cut, parts(&other));
        assert_eq!(cut.iter().map(Vec::len).sum::<usize>(), 5000);
        assert!(cut.len() > 1);
        for part in cut {
            assert!(part.iter().map(|member| bytes(*member)).sum::<usize>() <= PART_BYTES);
        }
        assert!(parts(&Map::default()).is_empty());
    }
}
