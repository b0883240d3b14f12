//! What an audit may put an end to: the gaps that were open when it began, and the request that had queued it.

use crate::ports::{Gap, GapId};
use crate::time::UnixMillis;

/// What was open when an audit began. What was opened later stays open: rows it concerns may have been scanned before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenAtStart {
    /// When the audit began, by our clock or later: behind every gap below, by whatever clock it was opened.
    pub began: UnixMillis,
    /// The open gaps.
    pub gaps: Vec<OpenGap>,
    /// When an audit was last asked for.
    pub asked: Option<UnixMillis>,
}

/// A gap as an audit remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenGap {
    /// Its name.
    pub id: GapId,
    /// When it was opened, last.
    pub opened: UnixMillis,
}

impl OpenAtStart {
    /// What there is to be closed by an audit beginning at `now`: the gaps that stand open and the request that stands
    /// in the queue, both read before. What is seen open was opened before, whatever the clocks say.
    pub fn new(now: UnixMillis, gaps: &[Gap], asked: Option<UnixMillis>) -> Self {
        let latest = gaps.iter().map(|gap| UnixMillis(gap.opened.0 + 1)).max().unwrap_or_default();
        let gaps = gaps.iter().map(|gap| OpenGap { id: gap.id.clone(), opened: gap.opened }).collect();
        Self { began: now.max(latest), gaps, asked }
    }

    /// Which of the gaps `standing` open close once this audit has left `unsettled` row keys neither proved nor repaired:
    /// all that it found open, or none.
    pub fn closable<'a>(&self, standing: &'a [Gap], unsettled: u64) -> impl Iterator<Item = &'a Gap> {
        standing.iter().filter(move |gap| unsettled == 0 && self.knows(gap) && gap.opened < self.began)
    }

    /// Whether anything is open now that this audit, once it is settled, would not close.
    pub fn is_outdated(&self, standing: &[Gap], asked: Option<UnixMillis>) -> bool {
        asked.is_some_and(|asked| self.asked != Some(asked)) || !standing.iter().all(|gap| self.knows(gap))
    }

    fn knows(&self, gap: &Gap) -> bool {
        self.gaps.iter().any(|known| known.id == gap.id && known.opened == gap.opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(id: &str, opened: u64) -> Gap {
        Gap { id: GapId(id.to_owned()), kind: String::new(), detail: String::new(), opened: UnixMillis(opened) }
    }

    fn closed(open: &OpenAtStart, standing: &[Gap], unsettled: u64) -> Vec<u64> {
        open.closable(standing, unsettled).map(|gap| gap.opened.0).collect()
    }

    #[test]
    fn a_gap_closes_only_by_an_audit_that_began_after_it_and_settled_every_row_key() {
        let open = OpenAtStart::new(UnixMillis(6), &[gap("a", 5)], None);
        assert_eq!(closed(&open, &[gap("a", 5)], 0), [5]);
        assert_eq!(closed(&open, &[gap("a", 5)], 1), [0; 0], "a row key is unsettled");
        assert_eq!(closed(&open, &[gap("a", 7)], 0), [0; 0], "the same place was lost again");
        assert_eq!(closed(&open, &[gap("b", 3)], 0), [0; 0], "opened since, by a clock that is behind");
    }

    #[test]
    fn an_audit_begins_after_every_gap_it_sees_whatever_the_clocks_say() {
        let open = OpenAtStart::new(UnixMillis(6), &[gap("ahead", 900)], None);
        assert_eq!(open.began, UnixMillis(901));
        assert_eq!(closed(&open, &[gap("ahead", 900)], 0), [900]);
    }

    #[test]
    fn an_audit_is_outdated_by_a_new_gap_or_a_later_request() {
        let open = OpenAtStart::new(UnixMillis(6), &[gap("a", 5)], Some(UnixMillis(4)));
        assert!(!open.is_outdated(&[gap("a", 5)], Some(UnixMillis(4))));
        assert!(!open.is_outdated(&[], None));
        assert!(open.is_outdated(&[gap("a", 7)], None));
        assert!(open.is_outdated(&[], Some(UnixMillis(5))));
    }
}
