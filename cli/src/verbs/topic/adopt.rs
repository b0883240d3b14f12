//! `tally topic adopt`: has consumers go on with a topic that they do not read by themselves. It was created anew or has
//! another number of partitions; or the rows are of another topic, whose place it takes; or there are rows and nothing is
//! stored of it.
//!
//! `Adoption::of` decides what to do: begin a new *generation*, whose versions are above all earlier ones. `tally adopt
//! tables` uses `Adoption`, too.

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use tally_adapters::dynamodb::Remains;
use tally_core::ids::CounterKind;
use tally_core::register::{Kept, Standstill, Topic, Version};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};

use super::seen::{Part, Seen, commit};
use crate::change::Changing;
use crate::desk::Desk;
use crate::ended::Usage;
use crate::said::Answer;
use crate::verbs::audit::CLOSES;
use crate::verbs::pause::{ADOPT, Settle, replace, while_paused};

/// The kind of the loss that an adoption opens.
const ADOPTED: &str = "topic_adopted";

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// What becomes of events that add to sums and are in the topic by now
    #[arg(long, value_enum, value_name = "WHAT")]
    sums: Option<Sums>,

    #[command(flatten)]
    settle: Settle,

    #[command(flatten)]
    change: Changing,
}

/// What becomes of the events that add to sums and are in a topic when it is adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sums {
    /// They are left out: they were counted before
    Skip,
    /// They are counted: they were not
    Count,
}

/// How consumers go on with a topic.
#[derive(Clone, Debug)]
pub(crate) struct Adoption {
    /// What is stored about the topic afterwards.
    pub(crate) to: Topic,
    name: String,
    why: String,
    /// The topic whose place it takes.
    from: Option<String>,
    /// Whether the topic still has its records, and has only got more partitions.
    has_grown: bool,
    /// How many records are read now: those of the whole topic or, if it has grown, of the new partitions.
    pub(crate) again: u64,
    /// Partitions of which the group has committed an offset of another topic, and the offset to set instead.
    reset: Vec<(Partition, Offset)>,
    /// The end of each partition.
    ends: Vec<Offset>,
    sums: Option<Sums>,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { sums, settle, change: Changing { writing, of } } = self;
        let desk = Desk::open(of).await?;
        let seen = Seen::look(&desk, &desk.topic).await?;
        let adoption = Adoption::of(&desk, &seen, sums).await?;
        let mut plan = adoption.as_ref().map_or(Vec::new(), |adoption| adoption.plan(&desk));
        if !plan.is_empty() {
            plan.push(settle.line());
        }
        let changed = writing.carry_out(&desk, ADOPT, plan, async || {
            let adoption = adoption.context("there is nothing to adopt")?;
            adoption.carry_out(&desk, &seen, settle).await
        });
        let changed = changed.await?;
        // A topic that waits to be adopted is a fault.
        let is_left = changed.is_left();
        Ok(Answer::from(changed).wrong_if(is_left))
    }
}

impl Adoption {
    /// Returns how consumers go on with the topic that was seen; `None` if they do so without an operator.
    ///
    /// # Errors
    /// The topic has grown and is not drained, or `--sums` is missing.
    async fn of(desk: &Desk, seen: &Seen, sums: Option<Sums>) -> anyhow::Result<Option<Self>> {
        if let Some(Standstill::OtherTopic { rows, .. }) = &seen.misfit {
            let (before, why) = (greatest(desk, seen, rows).await?, format!("the rows are of {rows}"));
            let adoption = Self::anew(seen, before, &why, has_sums(desk).await?, sums)?;
            return Ok(Some(Self { from: Some(rows.clone()), ..adoption }));
        }
        let Some(topic) = &seen.topic else {
            let remains = Remains::read(&desk.connection).await.context("cannot read rows")?;
            if remains.generation == 0 {
                return Ok(None);
            }
            let why = "nothing is known of it any more, and there are rows";
            return Self::anew(seen, remains.generation, why, has_sums(desk).await?, sums).map(Some);
        };
        let (known, number) = (topic.current().partitions(), topic.current().number);
        let why = if topic.id != seen.id {
            format!("it was {} when it was read", topic.id)
        } else if seen.partitions() < known {
            format!("it had {known} partitions")
        } else if seen.partitions() > known {
            return Self::grown(seen, topic, sums).map(Some);
        } else {
            return Ok(None);
        };
        Self::anew(seen, number, &why, has_sums(desk).await?, sums).map(Some)
    }

