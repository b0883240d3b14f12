//! The topic of boards in the hands of a reader that breaks a rule.

use std::collections::BTreeMap;

use tally_trends::{Published, Shelf, Tick};

use super::super::mutant::Mutant;

/// What such a reader does with the messages.
#[derive(Debug)]
pub(super) enum Misread {
    /// The latest lists of all partitions are taken for those of one moment.
    MomentsMixed(BTreeMap<u32, Tick>),
    /// What was written last is taken for the latest.
    OlderTaken { all: Vec<Published>, latest: BTreeMap<u32, u64> },
}

impl Misread {
    /// The reader that `mutant` has, if it has one.
    pub(super) fn of(mutant: Mutant) -> Option<Self> {
        match mutant {
            Mutant::MomentsMixed => Some(Self::MomentsMixed(BTreeMap::new())),
            Mutant::OlderTaken => Some(Self::OlderTaken { all: Vec::new(), latest: BTreeMap::new() }),
            _ => None,
        }
    }

    /// Hands `message` on to `shelf`, and what makes it break the rule.
    pub(super) fn take(&mut self, message: Published, shelf: &mut Shelf) {
        match (self, &message) {
            (Self::MomentsMixed(latest), Published::Tick(tick)) => {
                let moment = tick.moment;
                latest.insert(tick.partition, tick.clone());
                shelf.take(message);
                for other in latest.values().filter(|other| other.moment < moment) {
                    shelf.take(Published::Tick(Tick { moment, ..other.clone() }));
                }
            }
            (Self::OlderTaken { all, latest }, Published::Tick(tick)) => {
                let (moment, before) = (tick.moment, latest.insert(tick.partition, tick.moment));
                all.push(message.clone());
                if before.is_none_or(|before| moment >= before) {
                    shelf.take(message);
                    return;
                }
                // It stands in the place of all later ones.
                *shelf = Shelf::default();
                shelf.read_whole();
                let later = |message: &&Published| matches!(message, Published::Tick(tick) if tick.moment > moment);
                all.iter().filter(|message| !later(message)).for_each(|message| shelf.take(message.clone()));
            }
            (Self::OlderTaken { all, .. }, Published::Board(_)) => {
                all.push(message.clone());
                shelf.take(message);
            }
            (Self::MomentsMixed(_), Published::Board(_)) => shelf.take(message),
        }
    }
}
