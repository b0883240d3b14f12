//! Answers what is trending, from what `tally-trends` writes to Kafka. Tasks follow the topic of boards, where a board
//! is the list of one Kafka partition for one window of time, and the topic of blocked ids. The boards lie on a
//! [`Shelf`], which merges those of one moment, a second that all of them have reached. Each answer is written once a
//! moment and then sent from memory.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use tally_core::ids::PostId;
use tally_core::ports::TopicReader;
use tally_core::ports::log::{Record, Records};
use tally_core::time::UnixMillis;
use tally_core::{Map, Set};
use tally_service::{Host, Seldom, Stage};
use tally_trends::{Place, Published, Reason, Shelf, Top, Window};
use tokio::sync::watch;
use utoipa::ToSchema;

use crate::answer::tag;
use crate::error::{Parameter, Problem, Result};
use crate::followed::Followed;
use crate::metrics::{BLOCKED, BOARDS_AGE, BOARDS_UNREADABLE};
use crate::value::json;

/// The most answers that are kept of a moment.
const KEPT: usize = 1_000;

/// How often another deployment in a topic is logged.
const MINUTE: Duration = Duration::from_secs(60);

/// Which list a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    pub place: Place,
    pub window: Window,
    pub k: usize,
}

/// A list as it is sent.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The moment, whether the list is exact, and a hash of the blocked ids.
    pub edition: String,
    pub tag: HeaderValue,
    pub body: Bytes,
    /// The list itself, to see whether a listener needs it.
    pub top: Arc<Top>,
}

/// What gained most over a window of time.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopList {
    /// Of which counter.
    #[schema(example = "likes")]
    counter: String,
    /// In which region; absent where it is all of them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "us")]
    region: Option<String>,
    /// Over which window.
    #[schema(example = "24h")]
    window: String,
    /// What happened up to here is not in it. Milliseconds since the Unix epoch, rounded down: to the minute for `1h`, to 15
    /// minutes for `24h`.
    #[schema(example = 1_699_999_200_000_u64)]
    from: u64,
    /// The last second that is in it, in milliseconds since the Unix epoch.
    #[schema(example = 1_700_085_602_000_u64)]
    as_of: u64,
    /// Whether it is proved that this is what rows gained behind `from` and up to `as_of`.
    #[schema(example = true)]
    exact: bool,
    /// No count of it is off by more, and nothing that is not listed beats the last one by more; absent where that is not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, example = 0)]
    bound: Option<u64>,
    /// Why it is not known: `loss`, changes of the window are lost; `young`, the window began before the log;
    /// `missing`, a part of the subjects is not in it; `shed`, there were too many regions; `clock`, something came after its
    /// time; `blocked`, so many ids are blocked that there are fewer items than were asked for. Absent where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "loss")]
    reason: Option<Reason>,
    /// Those that gained most, and as much; equal ones in the order of their ids' bytes.
    items: Vec<TopItem>,
}

/// A post or a hashtag, and what it gained.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopItem {
    /// Its id.
    #[schema(example = "p-1")]
    id: String,
    /// How much it gained.
    #[schema(example = 812)]
    count: i64,
}

impl TopList {
    fn new(wanted: &Wanted, top: &Top) -> Self {
        let items = top.list.items.iter();
        let items = items.map(|item| TopItem { id: item.subject.to_string(), count: item.count() });
        Self {
            counter: wanted.place.counter.as_str().to_owned(),
            region: wanted.place.region.as_ref().map(ToString::to_string),
            window: wanted.window.to_string(),
            from: top.list.from * 1000,
            as_of: top.list.moment * 1000,
            exact: top.claim.bound() == Some(0),
            bound: top.claim.bound(),
            reason: top.claim.reason(),
            items: items.collect(),
        }
    }
}

impl Rendered {
    fn new(wanted: &Wanted, top: Top, blocked: &Blocked) -> Self {
        let body = json(&TopList::new(wanted, &top));
        let mut edition = format!("{}.{}", top.list.moment, u8::from(top.claim.bound() == Some(0)));
        if blocked.version != 0 {
            edition = format!("{edition}.{:x}", blocked.version);
        }
        Self { tag: tag(&edition), edition, body: body.into(), top: Arc::new(top) }
    }

