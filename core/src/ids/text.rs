//! Post and user ids: 1 to 256 bytes of UTF-8 without control characters.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use thiserror::Error;

/// The longest id, in bytes of UTF-8.
pub const MAX_ID_BYTES: usize = 256;

/// Why a text is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum BadId {
    /// It is empty.
    #[error("an id is empty")]
    Empty,
    /// It is longer than [`MAX_ID_BYTES`].
    #[error("an id has {0} bytes, more than {MAX_ID_BYTES}")]
    TooLong(usize),
    /// It has a control character (C0, DEL or C1), which could collide with a reserved sort key or break a log line.
    #[error("an id has a control character at byte {0}")]
    Control(usize),
}

/// Checks whether `text` may be an id.
pub fn check_id(text: &str) -> Result<(), BadId> {
    match text.len() {
        0 => return Err(BadId::Empty),
        n if n > MAX_ID_BYTES => return Err(BadId::TooLong(n)),
        _ => {}
    }
    match control_at(text.as_bytes()) {
        Some(at) => Err(BadId::Control(at)),
        None => Ok(()),
    }
}

/// Returns whether a byte can be part of a control character.
fn may_be_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f || byte == 0xc2
}

/// Returns where valid UTF-8 has its first control character. C1 controls are the two bytes C2 80 to C2 9F.
fn control_at(bytes: &[u8]) -> Option<usize> {
    if !bytes.iter().fold(false, |any, byte| any | may_be_control(*byte)) {
        return None;
    }
    bytes.iter().enumerate().position(|(at, &byte)| {
        byte < 0x20 || byte == 0x7f || (byte == 0xc2 && bytes.get(at + 1).is_some_and(|next| *next < 0xa0))
    })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($text:ty)) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($text);

        impl $name {
            /// Returns the id, if `text` may be one.
            pub fn new(text: &str) -> Result<Self, BadId> {
                check_id(text).map(|()| Self(text.into()))
            }

            /// Returns the id of a text that was checked where it entered.
            pub(crate) fn checked(text: &str) -> Self {
                debug_assert_eq!(check_id(text), Ok(()));
                Self(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::new(text)
            }
        }
    };
}

id! {
    /// The id of a post: 1 to 256 bytes of UTF-8, no control characters, `#` welcome. Cheap to clone.
    PostId(Arc<str>)
}
id! {
    /// The id of a user, under the same rules as a [`PostId`].
    UserId(Box<str>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_control_characters_are_refused() {
        for c in (0..=0x11_0000).filter_map(char::from_u32) {
            let text = format!("a{c}");
            assert_eq!(check_id(&text).is_err(), c.is_control(), "{c:?}");
        }
    }
}
