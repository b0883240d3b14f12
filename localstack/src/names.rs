//! The ids that the load writes events about (posts, hashtags, users, replies), and whether an id is one of them. A
//! lane is one of the load's writers, which has one event under way at a time.

use tally_core::event::partition_of;
use tally_core::ids::{PostId, Region, UserId};

use crate::counters::Counted;

/// What the load's posts are tagged with.
const HASHTAGS: [&str; 12] =
    ["coffee", "sunrise", "trains", "jazz", "gardens", "chess", "rivers", "bread", "maps", "kites", "owls", "harbours"];

/// Where the load's events come from; no more than the ledger can tell apart.
const REGIONS: [&str; 3] = ["eu", "us", "apac"];

/// Lanes of the load, at most. Each writes one event at a time, and has users of its own and members that it makes.
const LANES: u16 = 4_096;

/// The load's ids: numbered posts, then one probe post for each partition, hashtags, numbered users, and what each lane
/// makes.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// Every post, probes last.
    pub(crate) posts: Vec<PostId>,
    hashtags: Vec<PostId>,
    /// Where events come from.
    pub(crate) regions: [Region; REGIONS.len()],
    /// How many of the posts are the load's: the first ones.
    pub(crate) load_posts: usize,
    pub(crate) users: u32,
    /// The prefix of the numbers in ids, which differs between runs.
    run: String,
}

/// A member of a set, as the load knows it. It is small, since the ledger has every one that has a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Member {
    /// Who likes or retweets.
    User(u32),
    /// A reply, or a post with a hashtag, that was not there before: the lane that made it, and its number there, from 0.
    Made { lane: u16, nth: u32 },
}

impl Names {
    /// Ids of `posts` posts and `users` users. Where an engine outlives this process, a `run` in them tells them from
    /// those of earlier runs: in users and what lanes make, since each of their rows is compared, and in posts, since what earlier
    /// runs added to a sum cannot be told from what this one adds.
    pub(crate) fn new(posts: u32, users: u32, partitions: u32, run: Option<&str>) -> Self {
        let run = run.map(|run| format!("{run}-")).unwrap_or_default();
        let named = (0..posts).map(|n| post(&format!("post-{run}{}", n + 1)));
        let probes = (0..partitions).map(|partition| probe(partition, partitions));
        let posts: Vec<PostId> = named.collect();
        Self {
            hashtags: HASHTAGS.into_iter().map(post).collect(),
            regions: REGIONS.map(|region| Region::new(region).expect("small letters make a region")),
            load_posts: posts.len(),
            posts: posts.into_iter().chain(probes).collect(),
            users,
            run,
        }
    }

    /// What a counter is about: hashtags, or posts.
    pub(crate) fn subjects(&self, counted: Counted) -> &[PostId] {
        if counted == Counted::Uses { &self.hashtags } else { &self.posts }
    }

    /// The probe posts' indices.
    pub(crate) fn probes(&self) -> std::ops::Range<usize> {
        self.load_posts..self.posts.len()
    }

    /// How many lanes the load has.
    pub(crate) fn lanes(&self) -> u16 {
        u16::try_from(self.users).map_or(LANES, |users| users.min(LANES))
    }

    /// The id of a member of a counter.
    pub(crate) fn member(&self, counted: Counted, member: Member) -> UserId {
        let run = &self.run;
        let id = match member {
            Member::User(index) => format!("user-{run}{}", index + 1),
            Member::Made { lane, nth } => {
                let what = if counted == Counted::Uses { "tagged" } else { "reply" };
                format!("{what}-{run}{}-{}", lane + 1, u64::from(nth) + 1)
            }
        };
        UserId::new(&id).expect("letters, digits and dashes make an id")
    }

    /// The post's index, if `id` is one of the load's; probes are not looked for.
    pub(crate) fn post_index(&self, id: &str) -> Option<usize> {
        let index = numbered(id.strip_prefix("post-")?.strip_prefix(&self.run)?)?;
        usize::try_from(index).ok().filter(|index| *index < self.load_posts)
    }

    /// Which member `id` is, if it is of the load.
    pub(crate) fn member_of(&self, id: &str) -> Option<Member> {
        let (what, numbers) = id.split_once('-')?;
        let numbers = numbers.strip_prefix(&self.run)?;
        let below = |limit: u32, text| u32::try_from(numbered(text)?).ok().filter(|index| *index < limit);
        match what {
            "user" => below(self.users, numbers).map(Member::User),
            "reply" | "tagged" => {
                let (lane, nth) = numbers.split_once('-')?;
                let lane = below(self.lanes().into(), lane)?.try_into().ok()?;
                Some(Member::Made { lane, nth: numbered(nth)?.try_into().ok()? })
            }
            _ => None,
        }
    }
}

/// The number that `text` counts from 1, counted from 0; `None` for one written in another way.
fn numbered(text: &str) -> Option<u64> {
    let plain = !text.starts_with(['0', '+']);
    text.parse::<u64>().ok().filter(|_| plain)?.checked_sub(1)
}

fn post(name: &str) -> PostId {
    PostId::new(name).expect("letters, digits and dashes make an id")
}

/// A post whose key is in `partition`.
fn probe(partition: u32, partitions: u32) -> PostId {
    let mut probes = (1..).map(|n| format!("probe-{n}"));
    let found = probes.find(|name| partition_of(name.as_bytes(), partitions) == partition);
    post(&found.expect("some number lies in every partition"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_and_a_post_are_known_by_exactly_their_own_ids() {
        for run in [None, Some("a1")] {
            let names = Names::new(3, 20, 4, run);
            assert!((0..3).all(|n| names.post_index(names.posts[n].as_str()) == Some(n)));
            assert_eq!(names.post_index("post-4"), None);
            let made = [Member::Made { lane: 0, nth: 0 }, Member::Made { lane: 19, nth: 1_000_000 }];
            for member in (0..20).map(Member::User).chain(made) {
                for id in [Counted::Replies, Counted::Uses].map(|counted| names.member(counted, member)) {
                    assert_eq!(names.member_of(id.as_str()), Some(member));
                }
            }
            for other in ["user-0", "user-21", "user-01", "user-+1", "user-", "someone", "user-b2-1"] {
                assert_eq!(names.member_of(other), None, "{other}");
            }
            for other in ["reply-0-1", "reply-1-0", "reply-21-1", "reply-1-01", "reply-1", "tagged-b2-1-1", "other-1-1"]
            {
                assert_eq!(names.member_of(other), None, "{other}");
            }
        }
    }

    #[test]
    fn two_runs_over_one_engine_share_no_post_but_probes() {
        let [one, other] = ["a1", "b2"].map(|run| Names::new(3, 1, 2, Some(run)));
        let shared: Vec<_> = one.posts.iter().filter(|post| other.posts.contains(post)).collect();
        assert_eq!(shared, one.posts[one.probes()].iter().collect::<Vec<_>>());
        assert_eq!((one.posts[0].as_str(), one.load_posts), ("post-a1-1", 3));
    }

    #[test]
    fn every_partition_has_a_probe() {
        let names = Names::new(2, 1, 12, None);
        let posts = &names.posts[names.probes()];
        let partitions: Vec<u32> = posts.iter().map(|post| partition_of(post.as_str().as_bytes(), 12)).collect();
        assert_eq!(partitions, (0..12).collect::<Vec<_>>());
    }
}
