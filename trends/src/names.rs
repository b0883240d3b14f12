//! Numbers from 0 the posts or hashtags that have sums in one place, a counter in one region or in all, and keeps their
//! ids. `place.rs` and `cells.rs`, which add up what is trending, index their data by that number.

use hashbrown::HashTable;

/// The number of subjects whose texts share one buffer. The offsets of 256 texts of up to 256 bytes fit into 16 bits.
const GROUP: usize = 256;

/// The number of a subject in its place.
pub(crate) type Slot = u32;

#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    table: HashTable<Slot>,
    groups: Vec<Group>,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct Group {
    texts: Vec<u8>,
    /// The offset of each text.
    starts: Vec<u16>,
}

/// Returns the hash of a text in the table. It has no random seed, so that the result depends on the log alone.
pub(crate) fn hash(text: &[u8]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write(text);
    hasher.finish()
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of a text, and whether it is new and therefore the greatest one.
    pub(crate) fn slot(&mut self, hash: u64, text: &[u8]) -> (Slot, bool) {
        let Self { table, groups, len } = self;
        if let Some(slot) = table.find(hash, |slot| text_of(groups, *slot) == text) {
            return (*slot, false);
        }
        let slot = Slot::try_from(*len).expect("memory ends long before 2^32 subjects of one partition");
        push(groups, *len, text);
        *len += 1;
        table.insert_unique(hash, slot, |slot| self::hash(text_of(groups, *slot)));
        (slot, true)
    }

    pub(crate) fn text(&self, slot: Slot) -> &[u8] {
        text_of(&self.groups, slot)
    }

    /// Keeps the subjects that have a new number in `numbers`. Their order stays the same.
    pub(crate) fn renumber(&mut self, numbers: &[Slot]) {
        self.table.retain(|slot| {
            *slot = numbers[*slot as usize];
            *slot != GONE
        });
        let (mut groups, mut len, mut numbers) = (Vec::new(), 0, numbers.iter());
        for mut group in std::mem::take(&mut self.groups) {
            let count = group.starts.len();
            for (nth, number) in numbers.by_ref().take(count).enumerate() {
                if *number != GONE {
                    push(&mut groups, len, group.text(nth));
                    len += 1;
                }
            }
            group.texts.clear();
        }
        (self.groups, self.len) = (groups, len);
        if self.table.capacity() / 4 > self.len {
            let Self { table, groups, .. } = self;
            table.shrink_to(self.len, |slot| self::hash(text_of(groups, *slot)));
        }
    }
}

/// The new number of a subject that is removed.
pub(crate) const GONE: Slot = Slot::MAX;

impl Group {
    fn text(&self, nth: usize) -> &[u8] {
        let end = self.starts.get(nth + 1).map_or(self.texts.len(), |next| usize::from(*next));
        &self.texts[usize::from(self.starts[nth])..end]
    }
}

fn text_of(groups: &[Group], slot: Slot) -> &[u8] {
    groups[slot as usize / GROUP].text(slot as usize % GROUP)
}

fn push(groups: &mut Vec<Group>, len: usize, text: &[u8]) {
    if len.is_multiple_of(GROUP) {
        // A full group does not grow any more.
        if let Some(full) = groups.last_mut() {
            full.texts.shrink_to_fit();
            full.starts.shrink_to_fit();
        }
        groups.push(Group::default());
    }
    let group = groups.last_mut().expect("the first one begins a group");
    group.starts.push(u16::try_from(group.texts.len()).expect("a group's texts are 64 KiB at most"));
    group.texts.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbered_from_0_and_keep_their_order_when_some_are_removed() {
        let mut names = Names::default();
        let text = |n: u32| format!("{n:0>width$}", width = 4 + n as usize % 253).into_bytes();
        let slot = |names: &mut Names, n: u32| names.slot(hash(&text(n)), &text(n));
        for (n, is_new) in (0..2_000).map(|n| (n, true)).chain((0..2_000).map(|n| (n, false))) {
            assert_eq!(slot(&mut names, n), (n, is_new));
        }
        let mut next = 0..;
        let numbers: Vec<Slot> = (0..2_000).map(|n| if n % 3 == 0 { GONE } else { next.next().unwrap() }).collect();
        names.renumber(&numbers);
        let kept: Vec<u32> = (0..2_000).filter(|n| n % 3 != 0).collect();
        assert_eq!(names.len(), kept.len());
        for (number, n) in (0..).zip(kept) {
            assert_eq!((slot(&mut names, n), names.text(number)), ((number, false), &text(n)[..]));
        }
        assert!(slot(&mut names, 0).1, "it is new again");
    }
}