    /// Adopts a topic whose records are all in the generation after `before`.
    ///
    /// # Errors
    /// There is no further generation, or `--sums` is missing.
    pub(crate) fn anew(
        seen: &Seen,
        before: u16,
        why: &str,
        has_sums: bool,
        sums: Option<Sums>,
    ) -> anyhow::Result<Self> {
        let next = before.checked_add(1).filter(|number| *number <= Version::MAX_GENERATION);
        let next = next.context("there is no further generation")?;
        let begins = seen.parts.iter().map(|part| part.log.start).collect();
        let again = seen.parts.iter().map(records).sum();
        let sums = match sums {
            None if has_sums && again > 0 => bail!(Usage(format!(
                "there are {again} records in `{}`: say `--sums skip` to leave out what adds to sums among them, if it was counted \
                 before, or `--sums count` to count it",
                seen.name
            ))),
            sums => sums.filter(|_| has_sums && again > 0),
        };
        let reset = |part: &Part| {
            let is_other = part.committed.is_some_and(|committed| committed != part.log.start);
            is_other.then(|| (part.partition.clone(), part.log.start))
        };
        let reset = seen.parts.iter().filter_map(reset).collect();
        let to = Topic::adopted(seen.id.clone(), next, begins);
        Ok(Self { reset, ..Self::with(seen, to, why.to_owned(), again, sums) })
    }

    /// Creates an adoption that resets no offsets and replaces no other topic.
    fn with(seen: &Seen, mut to: Topic, why: String, again: u64, sums: Option<Sums>) -> Self {
        let ends: Vec<Offset> = seen.parts.iter().map(|part| part.log.end).collect();
        if sums == Some(Sums::Skip) {
            to.sums_from.clone_from(&ends);
        }
        let name = seen.name.clone();
        Self { to, name, why, from: None, has_grown: false, again, reset: Vec::new(), ends, sums }
    }

    /// Adopts a topic that has only got more partitions. All records of its old partitions have to be rows.
    fn grown(seen: &Seen, topic: &Topic, sums: Option<Sums>) -> anyhow::Result<Self> {
        let known = topic.current().partitions();
        let (before, new): (Vec<&Part>, Vec<&Part>) = seen.parts.iter().partition(|part| part.partition.index < known);
        let waiting = before.iter().map(|part| (part.partition.index, seen.lag(part))).filter(|(_, lag)| *lag > 0);
        let waiting: Vec<String> = waiting.map(|(index, lag)| format!("{lag} in partition {index}")).collect();
        ensure!(
            waiting.is_empty(),
            "`{}` has {} partitions instead of {known}, and records of before are no rows yet: {}. Stop producers, wait until \
             `tally topic show` says that nothing waits, then adopt it",
            seen.name,
            seen.partitions(),
            waiting.join(", ")
        );
        let begins = before.iter().map(|part| part.log.end).chain(new.iter().map(|part| part.log.start));
        let to = topic.continued(begins.collect()).context("there is no further generation")?;
        let again = new.into_iter().map(records).sum();
        let why = format!("it had {known} partitions, and all of their records are rows");
        Ok(Self { has_grown: true, ..Self::with(seen, to, why, again, sums) })
    }

