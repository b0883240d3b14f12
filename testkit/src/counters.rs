//! Short ways for tests to name posts, users and counters, and definitions of every kind of counter.

use std::fmt::Display;

use tally_core::definitions::{Definitions, Entry};
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId, UserId};

/// The likes of a post.
///
/// # Panics
/// If `n` makes no id.
pub fn post(n: impl Display) -> CounterId {
    CounterId::likes(PostId::new(&format!("p-{n}")).expect("it makes an id"))
}

/// A user.
///
/// # Panics
/// If `n` makes no id.
pub fn user(n: impl Display) -> UserId {
    UserId::new(&format!("u-{n}")).expect("it makes an id")
}

/// A set of the first post.
///
/// # Panics
/// If `name` is no name of a counter.
pub fn set(name: &str) -> CounterId {
    CounterId { name: CounterName::new(name, CounterKind::Set).expect("it is a name"), ..post(0) }
}

/// Definitions of likes, retweets, viewers that no action takes out, replies, followers of a hashtag, and views.
///
/// # Panics
/// If the definitions contradict each other.
pub fn definitions() -> Definitions {
    let replies = Entry { member: Some("reply_id".to_owned()), ..Entry::set("replies", "reply", Some("unreply")) };
    let followers = Entry {
        subject: Some("hashtag".to_owned()),
        topic: Some("tags".to_owned()),
        ..Entry::set("followers", "follow", Some("unfollow"))
    };
    let sets = [Entry::set("retweets", "retweet", Some("unretweet")), Entry::set("viewers", "saw", None)];
    let views = Entry::sum("views", "view", None);
    Definitions::new(&[&sets[..], &[replies, followers, views]].concat()).expect("they agree with each other")
}
