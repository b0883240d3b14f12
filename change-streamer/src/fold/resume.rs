//! Where a fold goes on.

use tally_core::changes::Place;
use tally_core::fold::Position;
use tally_core::topic::{Log, Offset};

/// Where to go on from a stored position in the log as it is, and where to jump to if the position is not in it, or the place
/// that folds have reached since; or if other messages stand there, as was found in a generation.
pub(super) fn resume(
    position: Option<Position>,
    reached: Option<Place>,
    generation: u16,
    replaced: Option<u16>,
    log: &Log,
) -> (Position, Option<Place>) {
    let start = Place::new(generation, log.start);
    let is_new = position.is_none();
    let position = position.unwrap_or_else(|| Position { at: start, ..Position::default() });
    let stored = position.at;
    let reached = reached.filter(|reached| reached.generation() == stored.generation()).max(Some(stored));
    let jump = if stored.generation() < generation {
        // Another topic: nothing of the one before is in it.
        Some(start)
    } else if replaced == Some(stored.generation()) || reached.is_some_and(|reached| reached.offset() > log.end) {
        // The log lost its end. What is written now would stand before what is in the counters.
        Some(Place::new(stored.generation() + 1, log.end))
    } else if stored.offset() < log.start || is_new && log.start > Offset(0) {
        Some(Place::new(stored.generation(), log.start))
    } else {
        None
    };
    (position, jump)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::topic::TopicId;

    #[test]
    fn a_position_that_is_not_in_the_log_is_a_jump() {
        let log = Log { topic: TopicId("t".into()), start: Offset(5), end: Offset(9) };
        let at = |generation, offset| Place::new(generation, Offset(offset));
        let position = |place| Some(Position { at: place, ..Position::default() });
        let resumed = |position: Option<Position>| {
            let (position, jump) = resume(position, Some(at(1, 9)), 1, None, &log);
            (position.at, jump)
        };
        assert_eq!(resumed(None), (at(1, 5), Some(at(1, 5))), "what was before the start is not known");
        assert_eq!(resumed(position(at(1, 7))), (at(1, 7), None));
        assert_eq!(resumed(position(at(1, 3))), (at(1, 3), Some(at(1, 5))), "retention");
        assert_eq!(resumed(position(at(1, 12))), (at(1, 12), Some(at(2, 9))), "an unclean election");
        assert_eq!(resumed(position(at(0, 7))), (at(0, 7), Some(at(1, 5))), "another topic");
        assert_eq!(resume(None, Some(at(1, 10)), 1, None, &log).1, Some(at(2, 9)), "no position was stored yet");
        assert_eq!(resume(position(at(1, 3)), Some(at(1, 10)), 1, None, &log).1, Some(at(2, 9)), "its beginning, too");
        let (_, jump) = resume(position(at(1, 7)), Some(at(1, 10)), 1, None, &log);
        assert_eq!(jump, Some(at(2, 9)), "counters have what the log lost");
        let replaced = |generation| resume(position(at(2, 7)), None, 1, Some(generation), &log).1;
        assert_eq!(replaced(2), Some(at(3, 9)), "the log grew on where counters have what it lost");
        assert_eq!(replaced(1), None, "another fold has jumped already");
    }
}
