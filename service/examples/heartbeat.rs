//! An example of a service on `tally_service`, as small as a complete one can be: one required setting, a source, a
//! sink and a graceful shutdown. The tests of processes run it, too, with faults that it injects by `--misbehave`. Try
//! it:
//!
//! ```text
//! cargo run -p tally-service --example heartbeat -- --greeting hello --interval 1s
//! curl -s 127.0.0.1:9199/readyz; curl -s 127.0.0.1:9199/metrics
//! ```

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use axum::Router;
use axum::routing::get;
use clap::{Parser, ValueEnum};
use tally_core::format::Format;
use tally_service::metrics::Catalogue;
use tally_service::{
    App, Arguments, Clock, CommonArgs, Exit, Host, Invalid, Program, Secret, Stage, Stop, parse_duration,
};
use tokio::sync::mpsc;

fn main() -> ExitCode {
    tally_service::run::<Heartbeat>(Invalid::none)
}

/// Logs a greeting again and again
#[derive(Parser)]
#[command(name = "tally-heartbeat", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9199")))]
struct Args {
    /// The greeting to log; required
    #[arg(long, env = "TALLY_GREETING", value_parser = tally_service::text(), value_name = "TEXT")]
    greeting: Option<String>,

    /// Time between two beats
    #[arg(long, env = "TALLY_INTERVAL", default_value = "1s", value_parser = parse_duration, value_name = "SPAN")]
    interval: Duration,

    /// A credential, to show that it is never printed
    #[arg(long, env = "TALLY_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<Secret>,

    /// A fault to inject after the first beat, to see how the process handles it
    #[arg(long, env = "TALLY_MISBEHAVE", value_enum, value_name = "HOW")]
    misbehave: Option<Misbehaviour>,

    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Misbehaviour {
    /// The source returns
    EndEarly,
    /// The source fails
    Fail,
    /// The source panics
    Panic,
    /// The source ignores every stop
    Hang,
    /// A task finds stored data in an unknown format
    ForeignFormat,
    /// The service is a job that ends with exit code 1
    FinishWithDrift,
}

impl Arguments for Args {
    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn check(&self) -> Invalid {
        let mut invalid = Invalid::none();
        invalid.require("greeting", self.greeting.as_ref());
        invalid.ensure("interval", !self.interval.is_zero(), "must be greater than zero");
        invalid
    }
}

tally_service::catalogue! {
    BEATS: Counter Count "tally_heartbeats_total" [], "Beats logged.";
}

struct Heartbeat {
    greeting: String,
    args: Args,
}

impl Program for Heartbeat {
    type Args = Args;
    const METRICS: &'static [Catalogue] = &[CATALOGUE];

    async fn build(args: Args) -> anyhow::Result<Self> {
        Ok(Self { greeting: Invalid::required("greeting", args.greeting.clone())?, args })
    }
}

impl App for Heartbeat {
    fn routes(&self, _: &Host) -> Router {
        let greeting = self.greeting.clone();
        Router::new().route("/greeting", get(async move || greeting))
    }

    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { greeting, args: Args { interval, token, misbehave, .. } } = self;
        tracing::info!(?token, ?interval, "beating");
        if misbehave == Some(Misbehaviour::FinishWithDrift) {
            host.job("audit", |_| async { Ok(Exit::FAILED) });
        }
        let ((sender, beats), clock) = (mpsc::channel(16), host.clock());
        host.spawn(Stage::Intake, "pulse", move |stop| pulse(clock, interval, misbehave, sender, stop));
        if misbehave == Some(Misbehaviour::ForeignFormat) {
            host.spawn(Stage::Intake, "format", |_: Stop| async { Ok(Format::Number(7).known()?) });
        }
        host.spawn(Stage::Work, "voice", move |_| voice(greeting, beats));
        Ok(())
    }
}

/// The source: sends one beat per interval.
async fn pulse(
    clock: Clock,
    interval: Duration,
    misbehave: Option<Misbehaviour>,
    beats: mpsc::Sender<u64>,
    stop: Stop,
) -> anyhow::Result<()> {
    let mut beat = 0;
    while stop.unless_requested(clock.sleep(interval)).await.is_ok() {
        beats.send(beat).await?;
        beat += 1;
        match misbehave {
            Some(Misbehaviour::EndEarly) => return Ok(()),
            Some(Misbehaviour::Fail) => bail!("the heart stopped"),
            Some(Misbehaviour::Panic) => panic!("the heart broke\nin two"),
            Some(Misbehaviour::Hang) => std::future::pending().await,
            Some(Misbehaviour::ForeignFormat | Misbehaviour::FinishWithDrift) | None => {}
        }
    }
    tracing::info!(sent = beat, "no more beats");
    Ok(())
}

/// The sink: logs each beat, and ends once the source has ended and every beat is logged.
async fn voice(greeting: String, mut beats: mpsc::Receiver<u64>) -> anyhow::Result<()> {
    let mut said = 0u64;
    while let Some(beat) = beats.recv().await {
        tracing::info!(beat, greeting, "beat");
        BEATS.counter(&[]).increment(1);
        said += 1;
    }
    tracing::info!(said, "drained");
    Ok(())
}
