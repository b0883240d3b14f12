//! The entry point of every binary: arguments, telemetry, the service, signals and the exit code.

use std::ffi::OsString;
use std::future::Future;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::middleware::from_fn;
use clap::{CommandFactory, Parser};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::http::same_site;
use crate::metrics::{self, Catalogue};
use crate::telemetry::Level;
use crate::{
    App, CommonArgs, Ended, Exit, Host, How, Invalid, Limits, Listen, Running, Server, Stage, admin, args, http,
    telemetry, variables,
};

/// How long blocked threads may delay the exit of a process that has stopped everything else.
const LEFTOVERS: Duration = Duration::from_millis(50);

/// The arguments of a binary, which are its configuration.
pub trait Arguments: Parser + Send {
    /// Returns the arguments that every binary has.
    fn common(&self) -> &CommonArgs;

    /// Returns every mistake that parsing did not find.
    fn check(&self) -> Invalid;

    /// Returns how long to wait for a dependency that does not answer. A service waits without a limit.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Returns where to serve the admin routes. A run that ends by itself returns [`Listen::Off`].
    fn admin_listen(&self) -> Listen {
        self.common().admin_listen
    }

    /// Parses and checks a command line without the program's name, for tests.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn checked(line: &[&str]) -> Result<Self, String> {
        let (mut invalid, given) = (Invalid::none(), std::iter::once(&"program").chain(line).map(OsString::from));
        let args = args::parse::<Self>(given.collect(), &mut invalid).map_err(|error| match error {
            Some(error) => format!("{invalid}\n{error}"),
            None => invalid.to_string(),
        })?;
        invalid.extend_without(args.check());
        if invalid.is_empty() { Ok(args) } else { Err(invalid.to_string()) }
    }
}

/// A service with a binary of its own.
pub trait Program: App {
    type Args: Arguments;
    /// The metrics of every service that the binary runs.
    const METRICS: &'static [Catalogue];

    /// Builds the service on the real adapters, from arguments without a mistake. Nothing is connected yet.
    ///
    /// # Errors
    /// A problem that the check could not see, such as a certificate that does not load.
    fn build(args: Self::Args) -> impl Future<Output = anyhow::Result<Self>> + Send;
}

/// Runs `P` as this process, and returns the exit code for `main`. `environment` checks variables that are not
/// arguments, such as AWS's, without a connection.
pub fn run<P: Program>(environment: fn() -> Invalid) -> ExitCode {
    let mut command = P::Args::command();
    command.build();
    let (name, version) = (command.get_name().to_owned(), command.get_version().unwrap_or("unknown").to_owned());
    let mut invalid = Invalid::none();
    let args: P::Args = match args::parse(std::env::args_os().collect(), &mut invalid) {
        Ok(args) => args,
        // Help and version go to standard output and are not errors. Neither is a closed pipe.
        Err(Some(help)) if !help.use_stderr() && invalid.is_empty() => {
            let _ = help.print();
            return Exit::CLEAN.into();
        }
        Err(error) => {
            if !invalid.is_empty() {
                let _ = writeln!(std::io::stderr(), "error: {name}: {invalid}");
            }
            let _ = error.filter(clap::Error::use_stderr).map(|error| error.print());
            return Exit::CONFIG.into();
        }
    };
    let (common, admin, patience) = (args.common().clone(), args.admin_listen(), args.patience());
    invalid.extend(variables::unknown(&command, variables::environment()));
    invalid.extend_without(args.check());
    invalid.extend(environment());
    if !invalid.is_empty() {
        let _ = writeln!(std::io::stderr(), "error: {name}: {invalid}");
        return Exit::CONFIG.into();
    }
    if common.check {
        let _ = writeln!(std::io::stdout(), "{name}: the configuration is valid");
        return Exit::CLEAN.into();
    }
    let level = telemetry::install(common.log_format, &common.log);
    let process = Process { name, version, grace: common.shutdown_grace, admin, level, patience };
    let exit = process.run::<P>(args);
    telemetry::write_out();
    exit.into()
}

struct Process {
    name: String,
    version: String,
    grace: Duration,
    admin: Listen,
    level: Level,
    patience: Option<Duration>,
}

