//! Checks the lists of what is trending in the simulation: each one that a reader of the topic `boards` gets is
//! compared with what posts have gained in rows. These gains come from the emulated DynamoDB's own reports of changes,
//! not from the log that the lists are made from.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use tally_adapters::memory::log::TopicReader;
use tally_core::ids::{CounterName, Region};
use tally_core::ports::TopicReader as _;
use tally_core::ports::log::Record;
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_localstack::oracle::{Oracle, Sums};
use tally_trends::{BoardRules, Claim, Place, Published, Reason, Shelf, Top, Window};

use crate::simulation::history::{History, RowChange};
use crate::simulation::mutant::Mutant;
use crate::simulation::profile::Profile;
use crate::simulation::rewrite::Misread;
use crate::simulation::world::World;

/// The topic of boards.
pub(crate) const BOARDS: &str = "boards";
/// The group of all processes that make lists.
pub(crate) const GROUP: &str = "tally-trends";

/// The regions of events.
pub(crate) const REGIONS: [&str; 3] = ["us", "eu", "ap"];

/// The windows are so short that many changes leave them during a schedule.
const WINDOWS: [&str; 2] = ["1m", "2m"];

/// The boards are so small that they are cut and refilled all the time.
pub(crate) const RULES: BoardRules = BoardRules { most: 4, keep: 3, least: 2, list: 2, min_count: 1 };

/// The windows of all lists.
pub(crate) fn windows() -> Vec<Window> {
    WINDOWS.map(|window| window.parse().expect("it is a window")).to_vec()
}

/// The numbers of judged lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    pub(crate) lists: u64,
    /// Lists that were called exact.
    pub(crate) exact: u64,
    /// Lists with a bound.
    pub(crate) bounded: u64,
}

/// A reader of all lists.
pub(crate) struct Lists {
    boards: TopicReader,
    read: BTreeMap<u32, Offset>,
    places: Vec<Place>,
    shelf: Shelf,
    misread: Option<Misread>,
    /// The published moment.
    pub(crate) told: u64,
    /// The topic after compaction: the time and value of each key.
    kept: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    messages: u64,
    /// The changes of rows.
    oracle: Oracle,
    gained: Gained,
    pub(crate) judged: Judged,
}

/// A message of the topic: its time, its key and its value.
type Message = (UnixMillis, Vec<u8>, Option<Vec<u8>>);

impl Lists {
    /// Reads lists of the counters and regions of `profile`, as `mutant` reads them; `None` if there are no lists.
    pub(crate) fn of(world: &World, profile: &Profile, mutant: Option<Mutant>) -> Option<Self> {
        profile.listing.as_ref()?;
        let region = |name: &str| Region::new(name).expect("it is a region");
        let regions = || std::iter::once(None).chain(REGIONS.iter().map(|name| Some(region(name))));
        let of_counter = |counter: CounterName| regions().map(move |region| Place { counter: counter.clone(), region });
        let mut shelf = Shelf::default();
        shelf.read_whole();
        Some(Self {
            boards: world.broker.reader("observer", BOARDS),
            read: BTreeMap::new(),
            places: profile.mix.names().flat_map(of_counter).collect(),
            shelf,
            misread: mutant.and_then(Misread::of),
            told: 0,
            kept: BTreeMap::new(),
            messages: 0,
            oracle: Oracle::default(),
            gained: Gained::default(),
            judged: Judged::default(),
        })
    }

    /// Reads the new messages, and compares the lists of every published moment with the rows.
    pub(crate) async fn look(&mut self, history: &History) -> anyhow::Result<()> {
        for RowChange { counter, second, before, after } in history.take_rows() {
            self.oracle.add(&counter, second, before, after);
        }
        for (_, key, value) in self.messages().await {
            self.messages += 1;
            match &value {
                Some(value) => self.take(&key, value)?,
                None => _ = self.kept.remove(&key),
            }
            if let Some(value) = value {
                self.kept.insert(key, (self.messages, value));
            }
        }
        self.begun_anew()
    }

