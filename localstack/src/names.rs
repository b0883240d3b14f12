//! The ids of the load's posts and users.

use std::fmt::Write as _;

use tally_core::event::partition_of;
use tally_core::ids::{PostId, UserId};

/// The load's ids: numbered posts, then one probe post for each partition, and numbered users.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    posts: Vec<PostId>,
    load_posts: usize,
    users: u32,
    /// What a user's id has before its number.
    user: String,
}

impl Names {
    /// Ids of `posts` posts and `users` users. A `run` in the users' ids tells them from those of earlier runs, where an
    /// engine outlives this process.
    pub(crate) fn new(posts: u32, users: u32, partitions: u32, run: Option<&str>) -> Self {
        let named = (0..posts).map(|n| post(&format!("post-{}", n + 1)));
        let probes = (0..partitions).map(|partition| probe(partition, partitions));
        let mut user = String::from("user-");
        if let Some(run) = run {
            let _ = write!(user, "{run}-");
        }
        Self { posts: named.chain(probes).collect(), load_posts: posts as usize, users, user }
    }

    /// Every post, probes last.
    pub(crate) fn posts(&self) -> &[PostId] {
        &self.posts
    }

    /// How many of the posts are the load's: the first ones.
    pub(crate) fn load_posts(&self) -> usize {
        self.load_posts
    }

    /// The probe posts' indices.
    pub(crate) fn probes(&self) -> std::ops::Range<usize> {
        self.load_posts..self.posts.len()
    }

    pub(crate) fn users(&self) -> u32 {
        self.users
    }

    pub(crate) fn user(&self, index: u32) -> UserId {
        UserId::new(&format!("{}{}", self.user, index + 1)).expect("letters, digits and dashes make an id")
    }

    /// The user's index, if `id` is of the load.
    pub(crate) fn user_index(&self, id: &str) -> Option<u32> {
        let number = id.strip_prefix(&self.user)?;
        let index = number.parse::<u32>().ok()?.checked_sub(1)?;
        (index < self.users && !number.starts_with(['0', '+'])).then_some(index)
    }
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
    fn a_user_is_known_by_exactly_its_own_id() {
        for run in [None, Some("a1")] {
            let names = Names::new(3, 20, 4, run);
            assert!((0..20).all(|n| names.user_index(names.user(n).as_str()) == Some(n)));
            for other in ["user-0", "user-21", "user-01", "user-+1", "user-", "someone", "user-b2-1"] {
                assert_eq!(names.user_index(other), None, "{other}");
            }
        }
    }

    #[test]
    fn every_partition_has_a_probe() {
        let names = Names::new(2, 1, 12, None);
        let posts = &names.posts()[names.probes()];
        let partitions: Vec<u32> = posts.iter().map(|post| partition_of(post.as_str().as_bytes(), 12)).collect();
        assert_eq!(partitions, (0..12).collect::<Vec<_>>());
    }
}
