//! What a counter's value is called in the cache, which several deployments may share.

use super::CounterId;

/// What the cache keys of one deployment begin with: nothing, or the prefix of its tables and a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachePrefix(Box<str>);

impl CachePrefix {
    /// The prefix of a deployment whose tables' names begin with `tables`.
    pub fn of_tables(tables: &str) -> Self {
        if tables.is_empty() { Self::default() } else { Self(format!("{tables}/").into()) }
    }

    /// Where the standing of a partition of `changes` is kept: `{7}`, `a/{7}`. All keys of a partition are in the hash slot of
    /// `7`.
    pub fn standing(&self, partition: u32) -> String {
        format!("{}{{{partition}}}", self.0)
    }

    /// Where the value of a counter of that partition is kept: `{7}likes:p`, `a/{7}+views:p`. The tables' prefix has neither
    /// slash nor colon and a counter's name has neither, so no two counters of any two deployments share a key.
    pub fn value(&self, partition: u32, counter: &CounterId) -> String {
        format!("{}{}:{}", self.standing(partition), counter.name.marked(), counter.post)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CounterKind, CounterName, PostId};

    #[test]
    fn a_key_names_deployment_counter_and_post() {
        let of =
            |name, kind| CounterId { post: PostId::new("p:1").unwrap(), name: CounterName::new(name, kind).unwrap() };
        let (none, some) = (CachePrefix::of_tables(""), CachePrefix::of_tables("test-"));
        assert_eq!((none.standing(7), some.standing(12)), ("{7}".to_owned(), "test-/{12}".to_owned()));
        assert_eq!(none.value(7, &of("likes", CounterKind::Set)), "{7}likes:p:1");
        assert_eq!(some.value(12, &of("views", CounterKind::Sum)), "test-/{12}+views:p:1");
    }
}