    /// Returns what the adoption changes, a line each.
    pub(crate) fn plan(&self, desk: &Desk) -> Vec<String> {
        let Self { to, name, why, from, has_grown, again, reset, sums, .. } = self;
        let (number, partitions) = (to.current().number, to.current().partitions());
        let mut plan = vec![format!("go on with {name}, {partitions} partitions, id {}: {why}", to.id)];
        if *has_grown {
            plan.push(format!(
                "begin generation {number} behind what is applied; {again} records wait in new partitions"
            ));
        } else {
            plan.push(format!("begin generation {number} at its start: {again} records are read"));
            plan.push("open a loss: events that consumers have not read yet are lost with the topic before".to_owned());
            plan.extend(
                from.as_ref().map(|from| format!("name {name} in place of {from}, whose consumers stand still")),
            );
        }
        plan.extend(sums.map(|sums| match sums {
            Sums::Skip => "leave out what adds to sums and is in the topic by now".to_owned(),
            Sums::Count => "count what adds to sums and is in the topic by now".to_owned(),
        }));
        if !reset.is_empty() {
            plan.push(format!(
                "set what group {} has committed to the start of {} partitions",
                desk.group,
                reset.len()
            ));
        }
        plan
    }

    async fn carry_out(self, desk: &Desk, seen: &Seen, settle: Settle) -> anyhow::Result<String> {
        // A client that has a recreated topic open may go on waiting for records at offsets of the former one.
        let members = desk.consumers_of(&self.name)?.members().await.unwrap_or_default();
        let holding = members.iter().filter(|member| !member.partitions.is_empty()).count();
        ensure!(self.has_grown || holding == 0, "{holding} consumers of the group run: stop them first");
        self.set_group(desk).await?;
        let Some(before) = &seen.topic else {
            desk.claims.raise_all(&self.name, seen.partitions()).await.context("cannot raise the claims")?;
            settle.wait(desk).await;
            self.again(desk).await?.store(desk, None).await?;
            self.take_its_place(desk, seen).await?;
            return Ok(self.said());
        };
        let adopted = while_paused(desk, before, settle, async |paused| {
            let mut adoption = self.again(desk).await?;
            // A pause of a topic that was not the usual one is left over from the adoption of another one.
            adoption.to.is_paused = before.is_paused && adoption.from.is_none();
            adoption.store(desk, Some(paused)).await
        });
        adopted.await?;
        self.take_its_place(desk, seen).await?;
        Ok(self.said())
    }

    /// Names the topic as the usual one, if another one or none is. The generation of the topic is stored by now, so no
    /// consumer begins with it in an earlier one. Safe to repeat: it replaces no other name than the one that was seen.
    async fn take_its_place(&self, desk: &Desk, seen: &Seen) -> anyhow::Result<()> {
        if seen.misfit.is_none() {
            return Ok(());
        }
        if let Some(from) = &self.from {
            let paused = pause_for_good(desk, from).await;
            paused.with_context(|| format!("cannot pause the consumers of `{from}`: run this again"))?;
        }
        let moved = desk.checkpoints.move_usual(&seen.usual, &self.name).await.context("cannot name the topic")?;
        ensure!(moved, "another topic than `{}` was named, or counters were defined, meanwhile: look again", self.name);
        Ok(())
    }

    /// Looks at the topic once more, while consumers stand still. Fails if it has changed in another way meanwhile.
    async fn again(&self, desk: &Desk) -> anyhow::Result<Self> {
        let now = Self::of(desk, &Seen::look(desk, &self.name).await?, self.sums).await?;
        let same =
            now.filter(|now| now.has_grown == self.has_grown && now.from == self.from && now.to.id == self.to.id);
        same.with_context(|| format!("`{}` was changed meanwhile: look again", self.name))
    }

    fn said(&self) -> String {
        let number = self.to.current().number;
        if self.has_grown {
            return format!("adopted as generation {number}: producers may go on");
        }
        format!("adopted as generation {number}: start consumers; {CLOSES}")
    }

