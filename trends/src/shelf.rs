//! What a reader of the topic of boards, the lists of what is trending, keeps; the API uses it. A *board* is the list
//! of one partition for one counter, region and window, and a *tick* says that all boards of a partition at a *moment*,
//! a whole second, are in the topic. The shelf keeps the ticks and boards of every partition, and merges boards of the
//! latest moment that all partitions have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tally_core::ids::PostId;

use crate::window::is_common;
use crate::wire::{Published, Tick, Writer, Written, mark};
use crate::{Claim, List, Place, Ranked, Reason, Window, merge};

/// How many moments of a partition are kept: the latest ones. Of older ones those remain that lagging partitions
/// publish, too.
const MOMENTS: usize = 10;

/// How many seconds a partition may lag behind the first one before the others are merged without it.
const SILENT: u64 = 60;

/// How many writers of a partition have their messages kept: the current one, and those that may become current.
const WRITERS: usize = 4;

/// What was read of the topic of boards.
#[derive(Debug, Default)]
pub struct Shelf {
    partitions: BTreeMap<u32, Known>,
    /// The number of partitions, as the latest tick says.
    of: u32,
    /// The latest moment in the topic when it had been read to its end for the first time.
    began: Option<u64>,
    /// The moment of the lists.
    moment: u64,
}

/// What is known of one partition.
#[derive(Debug, Default)]
struct Known {
    /// The writers in the order of their last messages.
    writers: Vec<(Writer, Boards)>,
    /// The latest ticks, in order.
    ticks: VecDeque<Tick>,
}

/// The boards of one writer. Each is kept as it was at several moments.
type Boards = BTreeMap<(Place, Window), VecDeque<(u64, Board)>>;

#[derive(Debug)]
struct Board {
    items: Vec<Ranked>,
    complete: bool,
}

/// The answer to a request for a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Top {
    pub list: List,
    /// The claim about its accuracy.
    pub claim: Claim,
}

impl Shelf {
    /// Takes a message. Those of one partition of the topic must come in order.
    pub fn take(&mut self, message: Published) {
        match message {
            Published::Board(board) => self.partitions.entry(board.partition).or_default().board(board),
            Published::Tick(tick) => {
                self.of = tick.of;
                self.partitions.entry(tick.partition).or_default().tick(tick);
            }
        }
    }

    /// Notes that the topic was read to its end: what is not in it now is missing or still to come.
    pub fn read_whole(&mut self) {
        let latest = self.latest();
        self.began.get_or_insert(latest);
    }

    fn latest(&self) -> u64 {
        self.partitions.values().filter_map(Known::latest).max().unwrap_or_default()
    }

    /// Moves to the latest moment that all partitions have, except for silent ones. It never goes back. Returns whether
    /// it has moved.
    pub fn settle(&mut self) -> bool {
        let Some(began) = self.began else { return false };
        let latest = self.latest();
        let all: Vec<Option<&Known>> = (0..self.of).map(|index| self.partitions.get(&index)).collect();
        // A partition without any message is waited for as long as one that falls silent.
        let unheard = all.iter().any(|known| known.and_then(Known::latest).is_none());
        if unheard && self.moment == 0 && latest.saturating_sub(began) <= SILENT {
            return false;
        }
        let heard: Vec<&Known> = all.into_iter().flatten().filter(|known| !known.is_silent(latest)).collect();
        let Some(first) = heard.first() else { return false };
        let mut common: BTreeSet<u64> = first.ticks.iter().map(|tick| tick.moment).collect();
        for known in &heard[1..] {
            common.retain(|moment| known.at(*moment).is_some());
        }
        let moment = common.last().copied().filter(|moment| *moment > self.moment);
        self.moment = moment.unwrap_or(self.moment);
        moment.is_some()
    }

    /// Returns the moment of the lists, if there is one yet.
    pub fn moment(&self) -> Option<u64> {
        Some(self.moment).filter(|moment| *moment > 0)
    }

    /// Returns the available windows.
    pub fn windows(&self) -> Vec<Window> {
        let ticks = self.partitions.values().filter_map(|known| known.at(self.moment));
        let windows: BTreeSet<Window> = ticks.flat_map(|tick| tick.claims.iter().map(|(window, _)| *window)).collect();
        windows.into_iter().collect()
    }

    /// Returns the first `k` subjects of `place` over `window`, or `None` if there is no moment yet or no such window.
    pub fn top(&self, place: &Place, window: Window, k: usize) -> Option<Top> {
        self.top_but(place, window, k, |_| false)
    }

