//! The sort key of a row that counts in the table `likes`: in a set, the id of the member, such as the user who likes;
//! in a sum, the name of a *cell*, the row to which the events of one Kafka partition are added.

use std::fmt;

use super::{RESERVED, ReservedKey, UserId, check_id};

/// The sort key of a row under its row key. A cell's key begins with U+0001 and no id does, so the two never collide.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberKey(Box<str>);

impl MemberKey {
    /// Reads a sort key. Returns `None` where no row that counts can have it.
    pub fn new(sort: &str) -> Option<Self> {
        let counted = ReservedKey::read(sort).map_or_else(|| check_id(sort).is_ok(), ReservedKey::is_counted);
        counted.then(|| Self(sort.into()))
    }

    /// Returns whether it is a cell of a sum.
    pub fn is_cell(&self) -> bool {
        self.0.starts_with(RESERVED)
    }

    /// Returns the sort key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&UserId> for MemberKey {
    fn from(user: &UserId) -> Self {
        Self(user.as_str().into())
    }
}

impl fmt::Display for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}
