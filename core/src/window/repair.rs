//! The repair of one row key, as a machine without I/O: attempts until one of them finds nothing to correct.

use super::{Again, Ending, Judgement};

/// The most corrections of one row key: each after the first is an alarm, and after the last the row key is left alone.
const CORRECTIONS: u32 = 4;

/// What became of a row key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repaired {
    /// An attempt has proved the count, after a correction or without.
    Proved,
    /// It was corrected for the first time, and is to be looked at once more: only where that was agreed on.
    Corrected,
    /// It may be wrong still: a correction was withheld, attempts kept failing, or a second one disagreed.
    Left,
}

/// What a repair asks for, or tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairEffect {
    /// Make an attempt; so many rows are expected.
    Attempt(u64),
    /// Wait, as after so many attempts that came to nothing.
    Rest(u32),
    /// The count was corrected.
    Corrected {
        /// From what to what.
        judgement: Judgement,
        /// It had been corrected before: records may be lost or out of order.
        alarm: bool,
    },
    /// A large correction was not made.
    Withheld(Judgement),
    /// The row key is left as it is after so many attempts that came to nothing and so many corrections.
    GivenUp {
        /// Attempts without a verdict.
        failed: u32,
        /// Corrections.
        corrections: u32,
    },
    /// The repair is over.
    End(Repaired),
}

/// What a repair is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairInput {
    /// Begin.
    Begin,
    /// How the attempt ended.
    Ended(Ending),
    /// The wait is over.
    Rested,
}

/// One repair under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Attempts that may come to nothing.
    most: u32,
    /// Rows that the next attempt may meet.
    expected: u64,
    failed: u32,
    corrections: u32,
    proof: Proof,
}

/// What proves a count that was corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A second attempt.
    Attempt,
    /// A look, by the one who asked for the repair.
    Look,
    /// The look could not tell, or found a difference: attempts, and a correction is an alarm.
    AfterLook,
}

impl Repair {
    /// A repair that gives up after `most` attempts without a verdict; the counter says that there are about `counted`
    /// rows.
    pub fn new(most: u32, counted: u64, proof: Proof) -> Self {
        Self { most, expected: counted, failed: 0, corrections: u32::from(proof == Proof::AfterLook), proof }
    }

    /// Takes an input, and adds what follows to `effects`.
    pub fn step(&mut self, input: RepairInput, effects: &mut Vec<RepairEffect>) {
        match input {
            RepairInput::Begin | RepairInput::Rested => self.attempt(effects),
            RepairInput::Ended(Ending::Judged(judgement)) if judgement.correction() == 0 => {
                let repaired = if self.corrections > 1 { Repaired::Left } else { Repaired::Proved };
                effects.push(RepairEffect::End(repaired));
            }
            RepairInput::Ended(Ending::Judged(judgement)) => {
                self.corrections += 1;
                effects.push(RepairEffect::Corrected { judgement, alarm: self.corrections > 1 });
                if self.proof == Proof::Look {
                    effects.push(RepairEffect::End(Repaired::Corrected));
                } else {
                    self.attempt(effects);
                }
            }
            RepairInput::Ended(Ending::Withheld(judgement)) => {
                effects.extend([RepairEffect::Withheld(judgement), RepairEffect::End(Repaired::Left)]);
            }
            RepairInput::Ended(Ending::Again(again)) => {
                if let Again::NoRoom(read) = again {
                    self.expected = read.saturating_mul(2);
                }
                self.failed += 1;
                if self.failed < self.most {
                    effects.push(RepairEffect::Rest(self.failed - 1));
                } else {
                    self.give_up(effects);
                }
            }
        }
    }

    fn attempt(&self, effects: &mut Vec<RepairEffect>) {
        if self.failed < self.most && self.corrections < CORRECTIONS {
            effects.push(RepairEffect::Attempt(self.expected));
        } else {
            self.give_up(effects);
        }
    }

