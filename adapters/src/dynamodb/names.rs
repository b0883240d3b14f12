//! What tables and attributes are called. Many of these are reserved words of the expression grammar, so expressions
//! use attributes through an alias, but for the update of a counter, of whose attributes none is one.

/// Every table of a deployment, without the prefix.
pub(super) const NAMES: [&str; 4] = [LIKES, COUNTS, CHECKPOINTS, "recounts"];
pub(super) const LIKES: &str = "likes";
pub(super) const COUNTS: &str = "like_counts";
pub(super) const CHECKPOINTS: &str = "checkpoints";

/// The tables' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// What every name begins with.
    pub prefix: String,
    /// Rows, and the recount's markers beside them.
    pub likes: String,
    /// One item per counter.
    pub counts: String,
    /// Fences, what is stored of the log `changes`, the deployment's configuration.
    pub checkpoints: String,
    /// Runs, the queue, the ledgers, milestones.
    pub recounts: String,
}

impl Tables {
    /// The tables of a deployment, each name behind `prefix`.
    pub fn with_prefix(prefix: &str) -> Self {
        let name = |table: &str| format!("{prefix}{table}");
        Self {
            prefix: prefix.to_owned(),
            likes: name("likes"),
            counts: name("like_counts"),
            checkpoints: name("checkpoints"),
            recounts: name("recounts"),
        }
    }

    /// Each table: its name without the prefix, and its name.
    pub(super) fn each(&self) -> [(&str, &str); 4] {
        [&self.likes, &self.counts, &self.checkpoints, &self.recounts]
            .map(|name| (name.strip_prefix(&self.prefix).unwrap_or(name), name.as_str()))
    }
}

/// The partition key of `likes` and `recounts`.
pub(super) const PK: &str = "pk";
/// The sort key of `recounts`.
pub(super) const SK: &str = "sk";

/// The attributes of `likes`.
pub(super) mod likes {
    pub(in crate::dynamodb) const USER_ID: &str = "user_id";
    pub(in crate::dynamodb) const POST_ID: &str = "post_id";
    pub(in crate::dynamodb) const LIKED_AT: &str = "liked_at";
    /// What a row counts for, where that is not 1.
    pub(in crate::dynamodb) const N: &str = "n";
    /// Of a tombstone: when the store deletes it, in seconds. It weighs nothing.
    pub(in crate::dynamodb) const GONE: &str = "gone";
    /// The version of the event that a row comes from.
    pub(in crate::dynamodb) const V: &str = "v";
    /// Of a member: where its event came from, where it said so.
    pub(in crate::dynamodb) const REGION: &str = "region";
    /// Of a cell: the version of the last event in it.
    pub(in crate::dynamodb) const TO: &str = "to";
    /// Of a marker row: the random number of a look.
    pub(in crate::dynamodb) const RUN: &str = "run";
    /// The local index, and the attribute it sorts by, which no row carries: a table with a local index keeps the rows
    /// of one key in one partition, so in one open stream shard at a time.
    pub(in crate::dynamodb) const PIN: &str = "pin";
}

/// The attributes of `like_counts`. That of one shard carries its number.
pub(super) mod counts {
    pub(in crate::dynamodb) const POST_ID: &str = "post_id";
    pub(in crate::dynamodb) const LIKES: &str = "likes";
    pub(in crate::dynamodb) const VERSION: &str = "version";
    pub(in crate::dynamodb) const UPDATED_AT: &str = "updated_at";
    pub(in crate::dynamodb) const ROWS: &str = "s";
    /// How many corrections are in, the last announcement of a loss, and the shards with a weight that could not be read.
    pub(in crate::dynamodb) const CORRECTIONS: &str = "c";
    pub(in crate::dynamodb) const GAP: &str = "gap";
    pub(in crate::dynamodb) const DOUBT: &str = "doubt";
    /// The key of the reserved row: no post's id holds a control character.
    pub(in crate::dynamodb) const RESERVED_ROW: &str = "\u{1}reserved";
    /// Of the reserved row: when it was put in the place of a lost one.
    pub(in crate::dynamodb) const SINCE: &str = "since";
}

