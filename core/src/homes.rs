//! Over how many shards the rows of a set are spread: what createCounter decides, and the map that keeps it.
//!
//! A counter without a map has the deployment's shards. A map lists every shard count that rows may be under, so a reader
//! that looks under all of them finds a member in one place.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::heat::{EVENTS_PER_SHARD, MOST};
use crate::ids::{CounterId, RowKey, Shard, ShardCount, UserId};
use crate::time::UnixMillis;

/// How many events a second a post has for each follower, at its height: 5e-4, as one in so many.
const FOLLOWERS_PER_EVENT: u64 = 2_000;

/// The shard counts that rows of a counter may be under: one at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Homes(
    /// Bit i stands for 2^i shards.
    u16,
);

impl Homes {
    /// One home.
    pub fn of(shards: ShardCount) -> Self {
        Self(shards.get())
    }

    /// The same with `shards` among them: none is ever taken away.
    #[must_use]
    pub fn with(self, shards: ShardCount) -> Self {
        Self(self.0 | shards.get())
    }

    /// Whether rows may be under `shards`.
    pub fn contains(self, shards: ShardCount) -> bool {
        self.0 & shards.get() != 0
    }

    /// Each of them, the smallest first.
    pub fn iter(self) -> impl Iterator<Item = ShardCount> {
        let all = (0..u16::BITS).map(move |bit| u64::from(self.0) & (1 << bit));
        all.filter_map(|shards| ShardCount::new(shards).ok())
    }

    /// Whether the row of `member` may be in `shard`.
    pub fn admit(self, member: &str, shard: Shard) -> bool {
        self.iter().any(|shards| shards.shard_of(member) == shard)
    }

    /// The greatest of them.
    pub fn greatest(self) -> ShardCount {
        self.iter().last().expect("there is one home at least")
    }
}

impl FromIterator<ShardCount> for Homes {
    /// # Panics
    /// None are given.
    fn from_iter<I: IntoIterator<Item = ShardCount>>(homes: I) -> Self {
        homes.into_iter().map(Self::of).reduce(|all, one| Self(all.0 | one.0)).expect("there is one home at least")
    }
}

impl fmt::Debug for Homes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(ShardCount::get)).finish()
    }
}

/// Who or what decided over how many shards a counter is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecidedBy {
    /// Nothing did: they are the deployment's.
    Deployment,
    /// A client that named a number.
    NumberOfShards,
    /// The followers of its author.
    FollowersCount,
    /// The load on its shards.
    Heat,
}

/// A text that names no such thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not what decides about shards")]
pub struct BadDecidedBy;

impl DecidedBy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Deployment, Self::NumberOfShards, Self::FollowersCount, Self::Heat];

    /// Its name, as it is stored and answered.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::NumberOfShards => "number_of_shards",
            Self::FollowersCount => "followers_count",
            Self::Heat => "heat",
        }
    }
}

impl fmt::Display for DecidedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DecidedBy {
    type Err = BadDecidedBy;

    fn from_str(text: &str) -> Result<Self, BadDecidedBy> {
        Self::ALL.into_iter().find(|one| one.as_str() == text).ok_or(BadDecidedBy)
    }
}

/// What is stored of a counter's shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterMap {
    /// Every shard count that rows may be under.
    homes: Homes,
    /// Where rows are put that are nowhere yet: one of `homes`.
    newest: ShardCount,
    /// What createCounter was asked for, if it was; not always among `homes`, and not changed by what follows.
    pub asked: Option<ShardCount>,
    /// Who or what decided last.
    pub decided_by: DecidedBy,
    /// When it was put. Each put has a later time than the one it replaces, so the time tells whether it is the same.
    pub at: UnixMillis,
}

/// A map whose `newest` is not among its homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the newest home is not among the homes")]
pub struct BadMap;

impl CounterMap {
    /// A map of these.
    ///
    /// # Errors
    /// `newest` is none of `homes`.
    pub fn new(
        homes: Homes,
        newest: ShardCount,
        asked: Option<ShardCount>,
        decided_by: DecidedBy,
        at: UnixMillis,
    ) -> Result<Self, BadMap> {
        if homes.contains(newest) { Ok(Self { homes, newest, asked, decided_by, at }) } else { Err(BadMap) }
    }

    /// What holds of a counter without a map.
    pub fn absent(deployment: ShardCount) -> Self {
        let (homes, at) = (Homes::of(deployment), UnixMillis(0));
        Self { homes, newest: deployment, asked: None, decided_by: DecidedBy::Deployment, at }
    }

