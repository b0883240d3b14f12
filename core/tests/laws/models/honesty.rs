//! A loss of stream, a streamer that holds behind it, an API that reads the shards' `at` and the gaps now and then, and a
//! cache that both fill. Any of them may stand still at any point while time goes on.
//!
//! An answer that says exact with `as_of` = t is between the sums of the least and of the greatest values the shards had
//! from t on, and the cache never goes back to an older version.

mod tests;

use std::time::Duration;

use tally_core::counter::{Counter, ShardTally};
use tally_core::ids::{Ordinal, Shard};
use tally_core::lineage::{Checkpoint, Hold, Lineage};
use tally_core::ports::Told;
use tally_core::served::Served;
use tally_core::standing::{Effect, Input, Reading, Readings};
use tally_core::time::{Now, UnixMillis};

use crate::explore::{Model, bounds, breaks, holds};

/// A rule that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A worker that met a loss holds before it goes on behind it.
    Hold,
    /// Readings look at the gaps.
    GapsCount,
    /// The gaps are read after the reading has begun.
    GapsAfterBeginning,
    /// They are read after the shards' `at`, too. The age of the reading covers for this one.
    GapsAfterShards,
    /// The age is that at the answer, not that at the end of the reading.
    AgeAtAnswer,
    /// A reading too old when a value arrives keeps that value from being called exact later.
    AgeAtArrival,
    /// A value is judged by a reading that ended before the value was asked for.
    ReadingBeforeValue,
    /// A value keeps the `as_of` it arrived with.
    AsOfStays,
    /// The streamer judges what it sends to the cache by the age of its own reading, too.
    StreamerAge,
    /// A newer version takes the place of an older one in the cache.
    NewerReplaces,
}

/// The bounds of a run.
struct World {
    /// How long a tick is, and how many follow the first.
    tick: Duration,
    ticks: u8,
    /// What is written on each stream shard, in this order: rows gained or lost.
    writes: [&'static [i8]; 2],
    /// Whether there is a cache, and a streamer that updates it.
    cache: bool,
    /// Whether a streamer says beside the gaps how far the counters are.
    tells: bool,
    removed: Option<Rule>,
}

/// The stream shard that loses records, and the other one. Each feeds one shard of the post.
const LOSSY: usize = 0;
const SOUND: usize = 1;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    tick: u8,
    rows: [i8; 2],
    /// By tick: the least and the greatest number of rows of each shard since that tick began.
    ranges: Vec<[(i8, i8); 2]>,
    written: [usize; 2],
    /// Rows gained or lost and not applied yet, with the tick of their writing.
    unapplied: [Vec<(i8, u8)>; 2],
    loss: Loss,
    counted: Counted,
    at: [u8; 2],
    gap: bool,
    /// What was said beside the gap, as a tick.
    told: Option<u8>,
    /// One process that reads stands for all: any of them may have read long ago.
    follower: Follower,
    fetch: Option<Fetch>,
    /// What the API has in memory and arrived as exact, in a world without a cache.
    kept: Option<Served>,
    slot: Slot,
    /// On its way to the cache: what the API fills, and an update by either.
    fill: Option<Served>,
    update: Option<Served>,
    /// The greatest version that was offered to the value in the cache.
    offered: u64,
}

/// The post's counter in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Counted {
    shards: [i8; 2],
    version: u64,
}

/// The one loss there is. A worker that is replaced while it holds makes the next one hold: that is a longer hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Loss {
    None,
    /// So many of the next records are trimmed: a worker is to record the gap.
    Met(usize),
    /// The gap is recorded.
    Held(usize, Hold),
    /// The worker has gone on behind the loss; the counter lacks this.
    Passed(i8),
}

/// A process that reads `at` and gaps now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Follower {
    readings: Readings,
    calling: Calling,
    reading: Option<Reading>,
    /// When it ended: a mutant judges by that.
    ended: Now,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Calling {
    #[default]
    Nothing,
    /// A reading has begun.
    Told,
    Gaps,
    /// A mutant has read the gaps first.
    Shards(bool),
    /// So has one where it is said beside them how far the counters are.
    Early(bool, Option<u8>),
}

