//! `tally dlq`: records that could not be applied, and sending them again.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde::Serialize;
use tally_adapters::kafka;
use tally_consumer::dlq::{self, Content, Described, Replay, Replayed, Wanted};
use tally_core::event::Rejection;
use tally_core::time::UnixMillis;

use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Form, Table, counted, plain, print};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Counts the dead letters that no replay has put back by reason, and lists some. Exits with 1 where there are any
    ///
    /// Those of other deployments that share the topic are counted, and not listed. A letter that names no deployment is of an
    /// older build, and is taken for one of this deployment.
    List {
        #[command(flatten)]
        meant: Meant,

        /// The most that are listed one by one
        #[arg(long, default_value_t = 20, value_name = "COUNT")]
        limit: usize,

        #[command(flatten)]
        of: Where,
    },
    /// Shows the dead letters of one record, by the partition and the offset that it had, and what the record holds. Exits with 1
    /// where no replay has put it back
    Show {
        /// The partition that the record was in
        #[arg(long, value_name = "NUMBER")]
        partition: u32,

        /// The offset that it had there
        #[arg(long, value_name = "NUMBER")]
        offset: u64,

        #[command(flatten)]
        of: Where,
    },
    /// Sends dead letters that decode as events now to the topic again, as if they had just happened
    ///
    /// Each record is sent once, however many letters it has and however many replays are run or killed: a replay writes what
    /// it sends, and that it was sent, in one transaction of Kafka. A replay of all continues where the last one stopped. One of
    /// a reason, or since a time, begins with the first letter that is kept. Letters of other deployments are left alone; one
    /// that names no deployment is of an older build, and is taken for one of this deployment. A replay ends one that is still
    /// running.
    Replay(Box<ReplayArgs>),
}

/// Which letters are meant.
#[derive(Args, Clone, Debug)]
pub(crate) struct Meant {
    /// Those put aside for this reason
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: Option<String>,

    /// Those put aside at this time or later, in milliseconds since 1970
    #[arg(long, value_name = "MILLIS")]
    since: Option<u64>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    meant: Meant,

    /// The most that are read
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    limit: usize,

    /// Send what adds to a sum, too. A letter does not prove that its record never counted: a consumer that was killed, or
    /// had lost its partition, may have written it before the record's counter was defined. Such a record counts again
    #[arg(long)]
    sums: bool,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    of: Where,
}

fn reason(text: &str) -> Result<String, String> {
    let known = Rejection::REASONS.contains(&text);
    known.then(|| text.to_owned()).ok_or_else(|| format!("one of {}", Rejection::REASONS.join(", ")))
}

impl From<Meant> for Wanted {
    fn from(Meant { reason, since }: Meant) -> Self {
        Self { reason, since: since.map(UnixMillis), ..Self::default() }
    }
}

#[derive(Debug, Serialize)]
struct Letters {
    letters: Vec<Described>,
    reasons: BTreeMap<&'static str, u64>,
    total: u64,
    /// How many there are of records that were put back, which are not listed.
    put_back: u64,
    /// How many there are of other deployments.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    foreign: BTreeMap<String, u64>,
}

impl Answer for Letters {
    fn table(&self) -> String {
        if self.letters.iter().any(|letter| letter.record.is_some()) {
            return self.letters.iter().map(shown).collect::<Vec<_>>().join("\n");
        }
        let mut letters = Table::headed(["topic", "partition", "offset", "reason", "message"]);
        for Described { topic, partition, offset, reason, message, .. } in &self.letters {
            let or = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
            let (partition, offset) = (or(partition.map(u64::from)), or(*offset));
            letters.row([&topic.as_deref().unwrap_or("-"), &partition, &offset, reason, message]);
        }
        let mut reasons = Table::headed(["reason", "letters"]);
        for (reason, count) in &self.reasons {
            reasons.row([reason, count]);
        }
        let foreign = self.foreign.iter().map(|(other, count)| format!("\n{count} more of {}", plain(other)));
        let put_back =
            if self.put_back > 0 { format!(", {} more were put back", self.put_back) } else { String::new() };
        let foreign = foreign.collect::<String>();
        match self.total {
            0 => format!("no letters{put_back}{foreign}"),
            total => format!("{letters}\n{reasons}\n{total} in all{put_back}{foreign}"),
        }
    }

