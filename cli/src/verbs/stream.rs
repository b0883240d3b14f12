//! `tally stream`: lists the shards of the table's change stream (`shards`), which process copies each to the log of
//! changes (`leases`), and the open losses (`losses`), each a record that changes or events may be missing from counts.

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use tally_adapters::dynamodb::changes::{Loss, StoredShard};
use tally_core::fault::Fault;
use tally_core::ids::{StreamLabel, StreamShard};
use tally_core::ports::ChangeStream;
use tally_core::time::UnixMillis;

use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, add, or_dash, past};
use crate::verbs::audit::CLOSES;

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
    Leases(Where),
    /// Lists losses that are not repaired yet: while there is one, no count is exact. Exits with 1 where there is one
    #[command(visible_alias = "gaps")]
    Losses(Where),
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::Shards { closed, of } => shards(&Desk::open(of).await?, closed).await,
            Self::Leases(of) => leases(&Desk::open(of).await?).await,
            Self::Losses(of) => losses(&Desk::open(of).await?).await,
        }
    }
}

pub(super) async fn known(desk: &Desk) -> anyhow::Result<(StreamLabel, Vec<StoredShard>)> {
    let info = desk.stream.info().await.map_err(Fault::from).context("cannot look at the stream")?;
    let known = desk.changes.shards(&info.label).await.context("cannot read the stream shards")?;
    Ok((info.label, known))
}

async fn shards(desk: &Desk, closed: bool) -> anyhow::Result<Answer> {
    let (label, known) = known(desk).await?;
    let listed = desk.stream.shards(&label).await.map_err(Fault::from).context("cannot list the stream's shards")?;
    let listed: Vec<_> = listed.iter().map(|listed| StreamShard::new(&label, &listed.id)).collect();
    let (mut table, mut shards) = (Table::headed(["shard", "continues", "in the log up to", "state"]), Vec::new());
    for StoredShard { shard, parent, fed, closed, .. } in known.iter().filter(|one| closed || one.closed.is_none()) {
        let (is_closed, is_listed) = (closed.is_some(), listed.contains(shard));
        let state = match (is_closed, is_listed) {
            (true, _) => "closed",
            (false, true) => "open",
            (false, false) => "open, and gone from the listing",
        };
        table.row([shard, &or_dash(parent.as_ref()), &past(desk.clock.now(), Some(fed.at)), &state]);
        // All changes up to this sequence number, and all before this time, are in the log of changes.
        let mut json = json!({"id": shard.to_string(), "at": fed.at.0, "closed": is_closed, "listed": is_listed});
        add(&mut json, "parent", parent.as_ref().map(ToString::to_string));
        add(&mut json, "sequence", fed.to.as_ref().map(|sequence| sequence.as_str()));
        shards.push(json);
    }
    // Shards that no change-streamer has begun with.
    let unread = listed.iter().filter(|listed| known.iter().all(|stored| stored.shard != **listed));
    let unread: Vec<String> = unread.map(ToString::to_string).collect();
    unread.iter().for_each(|id| table.row([id, &"-", &"-", &"not read yet"]));
    let json = json!({"stream": label.to_string(), "shards": shards, "unread": unread});
    Ok(Answer::new(json, format!("stream {label}\n{table}")))
}

async fn leases(desk: &Desk) -> anyhow::Result<Answer> {
    let (mut table, mut leases) = (Table::headed(["shard", "worker", "beat"]), Vec::new());
    for StoredShard { shard, lease, .. } in known(desk).await?.1.iter().filter(|stored| stored.closed.is_none()) {
        let (worker, beat) = lease.as_ref().map(|lease| (&*lease.holder.0, lease.beat)).unzip();
        table.row([shard, &worker.unwrap_or("no worker"), &or_dash(beat)]);
        leases.push(json!({"shard": shard.to_string(), "worker": worker, "beat": beat}));
    }
    Ok(Answer::new(leases, table))
}

async fn losses(desk: &Desk) -> anyhow::Result<Answer> {
    let losses = desk.changes.losses().await.context("cannot read the losses")?;
    let (mut table, mut open) = (Table::headed(["loss", "found", "kind", "what"]), Vec::new());
    for (number, Loss { kind, what, .. }) in losses.open() {
        // A loss's number is at least the time at which it was found.
        table.row([&number.0, &past(desk.clock.now(), Some(UnixMillis(number.0))), kind, what]);
        open.push(json!({"id": number.0, "kind": kind, "detail": what}));
    }
    if open.is_empty() {
        return Ok(Answer::new(open, "no loss is open"));
    }
    Ok(Answer::new(open, format!("{table}\n{CLOSES}")).wrong_if(true))
}
