//! `tally completions` and `tally man`: write completions for shells, and the manual.

use std::io::Write;

use anyhow::Context;
use clap::{Command, Subcommand};
use clap_complete::Shell;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Generate {
    /// Writes what makes a shell complete this command: `tally completions bash > /etc/bash_completion.d/tally`
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Writes the manual, to be read by man: `tally man > tally.1`. With a directory, a page for each verb
    Man {
        /// A directory to write a page for each verb into
        #[arg(long, value_name = "DIR")]
        into: Option<std::path::PathBuf>,
    },
}

impl Generate {
    pub(crate) fn run(self, mut command: Command) -> anyhow::Result<u8> {
        let mut text = Vec::new();
        match self {
            Self::Completions { shell } => clap_complete::generate(shell, &mut command, "tally", &mut text),
            Self::Man { into: Some(folder) } => {
                std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
                clap_mangen::generate_to(command, &folder)
                    .with_context(|| format!("cannot write into {}", folder.display()))?;
            }
            Self::Man { into: None } => {
                clap_mangen::Man::new(command).render(&mut text).context("cannot write the manual")?;
            }
        }
        std::io::stdout().lock().write_all(&text).context("cannot write the answer")?;
        Ok(0)
    }
}
