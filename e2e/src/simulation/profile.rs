//! What one schedule is like: how much of each fault, how many processes, and how they are set up. Drawn from the seed,
//! and for a mutant from those that give it something to break.

pub(crate) mod targets;

use std::time::Duration;

use tally_core::ids::{CounterId, CounterName, ShardCount};
use tally_core::milestone::Ladder;
use tally_emulator::{Config, Fault, Rule};
use tally_service::Chance;

use crate::simulation::Draws;
use crate::simulation::events::{Crowd, Mix};
use crate::simulation::faults::Deed;
use crate::simulation::instance::Role;
use crate::simulation::mutant::Mutant;
use crate::simulation::profile::targets::Listing;

/// Events of a schedule with so few steps that what is rare would not come.
const SHORT: u64 = 600;

/// Everything about a schedule that is drawn before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) crowd: Crowd,
    /// What is counted beside likes.
    pub(crate) mix: Mix,
    /// Events said; steps they are said in.
    pub(crate) events: u64,
    pub(crate) steps: u64,
    pub(crate) partitions: u32,
    pub(crate) shards: ShardCount,
    pub(crate) engine: Config,
    pub(crate) rules: Vec<Rule>,
    pub(crate) consumers: u64,
    pub(crate) consuming: Consuming,
    pub(crate) streamers: u64,
    pub(crate) recounters: u64,
    /// Whether relays and folds are processes of their own: the first streamer relays, the next one folds, and so on.
    pub(crate) apart: bool,
    /// Whether streamers share the stream shards by leases.
    pub(crate) leases: bool,
    /// Partitions of the log of changes.
    pub(crate) changes: u32,
    /// How many of a hundred messages of the log are not acknowledged; as many come late, and as many never.
    pub(crate) failing: u64,
    /// How many of a hundred wrong clocks are so far off that nobody may believe them, by how much these are, and how many are
    /// ahead.
    pub(crate) wrong_clocks: u64,
    pub(crate) wrong_by: Duration,
    pub(crate) ahead: u64,
    /// Whether pieces of the stream, or of the log, are lost.
    pub(crate) lossy: bool,
    /// Whether users unlike while a lapse lasts and like before and after it: a count that lacks what was lost is then one
    /// that the rows never had.
    pub(crate) ebb: bool,
    /// Whether a lapse lasts until what is lost makes up for what was put into a counter by hand.
    pub(crate) hidden: bool,
    /// Whether APIs stand still from the beginning of a lapse until what lies behind its loss is counted.
    pub(crate) oversleep: bool,
    /// Cache calls that fail, in a hundred.
    pub(crate) cache_failing: u64,
    /// The longest wait of a step, in milliseconds.
    pub(crate) pace: u64,
    /// How often every open stream shard is closed and continued by another.
    pub(crate) rolls: Option<Duration>,
    /// API instances, the readers of each, and the longest wait between two questions of one in milliseconds.
    pub(crate) apis: u64,
    pub(crate) readers: u64,
    pub(crate) reader_pace: u64,
    /// Whether the API uses the cache.
    pub(crate) cached: bool,
    /// How long an API keeps a count, and how long it waits for the table.
    pub(crate) local_ttl: Duration,
    pub(crate) table_budget: Duration,
    /// The thresholds of milestones, if there are.
    pub(crate) milestones: Ladder,
    /// What is trending, where that is listed.
    pub(crate) listing: Option<Listing>,
    /// The only role that crashes strike, where it is not any.
    pub(crate) victims: Option<Role>,
    /// The only role that is frozen, where it is not any, and for how long at most in most cases, in milliseconds.
    pub(crate) sleepers: Option<Role>,
    pub(crate) longest_nap: u64,
    /// What is done to the pipeline, and how often relative to the rest.
    pub(crate) deeds: Vec<(Deed, u64)>,
}

/// How likes are read and written, and what happens to their topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consuming {
    /// How long tombstones are kept.
    pub(crate) tombstones: Duration,
    /// How many of a hundred members' events come from a producer with another partitioner.
    pub(crate) misrouted: u64,
    /// How many of a hundred consumers stand still while no process works for long, and go on behind that.
    pub(crate) sleeping: u64,
    /// How often in a hundred the group is set back when that is over.
    pub(crate) reset_behind: u64,
    /// The most statements of a request, and the most requests under way.
    pub(crate) statements: usize,
    pub(crate) requests: usize,
}

