//! Wall time, monotonic time and waiting: the only module that reads the wall clock.

mod store;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use tally_core::time::Now;
use tokio::time::Instant;

pub use self::store::StoreClock;
use crate::UnixMillis;

/// Wall time, monotonic time and waiting. Clones read the same clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The instant at which the monotonic time is zero.
    origin: Instant,
    wall: Wall,
    /// Corrects the wall time. A process has few clocks and keeps them until it ends, so this is leaked and shared.
    corrected_by: &'static RwLock<Option<StoreClock>>,
}

#[derive(Clone, Copy, Debug)]
enum Wall {
    System,
    /// This time at the origin; it moves with tokio's time.
    Since(UnixMillis),
    /// This time, and the monotonic one is always zero.
    Still(UnixMillis),
}

impl Clock {
    pub fn system() -> Self {
        Self::of(Wall::System)
    }

    fn of(wall: Wall) -> Self {
        Self { origin: Instant::now(), wall, corrected_by: Box::leak(Box::default()) }
    }

    /// Creates a clock that shows `base` now and moves with tokio's time, so that a whole service runs under paused
    /// time. Another base simulates a process whose clock is wrong.
    pub fn starting_at(base: UnixMillis) -> Self {
        Self::of(Wall::Since(base))
    }

    /// Creates a clock that always shows `base`, for a test that breaks the rule that time is read when it is needed.
    pub fn standing_still(base: UnixMillis) -> Self {
        Self::of(Wall::Still(base))
    }

    /// From now on, this clock and its clones correct their wall time by `store`. The clock of a machine may be wrong,
    /// and all processes have to agree on the times that they store.
    pub fn correct_by(&self, store: StoreClock) {
        *self.corrected_by.write() = Some(store);
    }

    pub fn now(&self) -> UnixMillis {
        let local = self.uncorrected();
        self.corrected_by.read().as_ref().map_or(local, |store| store.now(local))
    }

    fn uncorrected(&self) -> UnixMillis {
        match self.wall {
            Wall::System => system_now(),
            Wall::Since(base) | Wall::Still(base) => base.plus(self.monotonic()),
        }
    }

    fn monotonic(&self) -> Duration {
        match self.wall {
            Wall::System | Wall::Since(_) => self.origin.elapsed(),
            Wall::Still(_) => Duration::ZERO,
        }
    }

    /// Returns a monotonic time that also advances while the machine is suspended.
    pub fn awake_or_asleep(&self) -> Duration {
        match self.wall {
            Wall::System => boot_time(),
            Wall::Since(_) | Wall::Still(_) => self.monotonic(),
        }
    }

    /// Reads both times at once, as the state machines of the core take them. Clones read the same monotonic time.
    pub fn reading(&self) -> Now {
        Now { at: self.monotonic(), wall: self.now() }
    }

    pub async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Waits until the clock reaches `at`, even if the clock is changed meanwhile. Returns at once if that time has
    /// passed.
    pub async fn sleep_until(&self, at: UnixMillis) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            self.sleep(left).await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one home of the wall clock")]
fn system_now() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(0).plus(since_epoch)
}

fn boot_time() -> Duration {
    // On macOS the monotonic clock also advances while the machine is suspended.
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sleeping_until_a_time_ends_at_that_time_or_at_once_if_it_has_passed() {
        let clock = Clock::starting_at(UnixMillis(50));
        clock.sleep_until(UnixMillis(20)).await;
        assert_eq!(clock.reading(), Now { at: Duration::ZERO, wall: UnixMillis(50) });
        clock.sleep_until(UnixMillis(75)).await;
        assert_eq!(clock.reading(), Now { at: Duration::from_millis(25), wall: UnixMillis(75) });
    }

    #[tokio::test(start_paused = true)]
    async fn correcting_a_clock_also_corrects_its_clones() {
        let (clock, store) = (Clock::starting_at(UnixMillis(700_000)), StoreClock::default());
        let earlier = clock;
        clock.correct_by(store.clone());
        assert_eq!(earlier.now(), UnixMillis(700_000), "nothing is known of the store's clock");
        store.learn(Instant::now(), UnixMillis(100_000));
        assert_eq!((earlier.now(), earlier.reading().wall), (UnixMillis(100_000), UnixMillis(100_000)));
        clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(clock.now(), UnixMillis(160_000));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what is tested")]
    fn the_system_clock_shows_a_time_of_this_century_and_the_one_that_includes_suspension_never_goes_back() {
        let clock = Clock::system();
        let now = clock.now();
        assert!(now > UnixMillis(1_700_000_000_000) && now < UnixMillis::MAX, "{now}");
        let times: Vec<Duration> = (0..100).map(|_| clock.awake_or_asleep()).collect();
        assert!(times.is_sorted() && times[0] > Duration::ZERO, "{times:?}");
    }
}
