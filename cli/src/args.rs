//! The command line: a noun, then a verb.

use clap::{Parser, Subcommand};

use crate::health::Health;
use crate::said::Form;
use crate::verbs::{
    adopt, audit, cost, counters, dlq, doctor, draw, erase, generate, import, ledger, pause, post, recount, regions,
    restore, status, stream, topic, verify,
};

/// Looks after a deployment of Tally
///
/// Verbs read, and write only with --yes: without it they show what they would change. Each change is on the ledger with its
/// operator and its reason. Exits with 0 if nothing wrong was found, with 1 if something was, with 2 if the command line is wrong,
/// with 69 if there was no answer, with 78 if configuration or permissions are wrong.
#[derive(Debug, Parser)]
#[command(name = "tally", version)]
pub(crate) struct Args {
    /// How answers are written
    #[arg(short, long, value_enum, default_value_t = Form::Table, global = true, value_name = "FORM")]
    pub(crate) output: Form,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Says in one screen how the deployment is: what was looked at, what was not, and what is wrong
    Status(status::Args),
    /// Says whether the deployment is set up as it has to be: tables, permissions, quotas, retention, clocks
    Doctor(doctor::Args),
    /// A post: its numbers, why one is not exact, and how to have it recounted
    #[command(subcommand)]
    Post(post::Verb),
    /// Users: taking them out of every set
    #[command(subcommand)]
    User(erase::UserVerb),
    /// Topics of events: how far the rows of each partition have come, and going on where consumers do not by themselves
    #[command(subcommand)]
    Topic(topic::Verb),
    /// Dead letters: records that could not be applied
    #[command(subcommand)]
    Dlq(dlq::Verb),
    /// Draws: who was first at a threshold, held against the log
    #[command(subcommand)]
    Draw(draw::Verb),
    /// The table's change stream: its shards, which process copies each to the log of changes, and what was lost
    #[command(subcommand)]
    Stream(stream::Verb),
    /// Counters: which ones the deployment has
    #[command(subcommand)]
    Counters(counters::Verb),
    /// Regions whose counts are added up: how old what is known of each is, and leaving one out
    #[command(subcommand)]
    Regions(regions::Verb),
    /// Audits: every row held against its count
    #[command(subcommand)]
    Audit(audit::Verb),
    /// Recounts posts, or everything, while rows and counts change, and repairs what differs. Exits with 1 where anything is left
    ///
    /// It does what tally-batch-recount does, in this process, with a progress bar on a terminal. Without --yes it finds and
    /// reports what differs, and corrects nothing.
    Recount(Box<recount::Args>),
    /// Holds every count against its rows, and changes nothing. Exits with 1 where one is not what its rows weigh
    ///
    /// It reads every row and every counter, consistently, and the rows of each row key that a counter has a part for. While events
    /// are written counts follow their rows: what differs is looked at again, and a count that moves may be found right by chance.
    /// The answer says what it can claim. Pause consumers for a certain one.
    Verify(verify::Args),
    /// Sends likes from a file to the topic, where consumers write them like any others. Exits with 1 where lines are no events
    ///
    /// Each line is an event, as NDJSON or CSV. An import that was stopped continues where it stopped. Lines that are no events
    /// are counted by reason and kept in the file of --rejected.
    Import(Box<import::Args>),
    /// Has consumers stand still: from then on no row changes, however late a request lands
    ///
    /// It raises the claim of each partition, which ends what consumers do within a second, and returns once everything that they
    /// have signed before has expired: six minutes later. Counts follow the rows that are there.
    Pause(Box<pause::PauseArgs>),
    /// Lets consumers go on where they were: within 10 s
    Resume(Box<pause::Args>),
    /// Tables that are others than before: going on with them
    #[command(subcommand)]
    Adopt(adopt::Verb),
    /// Restoring the tables to a moment: what it takes, and whether it was done right
    #[command(subcommand)]
    Restore(restore::Verb),
    /// What operators have changed by hand, newest first
    Ledger(ledger::Args),
    /// What a deployment costs a month, from a price list
    Cost(cost::Args),
    #[command(flatten)]
    Health(Health),
    #[command(flatten)]
    Generate(generate::Generate),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
        assert_eq!(tally_service::unlisted::<Args>(), [""; 0], "the list of all programs' variables is service's");
    }

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }
}