impl Consuming {
    fn draw(chance: &Chance) -> Self {
        Self {
            tombstones: Duration::from_secs(3_600 * chance.pick(&[1, 1, 24])),
            misrouted: 0,
            sleeping: 50,
            reset_behind: 0,
            statements: chance.pick(&[1, 4, 25]),
            requests: chance.pick(&[1, 4, 64]),
        }
    }
}

impl Profile {
    /// The schedule that `chance` draws; `other` draws what is about other counters than likes.
    pub(crate) fn draw([chance, other]: [&Chance; 2], events: u64, mutant: Option<Mutant>, without: &[String]) -> Self {
        let honesty = mutant.is_none_or(Mutant::is_of_honesty);
        let lossy = mutant.map_or_else(|| chance.happens(40), Mutant::is_of_losses);
        let recounting = mutant.map_or_else(|| chance.happens(70), Mutant::is_of_honesty);
        let crowd = crowd(chance, mutant.is_some());
        let mut profile = Self {
            crowd,
            mix: Mix::default(),
            events,
            steps: (events / 12).clamp(40, 1_000),
            partitions: u32::try_from(chance.between(1, 4)).unwrap_or(1),
            shards: ShardCount::new(chance.pick(&[1, 2, 4])).expect("powers of two"),
            engine: engine(chance),
            rules: rules(chance),
            consumers: chance.between(1, 2),
            consuming: Consuming::draw(chance),
            streamers: chance.between(1, 2),
            apart: false,
            recounters: if recounting { chance.between(1, 2) } else { 0 },
            leases: chance.happens(50),
            changes: u32::try_from(chance.between(1, 3)).unwrap_or(1),
            failing: chance.pick(&[0, 2, 6]),
            wrong_clocks: 30,
            wrong_by: Duration::from_secs(600),
            ahead: 50,
            lossy,
            ebb: false,
            hidden: false,
            oversleep: false,
            cache_failing: chance.pick(&[0, 5, 30]),
            pace: chance.pick(&[200, 600, 1_500]),
            rolls: chance.pick(&[None, Some(Duration::from_secs(20)), Some(Duration::from_secs(60))]),
            apis: if honesty { chance.between(1, 2) } else { 0 },
            readers: chance.between(1, 2),
            reader_pace: chance.pick(&[100, 300, 800]),
            cached: chance.happens(75),
            local_ttl: Duration::from_millis(chance.pick(&[0, 100, 1_000])),
            table_budget: Duration::from_millis(chance.pick(&[2_000, 8_000])),
            milestones: Ladder::default(),
            listing: None,
            victims: None,
            sleepers: None,
            longest_nap: 0,
            deeds: deeds(lossy, recounting, if events < SHORT { 4 } else { 1 }),
        };
        profile.longest_nap = profile.pace * 8;
        if mutant.is_none_or(Mutant::is_of_rows) {
            profile.count_more(other);
        }
        if let Some(mutant) = mutant {
            profile.target(mutant, chance);
        }
        profile.spare(without);
        profile
    }

    /// There are other counters than likes, and what can go wrong with them does.
    fn count_more(&mut self, other: &Chance) {
        self.mix = Mix::draw(other, self.steps);
        self.consuming.misrouted = other.pick(&[0, 0, 5, 100]);
        self.deeds.extend([(Deed::WeightUnreadable, 3), (Deed::GroupReset, 4), (Deed::GroupResetForward, 2)]);
        self.deeds.extend([(Deed::ClaimRaised, 4), (Deed::TopicPaused, 2), (Deed::HoursLongOutage, 2)]);
        self.consuming.reset_behind = 50;
    }

    /// Leaves these kinds of faults out.
    pub(crate) fn spare(&mut self, without: &[String]) {
        self.rules.retain(|rule| !without.iter().any(|kind| kind == rule.fault.name()));
        self.deeds.retain(|(deed, _)| !without.contains(&deed.name()));
    }