    /// Every shard count that rows may be under.
    pub fn homes(&self) -> Homes {
        self.homes
    }

    /// Where rows are put that are nowhere yet.
    pub fn newest(&self) -> ShardCount {
        self.newest
    }

    /// The homes under which the row of `member` stands somewhere else than under `newest`: one for each such place.
    pub fn elsewhere(&self, member: &str) -> impl Iterator<Item = ShardCount> {
        let mut seen = vec![self.newest.shard_of(member)];
        self.homes.iter().filter(move |home| {
            let shard = home.shard_of(member);
            let fresh = !seen.contains(&shard);
            seen.extend(fresh.then_some(shard));
            fresh
        })
    }

    /// One home for each place where the row of `member` may be, that where it would be put first.
    pub fn places(&self, member: &str) -> impl Iterator<Item = ShardCount> {
        std::iter::once(self.newest).chain(self.elsewhere(member))
    }

    /// Every row key of `counter` that may have rows: those under a smaller home are among those under the greatest.
    pub fn row_keys(&self, counter: &CounterId) -> impl Iterator<Item = RowKey> {
        self.homes.greatest().all().map(|shard| RowKey { counter: counter.clone(), shard })
    }

    /// The map that replaces `standing` once rows are put under `to`: no home is taken away.
    pub fn spread(standing: Option<&Self>, deployment: ShardCount, to: ShardCount, now: UnixMillis) -> Self {
        let stands = standing.copied().unwrap_or_else(|| Self::absent(deployment));
        let (homes, at) = (stands.homes.with(to), stands.later(now));
        Self { homes, newest: to, decided_by: DecidedBy::Heat, at, ..stands }
    }

    /// The fewest shards that this counter is given in a deployment: what was asked for stays.
    pub fn least(&self, deployment: ShardCount) -> ShardCount {
        self.asked.map_or(deployment, |asked| asked.max(deployment))
    }

    /// A time behind that of this map.
    fn later(&self, now: UnixMillis) -> UnixMillis {
        UnixMillis(now.0.max(self.at.0.saturating_add(1)))
    }

    /// The map that replaces this one so that `asked` is granted.
    fn granting(self, asked: ShardCount, decided_by: DecidedBy, now: UnixMillis) -> Self {
        let (homes, newest) = (self.homes.with(asked), self.newest.max(asked));
        Self { homes, newest, asked: Some(asked), decided_by, at: self.later(now) }
    }
}

/// A member whose row may be under one of several homes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sought {
    /// The set.
    pub counter: CounterId,
    /// The member.
    pub member: UserId,
    /// The homes to look under, each for another row key.
    pub homes: Vec<ShardCount>,
}

impl Sought {
    /// The row key under each home.
    pub fn keys(&self) -> impl Iterator<Item = (ShardCount, RowKey)> {
        self.homes.iter().map(|home| (*home, RowKey::of(&self.counter, &self.member, *home)))
    }
}

/// What createCounter is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// How many shards it shall be.
    Number(u64),
    /// How large the author's audience is.
    Audience {
        followers: u64,
        /// Whether followers alone see the post.
        protected: bool,
    },
}

/// A number of shards that a deployment does not give to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is a power of two from {least} to {most}")]
pub struct OutOfBounds {
    pub least: u16,
    pub most: u16,
}

/// How many shards `wish` comes to in a deployment with so many, and who decided it.
///
/// # Errors
/// A number that is no power of two within the bounds.
pub fn shards_for(wish: Wish, deployment: ShardCount) -> Result<(ShardCount, DecidedBy), OutOfBounds> {
    let (least, most) = (u64::from(deployment.get()), MOST.max(deployment.get().into()));
    match wish {
        Wish::Number(number) => {
            let shards = ShardCount::new(number).ok().filter(|_| (least..=most).contains(&number));
            let bounds = OutOfBounds { least: deployment.get(), most: deployment.get().max(64) };
            shards.map(|shards| (shards, DecidedBy::NumberOfShards)).ok_or(bounds)
        }
        Wish::Audience { followers, protected } => {
            let needed = followers.div_ceil(FOLLOWERS_PER_EVENT * EVENTS_PER_SHARD);
            let shards = needed.checked_next_power_of_two().unwrap_or(most).min(most);
            let shards = if protected { shards / 2 } else { shards }.max(least);
            let shards = ShardCount::new(shards).expect("a power of two between two shard counts is one");
            Ok((shards, DecidedBy::FollowersCount))
        }
    }
}

