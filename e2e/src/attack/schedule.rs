//! What a campaign draws from its seed before anything happens.

use std::time::Duration;

use tally_service::Chance;

use super::service::Service;
use crate::simulation::chance::Draws;

/// A process that stands still for a while and knows nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nap {
    pub(crate) service: Service,
    pub(crate) span: Duration,
}

/// How long a consumer or a streamer may sleep at least and at most.
const SHORTEST: u64 = 5_000;
const LONGEST: u64 = 120_000;

/// Sleeps of consumers and streamers in turn: most of them short, a few so long that the others have given the sleeper up.
pub(crate) fn naps(chance: &Chance, count: usize) -> Vec<Nap> {
    let span = || match chance.below(100) {
        0..80 => chance.millis(SHORTEST, 12_000),
        80..96 => chance.millis(12_000, 30_000),
        _ => chance.millis(30_000, LONGEST),
    };
    let services = [Service::Consumer, Service::Streamer].into_iter().cycle();
    services.take(count).map(|service| Nap { service, span: span() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_follow_from_the_seed_and_are_short_and_long_ones_of_both_services() {
        let naps = |seed| super::naps(&Chance::seeded(seed), 200);
        assert_eq!(naps(7), naps(7));
        assert_ne!(naps(7), naps(8));
        let spans = || naps(7).into_iter().map(|nap| nap.span.as_secs());
        assert!(spans().all(|span| (5..=120).contains(&span)));
        assert!(spans().any(|span| span > 60) && spans().filter(|span| *span < 12).count() > 120);
        assert_eq!(naps(7).iter().filter(|nap| nap.service == Service::Consumer).count(), 100);
    }
}