impl Process {
    fn run<P: Program>(&self, args: P::Args) -> Exit {
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "cannot start the runtime");
                return Exit::FAILED;
            }
        };
        let exit = runtime.block_on(Box::pin(self.serve::<P>(args))).unwrap_or_else(|error| {
            tracing::error!(error = format!("{error:#}"), "cannot start");
            Exit::after(&error)
        });
        runtime.shutdown_timeout(LEFTOVERS);
        exit
    }

    async fn serve<P: Program>(&self, args: P::Args) -> anyhow::Result<Exit> {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        tracing::info!(service = self.name, version = self.version, "starting");
        let app = tokio::select! {
            biased;
            _ = signals.next() => return Ok(Exit::CLEAN),
            app = P::build(args) => app?,
        };
        let host = Host::new(&self.name).giving_up_after(self.patience);
        self.observe(P::METRICS, &host, app.routes(&host)).await?;
        let running = Running::start(app, host);
        let early = tokio::select! {
            biased;
            signal = signals.next() => {
                tracing::info!(signal = signal.name, grace = ?self.grace, "stopping");
                None
            }
            end = running.ended() => {
                report(&end);
                Some(end)
            }
        };
        if let Some(end @ Ended { how: How::UnknownFormat(_), .. }) = &early {
            // The deployment has left this build's format, so draining must not write. Ending as in a crash loses
            // nothing.
            running.kill().await;
            return Ok(end.exit());
        }
        Ok(self.stop(running, signals, early).await)
    }

    /// Starts the metrics and the admin listener, which ends after every other task.
    async fn observe(&self, catalogues: &[Catalogue], host: &Host, own: Router) -> anyhow::Result<()> {
        let exposition = metrics::install();
        metrics::announce(&self.name, &self.version, catalogues);
        host.spawn(Stage::Support, "folding", metrics::Folding(exposition.clone()));
        let Listen::At(address) = self.admin else { return Ok(()) };
        let listener = http::bind("admin-listen", address).await?;
        tracing::info!(address = %listener.local_addr()?, "admin listening");
        let mut routes = admin::routes(host.readiness().clone(), exposition, self.level.clone(), own);
        if address.ip().is_loopback() {
            routes = routes.layer(from_fn(same_site::alone));
        }
        host.spawn(Stage::Support, "admin", Server::new(listener, routes, Limits::of_admin()));
        Ok(())
    }

    async fn stop(&self, running: Running, mut signals: Signals, early: Option<Ended>) -> Exit {
        let shutdown = tokio::select! {
            biased;
            signal = signals.next() => {
                tracing::warn!(signal = signal.name, "second signal: ending at once, work not sent is dropped");
                return Exit::signal(signal.number);
            }
            shutdown = running.stop(self.grace) => shutdown,
        };
        shutdown.ended.iter().filter(|end| Some(*end) != early.as_ref()).for_each(report);
        let exit = shutdown.exit();
        tracing::info!(code = exit.code(), "stopped");
        exit
    }
}

fn report(end: &Ended) {
    match end.how {
        How::Finished(exit) => tracing::info!(job = end.task, code = exit.code(), "{end}"),
        _ => tracing::error!(task = end.task, "{end}"),
    }
}

/// The signals that stop a process: from an orchestrator, from a person, and from a terminal or session that has
/// closed.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if the process was started with hangups ignored, as `nohup` does.
    hangup: Option<Signal>,
}

pub struct Caught {
    name: &'static str,
    number: u8,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn listen() -> std::io::Result<Self> {
        let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        let hangup = (!ignores_hangups()).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { terminate: terminate?, interrupt: interrupt?, hangup })
    }

    /// Returns when one of the signals arrives.
    pub async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.terminate.recv() => Caught { name: "SIGTERM", number: 15 },
            _ = self.interrupt.recv() => Caught { name: "SIGINT", number: 2 },
            _ = heard(&mut self.hangup) => Caught { name: "SIGHUP", number: 1 },
        }
    }
}

/// Waits for the signal, or forever if the process does not listen for it.
async fn heard(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns whether hangups were ignored when this process was started. Only Linux tells.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}
