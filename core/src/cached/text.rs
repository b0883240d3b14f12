//! How the cache of counts keeps its entries in Redis: as texts, which are written and read here. A *standing* says up
//! to where the changes of a partition are counted. A text of another form, such as another version's, counts as
//! absent.
//!
//! | what | text |
//! |---|---|
//! | standing | `3:number:sequence:deployment:at:as_of:loss:open`, where `open` is a list |
//! | value | `2:number:version:likes:gap:doubtful` |
//! | fill under way | `0:number:sequence:nonce` |
//!
//! An absent field is `-`. Numbers of take-overs and nonces are hexadecimal and padded, so equal ones have equal
//! texts.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{Entry, FillToken, Held, StandingAt, TakeOverNumber, Taken, Value};
use crate::changes::{DeploymentId, LossNumber, Place, Standing};
use crate::time::UnixMillis;

/// No text that this version writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a text of the cache that this version knows")]
pub struct BadText;

/// A field that may be absent.
struct Maybe<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Maybe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, BadText> {
    text.parse().map_err(|_| BadText)
}

fn maybe(text: &str) -> Result<Option<u64>, BadText> {
    if text == "-" { Ok(None) } else { number(text).map(Some) }
}

impl fmt::Display for TakeOverNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for TakeOverNumber {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        u64::from_str_radix(text, 16).map(Self).map_err(|_| BadText)
    }
}

/// Writes the part of a standing's text that a fold's write replaces.
impl fmt::Display for StandingAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, standing: Standing { as_of, loss, open } } = self;
        write!(f, "{at}:{}:{}:", Maybe(*as_of), Maybe(*loss))?;
        for (nth, number) in open.iter().enumerate() {
            write!(f, "{}{number}", if nth == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for StandingAt {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let fields: Vec<&str> = text.split(':').collect();
        let [at, as_of, loss, open] = fields[..] else { return Err(BadText) };
        let open = open.split(',').filter(|_| !open.is_empty());
        let standing = Standing {
            as_of: maybe(as_of)?.map(UnixMillis),
            loss: maybe(loss)?.map(Place::from_stored),
            open: open.map(|loss| number(loss).map(LossNumber)).collect::<Result<_, _>>()?,
        };
        Ok(Self { at: Place::from_stored(number(at)?), standing })
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken: Taken { of, number }, sequence, stated } = self;
        write!(f, "3:{number}:{sequence}:{}:{stated}", of.0)
    }
}

impl FromStr for Held {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let mut fields = text.splitn(5, ':');
        let mut field = || fields.next().ok_or(BadText);
        let ("3", take_over, sequence, of, stated) = (field()?, field()?, field()?, field()?, field()?) else {
            return Err(BadText);
        };
        let taken = Taken { of: DeploymentId(of.into()), number: take_over.parse()? };
        Ok(Self { taken, sequence: number(sequence)?, stated: stated.parse()? })
    }
}

impl fmt::Display for FillToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0:{}:{}:{:032x}", self.number, self.sequence, self.nonce)
    }
}

impl FromStr for FillToken {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        let fields: Vec<&str> = text.split(':').collect();
        let ["0", take_over, sequence, nonce] = fields[..] else { return Err(BadText) };
        let nonce = u128::from_str_radix(nonce, 16).map_err(|_| BadText)?;
        Ok(Self { number: take_over.parse()?, sequence: number(sequence)?, nonce })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(number, Value { likes, version, gap, doubtful }) => {
                write!(f, "2:{number}:{version}:{likes}:{}:{}", Maybe(*gap), u8::from(*doubtful))
            }
            Self::Filling(token) => token.fmt(f),
        }
    }
}

impl FromStr for Entry {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        if text.starts_with("0:") {
            return text.parse().map(Self::Filling);
        }
        let fields: Vec<&str> = text.split(':').collect();
        let ["2", take_over, version, likes, gap, doubtful] = fields[..] else { return Err(BadText) };
        let value = Value {
            likes: number(likes)?,
            version: Place::from_stored(number(version)?),
            gap: maybe(gap)?.map(Place::from_stored),
            doubtful: match doubtful {
                "0" => false,
                "1" => true,
                _ => return Err(BadText),
            },
        };
        Ok(Self::Value(take_over.parse()?, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: TakeOverNumber = TakeOverNumber(0xab);

    #[test]
    fn a_standing_has_the_documented_form() {
        let full = Standing {
            as_of: Some(UnixMillis(9)),
            loss: Some(Place::from_stored(3)),
            open: [5, 7].map(LossNumber).into(),
        };
        for (standing, text) in
            [(full, "3:00000000000000ab:4:d-1:12:9:3:5,7"), (Standing::default(), "3:00000000000000ab:4:d-1:12:-:-:")]
        {
            let taken = Taken { of: DeploymentId("d-1".into()), number: NUMBER };
            let held = Held { taken, sequence: 4, stated: StandingAt { at: Place::from_stored(12), standing } };
            assert_eq!(held.to_string(), text);
            assert_eq!(text.parse(), Ok(held));
        }
        let bare = ["", "3", "2:ab:4:12:9:3:", "3:ab:4:12:9:3:", "4:ab:4:d:12:9:3:", "3:xy:4:d:12:9:3:"];
        for text in bare.into_iter().chain(["3:ab:4:d:12:9:3", "3:ab:4:d:12:9:3:5,", "3:ab:4:d:e:12:9:3:"]) {
            assert_eq!(text.parse::<Held>(), Err(BadText), "{text}");
        }
    }

    #[test]
    fn a_value_and_a_fill_under_way_have_the_documented_forms() {
        let value =
            Value { likes: -3, version: Place::from_stored(7), gap: Some(Place::from_stored(2)), doubtful: true };
        let token = FillToken { number: NUMBER, sequence: 6, nonce: 0xcd };
        for (entry, text) in [
            (Entry::Value(NUMBER, value), "2:00000000000000ab:7:-3:2:1"),
            (Entry::Value(NUMBER, Value::default()), "2:00000000000000ab:0:0:-:0"),
            (Entry::Filling(token), "0:00000000000000ab:6:000000000000000000000000000000cd"),
        ] {
            assert_eq!(entry.to_string(), text);
            assert_eq!(text.parse(), Ok(entry));
        }
        for text in ["", "0:", "0:ab:6", "1:7:3:1:99", "2:ab:7:3:-", "2:ab:7:3:-:2", "2:ab:-7:3:-:1", "3:ab:7:3:-:1"] {
            assert_eq!(text.parse::<Entry>(), Err(BadText), "{text}");
        }
    }
}
