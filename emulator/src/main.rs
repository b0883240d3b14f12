//! Serves the emulated DynamoDB as a program of its own: reads the flags, listens, and ends gracefully on a signal.

mod flags;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{CommandFactory, Parser};
use tally_emulator::{Config, Emulator};
use tally_service::telemetry::{self, LogFormat};
use tally_service::{Exit, Signals, environment, unknown};
use tokio::net::TcpListener;

use crate::flags::Flags;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            // Help and version go to standard output and are not errors. Neither is a closed pipe.
            let _ = error.print();
            return if error.use_stderr() { Exit::CONFIG } else { Exit::CLEAN }.into();
        }
    };
    let exit = match prepare(flags).await {
        Err(error) => failed(&error, Exit::CONFIG),
        Ok((config, listener)) => {
            serve(config, listener).await.map_or_else(|error| failed(&error, Exit::FAILED), |()| Exit::CLEAN)
        }
    };
    telemetry::write_out();
    exit.into()
}

/// Validates the flags and the environment, and binds the port.
async fn prepare(flags: Flags) -> anyhow::Result<(Config, TcpListener)> {
    let invalid = unknown(&Flags::command(), environment());
    ensure!(invalid.is_empty(), invalid);
    telemetry::install(LogFormat::Pretty, &flags.log);
    let address = (flags.host, flags.port);
    let config = flags.into_config()?;
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("--host {} --port {}: cannot listen", address.0, address.1))?;
    Ok((config, listener))
}

async fn serve(config: Config, listener: TcpListener) -> anyhow::Result<()> {
    let is_under_policies = config.policies.is_some();
    let emulator = Emulator::new(config);
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    writeln!(io::stdout(), "listening on http://{}", listener.local_addr().context("cannot read the port")?)?;
    emulator.serve(listener, async move { _ = signals.next().await }).await.context("serving")?;
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

fn failed(error: &anyhow::Error, exit: Exit) -> Exit {
    let _ = writeln!(io::stderr(), "error: tally-emulator: {error:#}");
    exit
}