    fn give_up(&self, effects: &mut Vec<RepairEffect>) {
        let Self { failed, corrections, .. } = *self;
        effects.extend([RepairEffect::GivenUp { failed, corrections }, RepairEffect::End(Repaired::Left)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(before: i64, after: i64) -> Ending {
        Ending::Judged(Judgement { before, after, suspect: false })
    }

    /// Every effect of a repair whose attempts end so, one after the other; a rest ends at once.
    fn played(endings: &[Ending]) -> Vec<RepairEffect> {
        played_for(Proof::Attempt, endings)
    }

    fn played_for(proof: Proof, endings: &[Ending]) -> Vec<RepairEffect> {
        let (mut repair, mut effects, mut all) = (Repair::new(3, 7, proof), Vec::new(), Vec::new());
        let mut endings = endings.iter();
        let mut input = Some(RepairInput::Begin);
        while let Some(given) = input.take() {
            repair.step(given, &mut effects);
            for effect in effects.drain(..) {
                all.push(effect);
                input = match effect {
                    RepairEffect::Attempt(_) => endings.next().map(|ending| RepairInput::Ended(*ending)),
                    RepairEffect::Rest(_) => Some(RepairInput::Rested),
                    _ => None,
                };
            }
        }
        assert_eq!(endings.next(), None, "an attempt more than was expected");
        all
    }

    fn end(endings: &[Ending]) -> Option<RepairEffect> {
        played(endings).pop()
    }

    #[test]
    fn a_correction_is_followed_by_an_attempt_that_has_to_find_nothing() {
        assert_eq!(end(&[judged(3, 3)]), Some(RepairEffect::End(Repaired::Proved)));
        assert_eq!(end(&[judged(5, 3), judged(3, 3)]), Some(RepairEffect::End(Repaired::Proved)));
    }

    #[test]
    fn a_second_correction_is_an_alarm_and_the_row_key_stays_in_doubt() {
        let effects = played(&[judged(5, 3), judged(4, 3), judged(3, 3)]);
        let alarms = effects.iter().filter(|effect| matches!(effect, RepairEffect::Corrected { alarm: true, .. }));
        assert_eq!(alarms.count(), 1);
        assert_eq!(effects.last(), Some(&RepairEffect::End(Repaired::Left)));
    }

    #[test]
    fn a_correction_that_a_look_is_to_prove_ends_the_repair_and_a_second_one_is_an_alarm() {
        let effects = played_for(Proof::Look, &[judged(5, 3)]);
        assert_eq!(effects.last(), Some(&RepairEffect::End(Repaired::Corrected)));
        assert_eq!(played_for(Proof::Look, &[judged(3, 3)]).last(), Some(&RepairEffect::End(Repaired::Proved)));
        assert_eq!(played_for(Proof::AfterLook, &[judged(3, 3)]).last(), Some(&RepairEffect::End(Repaired::Proved)));
        let effects = played_for(Proof::AfterLook, &[judged(4, 3), judged(3, 3)]);
        assert!(matches!(effects[1], RepairEffect::Corrected { alarm: true, .. }), "{effects:?}");
        assert_eq!(effects.last(), Some(&RepairEffect::End(Repaired::Left)));
    }

    #[test]
    fn a_row_key_that_is_corrected_for_ever_is_given_up() {
        let effects = played(&[judged(5, 3); 4]);
        let given_up = RepairEffect::GivenUp { failed: 0, corrections: 4 };
        assert_eq!(effects[effects.len() - 2..], [given_up, RepairEffect::End(Repaired::Left)]);
    }

    #[test]
    fn attempts_that_come_to_nothing_are_repeated_and_given_up_in_the_end() {
        let void = Ending::Again(Again::Void);
        assert_eq!(end(&[void, void, judged(3, 3)]), Some(RepairEffect::End(Repaired::Proved)));
        let effects = played(&[void; 3]);
        assert_eq!(effects[effects.len() - 2], RepairEffect::GivenUp { failed: 3, corrections: 0 });
    }

    #[test]
    fn an_attempt_without_room_is_followed_by_one_that_asks_for_twice_as_much() {
        let effects = played(&[Ending::Again(Again::NoRoom(50)), judged(1, 1)]);
        assert!(effects.contains(&RepairEffect::Attempt(7)) && effects.contains(&RepairEffect::Attempt(100)));
    }

    #[test]
    fn a_withheld_correction_leaves_the_row_key() {
        let judgement = Judgement { before: 0, after: 5_000, suspect: false };
        let effects = played(&[Ending::Withheld(judgement)]);
        assert_eq!(effects[1..], [RepairEffect::Withheld(judgement), RepairEffect::End(Repaired::Left)]);
    }
}
