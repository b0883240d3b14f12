//! `tally stream`: lists the shards of the table's change stream (`shards`), which process copies each to the log of
//! changes (`leases`), and the losses that are open (`losses`).

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use tally_adapters::dynamodb::changes::StoredShard;
use tally_core::fault::Fault;
use tally_core::ids::{StreamLabel, StreamShard};
use tally_core::ports::ChangeStream;
use tally_core::time::UnixMillis;

use crate::desk::{Desk, Where};
use crate::said::{Answer, Form, Table, ago, or_dash, print};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists the stream's shards: what each is called, what it continues, and how far it is in the log of changes
    Shards {
        /// Those that are closed, too
        #[arg(long)]
        closed: bool,

        #[command(flatten)]
        of: Where,
    },
    /// Lists which process reads each open shard
    Leases {
        #[command(flatten)]
        of: Where,
    },
    /// Lists losses that are not repaired yet: while there is one, no count is exact. Exits with 1 where there is one
    #[command(visible_alias = "gaps")]
    Losses {
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
    /// All changes up to this sequence number are in the log of changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
    /// All changes before this time are in the log of changes.
    at: u64,
    closed: bool,
    /// Whether the store still lists the shard.
    listed: bool,
    #[serde(skip)]
    age: String,
}

#[derive(Debug, Serialize)]
struct Shards {
    stream: String,
    shards: Vec<Shard>,
    /// Shards that no change-streamer has begun with.
    unread: Vec<String>,
}

impl Answer for Shards {
    fn table(&self) -> String {
        let mut table = Table::headed(["shard", "continues", "in the log up to", "state"]);
        for Shard { id, parent, age, closed, listed, .. } in &self.shards {
            let state = match (closed, listed) {
                (true, _) => "closed",
                (false, true) => "open",
                (false, false) => "open, and gone from the listing",
            };
            table.row([id, &or_dash(parent.as_ref()), &format!("{age} ago"), &state]);
        }
        for id in &self.unread {
            table.row([id, &"-", &"-", &"not read yet"]);
        }
        format!("stream {}\n{table}", self.stream)
    }
}

#[derive(Debug, Serialize)]
struct Lease {
    shard: String,
    worker: Option<String>,
    beat: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Leases(Vec<Lease>);

impl Answer for Leases {
    fn table(&self) -> String {
        let mut table = Table::headed(["shard", "worker", "beat"]);
        for Lease { shard, worker, beat } in &self.0 {
            table.row([shard, &worker.as_deref().unwrap_or("no worker"), &or_dash(*beat)]);
        }
        table.to_string()
    }
}

#[derive(Debug, Serialize)]
struct OpenLoss {
    /// The loss's number, which is at least the time at which it was found.
    id: u64,
    kind: String,
    detail: String,
    #[serde(skip)]
    age: String,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct OpenLosses(Vec<OpenLoss>);

impl Answer for OpenLosses {
    fn table(&self) -> String {
        if self.0.is_empty() {
            return "no loss is open".to_owned();
        }
        let mut table = Table::headed(["loss", "found", "kind", "what"]);
        for OpenLoss { id, kind, detail, age } in &self.0 {
            table.row([id, &format!("{age} ago"), kind, detail]);
        }
        format!("{table}\nan audit closes them: tally audit start")
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
                let open = known.into_iter().filter(|stored| stored.closed.is_none());
                print(&Leases(open.map(lease).collect()), form)
            }
            Self::Losses { of } => print(&losses(&Desk::open(of).await?).await?, form),
        }
    }
}

async fn losses(desk: &Desk) -> anyhow::Result<OpenLosses> {
    let losses = desk.changes.losses().await.context("cannot read the losses")?;
    let now = desk.clock.now();
    let open = losses.open().map(|(number, loss)| OpenLoss {
        id: number.0,
        kind: loss.kind.clone(),
        detail: loss.what.clone(),
        age: ago(now.since(UnixMillis(number.0))),
    });
    Ok(OpenLosses(open.collect()))
}

async fn known(desk: &Desk) -> anyhow::Result<(StreamLabel, Vec<StoredShard>)> {
    let info = desk.stream.info().await.map_err(Fault::from).context("cannot look at the stream")?;
    let known = desk.changes.shards(&info.label).await.context("cannot read the stream shards")?;
    Ok((info.label, known))
}

fn lease(stored: StoredShard) -> Lease {
    Lease {
        shard: stored.shard.to_string(),
        beat: stored.lease.as_ref().map(|lease| lease.beat),
        worker: stored.lease.map(|lease| lease.holder.0),
    }
}

async fn shards(desk: &Desk, closed: bool) -> anyhow::Result<Shards> {
    let (label, known) = known(desk).await?;
    let listed = desk.stream.shards(&label).await.map_err(Fault::from).context("cannot list the stream's shards")?;
    let listed: Vec<_> = listed.iter().map(|listed| StreamShard::new(&label, &listed.id)).collect();
    let now = desk.clock.now();
    let unread = listed.iter().filter(|listed| known.iter().all(|stored| stored.shard != **listed));
    let unread = unread.map(ToString::to_string).collect();
    let shown = known.iter().filter(|stored| closed || stored.closed.is_none());
    let shards = shown.map(|stored| Shard {
        id: stored.shard.to_string(),
        parent: stored.parent.as_ref().map(ToString::to_string),
        sequence: stored.fed.to.map(|sequence| sequence.as_str().to_owned()),
        at: stored.fed.at.0,
        closed: stored.closed.is_some(),
        listed: listed.contains(&stored.shard),
        age: ago(now.since(stored.fed.at)),
    });
    Ok(Shards { stream: label.to_string(), shards: shards.collect(), unread })
}
