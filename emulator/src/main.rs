//! The emulator as a process: flags, a listener, and a graceful end on a signal.

mod flags;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tally_emulator::{Config, Emulator};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::flags::Flags;

/// With glibc's allocator, millions of small long-lived items take about half of all time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The configuration is wrong (`EX_CONFIG` of sysexits.h).
const WRONG_CONFIGURATION: u8 = 78;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    if let Some(problem) = flags::unknown_variable(std::env::vars_os().map(|(name, _)| name)) {
        return failed(&problem, WRONG_CONFIGURATION);
    }
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            // Help and version go to standard output and are not errors. Neither is a closed pipe.
            let _ = error.print();
            return if error.use_stderr() { WRONG_CONFIGURATION.into() } else { ExitCode::SUCCESS };
        }
    };
    let (config, listener) = match prepare(flags).await {
        Ok(prepared) => prepared,
        Err(error) => return failed(&error, WRONG_CONFIGURATION),
    };
    serve(config, listener).await.map_or_else(|error| failed(&error, 1), |()| ExitCode::SUCCESS)
}

/// Validates the flags and binds the port.
async fn prepare(flags: Flags) -> anyhow::Result<(Config, TcpListener)> {
    let filter: Targets = flags.log.parse().with_context(|| format!("--log {:?}", flags.log))?;
    // A log that cannot be written is no reason to stop.
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(io::stderr);
    log.log_internal_errors(false).finish().with(filter).init();
    let address = (flags.host, flags.port);
    let config = flags.into_config()?;
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("--host {} --port {}: cannot listen", address.0, address.1))?;
    Ok((config, listener))
}

async fn serve(config: Config, listener: TcpListener) -> anyhow::Result<()> {
    let is_under_policies = config.policies.is_some();
    let emulator = Emulator::new(config);
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    // Hangups stay ignored if the process was started that way, as `nohup` does.
    let mut hangup =
        (!ignores_hangups()).then(|| signal(SignalKind::hangup())).transpose().context("cannot listen for SIGHUP")?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            Some(_) = async { hangup.as_mut()?.recv().await } => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    writeln!(io::stdout(), "listening on http://{}", listener.local_addr().context("cannot read the port")?)?;
    emulator.serve(listener, stop).await.context("serving")?;
    if is_under_policies {
        report(&emulator).context("reporting")?;
    }
    Ok(())
}

/// Prints the grants that were not needed, and the actions that were refused.
fn report(emulator: &Emulator) -> io::Result<()> {
    let (unused, refused) = (emulator.unused_grants(), emulator.refused());
    let mut out = io::stdout().lock();
    writeln!(out, "unused grants: {}", unused.len())?;
    for grant in unused {
        writeln!(out, "  {grant}")?;
    }
    writeln!(out, "refused: {}", refused.values().sum::<u64>())?;
    for (what, times) in refused {
        writeln!(out, "  {what}, {times} times")?;
    }
    Ok(())
}

/// Whether hangups were ignored when this process was started. Only Linux tells.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}

fn failed(error: &anyhow::Error, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: tally-emulator: {error:#}");
    code.into()
}
