//! Reads the file of `tally import`, or standard input, line by line, in bounded memory. Each line comes with its
//! number and with the offset at which it ends, so that a later run can go on there.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, ensure};
use crc32fast::Hasher;
use tally_core::event::MAX_EVENT_BYTES;

/// The most lines, and about the most bytes, that are read and sent at once.
pub(super) const AT_ONCE: usize = 10_000;
const BYTES: usize = 4 << 20;

/// The byte order mark, which Windows programs put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How many bytes are read at once: the longest event, with a mark before it and two bytes that end its line.
const PART: u64 = (BYTE_ORDER_MARK.len() + MAX_EVENT_BYTES + 2) as u64;

/// A line, without the bytes that end it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: u64,
    /// How many bytes the file has up to here, with those that end the line.
    pub(super) end: u64,
    /// The CRC-32 of those bytes.
    pub(super) crc: u32,
    /// The line, or how it begins if it is longer than any event.
    pub(super) text: Vec<u8>,
    /// The length of the whole line.
    pub(super) len: usize,
}

/// Reads lines one after another.
pub(super) struct Lines {
    input: BufReader<Box<dyn Read>>,
    number: u64,
    end: u64,
    /// The hash of the bytes up to `end`.
    hasher: Hasher,
    /// The first line, if [`Self::first`] has read it and no one has taken it yet.
    first: Option<Line>,
}

impl Lines {
    /// Opens a file, or standard input.
    pub(super) fn open(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = file else { return Ok(Self::new(Box::new(io::stdin()))) };
        Ok(Self::new(Box::new(File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?)))
    }

    pub(super) fn new(input: Box<dyn Read>) -> Self {
        Self { input: BufReader::with_capacity(1 << 16, input), number: 0, end: 0, hasher: Hasher::new(), first: None }
    }

    /// Returns the first line, which stays the next one to be read; an empty one if there is none.
    pub(super) fn first(&mut self) -> io::Result<Vec<u8>> {
        if self.number == 0 {
            self.first = self.line()?;
        }
        Ok(self.first.as_ref().map(|line| line.text.clone()).unwrap_or_default())
    }

