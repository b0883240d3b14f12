//! Draws from the seed what a run of the simulation is like: the rate of each fault, the number of processes, and their
//! settings. For a mutant (a pipeline with one rule broken) it draws only profiles that give the mutant something to
//! break.

pub(crate) mod targets;

use std::time::Duration;

use tally_core::ids::{CounterId, ShardCount};
use tally_core::milestone::Ladder;
use tally_emulator::{Config, Fault, Rule};
use tally_service::Chance;

use crate::simulation::Draws;
use crate::simulation::events::{Crowd, Mix};
use crate::simulation::faults::Action;
use crate::simulation::instance::Role;
use crate::simulation::mutant::Mutant;
use crate::simulation::profile::targets::Listing;

/// Shorter schedules have so few steps that rare actions would not occur.
const SHORT: u64 = 600;

/// Everything that is drawn before a schedule begins.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) crowd: Crowd,
    /// The counters in addition to likes.
    pub(crate) mix: Mix,
    /// The number of events, and of steps in which they are produced.
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
    /// Whether relays and folds are separate processes: the first streamer is a relay, the next one a fold, and so on.
    pub(crate) apart: bool,
    /// Whether streamers share the stream shards by leases.
    pub(crate) leases: bool,
    /// The number of partitions of the log of changes.
    pub(crate) changes: u32,
    /// The percentage of messages of the log that are not acknowledged. As many arrive late, and as many never.
    pub(crate) failing: u64,
    /// The percentage of wrong clocks whose error is so large that they must not be used, the size of these errors, and the
    /// percentage that are ahead.
    pub(crate) wrong_clocks: u64,
    pub(crate) wrong_by: Duration,
    pub(crate) ahead: u64,
    /// Whether parts of the stream or of the log are lost.
    pub(crate) lossy: bool,
    /// Whether users unlike during a loss and like before and after it. A count without the lost changes is then one that the
    /// rows never had.
    pub(crate) ebb: bool,
    /// Whether a loss lasts until it cancels an edit of a counter by hand.
    pub(crate) hidden: bool,
    /// Whether APIs are frozen from the beginning of a loss until the changes after it are counted.
    pub(crate) oversleep: bool,
    /// The percentage of cache calls that fail.
    pub(crate) cache_failing: u64,
    /// The longest pause between steps, in milliseconds.
    pub(crate) pace: u64,
    /// How often every open stream shard is closed and continued by another.
    pub(crate) rolls: Option<Duration>,
    /// The number of APIs, the number of readers of each, and the longest pause of a reader in milliseconds.
    pub(crate) apis: u64,
    pub(crate) readers: u64,
    pub(crate) reader_pace: u64,
    /// Whether the API uses the cache.
    pub(crate) cached: bool,
    /// How long an API keeps a count in memory, and how long it waits for the table.
    pub(crate) local_ttl: Duration,
    pub(crate) table_budget: Duration,
    /// The thresholds of milestones.
    pub(crate) milestones: Ladder,
    /// The settings of lists of what is trending, if there are any.
    pub(crate) listing: Option<Listing>,
    /// The only role whose processes crash, unless all do.
    pub(crate) victims: Option<Role>,
    /// The only role whose processes are frozen, unless all are, and for how long at most in most cases, in milliseconds.
    pub(crate) sleepers: Option<Role>,
    pub(crate) longest_nap: u64,
    /// The possible actions, with their relative frequencies.
    pub(crate) actions: Vec<(Action, u64)>,
}

/// How likes are read and written, and the faults of their topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consuming {
    /// How long tombstones are kept.
    pub(crate) tombstones: Duration,
    /// The percentage of members' events that come from a producer with another partitioner.
    pub(crate) misrouted: u64,
    /// The percentage of consumers that are only frozen during a long outage, and resume after it.
    pub(crate) sleeping: u64,
    /// The percentage of long outages after which the group is set back.
    pub(crate) reset_behind: u64,
    /// The maximum number of statements per request, and of requests under way.
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
    /// The schedule that `chance` draws; `other` draws everything about counters other than likes.
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
            actions: actions(lossy, recounting, if events < SHORT { 4 } else { 1 }),
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

    /// Adds counters other than likes, and the faults that affect them.
    fn count_more(&mut self, other: &Chance) {
        self.mix = Mix::draw(other, self.steps);
        self.consuming.misrouted = other.pick(&[0, 0, 5, 100]);
        self.actions.extend([(Action::WeightUnreadable, 3), (Action::GroupReset, 4), (Action::GroupResetForward, 2)]);
        self.actions.extend([(Action::ClaimRaised, 4), (Action::TopicPaused, 2), (Action::HoursLongOutage, 2)]);
        self.consuming.reset_behind = 50;
    }

    /// Removes these kinds of faults.
    pub(crate) fn spare(&mut self, without: &[String]) {
        self.rules.retain(|rule| !without.iter().any(|kind| kind == rule.fault.name()));
        self.actions.retain(|(action, _)| !without.contains(&action.name()));
    }

    /// Every counter that can exist.
    pub(crate) fn counters(&self) -> impl Iterator<Item = CounterId> {
        self.crowd.counters(self.mix.names().collect())
    }
}

/// The posts and users. A mutant gets few posts, so that more happens to each.
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
        // The schedule closes shards itself, since it ends that together with the other faults.
        roll_after: None,
        split_after: chance.pick(&[None, Some(100), Some(600)]),
        max_open_shards: 8,
        stream_delay: Duration::from_millis(chance.pick(&[0, 0, 50, 50, 400, 400, 1_500, 60_000])),
        stream_reorder: Duration::from_millis(chance.pick(&[0, 0, 400])),
        ..Config::default()
    }
}

/// Faults of single requests, each with a rate of its own.
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

/// The actions between steps; `rare` is the weight of those that take many virtual minutes.
fn actions(lossy: bool, recounting: bool, rare: u64) -> Vec<(Action, u64)> {
    let mut actions = vec![
        (Action::Nothing, 60),
        (Action::Crash, 8),
        (Action::Stop, 3),
        (Action::Freeze, 6),
        (Action::Rebalance, 4),
        (Action::GroupExpired, 3),
        (Action::ShardSplit, 3),
        (Action::ShardRoll, 3),
        (Action::Pause, rare),
        (Action::BrokerDown, 2),
        (Action::DeadLettersRefused, 2),
        (Action::CacheEvicted, 5),
        (Action::CacheFilledLate, 8),
        (Action::StoreOutage, 2),
        (Action::StoreSlow, 2),
        (Action::ClockJump, 2),
        (Action::FoldsExpired, 3),
        (Action::CacheFailover, 4),
    ];
    if recounting {
        actions.extend([(Action::RecountAsked, 6), (Action::DriftInjected, 3)]);
    }
    if lossy {
        actions.extend([(Action::Trim, 3), (Action::TrimUnread, 4), (Action::StreamSwitched, 2)]);
        actions.extend([(Action::DayLongOutage, rare), (Action::ChangesLost, 2), (Action::ChangesLostUnread, 2)]);
        actions.extend([(Action::ChangesTrimmed, 2), (Action::TableLost, 1)]);
    }
    actions
}
