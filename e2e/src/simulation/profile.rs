//! What one schedule is like: how much of each fault, how many processes, and how they are set up. Drawn from the seed,
//! and for a mutant from those that give it something to break.

mod listing;

use std::collections::BTreeSet;
use std::time::Duration;

use tally_core::ids::{CounterId, CounterName, ShardCount};
use tally_core::milestone::Ladder;
use tally_emulator::{Config, Fault, Rule};
use tally_service::Chance;

use super::chance::Draws;
use super::driver::Deed;
use super::instance::Role;
use super::mix::Mix;
use super::mutant::Mutant;
use crate::crowd::Crowd;

pub(crate) use listing::Listing;

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
    /// Whether each life of a consumer has a number of lanes of its own.
    pub(crate) lanes: bool,
    pub(crate) streamers: u64,
    pub(crate) recounters: u64,
    /// Whether streamers share the stream shards by leases.
    pub(crate) leases: bool,
    /// Records of one prefix at most.
    pub(crate) prefix: usize,
    /// Whether recounters heed each other's claims.
    pub(crate) claims: bool,
    /// Whether pieces of the stream are lost.
    pub(crate) lossy: bool,
    /// Whether users unlike while a lapse lasts and like before and after it: a count that lacks what was lost is then one
    /// that the rows never had.
    pub(crate) ebb: bool,
    /// Whether APIs stand still from the beginning of a lapse until what lies behind its loss is applied.
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

