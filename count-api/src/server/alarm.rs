//! The timer of one HTTP/1 connection, which waits for one thing at a time and seldom to the end. Leaving the timer
//! running after a wait costs less than setting and cancelling one with every request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

/// The timer. One task awaits its waits one after the other, and all share one alarm.
#[derive(Clone, Debug)]
pub(super) struct Alarm(Arc<Mutex<Pin<Box<Sleep>>>>);

impl Alarm {
    /// Creates a timer that is not set.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Box::pin(sleep(Duration::MAX)))))
    }
}

impl rt::Timer for Alarm {
    fn sleep(&self, span: Duration) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep_until(self.now() + span)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Wait { deadline: deadline.into(), alarm: self.clone() })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

/// One wait.
struct Wait {
    deadline: Instant,
    alarm: Alarm,
}

impl rt::Sleep for Wait {}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut alarm = self.alarm.0.lock();
        if alarm.deadline() > self.deadline {
            alarm.as_mut().reset(self.deadline);
        }
        loop {
            ready!(alarm.as_mut().poll(cx));
            if alarm.deadline() >= self.deadline {
                return Poll::Ready(());
            }
            // The alarm was set for an earlier wait.
            alarm.as_mut().reset(self.deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use hyper::rt::Timer;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_time_whatever_the_alarm_was_set_for_before() {
        let alarm = Alarm::new();
        for (before, span) in [(9, 3), (3, 9), (0, 4), (5, 5)] {
            assert_eq!(alarm.sleep(before * SECOND).now_or_never().is_some(), before == 0);
            let began = Instant::now();
            alarm.sleep(span * SECOND).await;
            assert_eq!(began.elapsed(), span * SECOND, "after one of {before}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_begins_after_an_abandoned_one_ran_out_is_as_long_as_any() {
        let alarm = Alarm::new();
        assert_eq!(alarm.sleep(SECOND).now_or_never(), None);
        tokio::time::advance(5 * SECOND).await;
        let began = Instant::now();
        alarm.sleep(2 * SECOND).await;
        assert_eq!(began.elapsed(), 2 * SECOND);
    }
}
