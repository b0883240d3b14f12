//! A watcher outside the protocol that is told of every change of a table's items, which no stream can lose; leaves streams to the table.

use crate::clock::Millis;
use crate::value::Item;

/// One change of one item, at the moment it is made.
#[derive(Clone, Debug)]
pub struct Changed {
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The item before; `None` where there was none.
    pub old: Option<Item>,
    /// The item after; `None` where it was removed.
    pub new: Option<Item>,
}

/// What is called with every change. It must not call the emulator.
pub(crate) struct Watch(Box<dyn FnMut(Changed) + Send>);

impl Watch {
    pub(crate) fn new(told: impl FnMut(Changed) + Send + 'static) -> Self {
        Self(Box::new(told))
    }

    pub(super) fn tell(&mut self, at_ms: Millis, old: Option<Item>, new: Option<Item>) {
        (self.0)(Changed { at_ms, old, new });
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}