impl Profile {
    /// The schedule that `chance` draws; `other` draws what is about other counters than likes.
    pub(crate) fn draw(
        [chance, other]: [&Chance; 2],
        events: u64,
        mutant: Option<Mutant>,
        without: &BTreeSet<String>,
    ) -> Self {
        let honesty = mutant.is_none_or(Mutant::is_of_honesty);
        let lossy = match mutant {
            Some(Mutant::CaptureOverTrim | Mutant::LossForgotten) => true,
            Some(mutant) => mutant.is_of_honesty(),
            None => chance.happens(40),
        };
        let recounting = mutant.is_none_or(|mutant| mutant.is_of_recount() || mutant.is_of_honesty())
            && (mutant.is_some() || chance.happens(70));
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
            lanes: false,
            streamers: chance.between(1, 2),
            recounters: if recounting { chance.between(1, 2) } else { 0 },
            leases: chance.happens(50),
            prefix: chance.pick(&[3, 20, 4_000]),
            claims: chance.happens(70),
            lossy,
            ebb: false,
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
        if mutant.is_none_or(Mutant::is_of_sums) {
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
        self.lanes = other.happens(60);
        self.deeds.extend([(Deed::Garble, 3), (Deed::Spread, 5)]);
        if !self.mix.early {
            // A record that was passed before it was defined is in no sum, or is, once its fence goes back.
            self.deeds.extend([(Deed::MoveBack, 5), (Deed::EditFence, 3)]);
        }
    }

    /// Leaves these kinds of faults out.
    pub(crate) fn spare(&mut self, without: &BTreeSet<String>) {
        self.rules.retain(|rule| !without.contains(rule.fault.name()));
        self.deeds.retain(|(deed, _)| !without.contains(deed.name()));
    }

    /// Every counter that there can be.
    pub(crate) fn counters(&self) -> impl Iterator<Item = CounterId> {
        let names: Vec<CounterName> = self.mix.names().collect();
        self.crowd.posts().flat_map(move |post| {
            let each = |name: &CounterName| CounterId { post: post.clone(), name: name.clone() };
            names.iter().map(each).collect::<Vec<_>>()
        })
    }

    /// Gives `mutant` what it needs to go wrong; the laws know nothing of it.
    fn target(&mut self, mutant: Mutant, chance: &Chance) {
        let mut weigh = |deed: Deed, weight: u64| self.deeds.push((deed, weight));
        match mutant {
            Mutant::NoFence | Mutant::Presumed => self.target_rows(mutant, chance),
            Mutant::Pipelined => {
                self.prefix = 3;
                self.rules.push(ghosts(chance.between(20, 80), 3_000, 200).on("UpdateItem").table("like_counts"));
            }
            Mutant::SinkingFloor => {
                // An update that arrives late, and before it is sent again: shards that end meanwhile move the floor.
                (self.streamers, self.leases, self.engine.shards) = (1, false, 4);
                self.rolls = Some(Duration::from_secs(chance.between(2, 5)));
                self.rules.push(ghosts(chance.between(50, 150), 10_000, 12_000).on("UpdateItem").table("like_counts"));
            }
            Mutant::NoFloor => {
                (self.streamers, self.leases) = (2, false);
                self.rolls = Some(Duration::from_secs(chance.between(3, 10)));
                weigh(Deed::Freeze, 12);
                weigh(Deed::Roll, 8);
                self.rules.push(ghosts(chance.between(20, 60), 30_000, 0).on("UpdateItem").table("like_counts"));
            }
            Mutant::UnchainedMarker
            | Mutant::NoToken
            | Mutant::CaptureOverTrim
            | Mutant::UnopenedReport
            | Mutant::CaptureOverResume => self.target_windows(mutant, chance),
            Mutant::AppliedNotCaptured => (self.streamers, self.leases) = (2, false),
            Mutant::GapsIgnored
            | Mutant::NoHold
            | Mutant::GapsBeforeShards
            | Mutant::AgeByPoller
            | Mutant::AsOfTooYoung
            | Mutant::OlderVersionKept => self.target_honesty(mutant),
            Mutant::PresenceKept | Mutant::DeltasAdded => {
                self.talk();
                self.mix = std::mem::take(&mut self.mix).of_sums();
            }
            Mutant::Blind | Mutant::LateRecord | Mutant::NoVersion | Mutant::Overwrite => {
                self.target_milestones(mutant);
            }
            Mutant::CellUnguarded => {
                self.mix = std::mem::take(&mut self.mix).of_sums();
                weigh(Deed::EditFence, 8);
            }
            Mutant::NoBoundary => self.talk(),
            Mutant::SilentZero => {}
            Mutant::OneWait => {
                self.engine.stream_delay = Duration::from_millis(800);
                self.engine.stream_reorder = Duration::from_millis(800);
            }
            of_lists => self.target_lists(of_lists),
        }
        if mutant.is_of_recount() {
            self.recounters = self.recounters.max(1);
            self.deeds.push((Deed::Ask, 25));
            self.steps = self.steps.max(60);
        }
    }

    /// The same for a mutant that records milestones wrongly: a total goes up and down around the thresholds while several
    /// stream shards add to it.
    fn target_milestones(&mut self, mutant: Mutant) {
        self.crowd = Crowd { posts: 2, users: 100, hot: 60, unlikes: 50 };
        self.shards = ShardCount::new(4).expect("a power of two");
        (self.streamers, self.leases, self.recounters, self.engine.shards) = (2, false, 0, 4);
        (self.prefix, self.pace) = (20, 200);
        self.milestones = Ladder::every(5).expect("a threshold");
        if mutant == Mutant::LateRecord {
            self.victims = Some(Role::Streamer);
            self.deeds.push((Deed::Crash, 25));
        }
    }

    /// The same for a mutant that spoils rows.
    fn target_rows(&mut self, mutant: Mutant, chance: &Chance) {
        let mut weigh = |deed: Deed, weight: u64| self.deeds.push((deed, weight));
        (self.consumers, self.recounters) = (2, 0);
        weigh(Deed::Freeze, 12);
        weigh(Deed::Expire, 8);
        let rule = match mutant {
            Mutant::NoFence => ghosts(chance.between(20, 80), 5_000, 0),
            // Without an answer for so long that many a freeze comes before it, and another's batch as well.
            _ => ghosts(chance.between(100, 400), 5_000, 2_000),
        };
        self.rules.push(rule.on("TransactWriteItems"));
    }

    /// Something is said all the time about few row keys, and little else happens: windows open, are read and close in the
    /// middle of it.
    fn talk(&mut self) {
        (self.crowd.posts, self.shards) = (1, ShardCount::new(1).expect("a power of two"));
        (self.pace, self.steps, self.prefix) = (300, 300, 4_000);
        self.deeds = vec![(Deed::Nothing, 60), (Deed::Crash, 2)];
    }

    /// The same for a mutant that spoils windows by what it forgets.
    fn target_windows(&mut self, mutant: Mutant, chance: &Chance) {
        let mut weigh = |deed: Deed, weight: u64| self.deeds.push((deed, weight));
        match mutant {
            Mutant::UnchainedMarker => {
                (self.recounters, self.claims, self.streamers) = (2, false, 2);
                weigh(Deed::Crash, 12);
                self.rules.push(ghosts(chance.between(200, 400), 4_000, 0).on("PutItem").table("likes"));
            }
            Mutant::NoToken => {
                weigh(Deed::Inject, 20);
                // Verdicts alone touch this table in a transaction: late enough for the next window to be open.
                self.rules.push(ghosts(chance.between(200, 500), 30_000, 0).on("TransactWriteItems").table("recounts"));
            }
            Mutant::CaptureOverTrim => {
                // Windows that are open while a piece is lost; streamers hold behind each, so there are few.
                self.deeds = vec![(Deed::Nothing, 60), (Deed::Lapse, 4)];
                self.rules.truncate(1);
            }
            Mutant::UnopenedReport => {
                self.victims = Some(Role::Streamer);
                weigh(Deed::Crash, 12);
            }
            _ => {
                // Both have to begin anew inside one window.
                (self.streamers, self.leases, self.recounters) = (2, false, 2);
                (self.victims, self.pace, self.steps) = (Some(Role::Streamer), 600, 200);
                weigh(Deed::Crash, 15);
            }
        }
    }

    /// The same for a mutant that makes answers lie.
    fn target_honesty(&mut self, mutant: Mutant) {
        match mutant {
            Mutant::GapsIgnored | Mutant::NoHold | Mutant::GapsBeforeShards | Mutant::AgeByPoller => {
                // Little but losses, and few of them, in a stream that shows changes at once: a gap that is open hides what
                // goes wrong around the next.
                self.deeds = vec![(Deed::Nothing, 60), (Deed::Lapse, 3), (Deed::Evict, 5)];
                self.rules.truncate(1);
                (self.engine.stream_delay, self.engine.stream_reorder) = (Duration::ZERO, Duration::ZERO);
                (self.apis, self.readers, self.reader_pace) = (2, 2, 100);
                self.oversleep = matches!(mutant, Mutant::GapsBeforeShards | Mutant::AgeByPoller);
                self.ebb = true;
            }
            Mutant::AsOfTooYoung => {
                (self.engine.shards, self.sleepers) = (4, Some(Role::Streamer));
                self.deeds.push((Deed::Freeze, 12));
            }
            _ => (self.cached, self.cache_failing) = (true, 0),
        }
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
        stream_delay: Duration::from_millis(chance.pick(&[0, 50, 400])),
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
        (Deed::Expire, 3),
        (Deed::Split, 3),
        (Deed::Roll, 3),
        (Deed::Pause, rare),
        (Deed::BrokerDown, 2),
        (Deed::LettersRefused, 2),
        (Deed::Evict, 5),
        (Deed::Fill, 8),
        (Deed::Outage, 2),
        (Deed::Slow, 2),
        (Deed::Skew, 2),
    ];
    if recounting {
        deeds.extend([(Deed::Ask, 6), (Deed::Inject, 3)]);
    }
    if lossy {
        deeds.extend([(Deed::Trim, 3), (Deed::Lapse, 4), (Deed::Switch, 2), (Deed::Day, rare)]);
    }
    deeds
}
