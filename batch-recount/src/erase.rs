//! Erasure: an unlike for every like of a user or of a post, produced through the topic, so that rows, counts and
//! followers agree and the consumer stays the only writer of rows.

use std::io::{IsTerminal, Write};

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;
use tally_core::ids::{CounterId, CounterName, PostId, RowKey, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Producer, Segment};
use tally_service::Exit;

use crate::config::{EraseConfig, Subject};
use crate::metrics;
use crate::store::Store;

/// Events under way at once.
const AT_ONCE: usize = 256;
/// Parts of the table read at once for a user's likes.
const SEGMENTS: u32 = 8;

/// What an erasure came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Erased {
    /// Likes found.
    pub(crate) found: u64,
    /// Unlikes that Kafka has acknowledged.
    pub(crate) produced: u64,
}

/// A like to be taken back.
struct Taken {
    post: PostId,
    user: UserId,
}

/// Erases, and reports. `producer` is `None` for a dry run.
pub(crate) async fn erase(
    store: &Store,
    config: &EraseConfig,
    producer: Option<&dyn Producer>,
) -> anyhow::Result<Exit> {
    let erased = match &config.subject {
        Subject::Post(post) => of_post(store, post, config, producer).await?,
        Subject::User(user) => of_user(store, user, config, producer).await?,
    };
    print(erased, producer.is_none(), store);
    Ok(Exit::CLEAN)
}

async fn of_post(
    store: &Store,
    post: &PostId,
    config: &EraseConfig,
    producer: Option<&dyn Producer>,
) -> anyhow::Result<Erased> {
    let mut erased = Erased::default();
    let counter = CounterId::likes(post.clone());
    for shard in store.shards.all() {
        let (key, mut after) = (RowKey { counter: counter.clone(), shard }, None);
        loop {
            let page = store.page("read rows", || store.ports.rows.users(&key, after.as_ref())).await?;
            let likes = page.items.into_iter().map(|user| Taken { post: post.clone(), user }).collect();
            erased.add(take_back(store, likes, config, producer).await?);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(erased)
}

async fn of_user(
    store: &Store,
    user: &UserId,
    config: &EraseConfig,
    producer: Option<&dyn Producer>,
) -> anyhow::Result<Erased> {
    let parts = (0..SEGMENTS).map(|index| Segment { index, of: SEGMENTS });
    stream::iter(parts)
        .map(|segment| in_segment(store, segment, user, config, producer).boxed())
        .buffer_unordered(SEGMENTS as usize)
        .try_fold(Erased::default(), |mut sum, erased| {
            sum.add(erased);
            std::future::ready(Ok(sum))
        })
        .await
}

async fn in_segment(
    store: &Store,
    segment: Segment,
    user: &UserId,
    config: &EraseConfig,
    producer: Option<&dyn Producer>,
) -> anyhow::Result<Erased> {
    let (mut erased, mut after) = (Erased::default(), None);
    loop {
        let page = store.page("scan rows", || store.ports.rows.scan(segment, after.as_ref())).await?;
        let theirs = page.items.iter().filter(|row| row.sort == user.as_str());
        let ids = theirs.filter_map(|row| row.pk.parse::<RowKey>().ok()).map(|key| key.counter);
        let likes = ids.filter(|id| id.name == CounterName::LIKES);
        let likes = likes.map(|id| Taken { post: id.post, user: user.clone() }).collect();
        erased.add(take_back(store, likes, config, producer).await?);
        after = page.next;
        if after.is_none() {
            return Ok(erased);
        }
    }
}

/// Produces the unlikes of `likes`. Safe to repeat: a second unlike changes nothing.
async fn take_back(
    store: &Store,
    likes: Vec<Taken>,
    config: &EraseConfig,
    producer: Option<&dyn Producer>,
) -> anyhow::Result<Erased> {
    let found = likes.len() as u64;
    let Some(producer) = producer else { return Ok(Erased { found, produced: 0 }) };
    let produced = stream::iter(likes)
        .map(|like| unlike(store, like, config, producer).boxed())
        .buffer_unordered(AT_ONCE)
        .try_fold(0, |sum, ()| std::future::ready(Ok(sum + 1)))
        .await?;
    metrics::unlikes(produced);
    Ok(Erased { found, produced })
}

async fn unlike(store: &Store, like: Taken, config: &EraseConfig, producer: &dyn Producer) -> anyhow::Result<()> {
    let Taken { post, user } = like;
    let key = config.key.key(&post, &user, store.shards);
    let at = store.now();
    let event = json!({"post_id": &*post, "user_id": &*user, "action": "unlike", "ts": at}).to_string();
    let send = || {
        producer.send(Outgoing {
            topic: &config.topic,
            partition: None,
            key: Some(key.as_bytes()),
            value: Some(event.as_bytes()),
            headers: &[],
        })
    };
    store.persist("produce an unlike", send).await.map(|_| ())
}

impl Erased {
    fn add(&mut self, other: Self) {
        self.found += other.found;
        self.produced += other.produced;
    }
}

fn print(erased: Erased, dry_run: bool, store: &Store) {
    let (Erased { found, produced }, cost) = (erased, store.cost());
    tracing::info!(found, produced, dry_run, "erasure ends");
    // A closed pipe is no failure of the erasure.
    let mut out = std::io::stdout();
    let _ = if out.is_terminal() {
        let so = if dry_run { " (dry run)" } else { "" };
        writeln!(out, "likes found {found}, unlikes produced {produced}{so}, read units {}", cost.read_units)
    } else {
        writeln!(out, "{}", json!({"erased": {"found": found, "produced": produced, "dry_run": dry_run, "cost": cost}}))
    };
}
