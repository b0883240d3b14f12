//! The operators' command as a process of its own: this program, called by its name.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use tally_testkit::process::{Done, command, run};

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

impl Operator {
    /// Runs `tally` with `args`, as a new process that has nothing of this one's settings.
    pub(crate) async fn run(&self, args: &[&str]) -> Done {
        let mut command = command(&self.program);
        command.arg0(NAME).args(args).envs(self.environment.iter().map(|(name, value)| (*name, value.as_str())));
        command.env("AWS_REGION", "us-east-1").env("TALLY_OPERATOR", "e2e");
        command.env("AWS_ACCESS_KEY_ID", "OperatorRole").env("AWS_SECRET_ACCESS_KEY", "local");
        run(&mut command).await
    }

    /// Runs it, and it has to end well.
    pub(crate) async fn must(&self, args: &[&str]) -> anyhow::Result<Done> {
        let done = self.run(args).await;
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
