//! Decides how long browsers and proxies may keep an answer: `Cache-Control` is never longer than the answer stays
//! fresh.

use std::time::Duration;

use axum::http::HeaderValue;
use tally_core::time::UnixMillis;

use crate::answer::Answer;

/// For an answer that no cache may keep.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The rules of a process. An exact and fresh number is kept for `max-age`, or until it would stop being fresh if that
/// is earlier. Any other number is kept nowhere.
#[derive(Clone, Debug)]
pub struct Caching {
    /// The header of an answer that stays fresh for all of `max_age`, or has no numbers.
    pub whole: HeaderValue,
    /// `private` if reading takes a token, so that only browsers keep the answer.
    scope: &'static str,
    max_age: Duration,
    fresh_within: Duration,
}

impl Caching {
    /// Creates the rules. `closed` says that reading takes a token.
    pub fn new(max_age: Duration, fresh_within: Duration, closed: bool) -> Self {
        let scope = if closed { "private" } else { "public" };
        Self { whole: written(scope, max_age), scope, max_age, fresh_within }
    }

    /// Returns the header, at `now`, of an answer made of these numbers.
    pub fn of<'a>(&self, numbers: impl IntoIterator<Item = &'a Answer>, now: UnixMillis) -> HeaderValue {
        let mut left = self.max_age;
        for Answer { served, fresh, .. } in numbers {
            if !(served.exact && *fresh) {
                return NO_STORE;
            }
            left = left.min(self.fresh_within.saturating_sub(now.since(served.as_of)));
        }
        if left == self.max_age { self.whole.clone() } else { written(self.scope, left) }
    }
}

/// Writes a header, in whole seconds rounded down. A cache that cannot ask again must not use an older answer.
fn written(scope: &str, kept: Duration) -> HeaderValue {
    let kept = match kept.as_secs() {
        0 => "no-cache".to_owned(),
        seconds => format!("{scope}, max-age={seconds}, must-revalidate"),
    };
    HeaderValue::from_str(&kept).expect("words and digits make a header")
}

#[cfg(test)]
mod tests {
    use tally_core::served::Served;

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn number(age: &u64) -> Answer {
        let as_of = NOW.minus(Duration::from_millis(*age));
        Answer { served: Served { exact: true, as_of, ..Served::default() }, fresh: true, summed: None }
    }

    #[test]
    fn an_answer_is_kept_no_longer_than_each_of_its_numbers_stays_fresh() {
        for (max_age, ages, kept) in [
            (5, &[0][..], "public, max-age=5, must-revalidate"),
            (5, &[5_000], "public, max-age=5, must-revalidate"),
            (5, &[5_001], "public, max-age=4, must-revalidate"),
            (5, &[0, 8_500, 0], "public, max-age=1, must-revalidate"),
            (5, &[9_500], "no-cache"),
            (5, &[10_000], "no-cache"),
            (60, &[0], "public, max-age=10, must-revalidate"),
            (0, &[0], "no-cache"),
            (5, &[], "public, max-age=5, must-revalidate"),
        ] {
            let numbers: Vec<Answer> = ages.iter().map(number).collect();
            let caching = Caching::new(Duration::from_secs(max_age), Duration::from_secs(10), false);
            assert_eq!(caching.of(&numbers, NOW), kept, "{ages:?}");
        }
        assert_eq!(
            Caching::new(Duration::from_secs(2), Duration::MAX, true).whole,
            "private, max-age=2, must-revalidate"
        );
    }
}
