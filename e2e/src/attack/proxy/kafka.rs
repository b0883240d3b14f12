//! Replaces the broker's address in Kafka's answers by the proxy's, since clients connect to the address in the answers. It
//! only knows that an answer is prefixed by its length, and that a port follows its host.

/// The host name that the in-process broker advertises.
const HOST: &[u8] = b"127.0.0.1";

/// The size of a length and of a port in bytes.
const LENGTH: usize = 4;

type Place = [u8; HOST.len() + LENGTH];

/// An advertised address, and its replacement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advertised {
    said: Place,
    instead: Place,
}

impl Advertised {
    pub(super) fn new(said: u16, instead: u16) -> Self {
        let place = |port: u16| {
            let mut place = [0; HOST.len() + LENGTH];
            place[..HOST.len()].copy_from_slice(HOST);
            place[HOST.len()..].copy_from_slice(&u32::from(port).to_be_bytes());
            place
        };
        Self { said: place(said), instead: place(instead) }
    }

    /// Splits the answers of one connection.
    pub(super) fn frames(&self) -> Frames<'_> {
        Frames { advertised: self, partial: Vec::new() }
    }

    fn replace(&self, answer: &mut [u8]) {
        let mut from = 0;
        while let Some(at) = answer[from..].windows(self.said.len()).position(|window| window == self.said) {
            let end = from + at + self.said.len();
            answer[from + at..end].copy_from_slice(&self.instead);
            from = end;
        }
    }
}

/// Splits a connection's bytes into answers, which are forwarded as a whole. Otherwise the last bytes of a piece would have to
/// be held back, and a client may wait for them.
pub(super) struct Frames<'a> {
    advertised: &'a Advertised,
    partial: Vec<u8>,
}

impl Frames<'_> {
    /// Adds bytes, and returns the answers that are complete now.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.partial.extend_from_slice(bytes);
        let mut whole = 0;
        while let Some(length) = self.partial[whole..].first_chunk::<LENGTH>() {
            let end = usize::try_from(u32::from_be_bytes(*length)).map_or(usize::MAX, |length| whole + LENGTH + length);
            if end > self.partial.len() {
                break;
            }
            self.advertised.replace(&mut self.partial[whole..end]);
            whole = end;
        }
        self.partial.drain(..whole).collect()
    }
}