    /// Returns whether a listener that was sent `before` needs this list: the items, or what is claimed of them,
    /// differ.
    pub fn differs(&self, before: &Self) -> bool {
        (&self.top.list.items, self.top.claim) != (&before.top.list.items, before.top.claim)
    }
}

/// The ids that lists leave out.
#[derive(Debug, Default)]
struct Blocked {
    ids: Set<PostId>,
    /// The sum of the hashes of all ids, which is equal in all processes that have read the same.
    version: u64,
    /// Whether the topic is not read to its end yet.
    unknown: bool,
}

impl Blocked {
    /// Takes ids, each with whether it is blocked, and whether these were the last. Returns whether anything changed.
    fn take(&mut self, read: Vec<(PostId, bool)>, is_whole: bool) -> bool {
        let mut differs = is_whole && std::mem::take(&mut self.unknown);
        for (id, is_blocked) in read {
            let hash = self.ids.hasher().hash_one(&id);
            if is_blocked && self.ids.insert(id.clone()) {
                self.version = self.version.wrapping_add(hash);
                differs = true;
            } else if !is_blocked && self.ids.remove(&id) {
                self.version = self.version.wrapping_sub(hash);
                differs = true;
            }
        }
        BLOCKED.gauge(&[]).set(self.ids.len() as f64);
        differs
    }
}

/// The lists of what is trending. Clones share them.
#[derive(Clone, Default)]
pub struct Tops(Arc<Shared>);

#[derive(Default)]
struct Shared {
    shelf: RwLock<Shelf>,
    /// The blocked ids. Always locked after the shelf.
    blocked: RwLock<Blocked>,
    /// Answers of the current moment.
    rendered: Mutex<Map<Wanted, Rendered>>,
    moved: watch::Sender<u64>,
}

impl Tops {
    /// Starts the tasks that read the topics of boards and of blocked ids. The latter is compacted: a record's key is an
    /// id, blocked while its last value is not empty. There is no list before the blocked ids are known. Records that
    /// name another deployment than `own` are skipped.
    pub(crate) fn follow(
        boards: Arc<dyn TopicReader>,
        blocks: Option<Arc<dyn TopicReader>>,
        own: Option<&str>,
        host: &Host,
    ) -> Self {
        let (tops, clock) = (Self::default(), host.clock());
        if let Some(blocks) = blocks {
            tops.0.blocked.write().unknown = true;
            let (tops, taken) = (tops.clone(), Taken::of("blocks", own));
            let block = move |records: &Records, is_whole| tops.block(taken.ids(records), is_whole);
            host.spawn(Stage::Support, "blocks", Followed::new(blocks, clock, "blocks", block));
        }
        let (followed, mut taken) = (tops.clone(), Taken::of("boards", own));
        let take = move |records: &Records, is_whole| {
            followed.take(taken.boards(records), is_whole);
            if let Some(moment) = followed.0.shelf.read().moment() {
                BOARDS_AGE.gauge(&[]).set(clock.now().since(UnixMillis(moment * 1000)).as_secs_f64());
            }
        };
        host.spawn(Stage::Support, "boards", Followed::new(boards, clock, "boards", take));
        tops
    }

    /// Returns the list that is `wanted`.
    ///
    /// # Errors
    /// The topics are not read to their end yet, or hold no such list.
    pub fn top(&self, wanted: &Wanted) -> Result<Rendered> {
        // The shelf stays locked, so that no answer of an earlier moment is kept once the moment has changed.
        let shelf = self.0.shelf.read();
        if let Some(kept) = self.0.rendered.lock().get(wanted) {
            return Ok(kept.clone());
        }
        let (windows, blocked) = (shelf.windows(), self.0.blocked.read());
        if shelf.moment().is_none() || windows.is_empty() || blocked.unknown {
            return Err(Problem::ListsNotLoaded);
        }
        if !windows.contains(&wanted.window) {
            return Err(no_window(&windows));
        }
        let top = shelf.top_but(&wanted.place, wanted.window, wanted.k, |id| blocked.ids.contains(id));
        let rendered = Rendered::new(wanted, top.ok_or(Problem::ListsNotLoaded)?, &blocked);
        let mut kept = self.0.rendered.lock();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(wanted.clone(), rendered.clone());
        Ok(rendered)
    }