    /// [`top`](Self::top) without the blocked subjects. If too few subjects are left, the claim says so.
    pub fn top_but(
        &self,
        place: &Place,
        window: Window,
        k: usize,
        is_blocked: impl Fn(&PostId) -> bool,
    ) -> Option<Top> {
        let moment = self.moment()?;
        let (mut lists, mut claim) = (Vec::new(), Claim::Exact);
        for index in 0..self.of {
            let known = self.partitions.get(&index);
            let Some((known, tick)) = known.and_then(|known| Some((known, known.at(moment)?))) else {
                claim = claim.max(Claim::Unknown(Reason::Missing));
                continue;
            };
            let (_, of_window) = tick.claims.iter().find(|(of, _)| *of == window)?;
            claim = claim.max(*of_window);
            if tick.folded && place.region.is_some() {
                claim = claim.max(Claim::Unknown(Reason::Shed));
            }
            lists.push(known.list(tick, place, window));
        }
        let (list, is_enough) = merge(&lists, k, is_blocked)?;
        if !is_enough {
            claim = claim.max(Claim::Unknown(Reason::Blocked));
        }
        Some(Top { list, claim })
    }
}

impl Known {
    fn latest(&self) -> Option<u64> {
        self.ticks.back().map(|tick| tick.moment)
    }

    fn is_silent(&self, latest: u64) -> bool {
        self.latest().is_none_or(|own| own + SILENT < latest)
    }

    fn at(&self, moment: u64) -> Option<&Tick> {
        self.ticks.iter().find(|tick| tick.moment == moment)
    }

    fn boards(&mut self, writer: &Writer) -> &mut Boards {
        let known = self.writers.iter().position(|(known, _)| known == writer);
        let place = known.map_or_else(|| (writer.clone(), Boards::new()), |index| self.writers.remove(index));
        self.writers.push(place);
        if self.writers.len() > WRITERS {
            let (gone, _) = self.writers.remove(0);
            self.ticks.retain(|tick| tick.writer != gone);
        }
        &mut self.writers.last_mut().expect("it was just put there").1
    }

    fn board(&mut self, board: Written) {
        let Written { writer, moment, place, window, items, complete, .. } = board;
        // A tick of this writer for this moment or a later one is kept and had all its boards, so this is a repetition,
        // maybe of a board that was dropped meanwhile.
        if self.ticks.iter().any(|tick| tick.writer == writer && tick.moment >= moment) {
            return;
        }
        let history = self.boards(&writer).entry((place, window)).or_default();
        // A repetition replaces the first copy.
        history.retain(|(at, _)| *at != moment);
        let behind = history.partition_point(|(at, _)| *at < moment);
        history.insert(behind, (moment, Board { items, complete }));
    }

    /// Keeps a tick if it is later than all others and all its boards have come. They have if their marks add up to the
    /// tick's.
    fn tick(&mut self, tick: Tick) {
        if self.latest().is_some_and(|latest| tick.moment <= latest) {
            return;
        }
        let moment = tick.moment;
        let boards = self.boards(&tick.writer);
        let marks = boards.iter().filter_map(|((place, window), history)| {
            let (written, board) = at(history, moment)?;
            (!board.items.is_empty()).then(|| mark(place, *window, *written))
        });
        if marks.fold(0, u64::wrapping_add) != tick.marks {
            return;
        }
        self.ticks.push_back(tick);
        let oldest_of_all = self.ticks.len().saturating_sub(MOMENTS);
        let oldest_of_all = self.ticks[oldest_of_all].moment;
        self.ticks
            .retain(|tick| tick.moment >= oldest_of_all || (is_common(tick.moment) && tick.moment + SILENT >= moment));
        self.prune();
    }

    /// Drops the boards that no kept moment needs.
    fn prune(&mut self) {
        let Some(oldest) = self.ticks.front().map(|tick| tick.moment) else { return };
        let Some(latest) = self.ticks.back().map(|tick| tick.writer.clone()) else { return };
        for (_, boards) in self.writers.iter_mut().filter(|(writer, _)| *writer == latest) {
            boards.retain(|_, history| {
                let needed = history.partition_point(|(at, _)| *at <= oldest).saturating_sub(1);
                history.drain(..needed);
                history.len() > 1 || history.back().is_some_and(|(_, board)| !board.items.is_empty())
            });
        }
    }

    fn list(&self, tick: &Tick, place: &Place, window: Window) -> List {
        let boards = self.writers.iter().find(|(writer, _)| *writer == tick.writer).map(|(_, boards)| boards);
        let history = boards.and_then(|boards| boards.get(&(place.clone(), window)));
        let board = history.and_then(|history| at(history, tick.moment));
        let (items, complete) = board.map_or((Vec::new(), true), |(_, board)| (board.items.clone(), board.complete));
        List { moment: tick.moment, from: window.from(tick.moment), items, complete }
    }
}

/// Returns the board as it was at `moment`, and the moment at which it was written.
fn at(history: &VecDeque<(u64, Board)>, moment: u64) -> Option<&(u64, Board)> {
    history.iter().rev().find(|(at, _)| *at <= moment)
}
