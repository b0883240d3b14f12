//! The services as processes: cargo builds no other package's binaries for a test, so this program is each of them when it
//! is called by its name.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// A service of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Kafka to rows.
    Consumer,
    /// Rows to counts.
    Streamer,
    /// Counts held against rows.
    Recount,
    /// Counts to people.
    Api,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Consumer, Self::Streamer, Self::Recount, Self::Api];

    /// The name of its binary.
    pub fn binary(self) -> &'static str {
        match self {
            Self::Consumer => "tally-consumer",
            Self::Streamer => "tally-change-streamer",
            Self::Recount => "tally-batch-recount",
            Self::Api => "tally-count-api",
        }
    }

    /// Its role in `infra/roles.yaml`.
    pub(crate) fn role(self) -> &'static str {
        match self {
            Self::Consumer => "ConsumerRole",
            Self::Streamer => "StreamerRole",
            Self::Recount => "RecountRole",
            Self::Api => "ApiRole",
        }
    }

    /// The service by whose name this program was called.
    pub fn called() -> Option<Self> {
        let name = std::env::args_os().next()?;
        let name = Path::new(&name).file_name()?;
        Self::ALL.into_iter().find(|service| name == service.binary())
    }

    /// What the service's own `main` does.
    pub fn run(self) -> ExitCode {
        match self {
            Self::Consumer => tally_service::run::<tally_consumer::App>(),
            Self::Streamer => tally_service::run::<tally_change_streamer::App>(),
            Self::Recount => tally_service::run::<tally_batch_recount::App>(),
            Self::Api => tally_service::run::<tally_count_api::App>(),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Consumer => "consumer",
            Self::Streamer => "streamer",
            Self::Recount => "recount",
            Self::Api => "api",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_a_name_of_its_own_and_this_program_was_called_by_none() {
        let names: std::collections::BTreeSet<_> = Service::ALL.map(Service::binary).into();
        assert_eq!(names.len(), Service::ALL.len());
        assert_eq!(Service::called(), None);
    }
}
