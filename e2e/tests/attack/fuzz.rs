//! Tests the code that reads foreign bytes with fuzzed input: runs each fuzz target over every input of the committed
//! corpus, and over mutations of it that are the same in every run.
//!
//! `TALLY_FUZZ_ROUNDS` sets the number of mutations per target.

mod store;
pub(crate) mod targets;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::fuzz::targets::{TARGETS, Target};

#[test]
fn no_input_of_the_corpus_and_no_mutation_breaks_a_law() {
    let rounds = tally_testkit::sized("TALLY_FUZZ_ROUNDS", 60);
    for (name, run) in TARGETS {
        let corpus = corpus(name);
        assert!(corpus.len() >= 8, "{name} has a corpus");
        corpus.iter().for_each(|(file, input)| attack(name, file, run, input));
        let mut rng = StdRng::seed_from_u64(7);
        for round in 0..rounds {
            let (file, input) = &corpus[rng.random_range(0..corpus.len())];
            let (_, other) = &corpus[rng.random_range(0..corpus.len())];
            let mutated = mutate(input, other, &mut rng);
            attack(name, &format!("{file}, mutation {round}"), run, &mutated);
        }
        println!("{name}: {} inputs, {rounds} mutations", corpus.len());
    }
}

fn attack(target: &str, what: &str, run: Target, input: &[u8]) {
    let caught = std::panic::catch_unwind(|| run(input));
    assert!(caught.is_ok(), "{target}, {what}: {:?}", String::from_utf8_lossy(input));
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(format!("fuzz/corpus/{target}")).unwrap_or_else(|error| panic!("{target}: {error}"));
    let inputs = files.map(|file| {
        let file = file.unwrap();
        (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())
    });
    let mut inputs: Vec<(String, Vec<u8>)> = inputs.collect();
    inputs.sort();
    inputs
}

/// Makes a few changes: bytes are flipped, removed, duplicated or inserted, and the end is replaced by that of another input.
fn mutate(input: &[u8], other: &[u8], rng: &mut StdRng) -> Vec<u8> {
    const WORDS: [&[u8]; 22] = [
        b"\"",
        b"{",
        b"}",
        b"[",
        b":",
        b"#",
        b"%00",
        b"\x01",
        b"\xff",
        b"-1",
        b"18446744073709551616",
        b"null",
        b"1e999",
        b"\xf0\x9f\x98\x80",
        b"(",
        b" AND ",
        b"\x1f",
        b"+",
        b"\n",
        b"1.5",
        b"9000000000000000000",
        b"99999999999999999999999999999999999999",
    ];
    let mut data = input.to_vec();
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=data.len());
        let end = rng.random_range(at..=data.len().min(at + 16));
        match rng.random_range(0..6) {
            0 if at < data.len() => data[at] ^= 1 << rng.random_range(0..8),
            1 => drop(data.drain(at..end)),
            2 => {
                let part = data[at..end].to_vec();
                data.splice(at..at, part.repeat(rng.random_range(1..20)));
            }
            3 => drop(data.splice(at..at, WORDS[rng.random_range(0..WORDS.len())].iter().copied())),
            4 => {
                let from = rng.random_range(0..=other.len());
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            _ => drop(data.splice(at..end, [rng.random::<u8>()])),
        }
    }
    data
}
