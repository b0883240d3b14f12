//! The list of all environment variables `TALLY_*`. `run` refuses unknown ones: one is most likely a mistake that
//! nothing else would report.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory};

use crate::Invalid;

/// The prefix of every variable of Tally.
const OURS: &str = "TALLY_";

/// The variables of every Tally program, since all of them may share one environment.
const OF_PROGRAMS: &[&str] = &[
    "TALLY_ADMIN_LISTEN",
    "TALLY_ADMIN_TOKEN",
    "TALLY_ADMIN_TOKEN_FILE",
    "TALLY_API_PORT",
    "TALLY_BATCH_BYTES",
    "TALLY_BATCH_ROWS",
    "TALLY_BLOCKS_TOPIC",
    "TALLY_BOARDS_TOPIC",
    "TALLY_BROKERS",
    "TALLY_CACHE_BUDGET",
    "TALLY_CHANGES_TOPIC",
    "TALLY_CHAOS",
    "TALLY_CONCURRENCY",
    "TALLY_CONNECTIONS",
    "TALLY_CORS_ORIGINS",
    "TALLY_COUNTS_TOPIC",
    "TALLY_DEAD_LETTER_TOPIC",
    "TALLY_DISCOVER",
    "TALLY_DURATION",
    "TALLY_DYNAMODB_ENDPOINT",
    "TALLY_DYNAMODB_PORT",
    "TALLY_EMULATOR_BATCH_LATENCY",
    "TALLY_EMULATOR_CONTROL",
    "TALLY_EMULATOR_EPOCH",
    "TALLY_EMULATOR_FAULTS",
    "TALLY_EMULATOR_HOST",
    "TALLY_EMULATOR_KEY_READ_UNITS",
    "TALLY_EMULATOR_KEY_WRITE_UNITS",
    "TALLY_EMULATOR_LATENCY",
    "TALLY_EMULATOR_LOG",
    "TALLY_EMULATOR_POLICIES",
    "TALLY_EMULATOR_PORT",
    "TALLY_EMULATOR_READ_LAG",
    "TALLY_EMULATOR_REGION",
    "TALLY_EMULATOR_ROLL_AFTER",
    "TALLY_EMULATOR_SEED",
    "TALLY_EMULATOR_SHARDS",
    "TALLY_EMULATOR_SPLIT_AFTER",
    "TALLY_EMULATOR_STREAM_DELAY",
    "TALLY_EMULATOR_STREAM_REORDER",
    "TALLY_EMULATOR_STREAM_RETENTION",
    "TALLY_EMULATOR_TRANSACTION_LATENCY",
    "TALLY_FORCE",
    "TALLY_FORWARDED_HOPS",
    "TALLY_FRESH_WITHIN",
    "TALLY_GROUP",
    "TALLY_HEADER_TIME",
    "TALLY_HEARTBEAT",
    "TALLY_HOT_SHARE",
    "TALLY_KAFKA_PORT",
    "TALLY_KEY_READ_UNITS",
    "TALLY_KEY_WRITE_UNITS",
    "TALLY_LEASE",
    "TALLY_LINGER",
    "TALLY_LIST",
    "TALLY_LISTEN",
    "TALLY_LISTENERS",
    "TALLY_LOCAL_POSTS",
    "TALLY_LOCAL_TTL",
    "TALLY_LOG",
    "TALLY_LOG_FORMAT",
    "TALLY_MAX_AGE",
    "TALLY_MAX_KEYS",
    "TALLY_MAX_REGIONS",
    "TALLY_MILESTONES",
    "TALLY_MIN_COUNT",
    "TALLY_MSK_REGION",
    "TALLY_NO_LEASES",
    "TALLY_NO_LOAD",
    "TALLY_NO_TRENDS",
    "TALLY_OPEN_WRITES",
    "TALLY_OPERATOR",
    "TALLY_PATIENCE",
    "TALLY_POLL_IDLE",
    "TALLY_POSTS",
    "TALLY_RATE",
    "TALLY_READ_RATE",
    "TALLY_READ_TOKEN",
    "TALLY_READ_TOKEN_FILE",
    "TALLY_READ_UNITS_PER_SECOND",
    "TALLY_RECOUNT_EVERY",
    "TALLY_REDIS",
    "TALLY_REDIS_CLUSTER",
    "TALLY_REGIONS",
    "TALLY_REGION_NAME",
    "TALLY_REMOTE",
    "TALLY_ROLE",
    "TALLY_SASL",
    "TALLY_SASL_PASSWORD",
    "TALLY_SASL_PASSWORD_FILE",
    "TALLY_SASL_USER",
    "TALLY_SEED",
    "TALLY_SHARDS",
    "TALLY_SHUTDOWN_GRACE",
    "TALLY_STORE_BATCH_LATENCY",
    "TALLY_STORE_CALL_LATENCY",
    "TALLY_STORE_LATENCY",
    "TALLY_STREAM_DELAY",
    "TALLY_STREAM_RETENTION",
    "TALLY_SUM_POLICY",
    "TALLY_TABLE_BUDGET",
    "TALLY_TABLE_CONCURRENCY",
    "TALLY_TABLE_PREFIX",
    "TALLY_TLS",
    "TALLY_TLS_CA",
    "TALLY_TLS_CERTIFICATE",
    "TALLY_TLS_KEY",
    "TALLY_TOMBSTONES",
    "TALLY_TOPIC",
    "TALLY_TRENDS_GROUP",
    "TALLY_UNLIKE_RATIO",
    "TALLY_UNREAD_TIME",
    "TALLY_USERS",
    "TALLY_VERIFY",
    "TALLY_WATCH",
    "TALLY_WINDOWS",
    "TALLY_WRITE_BUDGET",
    "TALLY_WRITE_RATE",
    "TALLY_WRITE_TOKEN",
    "TALLY_WRITE_TOKEN_FILE",
];

