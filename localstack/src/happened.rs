//! What was done to the stack on purpose, by chaos and by people on the page, for the end of a run.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

/// One thing done to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Killed(&'static str),
    ShardSplit,
    ShardsRolled,
    CacheEmptied,
    CacheStopped,
    DriftInjected,
    RecountAsked,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed(service) => return write!(f, "{service} killed"),
            Self::ShardSplit => "stream shard split",
            Self::ShardsRolled => "stream shards rolled",
            Self::CacheEmptied => "cache emptied",
            Self::CacheStopped => "cache stopped",
            Self::DriftInjected => "drift injected",
            Self::RecountAsked => "recount asked for",
        })
    }
}

/// How often each was done.
#[derive(Debug, Default)]
pub(crate) struct Happened(Mutex<BTreeMap<Deed, u64>>);

impl Happened {
    pub(crate) fn note(&self, deed: Deed) {
        *self.0.lock().entry(deed).or_default() += 1;
    }

    /// What was done and, by the `faults` of the store, which of its requests failed on purpose: nothing where nothing was.
    pub(crate) fn lines(&self, faults: &BTreeMap<String, BTreeMap<String, u64>>) -> Vec<String> {
        let deeds = self.0.lock();
        let mut failed = BTreeMap::<&str, u64>::new();
        for (fault, count) in faults.values().flatten() {
            *failed.entry(fault).or_default() += count;
        }
        let done = list(deeds.iter().map(|(deed, count)| (deed.to_string(), *count)));
        let failed = list(failed.into_iter().map(|(fault, count)| (fault.replace('_', " "), count)));
        let line = |name: &str, text: String| (!text.is_empty()).then(|| format!("  {name:<12} {text}"));
        [line("on purpose", done), line("requests", failed)].into_iter().flatten().collect()
    }
}

fn list(counted: impl Iterator<Item = (String, u64)>) -> String {
    counted.map(|(what, count)| format!("{what} {count}\u{d7}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_run_says_what_was_killed_split_and_failed() {
        let happened = Happened::default();
        for deed in
            [Deed::Killed("consumer"), Deed::ShardSplit, Deed::Killed("consumer"), Deed::Killed("change-streamer")]
        {
            happened.note(deed);
        }
        let count = |fault: &str, count| (fault.to_owned(), count);
        let faults = BTreeMap::from([
            ("PutItem".to_owned(), BTreeMap::from([count("drop_reply", 1), count("throttle", 2)])),
            ("Query".to_owned(), BTreeMap::from([count("throttle", 3)])),
        ]);
        let lines = happened.lines(&faults);
        assert_eq!(
            lines,
            [
                "  on purpose   change-streamer killed 1\u{d7}, consumer killed 2\u{d7}, stream shard split 1\u{d7}",
                "  requests     drop reply 1\u{d7}, throttle 5\u{d7}",
            ]
        );
        assert_eq!(Happened::default().lines(&BTreeMap::new()), [""; 0]);
    }
}