    /// Every counter that there can be.
    pub(crate) fn counters(&self) -> impl Iterator<Item = CounterId> {
        let names: Vec<CounterName> = self.mix.names().collect();
        self.crowd.posts().flat_map(move |post| {
            let each = |name: &CounterName| CounterId { post: post.clone(), name: name.clone() };
            names.iter().map(each).collect::<Vec<_>>()
        })
    }
}

/// Few posts for a mutant: more happens to each.
fn crowd(chance: &Chance, few: bool) -> Crowd {
    Crowd {
        posts: if few { chance.between(1, 4) } else { chance.between(2, 12) },
        users: chance.between(20, 200),
        hot: chance.pick(&[0, 30, 60]),
        unlikes: chance.between(20, 50),
    }
}

fn engine(chance: &Chance) -> Config {
    Config {
        seed: chance.token(),
        shards: u32::try_from(chance.between(1, 4)).unwrap_or(1),
        // By the schedule, which ends them with all other disturbance.
        roll_after: None,
        split_after: chance.pick(&[None, Some(100), Some(600)]),
        max_open_shards: 8,
        stream_delay: Duration::from_millis(chance.pick(&[0, 0, 50, 50, 400, 400, 1_500, 60_000])),
        stream_reorder: Duration::from_millis(chance.pick(&[0, 0, 400])),
        ..Config::default()
    }
}

/// Faults of single requests, each at a rate of its own.
fn rules(chance: &Chance) -> Vec<Rule> {
    let rate = |most: u64| permille(chance.pick(&[0, 2, most / 2, most]));
    let slow = chance.pick(&[5, 20, 120]);
    let reach = chance.pick(&[500, 5_000, 30_000]);
    vec![
        Rule::new(Fault::Latency { min_ms: 1, max_ms: slow }),
        Rule::new(Fault::Latency { min_ms: 200, max_ms: 2_000 }).chance(rate(20)),
        Rule::new(Fault::Throttle).chance(rate(60)),
        Rule::new(Fault::Unprocessed).chance(rate(200)),
        Rule::new(Fault::Conflict).chance(rate(60)),
        Rule::new(Fault::InternalError { applied: None }).chance(rate(30)),
        Rule::new(Fault::DropReply).chance(rate(40)),
        Rule::new(Fault::Ghost { max_delay_ms: reach, hang_ms: chance.pick(&[0, 500, 3_000]) }).chance(rate(40)),
    ]
}

fn ghosts(permille_of_calls: u64, max_delay_ms: u64, hang_ms: u64) -> Rule {
    Rule::new(Fault::Ghost { max_delay_ms, hang_ms }).chance(permille(permille_of_calls))
}

fn permille(rate: u64) -> f64 {
    f64::from(u32::try_from(rate).unwrap_or(u32::MAX)) / 1_000.0
}

/// What is done to the pipeline between steps; `rare` is the weight of what takes many virtual minutes.
fn deeds(lossy: bool, recounting: bool, rare: u64) -> Vec<(Deed, u64)> {
    let mut deeds = vec![
        (Deed::Nothing, 60),
        (Deed::Crash, 8),
        (Deed::Stop, 3),
        (Deed::Freeze, 6),
        (Deed::Rebalance, 4),
        (Deed::GroupExpired, 3),
        (Deed::ShardSplit, 3),
        (Deed::ShardRoll, 3),
        (Deed::Pause, rare),
        (Deed::BrokerDown, 2),
        (Deed::DeadLettersRefused, 2),
        (Deed::CacheEvicted, 5),
        (Deed::CacheFilledLate, 8),
        (Deed::StoreOutage, 2),
        (Deed::StoreSlow, 2),
        (Deed::ClockJump, 2),
        (Deed::FoldsExpired, 3),
        (Deed::CacheFailover, 4),
    ];
    if recounting {
        deeds.extend([(Deed::RecountAsked, 6), (Deed::DriftInjected, 3)]);
    }
    if lossy {
        deeds.extend([(Deed::Trim, 3), (Deed::TrimUnread, 4), (Deed::StreamSwitched, 2), (Deed::DayLongOutage, rare)]);
        deeds.extend([
            (Deed::ChangesLost, 2),
            (Deed::ChangesLostUnread, 2),
            (Deed::ChangesTrimmed, 2),
            (Deed::TableLost, 1),
        ]);
    }
    deeds
}
