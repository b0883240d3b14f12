//! The emulator as a process: flags to configuration, a loopback listener, and a clean end on a signal.

mod flags;

use std::io::Write;

use anyhow::Context;
use clap::Parser;
use tally_emulator::Emulator;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::flags::Flags;

/// Millions of small items that live long cost glibc's allocator about half of all time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    // An event that cannot be written is dropped: said on standard error, it would end the process.
    let log = tracing_subscriber::fmt().with_env_filter(flags.log_filter()).with_writer(std::io::stderr);
    log.log_internal_errors(false).init();
    let address = (flags.host, flags.port);
    let emulator = Emulator::new(flags.into_config()?);
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("listening on {}:{}", address.0, address.1))?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    writeln!(std::io::stdout(), "listening on http://{}", listener.local_addr().context("reading the port")?)?;
    emulator.serve(listener, stop).await.context("serving")
}