/// The prefixes of variables that tests, benchmarks and their scripts read.
const OF_TESTS: &[&str] =
    &["TALLY_BENCH_", "TALLY_CHECK_", "TALLY_CI_", "TALLY_CONTRACT_", "TALLY_FUZZ_", "TALLY_TEST_"];

/// The full names of other variables that they read.
const WHOLE_OF_TESTS: &[&str] = &["TALLY_MODELS", "TALLY_REDIS_SERVER"];

/// Reports each of Tally's variables in `given` that neither `command` nor a program nor a test knows, with the most
/// similar known one.
pub fn unknown(command: &Command, given: impl Iterator<Item = (String, String)>) -> Invalid {
    let own = of_command(command);
    let known: BTreeSet<&str> = own.iter().map(String::as_str).chain(OF_PROGRAMS.iter().copied()).collect();
    let mut invalid = Invalid::none();
    let given: BTreeSet<(String, String)> = given.filter(|(name, _)| name.starts_with(OURS)).collect();
    for (name, value) in &given {
        let of_tests =
            WHOLE_OF_TESTS.contains(&name.as_str()) || OF_TESTS.iter().any(|prefix| name.starts_with(prefix));
        if of_tests || known.contains(name.as_str()) || is_service_link(name, value) {
            continue;
        }
        let nearest = known.iter().min_by_key(|known| strsim::damerau_levenshtein(known, name));
        let nearest = nearest.map(|nearest| format!(": did you mean {nearest}?")).unwrap_or_default();
        invalid.add_variable(name, format!("no Tally program has this setting{nearest}"));
    }
    invalid
}

/// Returns the environment variables of this process that are valid Unicode.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
}

/// Returns the variables of `given` that another Tally program has, and the program `A` has not.
pub fn unread<A: CommandFactory>(given: impl Iterator<Item = String>) -> Vec<String> {
    let own = of_program::<A>();
    given.filter(|name| OF_PROGRAMS.contains(&name.as_str()) && !own.contains(name)).collect()
}

/// Returns the variables of a program that are missing in the list above; the program's test expects none.
pub fn unlisted<A: CommandFactory>() -> Vec<String> {
    of_program::<A>().into_iter().filter(|name| !OF_PROGRAMS.contains(&name.as_str())).collect()
}

fn of_program<A: CommandFactory>() -> BTreeSet<String> {
    let mut command = A::command();
    command.build();
    of_command(&command)
}

/// Returns the variables of a command and of its subcommands.
fn of_command(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned));
    own.chain(command.get_subcommands().flat_map(of_command)).collect()
}

/// Returns whether Kubernetes has set this variable. It tells every container the addresses of all services in the
/// namespace: for a service called `tally-consumer` that is `TALLY_CONSUMER_PORT=tcp://..` and some more.
fn is_service_link(name: &str, value: &str) -> bool {
    let of_a_port = ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| name.contains(protocol));
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.contains("_PORT_") && of_a_port
        || name.ends_with("_PORT") && value.contains("://")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Tests its variables
    #[derive(Parser)]
    #[command(name = "tally-test")]
    struct TestArgs {
        #[arg(long, env = "TALLY_OWN")]
        _own: Option<String>,
    }

    fn refused(given: &[(&str, &str)]) -> String {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        unknown(&TestArgs::command(), given).to_string()
    }

    #[test]
    fn an_unknown_variable_is_refused_with_the_most_similar_one_and_without_its_value() {
        assert_eq!(
            refused(&[("TALLY_BROKER", "canary"), ("TALLY_OVN", "")]),
            "TALLY_BROKER: no Tally program has this setting: did you mean TALLY_BROKERS?; \
             TALLY_OVN: no Tally program has this setting: did you mean TALLY_OWN?"
        );
    }

    #[test]
    fn variables_of_programs_tests_other_software_and_kubernetes_are_accepted() {
        let accepted = [
            ("TALLY_OWN", ""),
            ("TALLY_LISTENERS", "1"),
            ("TALLY_TEST_STOPS", "1"),
            ("HOME", "/"),
            ("TALLY_CONSUMER_SERVICE_HOST", "10.0.0.1"),
            ("TALLY_CONSUMER_SERVICE_PORT_ADMIN", "9091"),
            ("TALLY_CONSUMER_PORT", "tcp://10.0.0.1:9091"),
            ("TALLY_CONSUMER_PORT_9091_TCP_ADDR", "10.0.0.1"),
        ];
        assert_eq!(refused(&accepted), "");
        assert!(refused(&[("TALLY_CONSUMER_PORT", "9091")]).contains("TALLY_CONSUMER_PORT"));
    }

    #[test]
    fn a_variable_that_only_begins_like_one_of_the_tests_is_refused() {
        assert_eq!(refused(&[("TALLY_MODELS", "large"), ("TALLY_REDIS_SERVER", "redis-server")]), "");
        for mistaken in ["TALLY_MODELSX", "TALLY_REDIS_SERVERS", "TALLY_STREAMER_ANYTHING"] {
            assert!(refused(&[(mistaken, "")]).starts_with(mistaken), "{mistaken}");
        }
    }

    #[test]
    fn a_program_variable_that_is_not_listed_is_found() {
        assert_eq!(unlisted::<TestArgs>(), ["TALLY_OWN"]);
    }
}
