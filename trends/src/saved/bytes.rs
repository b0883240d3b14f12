//! A stretch as bytes, and back. What does not read to its last byte is none.

use tally_core::ids::{CounterName, Ordinal, PostId, Region};

use super::{About, Gain, Stretch};
use crate::Place;

/// What a file begins with: the form of what follows.
const FORM: &[u8] = b"tally-trends stretch 1\n";

impl Stretch {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = FORM.to_vec();
        let About { from, to, newest, until, last } = self.about;
        [from, to, newest, until, last.into()].into_iter().for_each(|number| put(&mut bytes, number));
        put(&mut bytes, self.marks.len() as u64);
        for (shard, sequence) in &self.marks {
            put(&mut bytes, shard.0);
            put_text(&mut bytes, sequence.as_str());
        }
        put(&mut bytes, self.places.len() as u64);
        for place in &self.places {
            put_text(&mut bytes, place.counter.marked());
            // No region is without a letter.
            put_text(&mut bytes, place.region.as_ref().map_or("", |region| region.as_str()));
        }
        put(&mut bytes, self.gains.len() as u64);
        for gain in &self.gains {
            put(&mut bytes, gain.place.into());
            put(&mut bytes, gain.second);
            put(&mut bytes, gain.gained.cast_unsigned());
            put_text(&mut bytes, gain.subject.as_str());
        }
        bytes
    }

    /// From bytes; `None` where they are anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(FORM)?;
        let rest = &mut rest;
        let (from, to, newest, until) = (take(rest)?, take(rest)?, take(rest)?, take(rest)?);
        let about = About { from, to, newest, until, last: u32::try_from(take(rest)?).ok()? };
        let marks = list(rest, |rest| Some((Ordinal(take(rest)?), take_text(rest)?.parse().ok()?)))?;
        let places = list(rest, |rest| {
            let counter = CounterName::from_marked(take_text(rest)?).ok()?;
            let region = match take_text(rest)? {
                "" => None,
                region => Some(Region::new(region)?),
            };
            Some(Place { counter, region })
        })?;
        let gains = list(rest, |rest| {
            let place = u32::try_from(take(rest)?).ok().filter(|place| (*place as usize) < places.len())?;
            let (second, gained) = (take(rest)?, take(rest)?.cast_signed());
            Some(Gain { place, second, gained, subject: PostId::new(take_text(rest)?).ok()? })
        })?;
        rest.is_empty().then_some(Self { about, marks, places, gains })
    }
}

fn put(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend(number.to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let (number, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_le_bytes(*number))
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (text, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    std::str::from_utf8(text).ok()
}

fn list<T>(rest: &mut &[u8], one: impl Fn(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = take(rest)?;
    (0..count).map(|_| one(rest)).collect()
}
