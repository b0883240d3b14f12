//! The total of a counter, which has to be the sum over its shards, as a machine without I/O: set to the sum where it
//! is not.

use crate::counter::Counter;
use crate::ports::Mended;

/// Tries at a counter that keeps changing meanwhile.
const TRIES: u32 = 10;

/// What mending asks for, or tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalEffect {
    /// Set the total to the sum, with a line on the ledger. Safe to repeat: the version it requires is the one it moves.
    Mend(WrongTotal),
    /// Read the counter again, consistently.
    ReadCounter,
    /// The total is wrong, and a dry run leaves it so.
    Differs(WrongTotal),
    /// The total is settled.
    End(TotalEnding),
}

/// A total that is not the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongTotal {
    /// The counter's version.
    pub version: u64,
    /// The total.
    pub total: i64,
    /// The sum over the shards.
    pub sum: i64,
}

/// How the mending of a total ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalEnding {
    /// It is the sum, or there is no counter any more. Where the answer to our own write was lost, this does not say that
    /// we mended it.
    Right,
    /// It was set to the sum.
    Mended(WrongTotal),
    /// A dry run left it as it is.
    Shown,
    /// The counter changes too fast.
    Busy,
    /// The sum leaves the range of 64 bits.
    Overflow,
}

/// What mending is told.
#[derive(Clone, Debug)]
pub enum TotalInput {
    /// The counter.
    Counter(Option<Counter>),
    /// What became of setting the total. Where the answer to a first copy was lost, a second says that it has changed.
    Written(Mended),
}

/// One total under way. Begins with the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MendTotal {
    dry_run: bool,
    tries: u32,
    under_way: Option<WrongTotal>,
}

impl MendTotal {
    /// Sets a total to its sum, or only says that it should be.
    pub fn new(dry_run: bool) -> Self {
        Self { dry_run, tries: 0, under_way: None }
    }

    /// Takes an input, and adds what follows to `effects`.
    pub fn step(&mut self, input: TotalInput, effects: &mut Vec<TotalEffect>) {
        match input {
            TotalInput::Counter(None) => effects.push(TotalEffect::End(TotalEnding::Right)),
            TotalInput::Counter(Some(counter)) => self.read(&counter, effects),
            TotalInput::Written(Mended::Mended) => {
                let ending = self.under_way.take().map_or(TotalEnding::Right, TotalEnding::Mended);
                effects.push(TotalEffect::End(ending));
            }
            TotalInput::Written(Mended::Changed) if self.tries < TRIES => effects.push(TotalEffect::ReadCounter),
            TotalInput::Written(Mended::Changed) => effects.push(TotalEffect::End(TotalEnding::Busy)),
        }
    }

    fn read(&mut self, counter: &Counter, effects: &mut Vec<TotalEffect>) {
        let Ok(sum) = counter.sum() else { return effects.push(TotalEffect::End(TotalEnding::Overflow)) };
        if sum == counter.likes {
            return effects.push(TotalEffect::End(TotalEnding::Right));
        }
        let wrong = WrongTotal { version: counter.version, total: counter.likes, sum };
        if self.dry_run {
            return effects.extend([TotalEffect::Differs(wrong), TotalEffect::End(TotalEnding::Shown)]);
        }
        self.tries += 1;
        self.under_way = Some(wrong);
        effects.push(TotalEffect::Mend(wrong));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::ShardTally;
    use crate::ids::Shard;

    fn counter(likes: i64, sum: i64, version: u64) -> Counter {
        let tally = ShardTally { rows: sum, ..ShardTally::default() };
        Counter { likes, version, shards: [(Shard::new(0).unwrap(), tally)].into(), ..Counter::default() }
    }

    fn step(mend: &mut MendTotal, input: TotalInput) -> Vec<TotalEffect> {
        let mut effects = Vec::new();
        mend.step(input, &mut effects);
        effects
    }

    fn read(mend: &mut MendTotal, likes: i64, sum: i64, version: u64) -> Vec<TotalEffect> {
        step(mend, TotalInput::Counter(Some(counter(likes, sum, version))))
    }

    #[test]
    fn a_total_that_is_not_the_sum_is_set_under_the_version_that_was_read() {
        let mut mend = MendTotal::new(false);
        let wrong = WrongTotal { version: 3, total: 9, sum: 7 };
        assert_eq!(read(&mut mend, 9, 7, 3), [TotalEffect::Mend(wrong)]);
        assert_eq!(step(&mut mend, TotalInput::Written(Mended::Changed)), [TotalEffect::ReadCounter]);
        let wrong = WrongTotal { version: 4, total: 10, sum: 8 };
        assert_eq!(read(&mut mend, 10, 8, 4), [TotalEffect::Mend(wrong)]);
        let mended = TotalEffect::End(TotalEnding::Mended(wrong));
        assert_eq!(step(&mut mend, TotalInput::Written(Mended::Mended)), [mended]);
    }

    #[test]
    fn a_total_that_is_right_or_gone_is_left_alone() {
        let right = [TotalEffect::End(TotalEnding::Right)];
        assert_eq!(read(&mut MendTotal::new(false), 7, 7, 3), right);
        assert_eq!(step(&mut MendTotal::new(false), TotalInput::Counter(None)), right);
    }

    #[test]
    fn a_dry_run_only_shows_it() {
        let wrong = WrongTotal { version: 3, total: 9, sum: 7 };
        let shown = [TotalEffect::Differs(wrong), TotalEffect::End(TotalEnding::Shown)];
        assert_eq!(read(&mut MendTotal::new(true), 9, 7, 3), shown);
    }

    #[test]
    fn a_counter_that_never_stands_still_is_given_up() {
        let mut mend = MendTotal::new(false);
        for version in 1..u64::from(TRIES) {
            read(&mut mend, 9, 7, version);
            assert_eq!(step(&mut mend, TotalInput::Written(Mended::Changed)), [TotalEffect::ReadCounter]);
        }
        read(&mut mend, 9, 7, 99);
        let busy = [TotalEffect::End(TotalEnding::Busy)];
        assert_eq!(step(&mut mend, TotalInput::Written(Mended::Changed)), busy);
    }
}
