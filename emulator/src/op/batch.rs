//! The common parts of BatchGetItem and BatchWriteItem: they refuse batches of a wrong size or with duplicates,
//! throttle hot keys, and choose what is left unprocessed.

mod get;
mod write;

use std::hash::Hash;

use hashbrown::HashSet;
use rand::RngExt;
use rand::rngs::StdRng;

pub(crate) use self::get::{BatchGetItem, get};
pub(crate) use self::write::{BatchWriteItem, write};
use super::params::wrong_length;
use crate::engine::Engine;
use crate::engine::key::Key;
use crate::engine::throughput::Use;
use crate::error::Error;

/// Checks that a batch has at least one element per table, and not too many in total.
fn check_count(counts: impl Iterator<Item = usize>, most: usize, too_many: &str) -> Result<(), Error> {
    let counts: Vec<usize> = counts.collect();
    if counts.is_empty() || counts.contains(&0) {
        return Err(wrong_length("requestItems", most));
    }
    if counts.iter().sum::<usize>() > most {
        return Err(if too_many.is_empty() { wrong_length("requestItems", most) } else { Error::validation(too_many) });
    }
    Ok(())
}

pub(super) fn refuse_duplicates<K: Eq + Hash>(keys: impl Iterator<Item = K>) -> Result<(), Error> {
    let mut seen = HashSet::with_capacity(keys.size_hint().1.unwrap_or_default());
    for key in keys {
        if !seen.insert(key) {
            return Err(Error::validation("Provided list of item keys contains duplicates"));
        }
    }
    Ok(())
}

/// Refuses a batch if every key is hot. Otherwise the hot ones are left out.
fn refuse_all_hot<'a>(
    used: Use,
    mut places: impl Iterator<Item = (&'a str, &'a Key)>,
    engine: &Engine,
) -> Result<(), Error> {
    let mut last = Ok(());
    let all = places.all(|(table, key)| {
        last = engine.admit(used, table, key);
        last.is_err()
    });
    if all { last } else { Ok(()) }
}

/// Chooses the elements of a batch that are not processed. If `partly`, at least one is and at least one is not.
fn left_out(count: usize, partly: bool, rng: &mut StdRng) -> Vec<bool> {
    if !partly || count < 2 {
        return vec![false; count];
    }
    let left = rng.random_range(0..count);
    let done = (left + rng.random_range(1..count)) % count;
    (0..count).map(|nth| nth == left || (nth != done && rng.random_bool(0.5))).collect()
}
