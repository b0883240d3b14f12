//! `tally status`: how the deployment is, in one screen, and what is wrong by name.

mod looks;

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tally_service::parse_duration;

use crate::desk::{Desk, Where};
use crate::probe::{Found, Target};
use crate::said::{Answer, Table};

/// How long a service may take to say whether it is ready.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    of: Where,

    /// How late rows and counts may be
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "SPAN")]
    late: Duration,

    /// A service to ask whether it is ready, as http://10.0.0.7:9090/readyz; may be given more than once
    #[arg(long, value_name = "URL")]
    service: Vec<Target>,
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// What it is about, in one word or two.
    what: &'static str,
    detail: String,
    /// Where it is explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    see: Option<&'static str>,
}

/// The deployment in one screen.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Status {
    /// Figures, each with its name.
    figures: Vec<(&'static str, String)>,
    wrong: Vec<Finding>,
}

impl Status {
    pub(super) fn figure(&mut self, name: &'static str, value: impl Into<String>) {
        self.figures.push((name, value.into()));
    }

    pub(super) fn wrong(&mut self, what: &'static str, detail: impl Into<String>, see: Option<&'static str>) {
        self.wrong.push(Finding { what, detail: detail.into(), see });
    }
}

impl Answer for Status {
    fn table(&self) -> String {
        let mut figures = Table::default();
        for (name, value) in &self.figures {
            figures.row([name, value]);
        }
        if self.wrong.is_empty() {
            return format!("{figures}\nall is well");
        }
        let mut wrong = Table::headed(["wrong", "", ""]);
        for Finding { what, detail, see } in &self.wrong {
            wrong.row([what, detail, &see.unwrap_or_default()]);
        }
        format!("{figures}\n{wrong}")
    }

    fn found(&self) -> bool {
        !self.wrong.is_empty()
    }
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Status> {
        let Self { of, late, service } = self;
        let desk = Desk::open(of).await?;
        let mut status = Status::default();
        let format = desk.checkpoints.format().await.context("cannot read the configuration")?;
        let format = format.map_or("no format".to_owned(), |format| format.to_string());
        status.figure("deployment", format!("{}, {} shards a post, {format}", desk.name(), desk.shards));
        looks::tables(&desk, &mut status).await?;
        looks::rows(&desk, late, &mut status).await?;
        looks::stream(&desk, late, &mut status).await?;
        looks::counts(&desk, late, &mut status).await?;
        looks::losses(&desk, &mut status).await?;
        looks::recounts(&desk, &mut status).await?;
        looks::letters(&desk, &mut status).await?;
        services(&service, &mut status);
        Ok(status)
    }
}

fn services(urls: &[Target], status: &mut Status) {
    let mut ready = 0;
    for url in urls {
        match url.ask(PATIENCE) {
            Ok(Found { status: 200, .. }) => ready += 1,
            Ok(Found { status: code, body }) => {
                status.wrong("not ready", format!("{url} answers {code}: {}", body.trim()), None);
            }
            Err(error) => {
                status.wrong(
                    "not ready",
                    format!("{url} does not answer: {error}"),
                    Some("ops/runbooks/TallyServiceMissing.md"),
                );
            }
        }
    }
    if !urls.is_empty() {
        status.figure("services", format!("{ready} of {} ready", urls.len()));
    }
}