    /// The new messages in order of time; none while the broker is unavailable.
    async fn messages(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        for (partition, log) in self.boards.logs().await.unwrap_or_default() {
            let at = self.read.entry(partition.index).or_insert(log.start);
            while *at < log.end {
                let Ok(records) = self.boards.read(&partition, *at, log.end).await else { break };
                let Some(last) = records.last_offset() else { break };
                let message = |record: Record<'_>| {
                    let (key, value) = (record.key.unwrap_or_default(), record.value);
                    (record.at, key.to_vec(), value.map(<[u8]>::to_vec))
                };
                messages.extend(records.iter().map(message));
                *at = last.next();
            }
        }
        messages.sort_by_key(|(at, ..)| *at);
        messages
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let message = Published::read(key, value).context("cannot read a message of the topic of boards")?;
        let is_tick = matches!(message, Published::Tick(_));
        match &mut self.misread {
            None => self.shelf.take(message),
            Some(misread) => misread.take(message, &mut self.shelf),
        }
        let is_another = is_tick && self.shelf.settle();
        let moment = self.shelf.moment().unwrap_or_default();
        ensure!(moment >= self.told, "lists went from {} back to {moment}", self.told);
        self.told = moment;
        if is_another { self.judge() } else { Ok(()) }
    }

    /// Compares the lists of the published moment with the rows.
    fn judge(&mut self) -> anyhow::Result<()> {
        for claim in self.gained.compare(&self.oracle, &self.shelf, &self.places, self.told)? {
            self.judged.lists += 1;
            self.judged.exact += u64::from(claim == Claim::Exact);
            self.judged.bounded += u64::from(matches!(claim, Claim::Bound(_)));
        }
        Ok(())
    }

    /// Checks that a new reader of the compacted topic gets no wrong list, either.
    fn begun_anew(&self) -> anyhow::Result<()> {
        let mut left: Vec<_> = self.kept.iter().collect();
        left.sort_unstable_by_key(|(_, (nth, _))| *nth);
        let mut shelf = Shelf::default();
        for (key, (_, value)) in left {
            shelf.take(Published::read(key, value)?);
        }
        shelf.read_whole();
        shelf.settle();
        let Some(moment) = shelf.moment() else { return Ok(()) };
        let compared = Gained::default().compare(&self.oracle, &shelf, &self.places, moment);
        compared.map(drop).context("for a new reader")
    }

    /// The reason why some list is not exact, if there is one. If keys are `limited`, forgotten keys do not count.
    pub(crate) fn unsure(&self, limited: bool) -> anyhow::Result<Option<Claim>> {
        for window in windows() {
            for place in &self.places {
                let claim = told(&self.shelf, place, window)?.claim;
                let allowed = matches!(claim, Claim::Bound(_) | Claim::Unknown(Reason::Shed));
                if claim != Claim::Exact && !(limited && allowed) {
                    return Ok(Some(claim));
                }
            }
        }
        Ok(None)
    }
}

/// The list of `place`. Once there is a moment, every place has a list.
fn told(shelf: &Shelf, place: &Place, window: Window) -> anyhow::Result<Top> {
    let top = shelf.top(place, window, RULES.list);
    top.with_context(|| format!("there is no list of {place:?} over {window} at {:?}", shelf.moment()))
}

/// The gains of every place over every window, which move with time.
#[derive(Debug, Default)]
struct Gained(BTreeMap<(Place, Window), Sums>);

impl Gained {
    /// Compares all lists of a moment, which is no earlier than before, with the rows, and returns what they claim.
    fn compare(&mut self, oracle: &Oracle, shelf: &Shelf, places: &[Place], moment: u64) -> anyhow::Result<Vec<Claim>> {
        let mut claims = Vec::new();
        for (window, place) in windows().into_iter().flat_map(|window| places.iter().map(move |place| (window, place)))
        {
            let gained = self.0.entry((place.clone(), window)).or_default();
            gained.move_to(oracle, (&place.counter, place.region.as_ref()), (window.from(moment), moment));
            let Top { list, claim } = told(shelf, place, window)?;
            let items: Vec<_> = list.items.iter().map(|item| (item.subject.to_string(), item.count())).collect();
            let wrong = claim.bound().map(|bound| gained.contradict(bound, &items, RULES.list)).unwrap_or_default();
            ensure!(wrong.is_empty(), "the list of {place:?} over {window} at {moment}, {claim:?}: {wrong:?}");
            claims.push(claim);
        }
        Ok(claims)
    }
}