    /// Skips the first `bytes`, which are `lines` lines and have this CRC-32.
    ///
    /// # Errors
    /// The file cannot be read, or begins with other bytes.
    pub(super) fn skip_to(&mut self, bytes: u64, lines: u64, crc: u32) -> anyhow::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        while self.end < bytes {
            let part = self.input.fill_buf().context("cannot read the file")?;
            let len = part.len().min(usize::try_from(bytes - self.end).unwrap_or(usize::MAX));
            ensure!(len > 0, "the file has {} bytes, and {bytes} were imported", self.end);
            self.hasher.update(&part[..len]);
            self.input.consume(len);
            self.end += len as u64;
        }
        let is_same = self.end == bytes && self.hasher.clone().finalize() == crc;
        ensure!(is_same, "the file's first {lines} lines are others than those that were imported");
        (self.number, self.first) = (lines, None);
        Ok(())
    }

    /// Reads the next lines: at least one, at most `most` of those that need no wait; none at the end of the file.
    pub(super) fn chunk(&mut self, most: usize) -> io::Result<Vec<Line>> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while let Some(line) = self.line()? {
            bytes += line.text.len();
            chunk.push(line);
            if chunk.len() >= most || bytes >= BYTES || !self.input.buffer().contains(&b'\n') {
                break;
            }
        }
        Ok(chunk)
    }

    fn line(&mut self) -> io::Result<Option<Line>> {
        if let Some(line) = self.first.take() {
            return Ok(Some(line));
        }
        let mut text = self.part()?;
        if text.is_empty() {
            return Ok(None);
        }
        let (mut len, mut last) = (text.len(), text.last().copied());
        while last.is_some_and(|last| last != b'\n') {
            let more = self.part()?;
            (len, last) = (len + more.len(), more.last().copied());
        }
        self.number += 1;
        self.end += len as u64;
        len -= usize::from(last.is_some());
        text.truncate(len);
        if text.len() == len && text.last() == Some(&b'\r') {
            text.pop();
            len -= 1;
        }
        if self.number == 1 && text.starts_with(BYTE_ORDER_MARK) {
            text.drain(..BYTE_ORDER_MARK.len());
            len -= BYTE_ORDER_MARK.len();
        }
        text.truncate(MAX_EVENT_BYTES);
        Ok(Some(Line { number: self.number, end: self.end, crc: self.hasher.clone().finalize(), text, len }))
    }

    /// Reads the rest of the line, at most [`PART`] bytes of it. Returns nothing at the end of the file.
    fn part(&mut self) -> io::Result<Vec<u8>> {
        let mut part = Vec::new();
        self.input.by_ref().take(PART).read_until(b'\n', &mut part)?;
        self.hasher.update(&part);
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Lines {
        Lines::new(Box::new(io::Cursor::new(text.to_vec())))
    }

    fn all(mut lines: Lines) -> Vec<Line> {
        let chunks = std::iter::from_fn(|| Some(lines.chunk(AT_ONCE).unwrap()).filter(|chunk| !chunk.is_empty()));
        chunks.flatten().collect()
    }

    #[test]
    fn each_line_says_where_it_ends_whatever_ends_it() {
        let of = |text: &[u8]| all(lines(text)).into_iter().map(|line| (line.number, line.end, line.text));
        let found: Vec<_> = of(b"\xef\xbb\xbfa\r\n\nbc").collect();
        assert_eq!(found, [(1, 6, b"a".to_vec()), (2, 7, b"".to_vec()), (3, 9, b"bc".to_vec())]);
        assert_eq!((of(b"").count(), of(b"\n").count()), (0, 1));
    }

    #[test]
    fn reading_goes_on_behind_any_line_and_refuses_a_file_that_begins_otherwise() {
        let text = b"first\nsecond\nthird\n";
        for (bytes, read, rest) in [(6, 1, "second"), (13, 2, "third")] {
            let mut lines = lines(text);
            assert_eq!(lines.first().unwrap(), b"first");
            let crc = crc32fast::hash(&text[..usize::try_from(bytes).unwrap()]);
            lines.skip_to(bytes, read, crc).unwrap();
            assert_eq!(all(lines)[0].text, rest.as_bytes());
        }
        let mut whole = lines(text);
        assert_eq!(whole.first().unwrap(), b"first");
        let first = all(whole).remove(0);
        assert_eq!((first.number, &*first.text), (1, &b"first"[..]), "the first line is read all the same");
        assert_eq!(first.crc, crc32fast::hash(b"first\n"), "each line has the sum of the bytes up to its end");
        let crc = crc32fast::hash(text);
        assert!(lines(text).skip_to(20, 3, crc).is_err());
        assert!(lines(text).skip_to(19, 3, crc).is_ok());
        assert!(lines(b"first\nSecond\nthird\n").skip_to(19, 3, crc).is_err());
        // The line that was last had no end, and grew.
        let mut grown = lines(b"first line\n");
        assert_eq!(grown.first().unwrap(), b"first line");
        assert!(grown.skip_to(5, 1, crc32fast::hash(b"first")).is_err());
    }

    #[test]
    fn a_line_without_end_costs_bounded_memory_and_the_next_one_is_read() {
        let of = |text: &[u8]| all(lines(text)).into_iter().map(|line| (line.len, line.text)).collect::<Vec<_>>();
        let exact = vec![b'x'; MAX_EVENT_BYTES];
        let long = [vec![b'x'; 3 * MAX_EVENT_BYTES], b"\nnext\n".to_vec()].concat();
        assert_eq!(of(&long), [(3 * MAX_EVENT_BYTES, exact.clone()), (4, b"next".to_vec())]);
        for mark in [&b""[..], BYTE_ORDER_MARK] {
            assert_eq!(of(&[mark, &exact, b"\r\n"].concat()), [(MAX_EVENT_BYTES, exact.clone())]);
            assert_eq!(of(&[mark, &exact, b"x"].concat()), [(MAX_EVENT_BYTES + 1, exact.clone())]);
        }
    }
}
