//! The operators' command as a process of its own: this program, called by its name.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

/// What the command is called.
const NAME: &str = "tally";

/// Whether this program was called by the command's name.
pub fn is_operator() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_name().is_some_and(|name| name == NAME))
}

/// An operator at a terminal.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) program: PathBuf,
    /// Where tables and Kafka are.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    fn of(done: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        Self { code: done.status.code(), out: text(done.stdout), err: text(done.stderr) }
    }

    /// The answer of a command that was told `-o json`.
    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("no JSON: {self:?}"))
    }
}

impl Operator {
    /// Runs `tally` with `args`, as a new process that has nothing of this one's settings.
    pub(crate) async fn run(&self, args: &[&str]) -> anyhow::Result<Done> {
        let mut command = self.command(args);
        let done = tokio::task::spawn_blocking(move || command.output()).await.context("a command panicked")?;
        Ok(Done::of(done.context("cannot run tally")?))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg0(NAME).args(args);
        let ours = std::env::vars_os().map(|(name, _)| name);
        let ours = ours.filter(|name| ["TALLY_", "AWS_"].iter().any(|its| name.to_string_lossy().starts_with(its)));
        ours.for_each(|name| _ = command.env_remove(name));
        command.envs(self.environment.iter().map(|(name, value)| (*name, value.as_str())));
        command
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "OperatorRole")
            .env("AWS_SECRET_ACCESS_KEY", "local");
        command.env("TALLY_OPERATOR", "e2e").stdin(Stdio::null());
        command
    }

    /// Runs it, and it has to end well.
    pub(crate) async fn must(&self, args: &[&str]) -> anyhow::Result<Done> {
        let done = self.run(args).await?;
        ensure!(
            done.code == Some(0),
            "tally {} ended with {:?}\n{}\n{}",
            args.join(" "),
            done.code,
            done.out,
            done.err
        );
        Ok(done)
    }

    /// Makes a change, which is asked for in as many words.
    pub(crate) async fn change(&self, args: &[&str]) -> anyhow::Result<Done> {
        self.must(&[args, &["--yes", "--why", "a campaign"]].concat()).await
    }
}
