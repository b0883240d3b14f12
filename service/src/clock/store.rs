//! The store's clock, estimated from the dates of its answers. Processes compare times that they have stored, so they
//! need one clock that all of them agree on.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_core::time::Bounds;
use tokio::time::Instant;

use crate::UnixMillis;

/// What is known of the store's clock. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StoreClock(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    known: Option<Known>,
    /// Whether the local clock was found to be wrong, which is logged once.
    is_off: bool,
}

/// The least and the greatest time since the epoch that the store's clock may have shown at `origin`. They are kept
/// exactly and for one moment: rounding them with each answer would add up to a drift.
#[derive(Clone, Copy, Debug)]
struct Known {
    origin: Instant,
    least: Duration,
    greatest: Duration,
}

/// An answer states the second in which it was written.
const PRECISION: Duration = Duration::from_secs(1);

impl StoreClock {
    /// Learns from an answer that arrives now. Its request was sent at `sent`, and the store wrote it in the second
    /// that begins at `date`.
    pub fn learn(&self, sent: Instant, date: UnixMillis) {
        let (now, date) = (Instant::now(), Duration::from_millis(date.0));
        let mut state = self.0.lock();
        let origin = state.known.map_or(now, |known| known.origin);
        // The store showed a time of that second between the two moments. The origin is never after the second of them.
        let passed = now.saturating_duration_since(origin);
        let least = date.saturating_sub(passed);
        let greatest = least + PRECISION + now.saturating_duration_since(sent);
        let narrowed = state.known.map(|known| (known.least.max(least), known.greatest.min(greatest)));
        // No time satisfies all bounds: one of the clocks has jumped or runs at another speed. Only the last answer
        // counts.
        let (least, greatest) = narrowed.filter(|(least, greatest)| least <= greatest).unwrap_or((least, greatest));
        state.known = Some(Known { origin, least, greatest });
    }

    /// Returns the bounds of the store's time now, or `None` before the first answer.
    pub fn bounds(&self) -> Option<Bounds> {
        self.0.lock().known.map(Known::bounds)
    }

    /// Corrects `local`, the time of this machine's clock. It is kept if it is within two seconds of the store's time,
    /// or if no answer has shown that time yet; otherwise the result is a time that is not later than the store's. A
    /// wrong clock is logged once when it is noticed, and once when it is right again.
    pub fn now(&self, local: UnixMillis) -> UnixMillis {
        let mut state = self.0.lock();
        let Some(known) = state.known else { return local };
        let bounds = known.bounds();
        let off = bounds.off(local);
        if state.is_off != off.is_some() {
            state.is_off = off.is_some();
            drop(state);
            match off {
                Some(span) => {
                    let fast = local > bounds.latest;
                    tracing::warn!(?span, fast, "this machine's clock is wrong: the store's time is used instead");
                }
                None => tracing::info!("this machine's clock agrees with the store's again"),
            }
        }
        bounds.corrected(local)
    }
}

impl Known {
    fn bounds(self) -> Bounds {
        let passed = self.origin.elapsed();
        let at = |since_epoch: Duration| UnixMillis(0).plus(since_epoch + passed);
        // Whole milliseconds, so the greatest is rounded up.
        Bounds { earliest: at(self.least), latest: at(self.greatest + Duration::from_millis(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::Captured;

    const T: u64 = 1_700_000_000_000;

    /// An answer of a store whose clock shows `shows` halfway between the request and the answer.
    async fn answer(clock: &StoreClock, way: Duration, shows: impl FnOnce() -> u64) {
        let sent = Instant::now();
        tokio::time::sleep(way / 2).await;
        let date = UnixMillis(shows() / 1000 * 1000);
        tokio::time::sleep(way / 2).await;
        clock.learn(sent, date);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_clock_is_replaced_by_the_stores_time_and_logged_once_each_time() {
        let captured = Captured::default();
        let _guard = captured.listen();
        let (clock, began) = (StoreClock::default(), Instant::now());
        let shows = || T + u64::try_from(began.elapsed().as_millis()).unwrap();
        assert_eq!(clock.now(UnixMillis(5)), UnixMillis(5), "nothing is known yet");
        for (local, is_believed) in [(600_000, false), (-600_000, false), (0, true), (1_500, true), (-3_600_000, false)]
        {
            for _ in 0..100 {
                answer(&clock, Duration::from_millis(50), shows).await;
                tokio::time::sleep(Duration::from_millis(977)).await;
                let local = UnixMillis(shows().saturating_add_signed(local));
                let said = clock.now(local);
                assert!(said == local || !is_believed, "{said} {local}");
                assert!(is_believed || said.0 <= shows(), "{said} is later than the store's time {}", shows());
                assert!(said.0 + 2_000 >= shows(), "{said} {}", shows());
            }
        }
        let (text, named) = (captured.text(), "this machine's clock is wrong");
        assert_eq!(text.matches(named).count(), 2, "{text}");
        assert!(text.contains("span=") && text.contains("fast=true"), "{text}");
        assert_eq!(text.matches("agrees with the store's again").count(), 1, "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn bounds_narrow_with_each_answer_and_always_contain_the_stores_time() {
        let (clock, began) = (StoreClock::default(), Instant::now());
        let shows = || T + 437 + u64::try_from(began.elapsed().as_millis()).unwrap();
        for nth in 0..2_000_u64 {
            answer(&clock, Duration::from_micros(100 + nth % 7 * 1_300), shows).await;
            tokio::time::sleep(Duration::from_micros(nth * 77 % 41_000)).await;
            let bounds = clock.bounds().unwrap();
            assert!(bounds.earliest.0 <= shows() && shows() <= bounds.latest.0, "{bounds:?} {}", shows());
        }
        let bounds = clock.bounds().unwrap();
        assert!(bounds.latest.since(bounds.earliest) < Duration::from_millis(50), "{bounds:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_whose_clock_jumps_is_followed() {
        let (clock, began) = (StoreClock::default(), Instant::now());
        for jump in [0, 86_400_000, 3_600_000] {
            let shows = || T + jump + u64::try_from(began.elapsed().as_millis()).unwrap();
            answer(&clock, Duration::from_millis(10), shows).await;
            let said = clock.now(UnixMillis(0)).0;
            assert!(said <= shows() && said + 1_100 > shows(), "{said} {}", shows());
        }
    }
}
