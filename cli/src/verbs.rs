//! What each verb does. A verb reads, answers, and writes only through `change`.

pub(crate) mod adopt;
pub(crate) mod audit;
pub(crate) mod cost;
pub(crate) mod counters;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod draw;
pub(crate) mod erase;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod ledger;
pub(crate) mod pause;
pub(crate) mod post;
pub(crate) mod recount;
pub(crate) mod regions;
pub(crate) mod restore;
pub(crate) mod status;
pub(crate) mod stream;
pub(crate) mod topic;
pub(crate) mod verify;
mod weighed;

use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::args::{Args, Command};
use crate::ended;
use crate::health::say;
use crate::said::{Form, print};

/// Runs what was asked for; the exit code of the process.
pub(crate) fn run(args: Args) -> ExitCode {
    let Args { output, command } = args;
    let done = match command {
        Command::Health(health) => return health.run(),
        Command::Generate(generate) => generate.run(Args::command()),
        Command::Cost(args) => args.run().and_then(|answer| print(&answer, output)),
        command => in_runtime(command, output),
    };
    match done {
        Ok(code) => code.into(),
        Err(error) => {
            say(&ended::line(&error));
            ended::code(&error).into()
        }
    }
}

fn in_runtime(command: Command, form: Form) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let done = runtime.block_on(Box::pin(answer(command, form)));
    // A call to Kafka that hangs is no reason to stay.
    runtime.shutdown_background();
    done
}

async fn answer(command: Command, form: Form) -> anyhow::Result<u8> {
    match command {
        Command::Status(args) => print(&args.run().await?, form),
        Command::Doctor(args) => print(&args.run().await?, form),
        Command::Post(verb) => verb.run(form).await,
        Command::User(verb) => verb.run(form).await,
        Command::Verify(args) => args.run(form).await,
        Command::Import(args) => args.run(form).await,
        Command::Topic(verb) => Box::pin(verb.run(form)).await,
        Command::Dlq(verb) => Box::pin(verb.run(form)).await,
        Command::Draw(verb) => verb.run(form).await,
        Command::Stream(verb) => verb.run(form).await,
        Command::Counters(verb) => verb.run(form).await,
        Command::Regions(verb) => verb.run(form).await,
        Command::Audit(verb) => Box::pin(verb.run(form)).await,
        Command::Recount(args) => Box::pin(args.run(form)).await,
        Command::Adopt(verb) => verb.run(form).await,
        Command::Restore(verb) => verb.run(form).await,
        Command::Pause(args) => print(&args.run().await?, form),
        Command::Resume(args) => print(&args.resume().await?, form),
        Command::Ledger(args) => print(&args.run().await?, form),
        Command::Health(_) | Command::Generate(_) | Command::Cost(_) => unreachable!("they need no runtime"),
    }
}
