//! The width of a counter: over how many Kafka partitions producers spread the events of a sum, such as a post's views.
//! It follows the counter's rate, and may begin with an estimate from the author's number of followers.

use std::time::Duration;

/// How long events are counted before the width may change.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// The events per second and partition above which the width doubles, and below which it halves. Twice the lower
/// number is less than the upper one, so that no change is undone at the same rate.
const MOST: u128 = 10_000;
const LEAST: u128 = 2_500;

/// For so many followers of its author, a post has one event a second at its height.
const FOLLOWERS: u64 = 2_000;

/// The greatest width that an audience asks for.
const MOST_ASKED: u32 = 256;

/// Returns the width for the events of a post at their height. A post that only followers see has half as many events.
pub fn width_for(followers: u64, is_protected: bool) -> u32 {
    let events = u128::from(followers / FOLLOWERS) / if is_protected { 2 } else { 1 };
    let width = events.div_ceil(MOST).clamp(1, u128::from(MOST_ASKED));
    u32::try_from(width).map_or(MOST_ASKED, u32::next_power_of_two)
}

/// A width, and the events since it last changed or was confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    width: u32,
    /// When counting began; `None` before the first event.
    since: Option<Duration>,
    events: u64,
}

impl Width {
    /// Returns the width that a counter begins with.
    pub(super) fn first(width: u32) -> Self {
        Self { width, since: None, events: 0 }
    }

    pub(super) fn get(self) -> u32 {
        self.width
    }

    /// Counts an event at `now`. Returns the width for it, at most `most`.
    pub(super) fn count(&mut self, now: Duration, most: u32) -> u32 {
        let over = now.saturating_sub(*self.since.get_or_insert(now));
        if over >= WINDOW {
            *self = Self { width: self.after(over, most), since: Some(now), events: 0 };
        }
        self.events += 1;
        self.width = self.width.min(most);
        self.width
    }

    /// Returns whether the counter would begin anew with its next event, so that it can be forgotten.
    pub(super) fn is_idle(self, now: Duration) -> bool {
        self.since.is_none_or(|since| {
            let over = now.saturating_sub(since);
            over >= WINDOW && self.after(over, u32::MAX) == 1
        })
    }

    /// Returns the width after the counted events took `over`: doubled once, or halved once for each window.
    fn after(self, over: Duration, most: u32) -> u32 {
        let over = over.as_millis().max(1);
        let millievents = u128::from(self.events) * 1_000;
        let mut width = self.width.min(most);
        if millievents > MOST * u128::from(width) * over {
            return width.saturating_mul(2).min(most);
        }
        for _ in 0..over / WINDOW.as_millis() {
            if width == 1 || millievents >= LEAST * u128::from(width) * over {
                break;
            }
            width /= 2;
        }
        width
    }
}
