//! What a reader of the topic of boards has of it: the ticks and boards of every partition, and the list of all partitions at the
//! latest moment that they have together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tally_core::ids::PostId;

use crate::window::is_common;
use crate::wire::{Published, Tick, Writer, Written, mark};
use crate::{Claim, List, Place, Ranked, Reason, Window, merge_but};

/// Moments of a partition that are kept: the latest, and beside them those that partitions which are late have, too.
const MOMENTS: usize = 10;

/// How far a partition may be behind the first one before the others are merged without it, in seconds.
const SILENT: u64 = 60;

/// Writers of one partition whose messages are kept: the one in force, and those that may come into force.
const WRITERS: usize = 4;

/// What was read of the topic of boards.
#[derive(Debug, Default)]
pub struct Shelf {
    partitions: BTreeMap<u32, Known>,
    /// Of how many partitions the latest tick is.
    of: u32,
    /// The latest moment when the topic was read to its end.
    began: Option<u64>,
    /// The moment that is told.
    moment: u64,
}

/// What is known of one partition.
#[derive(Debug, Default)]
struct Known {
    /// In the order in which they were heard of, the latest last.
    writers: Vec<(Writer, Boards)>,
    /// The latest ticks, in order.
    ticks: VecDeque<Tick>,
}

/// The boards of one writer.
type Boards = BTreeMap<(Place, Window), VecDeque<(u64, Board)>>;

#[derive(Debug)]
struct Board {
    items: Vec<Ranked>,
    complete: bool,
}

/// The answer to what is asked of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Top {
    /// The list.
    pub list: List,
    /// What may be claimed of it.
    pub claim: Claim,
}

impl Shelf {
    /// Takes a message, in the order of its partition of the topic.
    pub fn take(&mut self, message: Published) {
        match message {
            Published::Board(board) => self.partitions.entry(board.partition).or_default().board(board),
            Published::Tick(tick) => {
                self.of = tick.of;
                self.partitions.entry(tick.partition).or_default().tick(tick);
            }
        }
    }

    /// The topic was read to its end: what is not in it now is missing, or is still to come.
    pub fn read_whole(&mut self) {
        let latest = self.latest();
        self.began.get_or_insert(latest);
    }

    fn latest(&self) -> u64 {
        self.partitions.values().filter_map(Known::latest).max().unwrap_or_default()
    }

    /// Moves to the latest moment that all partitions have that are not silent. It never goes back. Whether anything is told
    /// differently from before.
    pub fn settle(&mut self) -> bool {
        let Some(began) = self.began else { return false };
        let latest = self.latest();
        let all: Vec<Option<&Known>> = (0..self.of).map(|index| self.partitions.get(&index)).collect();
        // A partition that was never heard of is waited for as long as one that falls silent.
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

    /// The moment that is told; `None` before there is one.
    pub fn moment(&self) -> Option<u64> {
        Some(self.moment).filter(|moment| *moment > 0)
    }

    /// The windows that there are.
    pub fn windows(&self) -> Vec<Window> {
        let ticks = self.partitions.values().filter_map(|known| known.at(self.moment));
        let windows: BTreeSet<Window> = ticks.flat_map(|tick| tick.claims.iter().map(|(window, _)| *window)).collect();
        windows.into_iter().collect()
    }

    /// The first `k` of `place` over `window`; `None` before there is a moment, or where there is no such window.
    pub fn top(&self, place: &Place, window: Window, k: usize) -> Option<Top> {
        self.top_but(place, window, k, |_| false)
    }

    /// The same but for those that are blocked. There may be fewer than `k` then, and the claim says so.
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
                claim = claim.and(Claim::Unknown(Reason::Missing));
                continue;
            };
            let (_, of_window) = tick.claims.iter().find(|(of, _)| *of == window)?;
            claim = claim.and(*of_window);
            if tick.folded && place.region.is_some() {
                claim = claim.and(Claim::Unknown(Reason::Shed));
            }
            lists.push(known.list(tick, place, window));
        }
        let (list, is_enough) = merge_but(&lists, k, is_blocked).ok()?;
        if !is_enough {
            claim = claim.and(Claim::Unknown(Reason::Blocked));
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
        // A tick is taken with all its boards, so this is a late repetition, of one that may be dropped by now.
        if self.ticks.iter().any(|tick| tick.writer == writer && tick.moment >= moment) {
            return;
        }
        let history = self.boards(&writer).entry((place, window)).or_default();
        // Written again.
        history.retain(|(at, _)| *at != moment);
        let behind = history.partition_point(|(at, _)| *at < moment);
        history.insert(behind, (moment, Board { items, complete }));
    }

    /// Takes a tick that is later than all before, if all its boards are there.
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

    /// Drops what no moment that is kept needs.
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

/// The board as it was at `moment`, and when it was written.
fn at(history: &VecDeque<(u64, Board)>, moment: u64) -> Option<&(u64, Board)> {
    history.iter().rev().find(|(at, _)| *at <= moment)
}