/// The attributes and keys of `checkpoints`.
pub(super) mod checkpoints {
    pub(in crate::dynamodb) const ID: &str = "id";
    /// Of a topic and a claim.
    pub(in crate::dynamodb) const TOPIC_ID: &str = "topic_id";
    pub(in crate::dynamodb) const GENERATION: &str = "gen";
    /// Of a topic: how many it had at first.
    pub(in crate::dynamodb) const PARTITIONS: &str = "partitions";
    /// Of a stream shard.
    pub(in crate::dynamodb) const PARENT: &str = "parent";
    pub(in crate::dynamodb) const CLOSED: &str = "closed";
    pub(in crate::dynamodb) const AT: &str = "at";
    pub(in crate::dynamodb) const OWNER: &str = "owner";
    pub(in crate::dynamodb) const BEAT: &str = "beat";
    /// Of a stream shard: how far it is in the log `changes`.
    pub(in crate::dynamodb) const FED: &str = "fed";
    pub(in crate::dynamodb) const FED_AT: &str = "fed_at";
    /// Of a standing: up to where a fold has read, the last message before that and before the standing, and how often all of
    /// it was replaced.
    pub(in crate::dynamodb) const READ: &str = "read";
    pub(in crate::dynamodb) const READ_LAST: &str = "read_last";
    pub(in crate::dynamodb) const LAST: &str = "last";
    pub(in crate::dynamodb) const REVISION: &str = "revision";
    /// Of a standing and of a loss.
    pub(in crate::dynamodb) const OPEN: &str = "open";
    pub(in crate::dynamodb) const KIND: &str = "kind";
    pub(in crate::dynamodb) const AS_OF: &str = "as_of";
    /// Of a claim: which take-over it is, and how far the rows have come.
    pub(in crate::dynamodb) const N: &str = "n";
    pub(in crate::dynamodb) const SAFE: &str = "safe";
    pub(in crate::dynamodb) const SAFE_AT: &str = "safe_at";
    pub(in crate::dynamodb) const GREATEST: &str = "greatest";
    pub(in crate::dynamodb) const PAST: &str = "past";
    pub(in crate::dynamodb) const SENT: &str = "sent";
    pub(in crate::dynamodb) const REPLAY: &str = "replay";
    pub(in crate::dynamodb) const MISROUTED: &str = "misrouted";
    /// Of a topic: where each generation begins, where sums begin, and whether its consumers are paused.
    pub(in crate::dynamodb) const BEGINS: &str = "begins";
    pub(in crate::dynamodb) const SUMS_BEGIN: &str = "sums_from";
    pub(in crate::dynamodb) const PAUSED: &str = "paused";
    /// Of the configuration.
    pub(in crate::dynamodb) const SHARDS: &str = "shards";
    /// Of the configuration: in which form everything is written.
    pub(in crate::dynamodb) const FORMAT: &str = "format";
    /// Of the configuration: the ids of the tables, each under its name without the prefix.
    pub(in crate::dynamodb) const TABLES: &str = "tables";
    /// Of the configuration: when other tables were adopted last.
    pub(in crate::dynamodb) const ADOPTED: &str = "adopted";
    /// Whether the log of changes was begun.
    pub(in crate::dynamodb) const BEGUN: &str = "log";
    /// Of the configuration: the list of definitions.
    pub(in crate::dynamodb) const COUNTERS: &str = "counters";
    /// Of the configuration: what this Region is called, and the other Regions whose entries are kept here.
    pub(in crate::dynamodb) const REGION: &str = "region";
    pub(in crate::dynamodb) const REMOTES: &str = "remotes";
    /// Of a Region's partition: the next offset, when what was read last was published, and until when entries may be missing.
    pub(in crate::dynamodb) const NEXT: &str = "next";
    pub(in crate::dynamodb) const SAID: &str = "said";
    pub(in crate::dynamodb) const BEHIND: &str = "behind";
    /// Of what this Region has published: the end that the topic had.
    pub(in crate::dynamodb) const END: &str = "end";
    pub(in crate::dynamodb) const CUTS: &str = "cuts";
    /// Of a Region's partition: the topic that its messages were published in.
    pub(in crate::dynamodb) const SOURCE: &str = "source";

