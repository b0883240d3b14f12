//! What an audit may put an end to: the gaps that were open when it began, and the request that had queued it.

use serde_json::{Value, json};
use tally_core::ids::RowKey;
use tally_core::ports::{Gap, GapId};
use tally_core::recount::gap_may_close;
use tally_core::time::UnixMillis;

use crate::summary::Findings;
use crate::tools::Tools;

/// What was so when an audit began.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Closing {
    /// By our clock, or later: behind every gap below, by whatever clock it was opened. What was seen open was opened
    /// before.
    began: UnixMillis,
    gaps: Vec<Gap>,
    asked: Option<UnixMillis>,
}

/// An audit that has left row keys unsettled, all of which are queued.
pub(crate) struct Remainder {
    pub(crate) closing: Closing,
    pub(crate) keys: Vec<RowKey>,
}

impl Closing {
    /// What there is to be closed by an audit beginning now.
    pub(crate) async fn beginning(tools: &Tools) -> anyhow::Result<Self> {
        let (gaps, asked) = open(tools).await?;
        let latest = gaps.iter().map(|gap| gap.opened.0 + 1).max().unwrap_or(0);
        Ok(Self { began: tools.clock.now().max(UnixMillis(latest)), gaps, asked })
    }

    /// Closes what an audit that leaves `unsettled` row keys may close: all, or nothing.
    pub(crate) async fn close(&self, tools: &Tools, unsettled: u64, findings: &Findings) -> anyhow::Result<()> {
        if unsettled > 0 {
            return Ok(());
        }
        let checkpoints = &tools.ports.checkpoints;
        let standing = tools.persist("read gaps", || checkpoints.gaps()).await?;
        for gap in self.gaps.iter().filter(|gap| gap_may_close(gap.opened, self.began, unsettled)) {
            if standing.iter().any(|standing| is_same(standing, gap)) {
                tools.persist("close a gap", || checkpoints.close_gap(gap)).await?;
                tracing::info!(gap = gap.id.0, "gap closed: every row key was proved or repaired");
                findings.gap_closed();
            }
        }
        if let Some(asked) = self.asked {
            let recounts = &tools.ports.recounts;
            tools.persist("take the audit off the queue", || recounts.audit_done(asked)).await?;
        }
        Ok(())
    }

    /// Whether there is anything open now that this audit, once it is settled, would not close.
    pub(crate) async fn is_outdated(&self, tools: &Tools) -> anyhow::Result<bool> {
        let (gaps, asked) = open(tools).await?;
        let known = |gap: &Gap| self.gaps.iter().any(|known| is_same(known, gap));
        Ok(asked.is_some_and(|asked| self.asked != Some(asked)) || !gaps.iter().all(known))
    }

    /// As it is kept with a run.
    pub(crate) fn record(&self) -> Value {
        let gaps: Vec<_> = self.gaps.iter().map(|gap| json!([gap.id.0, gap.opened])).collect();
        json!({"began": self.began, "gaps": gaps, "asked": self.asked})
    }

    /// From what is kept with a run.
    pub(crate) fn recorded(record: &Value) -> Option<Self> {
        let gap = |gap: &Value| {
            let (id, opened) = (gap[0].as_str()?.to_owned(), gap[1].as_u64()?);
            Some(Gap { id: GapId(id), kind: String::new(), detail: String::new(), opened: UnixMillis(opened) })
        };
        Some(Self {
            began: UnixMillis(record["began"].as_u64()?),
            gaps: record["gaps"].as_array()?.iter().map(gap).collect::<Option<_>>()?,
            asked: record["asked"].as_u64().map(UnixMillis),
        })
    }
}

impl Remainder {
    /// Whether every row key left has been settled since: then none of them is queued any more.
    pub(crate) async fn is_settled(&self, tools: &Tools) -> anyhow::Result<bool> {
        let mut after = None;
        loop {
            let page = tools.page("read the queue", || tools.ports.recounts.queued(after.as_ref())).await?;
            if page.items.iter().any(|queued| self.keys.contains(&queued.key)) {
                return Ok(false);
            }
            after = page.next;
            if after.is_none() {
                return Ok(true);
            }
        }
    }
}

fn is_same(one: &Gap, other: &Gap) -> bool {
    one.id == other.id && one.opened == other.opened
}

async fn open(tools: &Tools) -> anyhow::Result<(Vec<Gap>, Option<UnixMillis>)> {
    let gaps = tools.persist("read gaps", || tools.ports.checkpoints.gaps()).await?;
    let asked = tools.persist("read the queued audit", || tools.ports.recounts.audit_queued()).await?;
    tools.read_items(2);
    Ok((gaps, asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_with_a_run_is_what_it_closes() {
        let gap = |id: &str, opened| Gap {
            id: GapId(id.to_owned()),
            kind: String::new(),
            detail: String::new(),
            opened: UnixMillis(opened),
        };
        let gaps = vec![gap("trimmed/a", 5), gap("outage/b", 9)];
        for asked in [None, Some(UnixMillis(7))] {
            let closing = Closing { began: UnixMillis(10), gaps: gaps.clone(), asked };
            assert_eq!(Closing::recorded(&closing.record()), Some(closing));
        }
        assert_eq!(Closing::recorded(&Value::Null), None);
    }
}
