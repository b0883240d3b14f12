//! For a proxy in front of Kafka: replaces the broker's address in Kafka's answers by the proxy's, since clients
//! connect to the address in the answers. It only knows that an answer is prefixed by its length, and that a port
//! follows its host.

/// The host name that the in-process broker advertises.
const HOST: &[u8] = b"127.0.0.1";

/// The size of a length in bytes.
const LENGTH: usize = 4;

/// The port that a broker advertises, and that of its proxy.
pub(super) type Ports = [u16; 2];

/// Splits the answers of one connection, which are forwarded as a whole. Otherwise the last bytes of a piece would have to be
/// held back, and a client may wait for them.
pub(super) struct Frames {
    /// The advertised address, and its replacement.
    said: Vec<u8>,
    instead: Vec<u8>,
    partial: Vec<u8>,
}

impl Frames {
    pub(super) fn new(ports: Ports) -> Self {
        let [said, instead] = ports.map(|port| [HOST, &u32::from(port).to_be_bytes()].concat());
        Self { said, instead, partial: Vec::new() }
    }

    /// Adds bytes, and returns the answers that are complete now.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.partial.extend_from_slice(bytes);
        let mut whole = 0;
        while let Some(length) = self.partial[whole..].first_chunk::<LENGTH>() {
            let end = usize::try_from(u32::from_be_bytes(*length)).map_or(usize::MAX, |length| whole + LENGTH + length);
            if end > self.partial.len() {
                break;
            }
            whole = end;
        }
        let mut answers: Vec<u8> = self.partial.drain(..whole).collect();
        let mut from = 0;
        while let Some(at) = answers[from..].windows(self.said.len()).position(|window| window == self.said) {
            let end = from + at + self.said.len();
            answers[from + at..end].copy_from_slice(&self.instead);
            from = end;
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_replaced_whatever_pieces_the_answers_arrive_in() {
        let answers = |port: u32| {
            let (place, other) = ([HOST, &port.to_be_bytes()].concat(), [HOST, &40_003_u32.to_be_bytes()].concat());
            let bodies = [[b"ab", &place[..], &place, HOST].concat(), Vec::new(), [&other[..], &place, b"1"].concat()];
            bodies.map(|body| [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()).concat()
        };
        let (given, expected) = (answers(40_001), answers(40_002));
        for size in 1..=given.len() {
            let mut frames = Frames::new([40_001, 40_002]);
            let got: Vec<u8> = given.chunks(size).flat_map(|piece| frames.take(piece)).collect();
            assert_eq!(got, expected, "in pieces of {size}");
        }
    }
}