    fn found(&self) -> bool {
        self.total > 0
    }
}

/// One letter with what its record holds.
fn shown(letter: &Described) -> String {
    let Described { topic, partition, offset, reason, message, cut_from, is_put_back, record } = letter;
    let mut table = Table::default();
    let or = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    table.row([&"topic", &topic.as_deref().unwrap_or("-")]);
    table.row([&"partition", &or(partition.map(u64::from))]);
    table.row([&"offset", &or(*offset)]);
    table.row([&"reason", reason]);
    table.row([&"message", message]);
    table.row([&"put back", &if *is_put_back { "yes" } else { "no" }]);
    if let Some(Content { written, put_aside, key, headers, value }) = record {
        if *written > 0 {
            table.row([&"written", &UnixMillis(*written).date()]);
        }
        table.row([&"put aside", &UnixMillis(*put_aside).date()]);
        table.row([&"key", &key.as_deref().unwrap_or("none")]);
        for (name, value) in headers {
            table.row([&"header", &format!("{name}: {}", value.as_deref().unwrap_or("none"))]);
        }
        let cut = cut_from.map_or(String::new(), |bytes| format!(" (cut, it had {bytes} bytes)"));
        table.row([&"value", &format!("{}{cut}", value.as_deref().unwrap_or("none"))]);
    }
    table.to_string()
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        match self {
            Self::List { meant, limit, of } => list(of, &meant.into(), limit, form).await,
            Self::Show { partition, offset, of } => {
                let wanted = Wanted { from: Some((partition, offset)), ..Wanted::default() };
                list(of, &wanted, usize::MAX, form).await
            }
            Self::Replay(args) => args.run(form).await,
        }
    }
}

async fn list(of: Where, wanted: &Wanted, limit: usize, form: Form) -> anyhow::Result<u8> {
    let desk = Desk::open(of).await?;
    let reader = desk.reader(&desk.dead_letter_topic)?;
    let of = (desk.deployment()?, &*desk.topic);
    let dlq::Letters { first, reasons, put_back, foreign } = dlq::letters(&reader, of, wanted, limit).await?;
    let total = reasons.values().sum();
    print(&Letters { letters: first, reasons, total, put_back, foreign }, form)
}

impl ReplayArgs {
    async fn run(self, form: Form) -> anyhow::Result<u8> {
        let Self { meant, limit, sums, writing, of } = self;
        let desk = Desk::open(of).await?;
        let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
        let replay = |dry_run| {
            anyhow::Ok(Replay {
                reader: Arc::new(desk.reader(&desk.dead_letter_topic)?),
                transactions: Arc::new(kafka::Transactions::new(desk.kafka()?, &desk.replays())),
                deployment: desk.deployment()?.to_owned(),
                topic: desk.topic.clone(),
                definitions: defined.said_in(&desk.topic),
                wanted: meant.clone().into(),
                sums,
                dry_run,
            })
        };
        let would = replay(true)?.run(limit).await?;
        // What a replay of all has read is not called unread any more.
        let reads = Wanted::from(meant.clone()).is_all() && would.skipped + would.repeated > 0;
        let (mut plan, mut found) = (said(&would, "to send"), Vec::new());
        if would.sent == 0 && !reads {
            std::mem::swap(&mut plan, &mut found);
        }
        let changed = writing.carry_out(&desk, "dlq replay", plan, async || {
            Ok(said(&replay(false)?.run(limit).await?, "sent").join(", "))
        });
        print(&changed.await?.with(found), form)
    }
}

/// What became of letters, or would, a line each.
fn said(done: &Replayed, what: &str) -> Vec<String> {
    let Replayed { sent, skipped, repeated, sums, foreign } = *done;
    let parts = [
        (sent, what),
        (skipped, "still no event"),
        (repeated, "put back before"),
        (sums, "left out, since sums may count twice: --sums sends them"),
        (foreign, "of other topics or deployments"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, what)| format!("{} {what}", counted(count, "letter"))).collect()
}