    /// Of the configuration: the thresholds of milestones.
    pub(in crate::dynamodb) const MILESTONES: &str = "milestones";

    /// Of what is stored of the log `changes`.
    pub(in crate::dynamodb) const LOSS: &str = "loss";
    pub(in crate::dynamodb) const LOSSES: &str = "losses";
    pub(in crate::dynamodb) const WHAT: &str = "what";
    pub(in crate::dynamodb) const FILTER: &str = "filter";
    pub(in crate::dynamodb) const DEPLOYMENT: &str = "deployment";

    /// The key of the configuration.
    pub(in crate::dynamodb) const CONFIG: &str = "config";
}

/// The attributes of `recounts`.
pub(super) mod recounts {
    pub(in crate::dynamodb) const BEGAN: &str = "began";
    pub(in crate::dynamodb) const ENDED: &str = "ended";
    pub(in crate::dynamodb) const SCOPE: &str = "scope";
    pub(in crate::dynamodb) const SUMMARY: &str = "summary";
    pub(in crate::dynamodb) const REASON: &str = "reason";
    pub(in crate::dynamodb) const ASKED: &str = "asked";
    pub(in crate::dynamodb) const AT: &str = "at";
    pub(in crate::dynamodb) const DONE: &str = "done";
    pub(in crate::dynamodb) const CURSOR: &str = "cursor";
    pub(in crate::dynamodb) const UNSETTLED: &str = "unsettled";
    /// Of a report's part: members of other weights than those of the two sets.
    pub(in crate::dynamodb) const TTL: &str = "ttl";
    pub(in crate::dynamodb) const SHARD: &str = "shard";
    pub(in crate::dynamodb) const RUN: &str = "run";
    pub(in crate::dynamodb) const BY: &str = "by";
    pub(in crate::dynamodb) const BEFORE: &str = "before";
    pub(in crate::dynamodb) const AFTER: &str = "after";
    pub(in crate::dynamodb) const WHY: &str = "why";
    /// Of an operator's change: which command made it, what it was about to change, and what it came to.
    pub(in crate::dynamodb) const COMMAND: &str = "command";
    pub(in crate::dynamodb) const PLAN: &str = "plan";
    pub(in crate::dynamodb) const OUTCOME: &str = "outcome";
    /// Of a milestone.
    pub(in crate::dynamodb) const N: &str = "n";
    pub(in crate::dynamodb) const STATE: &str = "state";
    pub(in crate::dynamodb) const MEMBER: &str = "member";
    pub(in crate::dynamodb) const TOPIC: &str = "topic";
    pub(in crate::dynamodb) const PARTITION: &str = "partition";
    pub(in crate::dynamodb) const GENERATION: &str = "gen";
    pub(in crate::dynamodb) const FROM: &str = "from";
    pub(in crate::dynamodb) const TO: &str = "to";
    pub(in crate::dynamodb) const NTH: &str = "nth";
    pub(in crate::dynamodb) const GAINED: &str = "gained";
    pub(in crate::dynamodb) const LAG: &str = "lag";
    pub(in crate::dynamodb) const VERSION: &str = "version";
    pub(in crate::dynamodb) const EXACT: &str = "exact";
    pub(in crate::dynamodb) const SKIPPED: &str = "skipped";
    pub(in crate::dynamodb) const DIGEST: &str = "digest";
}
