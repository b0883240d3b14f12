//! `tally dlq`: lists dead letters (records that the consumer could not apply), and sends them to their topic again.

mod letters;
mod receipts;
mod replay;

use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand};
use tally_adapters::kafka;

use self::letters::{Letters, Wanted, list};
pub(super) use self::letters::{each, left};
pub(super) use self::receipts::{Identities, Identity, letter};
use self::replay::Replay;
use crate::change::Changing;
use crate::desk::{Desk, Where};
use crate::said::Answer;

/// What a replay does that its operator may not expect.
const NEWER: &str =
    "a replayed event is newer than everything its user did meanwhile: a like that was taken back since comes back";

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Counts, by reason, the dead letters that no replay has put back, and lists some. Exits with 1 where there are any
    ///
    /// A record that failed again when it was read again has two letters; a replay sends it once. Letters of other
    /// deployments that share the topic are counted, and not listed. A letter that names no deployment is of an older
    /// build, and is taken for one of this deployment.
    List {
        #[command(flatten)]
        wanted: Wanted,

        /// The most that are listed one by one
        #[arg(long, default_value_t = 20, value_name = "COUNT")]
        limit: usize,

        #[command(flatten)]
        of: Where,
    },
    /// Shows the dead letters of one record, by the partition and the offset that it had, and what the record holds.
    /// Exits with 1 where no replay has put it back
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
    /// Each record is sent once, however many letters it has and however many replays are run or killed: a replay
    /// writes what it sends, and that it was sent, in one transaction of Kafka. Without a filter it continues where
    /// the last one stopped; with a filter it begins at the oldest letter. Letters of other deployments are left alone, and
    /// other deployments that read the topic pass over what is sent. A letter that names no deployment is of an older build,
    /// and is taken for one of this deployment. A replay ends one that is still running.
    ///
    /// A replayed event is newer than everything its user did meanwhile: a like that was taken back since comes back. Look
    /// at old letters with `tally dlq show` first.
    Replay(Box<ReplayArgs>),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    wanted: Wanted,

    /// Those of the record that had --offset in this partition
    #[arg(long, value_name = "NUMBER", requires = "offset")]
    partition: Option<u32>,

    /// The offset that it had there
    #[arg(long, value_name = "NUMBER", requires = "partition")]
    offset: Option<u64>,

    /// The most letters that are read. The next run goes on there. With --reason, --since or --offset the most that are sent
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    limit: usize,

    /// Send what adds to a sum, too. A letter does not prove that its record never counted: a consumer that was killed, or
    /// had lost its partition, may have written it before the record's counter was defined. Such a record counts again
    #[arg(long)]
    sums: bool,

    #[command(flatten)]
    change: Changing,
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::List { wanted, limit, of } => Ok(listed(of, &wanted, limit).await?.into()),
            Self::Show { partition, offset, of } => {
                let wanted = Wanted { from: Some((partition, offset)), ..Wanted::default() };
                let found = listed(of, &wanted, usize::MAX).await?;
                if found.letters.is_empty() && found.foreign.is_empty() {
                    let text =
                        format!("no dead letter is about offset {offset} of partition {partition}: see tally dlq list");
                    return Ok(Answer::new(&found, text));
                }
                Ok(found.into())
            }
            Self::Replay(args) => args.run().await,
        }
    }
}

async fn listed(of: Where, wanted: &Wanted, limit: usize) -> anyhow::Result<Letters> {
    let desk = Desk::open(of).await?;
    let reader = desk.reader(&desk.dead_letter_topic)?;
    list(&reader, (desk.deployment()?, &desk.topic), wanted, limit).await
}

impl ReplayArgs {
    async fn run(self) -> anyhow::Result<Answer> {
        let Self { wanted, partition, offset, limit, sums, change: Changing { writing, of } } = self;
        let wanted = Wanted { from: partition.zip(offset), ..wanted };
        let desk = Desk::open(of).await?;
        let topic = desk.counted_topic().await?;
        let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
        // A replay of all letters changes something even if it sends none: it stores how far it has read.
        let is_all = wanted.is_all();
        let mut replay = Replay {
            reader: Arc::new(desk.reader(&desk.dead_letter_topic)?),
            calls: desk.calls.clone(),
            transactions: Arc::new(kafka::Transactions::new(desk.kafka()?, &desk.replays())),
            deployment: desk.deployment()?.to_owned(),
            definitions: defined.said_in(&topic),
            topic,
            wanted,
            sums,
            dry_run: true,
        };
        let would = replay.run(limit).await?;
        let (mut plan, mut found) = (would.said("to send"), Vec::new());
        if would.sent == 0 && !(is_all && would.skipped + would.repeated > 0) {
            std::mem::swap(&mut plan, &mut found);
        }
        if would.sent > 0 {
            found.push(NEWER.to_owned());
            found.push("tally dlq list shows some of the letters".to_owned());
        }
        if would.is_full {
            found.push("--limit ends it here: run it again for further letters".to_owned());
        }
        if would.goes_on {
            found.push(
                "letters that an earlier replay of all has read are passed over: --reason or --since reads them again"
                    .to_owned(),
            );
        }
        let changed = writing.carry_out(&desk, "dlq replay", plan, async || {
            replay.dry_run = false;
            Ok(replay.run(limit).await?.said("sent").join(", "))
        });
        Ok(changed.await?.with(found).into())
    }
}

#[cfg(test)]
mod tests;
