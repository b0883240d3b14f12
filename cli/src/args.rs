//! The command line of `tally`, the operators' command: a noun, then a verb, such as `tally post show`. `run` parses
//! it, calls the verb, and prints the answer.

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use futures_util::FutureExt as _;

use crate::ended;
use crate::health::{Health, say};
use crate::said::{Answer, Form};
use crate::verbs::{
    adopt, audit, cost, counters, dlq, doctor, draw, erase, generate, import, ledger, pause, post, prepare, recount,
    regions, restore, status, stream, topic, verify,
};

/// Looks after a deployment of Tally
///
/// Verbs read, and write only with --yes: without it they show what they would change. Each change is on the ledger
/// with its operator and its reason. Exits with 0 if nothing wrong was found, with 1 if something was, with 2 if the
/// command line is wrong, with 69 if there was no answer, with 78 if configuration or permissions are wrong.
#[derive(Debug, Parser)]
#[command(name = "tally", version)]
struct Args {
    /// How answers are written
    #[arg(short, long, value_enum, default_value_t = Form::Table, global = true, value_name = "FORM")]
    output: Form,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Says in one screen how the deployment is: what was looked at, what was not, and what is wrong
    Status(status::Args),
    /// Says whether the deployment is set up as it has to be: tables, permissions, quotas, retention, clocks
    Doctor(doctor::Args),
    /// Creates the tables and topics that are missing, and prints the lines that start the services
    ///
    /// What is there stays as it is. Exits with 1 where something is left to do, which it names: a topic that is set up
    /// otherwise than it has to be, or tables that the deployment had and that are empty now (`tally adopt tables`). On
    /// AWS the tables come from CloudFormation instead, with recovery and protection from deletion: see infra/deploy.
    Prepare(Box<prepare::Args>),
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
    /// Regions whose counts are added up: up to when the counts of each are known, and leaving one out
    #[command(subcommand)]
    Regions(regions::Verb),
    /// Audits: every row held against its count
    #[command(subcommand)]
    Audit(audit::Verb),
    /// Recounts posts, or everything, while rows and counts change, and repairs what differs. Exits with 1 where anything is left
    ///
    /// It does what tally-batch-recount does, in this process, with a progress bar on a terminal. Without --yes it
    /// finds and reports what differs, and corrects nothing. With --yes it looks again a minute later at what it has
    /// corrected. `tally post recount` and `tally audit start` queue the work for the recount that watches.
    Recount(Box<recount::Args>),
    /// Compares every count with its rows, and changes nothing. Exits with 1 where one is not the sum of its rows
    ///
    /// It reads every row and every counter, consistently, and the rows of each row key that a counter has a part for.
    /// While events are written counts follow their rows: what differs is looked at again, and a count that moves may
    /// be found right by chance. The answer says what it can claim. It says `certain` if consumers are paused: then this
    /// first waits until every change is counted, and nothing moves while it reads.
    Verify(verify::Args),
    /// Sends likes from a file to the topic, where consumers write them like any others. Exits with 1 where lines are no events
    ///
    /// Each line is an event, as NDJSON or CSV. An import that was stopped continues where it stopped. Lines that are
    /// no events are counted by reason and kept in the file of --rejected.
    Import(Box<import::Args>),
    /// Has consumers stand still, and waits six minutes: from then on no row changes, however late a request lands
    ///
    /// It raises the claim of each partition, which ends what consumers do within a second, and returns once everything
    /// that they have signed before has expired: six minutes later. Counts follow the rows that are there. Only
    /// consumers can be paused, since they alone write rows.
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

/// Runs the verb that the command line names. Returns the exit code of the process.
pub(crate) fn run() -> ExitCode {
    let Args { output, command } = Args::parse();
    let done = match command {
        Command::Health(health) => return health.run(),
        Command::Generate(generate) => generate.run(Args::command()),
        Command::Cost(args) => args.run().and_then(|answer| answer.print(output)),
        command => in_runtime(command).and_then(|answer| answer.print(output)),
    };
    match done {
        Ok(code) => code.into(),
        Err(error) => {
            say(&ended::line(&error));
            ended::code(&error).into()
        }
    }
}

fn in_runtime(command: Command) -> anyhow::Result<Answer> {
    let unknown = tally_service::unknown(&Args::command(), tally_service::environment());
    if !unknown.is_empty() {
        return Err(unknown.into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let answer = match command {
        Command::Status(args) => args.run().boxed_local(),
        Command::Doctor(args) => args.run().boxed_local(),
        Command::Prepare(args) => args.run().boxed_local(),
        Command::Post(verb) => verb.run().boxed_local(),
        Command::User(verb) => verb.run().boxed_local(),
        Command::Verify(args) => args.run().boxed_local(),
        Command::Import(args) => args.run().boxed_local(),
        Command::Topic(verb) => verb.run().boxed_local(),
        Command::Dlq(verb) => verb.run().boxed_local(),
        Command::Draw(verb) => verb.run().boxed_local(),
        Command::Stream(verb) => verb.run().boxed_local(),
        Command::Counters(verb) => verb.run().boxed_local(),
        Command::Regions(verb) => verb.run().boxed_local(),
        Command::Audit(verb) => verb.run().boxed_local(),
        Command::Recount(args) => args.run().boxed_local(),
        Command::Adopt(verb) => verb.run().boxed_local(),
        Command::Restore(verb) => verb.run().boxed_local(),
        Command::Pause(args) => args.run().boxed_local(),
        Command::Resume(args) => args.resume().boxed_local(),
        Command::Ledger(args) => args.run().boxed_local(),
        Command::Health(_) | Command::Generate(_) | Command::Cost(_) => unreachable!("they need no runtime"),
    };
    let done = runtime.block_on(answer);
    // The process ends even if a call to Kafka hangs.
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::{Args, CommandFactory};
    use crate::change::Writing;
    use crate::desk::Where;

    /// The two groups of flags that many verbs have.
    fn shared() -> [Command; 2] {
        let groups = [
            <Writing as clap::Args>::augment_args(Command::new("to change something")),
            <Where as clap::Args>::augment_args(Command::new("which deployment")),
        ];
        groups.map(|group| {
            let mut group = group.disable_help_flag(true);
            group.build();
            group
        })
    }

    /// Returns the help of a command and of its verbs. A group of shared flags is only named.
    fn helps(command: &Command, is_root: bool) -> String {
        let told = |arg: &Arg| {
            let (help, values) = (arg.get_help().cloned(), arg.get_default_values().to_vec());
            (arg.get_id().clone(), help, values, arg.get_env().map(ToOwned::to_owned))
        };
        let is_there = |one: &Arg| command.get_arguments().any(|arg| told(arg) == told(one));
        let has = |shared: &&Command| shared.get_arguments().all(is_there);
        let (groups, mut named) = (shared(), String::new());
        let taken: Vec<&Command> = groups.iter().filter(has).collect();
        for group in &taken {
            named.push_str(&format!("\n... and {}", group.get_name()));
        }
        let is_shared =
            |arg: &Arg| taken.iter().any(|group| group.get_arguments().any(|one| one.get_id() == arg.get_id()));
        let is_global = |arg: &Arg| !is_root && ["help", "output"].contains(&arg.get_id().as_str());
        let mut shown = command.clone().term_width(100).mut_args(|arg| {
            let hidden = arg.is_hide_set() || is_shared(&arg) || is_global(&arg);
            arg.hide_env_values(true).hide(hidden)
        });
        let text = shown.render_long_help().to_string() + &named;
        let behind = command.get_subcommands().filter(|command| command.get_name() != "help");
        behind.fold(text, |text, command| format!("{}\n\n\n{}", text.trim_end(), helps(command, false)))
    }

    #[test]
    fn help_is_the_reference() {
        let mut command = Args::command();
        command.build();
        let groups = shared().map(|group| {
            let name = group.get_name().to_owned();
            let text = group.term_width(100).mut_args(|arg| arg.hide_env_values(true));
            format!("\n\n\n... {name}:\n\n{}", text.help_template("{all-args}").render_long_help())
        });
        insta::assert_snapshot!(helps(&command, true) + &groups.concat());
        assert_eq!(tally_service::unlisted::<Args>(), [""; 0], "the list of all programs' variables is service's");
    }
}