    /// Parses a window, which may be one without lists.
    ///
    /// # Errors
    /// It is none. The error has the windows that exist.
    pub fn window(&self, text: Option<&str>) -> Result<Window> {
        let window = text.and_then(|text| text.parse().ok());
        window.ok_or_else(|| no_window(&self.0.shelf.read().windows()))
    }

    /// Changes with every moment, and when the blocked ids change.
    pub fn moved(&self) -> watch::Receiver<u64> {
        self.0.moved.subscribe()
    }

    /// Takes messages of the topic of boards, and whether these were the last.
    fn take(&self, messages: Vec<Published>, is_whole: bool) {
        let mut shelf = self.0.shelf.write();
        messages.into_iter().for_each(|message| shelf.take(message));
        if is_whole {
            shelf.read_whole();
        }
        if shelf.settle() {
            self.0.rendered.lock().clear();
            self.0.moved.send_replace(shelf.moment().unwrap_or_default());
        }
    }

    /// Takes ids, each with whether it is blocked, and whether these were the last.
    fn block(&self, read: Vec<(PostId, bool)>, is_whole: bool) {
        let shelf = self.0.shelf.read();
        if self.0.blocked.write().take(read, is_whole) {
            self.0.rendered.lock().clear();
            self.0.moved.send_replace(shelf.moment().unwrap_or_default());
        }
    }
}

/// There is no such window, but these; none before the boards are read.
fn no_window(windows: &[Window]) -> Problem {
    if windows.is_empty() {
        return Problem::ListsNotLoaded;
    }
    let names: Vec<String> = windows.iter().map(ToString::to_string).collect();
    Problem::BadQuery { parameter: Some(Parameter::named("window")), why: format!("there are {}", names.join(", ")) }
}

/// Reads the records of one of the topics, and names what it skips.
struct Taken {
    what: &'static str,
    /// The own deployment, if the store says its name.
    own: Option<String>,
    /// Whether a record that cannot be read was logged, and when another deployment was.
    said: bool,
    said_foreign: Seldom,
}

impl Taken {
    fn of(what: &'static str, own: Option<&str>) -> Self {
        Self { what, own: own.map(str::to_owned), said: false, said_foreign: Seldom::default() }
    }

    /// Returns whether `record` names no deployment but the own one. Another one is logged, once a minute at most.
    fn is_own(&self, record: &Record<'_>) -> bool {
        let Some(other) = self.own.as_deref().and_then(|own| record.foreign(own)) else { return true };
        if self.said_foreign.is_due(MINUTE) {
            let (what, other) = (self.what, &*other);
            tracing::error!(
                other,
                "another deployment writes the topic of {what}, and its records are skipped: give each deployment a topic of its own"
            );
        }
        false
    }

    /// Decodes `records`. Counts those that cannot be read or are of another deployment, and logs the first.
    fn boards(&mut self, records: &Records) -> Vec<Published> {
        let mut known = Vec::new();
        for record in records.iter() {
            let Some(value) = record.value else { continue };
            match self.is_own(&record).then(|| Published::read(record.key.unwrap_or_default(), value)) {
                Some(Ok(message)) => {
                    known.push(message);
                    continue;
                }
                Some(Err(bad)) if !std::mem::replace(&mut self.said, true) => {
                    tracing::error!(error = %bad, "the topic of boards has what this build cannot read: its lists may stand still");
                }
                Some(Err(_)) | None => {}
            }
            BOARDS_UNREADABLE.counter(&[]).increment(1);
        }
        known
    }

    /// Returns the ids in `records`, each with whether it is blocked. A key that is no id is skipped, since no list has
    /// it.
    fn ids(&self, records: &Records) -> Vec<(PostId, bool)> {
        let id = |key: Option<&[u8]>| PostId::new(std::str::from_utf8(key?).ok()?).ok();
        let own = records.iter().filter(|record| self.is_own(record));
        let read = own.filter_map(|record| Some((id(record.key)?, record.value)));
        read.map(|(id, value)| (id, value.is_some_and(|value| !value.is_empty()))).collect()
    }
}