/// A read of the table by the API: the reading it will be judged by, the answer once it is given, and what the cache is
/// then given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Fetch {
    reading: Reading,
    answer: Option<Counted>,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Nothing,
    Fill,
    Settle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Empty,
    Filling,
    Value(Served),
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    Tick,
    Write { shard: usize, rows: i8 },
    Apply { shard: usize },
    Refresh { shard: usize },
    Trim,
    RecordGap,
    GoOn,
    Repair,
    CloseGap,
    Tell,
    Read { calling: Calling },
    AskTable,
    TableAnswers,
    Arrive,
    CacheFilled,
    CacheUpdated,
}

impl World {
    fn table() -> Self {
        let writes: [&[i8]; 2] = [&[-1, 1], &[]];
        Self { tick: Duration::from_secs(4), ticks: 3, writes, cache: false, tells: false, removed: None }
    }

    fn told() -> Self {
        Self { tells: true, ..Self::table() }
    }

    fn cached() -> Self {
        Self { cache: true, ticks: 2, ..Self::table() }
    }

    fn without(self, rule: Rule) -> Self {
        Self { removed: Some(rule), ..self }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn time(&self, tick: u8) -> Now {
        let at = self.tick * u32::from(tick);
        Now { at, wall: UnixMillis(0).plus(at) }
    }

    fn tick_of(&self, time: UnixMillis) -> usize {
        usize::try_from(time.since(UnixMillis(0)).as_millis() / self.tick.as_millis()).expect("a few ticks")
    }

    /// Rows change, and the stream says so.
    fn write(&self, state: &State, shard: usize) -> Option<(Step, State)> {
        let rows = *self.writes[shard].get(state.written[shard])?;
        let mut after = state.clone();
        after.written[shard] += 1;
        after.rows[shard] += rows;
        after.unapplied[shard].push((rows, state.tick));
        let value = after.rows[shard];
        for range in &mut after.ranges {
            let (least, greatest) = &mut range[shard];
            (*least, *greatest) = ((*least).min(value), (*greatest).max(value));
        }
        Some((Step::Write { shard, rows }, after))
    }

    /// The streamer's own steps on one stream shard.
    fn stream(&self, state: &State, shard: usize, next: &mut Vec<(Step, State)>) {
        if shard == LOSSY && state.loss.is_ahead() {
            return self.meet(state, next);
        }
        let unapplied = &state.unapplied[shard];
        if let Some((rows, _)) = unapplied.first() {
            let mut after = state.clone();
            after.unapplied[shard].remove(0);
            after.counted.shards[shard] += rows;
            self.changed(&mut after);
            next.push((Step::Apply { shard }, after));
        }
        if state.at[shard] < state.tick && unapplied.iter().all(|(_, written)| *written >= state.tick) {
            let mut after = state.clone();
            after.at[shard] = state.tick;
            next.push((Step::Refresh { shard }, after));
        }
    }

    /// The counter has another version, which the streamer sends to the cache.
    fn changed(&self, state: &mut State) {
        if self.cache {
            state.counted.version += 1;
            state.update = self.sent_by_streamer(state).or(state.update);
        }
    }

    /// The count that the streamer sends to the cache, judged by its own reading.
    fn sent_by_streamer(&self, state: &State) -> Option<Served> {
        let (reading, counter, now) = (state.follower.reading?, state.counted.item(), self.time(state.tick));
        Some(match self.obeys(Rule::StreamerAge) {
            true => reading.serve(Some(&counter), now),
            false => Served::new(Some(&counter), reading.open_gaps, reading.as_of),
        })
    }

    /// The steps of a worker before a loss.
    fn meet(&self, state: &State, next: &mut Vec<(Step, State)>) {
        match state.loss {
            Loss::Met(lost) => {
                let mut hold = Hold::default();
                hold.recorded(self.time(state.tick).at);
                next.push((Step::RecordGap, State { gap: true, ..state.with_loss(Loss::Held(lost, hold)) }));
            }
            Loss::Held(lost, hold) if hold.is_over(self.time(state.tick).at) || !self.obeys(Rule::Hold) => {
                let missing = state.unapplied[LOSSY][..lost].iter().map(|(rows, _)| rows).sum();
                let mut after = state.with_loss(Loss::Passed(missing));
                after.unapplied[LOSSY].drain(..lost);
                next.push((Step::GoOn, after));
            }
            Loss::Held(..) | Loss::None | Loss::Passed(_) => {}
        }
    }

    /// An audit that began after the loss repairs the counter, and closes the gap.
    fn audit(&self, state: &State, next: &mut Vec<(Step, State)>) {
        match state.loss {
            Loss::Passed(0) if state.gap => next.push((Step::CloseGap, State { gap: false, ..state.clone() })),
            Loss::Passed(missing) if missing != 0 => {
                let mut after = state.with_loss(Loss::Passed(0));
                after.counted.shards[LOSSY] += missing;
                after.counted.version += u64::from(self.cache);
                next.push((Step::Repair, after));
            }
            _ => {}
        }
    }

    /// A streamer says how far the counters are. One that read it long ago says less, which is what stands here until now.
    fn tell(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let told = state.at.iter().min().copied();
        if self.tells && state.told < told {
            next.push((Step::Tell, State { told, ..state.clone() }));
        }
    }

    /// A reading begins, and is answered with the gap and what is said beside it, in one.
    fn read_told(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut after = state.clone();
        let (now, open) = (self.time(state.tick), state.gap && self.obeys(Rule::GapsCount));
        let told = |tick: u8| Told { as_of: self.time(tick).wall, times: tick.into() };
        let answer = |open, said: Option<u8>| Input::Gaps { open, told: said.map(told) };
        let follower = &mut after.follower;
        let calling = follower.calling;
        match calling {
            Calling::Nothing if !self.obeys(Rule::GapsAfterBeginning) => {
                follower.calling = Calling::Early(open, state.told);
            }
            Calling::Early(open, told) => follower.take(now, &[Input::Begin, answer(open, told)]),
            Calling::Nothing => {
                follower.take(now, &[Input::Begin]);
                follower.calling = Calling::Told;
            }
            _ => follower.take(now, &[answer(open, state.told)]),
        }
        if self.obeys(Rule::AgeAtAnswer) {
            follower.ended = Now::default();
        }
        next.push((Step::Read { calling }, after));
    }

    /// A reading begins and has its first answer, or has its second: an answer that comes late, or a beginning long before
    /// the first one, only makes the reading older. What it finds first, where nothing is said beside the gaps, is not used.
    fn read(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if self.tells {
            // Nothing was said yet: the runs without it show what a reading does then.
            if state.told.is_some() {
                self.read_told(state, next);
            }
            return;
        }
        let begin = [Input::Begin, Input::Gaps { open: false, told: None }];
        let told = |open| Input::Gaps { open, told: None };
        let mut after = state.clone();
        let now = self.time(state.tick);
        let gaps = state.gap && self.obeys(Rule::GapsCount);
        let shards = || Input::Shards(state.as_of(|tick| self.time(tick).wall));
        let follower = &mut after.follower;
        let calling = follower.calling;
        match calling {
            Calling::Nothing if !self.obeys(Rule::GapsAfterBeginning) => follower.calling = Calling::Shards(gaps),
            Calling::Nothing if !self.obeys(Rule::GapsAfterShards) => {
                follower.take(now, &begin);
                follower.calling = Calling::Shards(gaps);
            }
            Calling::Nothing => {
                follower.take(now, &begin);
                follower.take(now, &[shards()]);
            }
            Calling::Shards(gaps) if !self.obeys(Rule::GapsAfterBeginning) => {
                follower.take(now, &begin);
                follower.take(now, &[shards(), told(gaps)]);
            }
            Calling::Shards(gaps) => follower.take(now, &[shards(), told(gaps)]),
            Calling::Told | Calling::Gaps | Calling::Early(..) => follower.take(now, &[told(gaps)]),
        }
        if self.obeys(Rule::AgeAtAnswer) {
            follower.ended = Now::default();
        }
        next.push((Step::Read { calling }, after));
    }

    /// The API's steps around the table. Only a mutant cares whether an answer comes late: it makes the reading older.
    fn fetch(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let Some(reading) = state.follower.reading else { return };
        let mut after = state.clone();
        match state.fetch {
            None => {
                let then = match state.slot {
                    Slot::Empty if self.cache => Then::Fill,
                    Slot::Value(served) if !served.exact && !reading.open_gaps => Then::Settle,
                    _ => Then::Nothing,
                };
                if then == Then::Fill {
                    after.slot = Slot::Filling;
                }
                after.fetch = Some(Fetch { reading, answer: None, then });
                next.push((Step::AskTable, after));
            }
            Some(fetch @ Fetch { answer: None, .. }) if !self.obeys(Rule::ReadingBeforeValue) => {
                after.fetch = Some(Fetch { answer: Some(state.counted), ..fetch });
                next.push((Step::TableAnswers, after));
            }
            Some(Fetch { reading: before, answer, then }) => {
                let reading = if self.obeys(Rule::ReadingBeforeValue) { before } else { reading };
                let counter = answer.unwrap_or(state.counted).item();
                let served = match self.obeys(Rule::AgeAtArrival) {
                    true => reading.serve(Some(&counter), self.answered(state)),
                    false => Served::new(Some(&counter), reading.open_gaps, reading.as_of),
                };
                after.fetch = None;
                after.kept = Some(served).filter(|served| served.exact && !self.cache);
                match then {
                    Then::Fill => after.fill = Some(served),
                    Then::Settle => after.update = Some(served),
                    Then::Nothing => {}
                }
                next.push((Step::Arrive, after));
            }
        }
    }

    /// The cache's steps.
    fn cache(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if let Some(served) = state.fill {
            let mut after = State { fill: None, ..state.clone() };
            if state.slot == Slot::Filling {
                (after.slot, after.offered) = (Slot::Value(served), served.version);
            }
            next.push((Step::CacheFilled, after));
        }
        if let Some(served) = state.update {
            let mut after = State { update: None, ..state.clone() };
            let replaces = match state.slot {
                Slot::Empty => false,
                Slot::Filling => true,
                Slot::Value(held) => served.replaces(&held) && self.obeys(Rule::NewerReplaces),
            };
            if replaces {
                after.slot = Slot::Value(served);
            }
            if state.slot != Slot::Empty {
                after.offered = state.offered.max(served.version);
            }
            next.push((Step::CacheUpdated, after));
        }
    }

    /// The time that an answer given now is judged at.
    fn answered(&self, state: &State) -> Now {
        if self.obeys(Rule::AgeAtAnswer) { self.time(state.tick) } else { state.follower.ended }
    }

    /// What the API would answer now with `served`.
    fn answer(&self, state: &State, served: Served) -> Option<Served> {
        let reading = state.follower.reading?;
        let answer = reading.judge(served, self.answered(state));
        Some(if self.obeys(Rule::AsOfStays) { answer } else { Served { as_of: reading.as_of, ..answer } })
    }

    /// Whether the shards' rows came to this at some moments since `as_of`.
    fn was(&self, state: &State, answer: &Served) -> bool {
        let [(a, b), (c, d)] = state.ranges[self.tick_of(answer.as_of)];
        (i64::from(a) + i64::from(c)..=i64::from(b) + i64::from(d)).contains(&answer.likes)
    }
}

impl Counted {
    fn item(self) -> Counter {
        let tally = |rows: i8| ShardTally { rows: rows.into(), ..ShardTally::default() };
        let shards = self.shards.iter().zip(0u16..).map(|(rows, k)| (Shard::new(k).expect("a shard"), tally(*rows)));
        let likes = self.shards.iter().map(|rows| i64::from(*rows)).sum();
        Counter { likes, version: self.version, shards: shards.collect(), ..Counter::default() }
    }
}

impl Loss {
    /// Whether the next record of the stream is a lost one.
    fn is_ahead(self) -> bool {
        !matches!(self, Self::None | Self::Passed(_))
    }
}

impl Follower {
    fn take(&mut self, now: Now, inputs: &[Input]) {
        for input in inputs {
            self.calling = match self.readings.step(now, *input) {
                Some(Effect::ReadGaps) => Calling::Gaps,
                Some(Effect::Learnt(reading)) => {
                    (self.reading, self.ended) = (Some(reading), now);
                    Calling::Nothing
                }
                Some(Effect::ReadShards) | None => Calling::Nothing,
            };
        }
    }
}

impl State {
    fn with_loss(&self, loss: Loss) -> Self {
        Self { loss, ..self.clone() }
    }

    /// The least `at`, as a process reads it off the checkpoints.
    fn as_of(&self, time: impl Fn(u8) -> UnixMillis) -> Option<UnixMillis> {
        let checkpoint = |(n, at): (usize, &u8)| Checkpoint {
            id: n.to_string().as_str().into(),
            parent: None,
            ordinal: Ordinal(n as u64 + 1),
            sequence: None,
            closed: false,
            at: time(*at),
        };
        Lineage::new(self.at.iter().enumerate().map(checkpoint), [], None).as_of()
    }
}
