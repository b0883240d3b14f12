//! `tally stream`: the shards of the change stream, which worker reads each, and what was lost of it.

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use tally_core::fault::Fault;
use tally_core::ids::StreamLabel;
use tally_core::ports::{ChangeStream, Gap, ShardState};

use crate::desk::{Desk, Where};
use crate::said::{Answer, Form, Table, ago, print};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists the stream's shards: what each is called, what it continues, and how far it is applied
    Shards {
        /// Those that are closed, too
        #[arg(long)]
        closed: bool,

        #[command(flatten)]
        of: Where,
    },
    /// Lists which worker reads each open shard
    Leases {
        #[command(flatten)]
        of: Where,
    },
    /// Lists losses that are not repaired yet: while there is one, no count is exact. Exits with 1 where there is one
    Gaps {
        #[command(flatten)]
        of: Where,
    },
}

/// A shard of the stream.
#[derive(Debug, Serialize)]
struct Shard {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    ordinal: u64,
    /// Everything up to this record is applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
    /// Everything before this time is.
    at: u64,
    closed: bool,
    /// Whether the store lists it still.
    listed: bool,
    #[serde(skip)]
    age: String,
}

#[derive(Debug, Serialize)]
struct Shards {
    stream: String,
    shards: Vec<Shard>,
    /// Shards that no worker has numbered yet.
    unnumbered: Vec<String>,
}

impl Answer for Shards {
    fn table(&self) -> String {
        let mut table = Table::headed(["ordinal", "shard", "continues", "applied", "state"]);
        for Shard { id, parent, ordinal, age, closed, listed, .. } in &self.shards {
            let state = match (closed, listed) {
                (true, _) => "closed",
                (false, true) => "open",
                (false, false) => "open, and gone from the listing",
            };
            table.row([ordinal, id, &parent.as_deref().unwrap_or("-"), &format!("{age} ago"), &state]);
        }
        for id in &self.unnumbered {
            table.row([&"-", id, &"-", &"-", &"not read yet"]);
        }
        format!("stream {}\n{table}", self.stream)
    }
}

#[derive(Debug, Serialize)]
struct Lease {
    shard: String,
    ordinal: u64,
    worker: Option<String>,
    beat: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Leases(Vec<Lease>);

impl Answer for Leases {
    fn table(&self) -> String {
        let mut table = Table::headed(["ordinal", "shard", "worker", "beat"]);
        for Lease { shard, ordinal, worker, beat } in &self.0 {
            let beat = beat.map_or("-".to_owned(), |beat| beat.to_string());
            table.row([ordinal, shard, &worker.as_deref().unwrap_or("no worker"), &beat]);
        }
        table.to_string()
    }
}

#[derive(Debug, Serialize)]
struct OpenGap {
    id: String,
    kind: String,
    detail: String,
    opened: u64,
    #[serde(skip)]
    age: String,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Gaps(Vec<OpenGap>);

impl Answer for Gaps {
    fn table(&self) -> String {
        if self.0.is_empty() {
            return "no loss is open".to_owned();
        }
        let mut table = Table::headed(["gap", "opened", "what"]);
        for OpenGap { id, detail, age, .. } in &self.0 {
            table.row([id, &format!("{age} ago"), detail]);
        }
        table.to_string()
    }

    fn found(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        match self {
            Self::Shards { closed, of } => print(&shards(&Desk::open(of).await?, closed).await?, form),
            Self::Leases { of } => {
                let (_, known) = known(&Desk::open(of).await?).await?;
                let open = known.into_iter().filter(|state| !state.checkpoint.closed);
                print(&Leases(open.map(lease).collect()), form)
            }
            Self::Gaps { of } => {
                let desk = Desk::open(of).await?;
                let gaps = desk.checkpoints.gaps().await.context("cannot read the gaps")?;
                let now = desk.clock.now();
                let gap = |Gap { id, kind, detail, opened }| OpenGap {
                    id: id.0,
                    kind,
                    detail,
                    opened: opened.0,
                    age: ago(now.since(opened)),
                };
                print(&Gaps(gaps.into_iter().map(gap).collect()), form)
            }
        }
    }
}

async fn known(desk: &Desk) -> anyhow::Result<(StreamLabel, Vec<ShardState>)> {
    let info = desk.stream.info().await.map_err(Fault::from).context("cannot look at the stream")?;
    let known = desk.checkpoints.shards(&info.label).await.context("cannot read the checkpoints")?;
    Ok((info.label, known))
}

fn lease(state: ShardState) -> Lease {
    Lease {
        shard: state.checkpoint.id.to_string(),
        ordinal: state.checkpoint.ordinal.0,
        beat: state.lease.as_ref().map(|lease| lease.beat),
        worker: state.lease.map(|lease| lease.holder.0),
    }
}

async fn shards(desk: &Desk, closed: bool) -> anyhow::Result<Shards> {
    let (label, known) = known(desk).await?;
    let listed = desk.stream.shards(&label).await.map_err(Fault::from).context("cannot list the stream's shards")?;
    let now = desk.clock.now();
    let unnumbered = listed.iter().filter(|listed| known.iter().all(|state| state.checkpoint.id != listed.id));
    let unnumbered = unnumbered.map(|listed| listed.id.to_string()).collect();
    let shown = known.iter().map(|state| &state.checkpoint).filter(|shard| closed || !shard.closed);
    let shards = shown.map(|shard| Shard {
        id: shard.id.to_string(),
        parent: shard.parent.as_ref().map(ToString::to_string),
        ordinal: shard.ordinal.0,
        sequence: shard.sequence.map(|sequence| sequence.as_str().to_owned()),
        at: shard.at.0,
        closed: shard.closed,
        listed: listed.iter().any(|listed| listed.id == shard.id),
        age: ago(now.since(shard.at)),
    });
    Ok(Shards { stream: label.to_string(), shards: shards.collect(), unnumbered })
}