    /// Sets the group's offsets to the topic's start where it has committed others. Safe to repeat.
    ///
    /// # Errors
    /// The group has members: then Kafka accepts offsets only from them.
    pub(crate) async fn set_group(&self, desk: &Desk) -> anyhow::Result<()> {
        let consumers = desk.consumers_of(&self.name)?;
        for (partition, begin) in &self.reset {
            commit(desk, &consumers, partition, *begin).await?;
        }
        Ok(())
    }

    /// Opens a loss and stores the claims, unless the topic has only grown. Then it stores the topic in the place of
    /// `seen`. Safe to repeat.
    pub(crate) async fn store(&self, desk: &Desk, seen: Option<&Topic>) -> anyhow::Result<()> {
        if !self.has_grown {
            let (from, number) = (self.from.as_ref().unwrap_or(&self.name), self.to.current().number);
            let what = format!("what `{from}` had unread before generation {number}");
            let opened = desk.changes.open_new_loss(desk.clock.now(), ADOPTED, &what).await;
            opened.context("cannot record the loss")?;
            self.store_claims(desk).await?;
        }
        if let Some(seen) = seen {
            return replace(desk, seen, &self.to).await;
        }
        let stands = desk.claims.begin_topic(&self.name, &self.to).await.context("cannot store the topic")?;
        ensure!(stands == self.to, "a consumer has begun with `{}` meanwhile: stop everything", self.name);
        Ok(())
    }

    /// Stores in each partition's claim that reading begins at the partition's start. Up to its present end this is
    /// called a replay, since these records may be copies of some that were read before.
    async fn store_claims(&self, desk: &Desk) -> anyhow::Result<()> {
        for (index, (begin, end)) in (0..).zip(self.to.current().begins.iter().zip(&self.ends)) {
            let partition = Partition { topic: self.name.as_str().into(), index };
            let (claim, _) = desk.claims.raise(&partition).await.context("cannot raise a claim")?;
            let before = claim.kept.map_or(UnixMillis(0), |kept| kept.at);
            let at = desk.claims.time().latest.max(UnixMillis(before.0 + 1));
            let kept = Kept { at, ..Kept::first(&self.to, *begin).read_again_to(*end) };
            let stored = desk.claims.keep(&partition, claim.n, &kept).await.context("cannot store a claim")?;
            ensure!(stored.is_some(), "a consumer has claimed {partition} meanwhile: stop consumers");
        }
        Ok(())
    }
}

/// Pauses the topic whose place another one takes, and has its consumers look at that. This comes before the other topic
/// is named: an adoption that is cut off in between is repeated, and one that is cut off afterwards leaves no consumer of
/// the topic before at work. The pause stays: no consumer may read this topic until it is adopted again. Safe to repeat.
async fn pause_for_good(desk: &Desk, from: &str) -> anyhow::Result<()> {
    let Some(seen) = desk.claims.topic(from).await? else { return Ok(()) };
    let paused = Topic { is_paused: true, ..seen.clone() };
    ensure!(desk.claims.replace_topic(from, &seen, &paused).await?, "`{from}` was changed by another meanwhile");
    Ok(desk.claims.raise_all(from, paused.current().partitions()).await?)
}

/// Returns the greatest generation that a row has, or may get by what is known of the topic or of `from`, whose place it
/// takes.
async fn greatest(desk: &Desk, seen: &Seen, from: &str) -> anyhow::Result<u16> {
    let remains = Remains::read(&desk.connection).await.context("cannot read rows")?;
    let from = desk.claims.topic(from).await.context("cannot read what is known of the topic before")?;
    let known = [&from, &seen.topic].into_iter().flatten().map(|topic| topic.current().number);
    Ok(known.fold(remains.generation, u16::max))
}

/// Returns how many records a partition has.
fn records(part: &Part) -> u64 {
    part.log.end.0.saturating_sub(part.log.start.0)
}

async fn has_sums(desk: &Desk) -> anyhow::Result<bool> {
    let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
    Ok(defined.said_in(&desk.topic).iter().any(|definition| definition.kind() == CounterKind::Sum))
}
