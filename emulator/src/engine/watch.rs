//! A watcher outside of the protocol that sees every change of a table's items, independently of streams.

use crate::clock::Millis;
use crate::value::Item;

/// One change of one item.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The time in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The item before; `None` if it was new.
    pub old: Option<Item>,
    /// The item after; `None` if it was removed.
    pub new: Option<Item>,
}

/// A callback for every change. It must not call the emulator.
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
