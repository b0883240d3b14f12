//! Makes the keys of the cache of counts in Redis: of a counter's value, and of a partition's standing, which says up
//! to where its changes are counted. Several deployments may share one Redis, so the keys begin with the prefix of the
//! deployment's tables.

use super::CounterId;

/// The beginning of all cache keys of a deployment: nothing, or the prefix of its tables and a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachePrefix(Box<str>);

impl CachePrefix {
    /// Returns the prefix of a deployment whose tables' names begin with `tables`.
    pub fn of_tables(tables: &str) -> Self {
        if tables.is_empty() { Self::default() } else { Self(format!("{tables}/").into()) }
    }

    /// Returns the key of the standing of a partition of `changes`: `{7}`, `a/{7}`. All keys of this partition are in
    /// Redis's hash slot of `7`.
    pub fn standing(&self, partition: u32) -> String {
        format!("{}{{{partition}}}", self.0)
    }

    /// Returns the key of a counter's value in that partition: `{7}likes:p`, `a/{7}+views:p`. Neither a tables' prefix
    /// nor a counter's name has a slash or a colon, so no two counters share a key, unless their deployments have the
    /// same prefix: then the standing says whose they are.
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