/// What createCounter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: what was asked for holds, by a map or because it is the deployment's.
    Holds { asked: ShardCount, decided_by: DecidedBy },
    /// Puts this map in the place of the one that stands.
    Put(CounterMap),
    /// Refuses: another number was asked for before.
    Conflict { asked: ShardCount },
}

/// What createCounter does about `wish` where `standing` is stored, at `now`.
///
/// What was asked for first stands. It becomes a home, and rows that are nowhere yet are put there; those that stand somewhere
/// stay.
///
/// # Errors
/// A number that is no power of two within the bounds.
pub fn decide(
    wish: Wish,
    deployment: ShardCount,
    standing: Option<&CounterMap>,
    now: UnixMillis,
) -> Result<Decision, OutOfBounds> {
    let (shards, decided_by) = shards_for(wish, deployment)?;
    let explicit = matches!(wish, Wish::Number(_));
    Ok(match standing.and_then(|map| Some((map, map.asked?))) {
        Some((_, asked)) if explicit && asked != shards => Decision::Conflict { asked },
        Some((map, asked)) if !map.homes.contains(asked) => Decision::Put(map.granting(asked, map.decided_by, now)),
        Some((map, asked)) => Decision::Holds { asked, decided_by: map.decided_by },
        None if standing.is_none() && shards == deployment => Decision::Holds { asked: shards, decided_by },
        None => {
            let stands = standing.copied().unwrap_or_else(|| CounterMap::absent(deployment));
            Decision::Put(stands.granting(shards, decided_by, now))
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

    fn count(n: u64) -> ShardCount {
        ShardCount::new(n).unwrap()
    }

    fn audience(followers: u64, protected: bool) -> u16 {
        shards_for(Wish::Audience { followers, protected }, count(16)).unwrap().0.get()
    }

    #[test]
    fn an_audience_has_a_shard_for_each_400_events_a_second_of_5_in_10_000_followers() {
        for (followers, public, protected) in [
            (0, 16, 16),
            (12_800_000, 16, 16),
            (12_800_001, 32, 16),
            (25_600_000, 32, 16),
            (25_600_001, 64, 32),
            (50_000_000, 64, 32),
            (u64::MAX, 64, 32),
        ] {
            assert_eq!((audience(followers, false), audience(followers, true)), (public, protected), "{followers}");
        }
        let of = |deployment| shards_for(Wish::Audience { followers: 3_000_000, protected: false }, count(deployment));
        assert_eq!([1, 4, 64, 128].map(|deployment| of(deployment).unwrap().0.get()), [4, 4, 64, 128]);
    }

    #[test]
    fn a_number_is_a_power_of_two_from_the_deployments_to_64() {
        let number = |n| shards_for(Wish::Number(n), count(16)).map(|(shards, by)| (shards.get(), by));
        for n in [16, 32, 64] {
            assert_eq!(number(n), Ok((u16::try_from(n).unwrap(), DecidedBy::NumberOfShards)));
        }
        for n in [0, 1, 8, 15, 17, 48, 65, 128, 256, u64::MAX] {
            let error = number(n).unwrap_err();
            assert_eq!(
                (error, error.to_string().as_str()),
                (OutOfBounds { least: 16, most: 64 }, "it is a power of two from 16 to 64")
            );
        }
        let of_many = |n| shards_for(Wish::Number(n), count(128)).map(|(shards, _)| shards.get());
        assert_eq!((of_many(128), of_many(64)), (Ok(128), Err(OutOfBounds { least: 128, most: 128 })));
    }

    #[test]
    fn what_is_asked_for_is_kept_and_rows_are_put_there_from_then_on() {
        let number = |n, standing: Option<&CounterMap>| decide(Wish::Number(n), count(16), standing, NOW).unwrap();
        let Decision::Put(map) = number(32, None) else { panic!("nothing stood there") };
        let homes = Homes::of(count(16)).with(count(32));
        assert_eq!((map.homes(), map.newest(), map.asked), (homes, count(32), Some(count(32))));
        assert_eq!((map.decided_by, map.at), (DecidedBy::NumberOfShards, NOW));
        let holds = Decision::Holds { asked: count(32), decided_by: DecidedBy::NumberOfShards };
        assert_eq!(number(32, Some(&map)), holds);
        assert_eq!(number(64, Some(&map)), Decision::Conflict { asked: count(32) });
        assert_eq!(number(16, Some(&map)), Decision::Conflict { asked: count(32) });
        let audience = Wish::Audience { followers: 50_000_000, protected: false };
        assert_eq!(decide(audience, count(16), Some(&map), NOW), Ok(holds), "only a number can be another one");
    }

    #[test]
    fn the_deployments_own_number_writes_no_map() {
        for (wish, decided_by) in [
            (Wish::Number(16), DecidedBy::NumberOfShards),
            (Wish::Audience { followers: 9, protected: false }, DecidedBy::FollowersCount),
        ] {
            let decided = decide(wish, count(16), None, NOW);
            assert_eq!(decided, Ok(Decision::Holds { asked: count(16), decided_by }));
        }
    }

    #[test]
    fn what_heat_has_done_stays_and_a_map_replaces_another_with_a_later_time() {
        let (homes, at) = (Homes::of(count(16)).with(count(64)), UnixMillis(NOW.0 + 7));
        let hot = CounterMap::new(homes, count(64), None, DecidedBy::Heat, at).unwrap();
        let Ok(Decision::Put(map)) = decide(Wish::Number(32), count(16), Some(&hot), NOW) else { panic!() };
        assert_eq!((map.homes(), map.newest(), map.asked), (homes.with(count(32)), count(64), Some(count(32))));
        assert_eq!(map.at, UnixMillis(NOW.0 + 8));
        assert_eq!(
            decide(Wish::Number(32), count(16), Some(&map), NOW),
            Ok(Decision::Holds { asked: count(32), decided_by: DecidedBy::NumberOfShards })
        );
        let Ok(Decision::Put(map)) = decide(Wish::Number(16), count(16), Some(&hot), NOW) else { panic!() };
        assert_eq!(map.asked, Some(count(16)));
    }

    #[test]
    fn homes_are_listed_once_each_and_the_newest_is_among_them() {
        let homes = Homes::of(count(64)).with(count(16)).with(count(64)).with(count(256));
        assert_eq!(homes.iter().map(ShardCount::get).collect::<Vec<_>>(), [16, 64, 256]);
        assert_eq!((homes, homes.greatest()), (homes.iter().collect(), count(256)));
        assert_eq!(format!("{homes:?}"), "{16, 64, 256}");
        assert_eq!(CounterMap::new(homes, count(32), None, DecidedBy::Heat, NOW), Err(BadMap));
        for decided_by in DecidedBy::ALL {
            assert_eq!(decided_by.as_str().parse(), Ok(decided_by));
        }
        assert_eq!("Heat".parse::<DecidedBy>(), Err(BadDecidedBy));
    }

    proptest! {
        #[test]
        fn no_wish_takes_a_home_away_or_leaves_the_bounds(
            number in any::<u64>(), power in 0u32..9, followers in any::<u64>(), protected in any::<bool>(),
            exact in any::<bool>(), deployment in 0u32..9, heat in 0u32..9, stands in any::<bool>(),
        ) {
            let deployment = count(1 << deployment);
            let hot = count(1 << heat);
            let homes = Homes::of(deployment).with(hot);
            let standing = stands.then(|| CounterMap::new(homes, hot, None, DecidedBy::Heat, NOW).unwrap());
            let number = if exact { 1 << power } else { number };
            for wish in [Wish::Number(number), Wish::Audience { followers, protected }] {
                let Ok(decision) = decide(wish, deployment, standing.as_ref(), NOW) else {
                    assert!(matches!(wish, Wish::Number(_)));
                    continue;
                };
                let before = standing.unwrap_or_else(|| CounterMap::absent(deployment));
                let asked = match decision {
                    Decision::Put(map) => {
                        assert_eq!(map.homes(), before.homes().with(map.asked.unwrap()));
                        assert_eq!(map.newest(), before.newest().max(map.asked.unwrap()));
                        assert!(map.at > before.at);
                        assert_eq!(decide(wish, deployment, Some(&map), NOW), Ok(Decision::Holds { asked: map.asked.unwrap(), decided_by: map.decided_by }));
                        map.asked.unwrap()
                    }
                    Decision::Holds { asked, .. } => asked,
                    Decision::Conflict { .. } => panic!("nothing was asked for before"),
                };
                assert!(asked >= deployment && asked.get() <= deployment.get().max(64));
            }
        }

        #[test]
        fn a_larger_audience_never_has_fewer_shards(followers in any::<u64>(), more in any::<u64>(), protected in any::<bool>()) {
            let least = audience(followers, protected);
            assert!(least <= audience(followers.saturating_add(more), protected));
            assert!(audience(followers, true) <= audience(followers, false));
        }
    }
}
