//! The command-line arguments that processes share, and the environment variables for them; each binary flattens the
//! groups it needs into its own.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command, CommandFactory, Parser};
use tally_core::ids::ShardCount;

use crate::Invalid;
use crate::config::setting;
use crate::telemetry::{Filter, LogFormat};
use crate::variables::unlisted;

/// The arguments of every process. Flatten them after a binary's own arguments; otherwise help lists those under the
/// heading of the last group.
///
/// A binary whose admin listener has another port says so on its own arguments:
/// `#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9091")))]`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Process", about = None, long_about = None)]
pub struct CommonArgs {
    /// Validate the configuration and exit: 0 if it is good, 78 if not
    #[arg(long)]
    pub check: bool,

    /// How log events are written to standard error
    #[arg(long, env = "TALLY_LOG_FORMAT", value_enum, default_value_t = LogFormat::Pretty, value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// Which log events are written: a level, or directives such as `info,tally_consumer=debug`. A PUT of /log-level on the admin
    /// listener changes it
    #[arg(long, env = "TALLY_LOG", default_value = "info", value_name = "FILTER")]
    pub log: Filter,

    /// How long a stopping process may drain before it is ended
    #[arg(long, env = "TALLY_SHUTDOWN_GRACE", default_value = "25s", value_parser = parse_duration, value_name = "SPAN")]
    pub shutdown_grace: Duration,

    /// Where /livez, /readyz, /metrics and /log-level are served: an address, or `off`
    #[arg(long, env = "TALLY_ADMIN_LISTEN", default_value = "127.0.0.1:9090", value_name = "ADDRESS")]
    pub admin_listen: Listen,
}

/// Where the tables are. Endpoint, region and credentials come from the standard AWS variables.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store", about = None, long_about = None)]
pub struct StoreArgs {
    /// Prefix of every table name
    #[arg(long, env = "TALLY_TABLE_PREFIX", default_value = "", value_parser = table_prefix, value_name = "TEXT")]
    pub table_prefix: String,

    /// Number of shards of each post; a deployment keeps the number that it was created with
    #[arg(long, env = "TALLY_SHARDS", value_parser = shards, value_name = "COUNT")]
    pub shards: Option<ShardCount>,
}

/// An address to listen on, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    Off,
    /// Listen here; port 0 is any free one.
    At(SocketAddr),
}

impl Listen {
    /// Returns whether a listener on this address keeps another one from listening on `other`. Port 0 never does: it
    /// stands for any free port.
    pub fn takes(self, other: SocketAddr) -> bool {
        let Self::At(ours) = self else { return false };
        let same_ip = ours.ip() == other.ip() || ours.ip().is_unspecified() || other.ip().is_unspecified();
        ours.port() == other.port() && ours.port() != 0 && same_ip
    }
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let bad = "not an address to listen on: write IP:PORT, such as 127.0.0.1:9090 or [::1]:9090, or `off`";
        if text == "off" { Ok(Self::Off) } else { text.parse().map(Self::At).map_err(|_| bad) }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

/// Returns a clap `value_parser` that refuses empty text, since an environment variable is often set to nothing.
pub fn text() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}

/// Returns the help text of a command and of all its subcommands, the same on every machine. Each binary's test
/// compares it with a snapshot.
///
/// # Panics
/// If the list of all programs' variables lacks one.
pub fn reference<A: CommandFactory>() -> String {
    assert_eq!(unlisted::<A>(), [""; 0], "the list of all programs' variables lacks these");
    let mut command = A::command();
    command.build();
    helps(command)
}

/// Returns the default values of a group of arguments, whatever the command line and the environment say.
///
/// # Panics
/// If an argument has no default.
pub fn defaults<A: Args>() -> A {
    let command = A::augment_args(Command::new("defaults").no_binary_name(true)).mut_args(|arg| arg.env(None));
    A::from_arg_matches(&command.get_matches_from([""; 0])).expect("each has a default")
}

/// Reads the arguments `given`, the program's name first. An argument that is unknown, refused, repeated or in conflict
/// with another is noted in `invalid` and then treated as not given: so one mistake hides no other.
///
/// # Errors
/// What is refused for another reason, such as a missing argument; and help and the version. `None` if only an argument
/// is missing that is noted.
pub(crate) fn parse<A: Parser>(mut given: Vec<OsString>, invalid: &mut Invalid) -> Result<A, Option<clap::Error>> {
    let (mut command, mut refused) = (A::command(), BTreeSet::new());
    loop {
        let error = match command.clone().try_get_matches_from(&given).and_then(|found| A::from_arg_matches(&found)) {
            Ok(args) => return Ok(args),
            Err(error) => error,
        };
        if error.kind() == ErrorKind::MissingRequiredArgument {
            let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
                return Err(Some(error));
            };
            let is_noted = missing.iter().all(|shown| refused.contains(flag(shown)));
            return Err((!is_noted).then_some(error));
        }
        let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return Err(Some(error)) };
        let (is_new, flag) = (refused.insert(flag(shown).to_owned()), flag(shown).to_owned());
        let known = command.get_arguments().find(|arg| arg.get_long() == flag.strip_prefix("--"));
        given = match (error.kind(), known) {
            (ErrorKind::ValueValidation | ErrorKind::InvalidValue | ErrorKind::ArgumentConflict, Some(known))
                if is_new =>
            {
                invalid.add_variable(&named(&command, &flag), problem(&command, &error));
                let (id, takes_value) = (known.get_id().clone(), known.get_action().takes_values());
                command = command.mut_arg(id, |arg| arg.env(None));
                without(given, &flag, takes_value)
            }
            (ErrorKind::UnknownArgument, _) if is_new && flag.starts_with("--") => {
                invalid.add_variable(&flag, unknown(&error));
                without(given, shown.split('=').next().unwrap_or(shown), true)
            }
            _ => return Err(Some(error)),
        };
    }
}

/// Returns the name of an argument: its flag, and its variable if it has one.
fn named(command: &Command, flag: &str) -> String {
    let known = command.get_arguments().find(|arg| arg.get_long() == flag.strip_prefix("--"));
    if known.is_some_and(|arg| arg.get_env().is_some()) { setting(flag) } else { flag.to_owned() }
}

/// Returns the flag of an argument as clap shows it, such as `--linger <SPAN>`.
fn flag(shown: &str) -> &str {
    shown.split([' ', '=', '[']).next().unwrap_or(shown)
}

/// Returns what is wrong with an argument that is unknown.
fn unknown(error: &clap::Error) -> String {
    let similar = match (error.get(ContextKind::InvalidArg), error.get(ContextKind::SuggestedArg)) {
        (Some(ContextValue::String(shown)), _) if shown.contains(' ') => ": its value is in the same word".to_owned(),
        (_, Some(ContextValue::String(similar))) => format!("; did you mean {similar}?"),
        _ => String::new(),
    };
    format!("there is no such argument{similar}")
}

/// Returns what is wrong with an argument that is known.
fn problem(command: &Command, error: &clap::Error) -> String {
    if error.kind() == ErrorKind::ArgumentConflict {
        return match (error.get(ContextKind::InvalidArg), error.get(ContextKind::PriorArg)) {
            (given, prior) if given == prior => "is given more than once".to_owned(),
            (_, Some(ContextValue::String(prior))) => format!("contradicts {}", named(command, flag(prior))),
            (_, Some(ContextValue::Strings(prior))) => {
                let prior: Vec<String> = prior.iter().map(|prior| named(command, flag(prior))).collect();
                format!("contradicts {}", prior.join(", "))
            }
            _ => "contradicts another argument".to_owned(),
        };
    }
    match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(cause), _) => cause.to_string(),
        (None, Some(ContextValue::Strings(values))) if !values.is_empty() => {
            format!("must be one of {}", values.join(", "))
        }
        _ => "has no value".to_owned(),
    }
}

/// Removes `--flag` and `--flag=value`, and `--flag value` if it takes one.
fn without(given: Vec<OsString>, flag: &str, takes_value: bool) -> Vec<OsString> {
    let starts = |word: &OsString, start: &str| word.as_encoded_bytes().starts_with(start.as_bytes());
    let (with_value, mut after) = (format!("{flag}="), false);
    let mut is_of_it = |word: &OsString| {
        let is_its_value = std::mem::replace(&mut after, *word == *flag) && takes_value && !starts(word, "--");
        is_its_value || after || starts(word, &with_value)
    };
    given.into_iter().filter(|word| !is_of_it(word)).collect()
}

/// Returns a clap `value_parser` of numbers within these bounds. `T` must be the type of the field: with another type,
/// clap panics when the argument is read.
pub fn within<T>(
    bounds: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + fmt::Display,
{
    move |text| {
        let rule = || match (bounds.start_bound(), bounds.end_bound()) {
            (Bound::Included(least), Bound::Included(most)) => format!("must be a number from {least} to {most}"),
            (Bound::Included(least), Bound::Unbounded) => format!("must be a number, at least {least}"),
            _ => "is out of bounds".to_owned(),
        };
        text.parse().ok().filter(|value| bounds.contains(value)).ok_or_else(rule)
    }
}

/// Returns a clap `value_parser` of durations for which `holds` returns true; `rule` is the message for the others.
pub fn duration(
    holds: fn(Duration) -> bool,
    rule: &'static str,
) -> impl Fn(&str) -> Result<Duration, &'static str> + Clone + Send + Sync + 'static {
    move |text| parse_duration(text).and_then(|span| if holds(span) { Ok(span) } else { Err(rule) })
}

/// Returns a clap `value_parser` of durations greater than 0.
pub fn positive_duration() -> impl Fn(&str) -> Result<Duration, &'static str> + Clone + Send + Sync + 'static {
    duration(|span| !span.is_zero(), "must be greater than 0")
}

/// The units of a duration, in milliseconds.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const NO_NUMBER: &str = "not a duration: write a whole number and a unit, such as 20ms, 10s, 5m, 2h or 1d";
const NO_UNIT: &str = "a duration needs one of the units ms, s, m, h, d";
const TOO_LONG: &str = "the duration is too long";

/// Reads `20ms`, `10s`, `5m`, `2h` or `1d`; `0` needs no unit. A clap `value_parser`.
///
/// # Errors
/// What anything else lacks.
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(NO_NUMBER);
    }
    let number: u64 = number.parse().map_err(|_| TOO_LONG)?;
    if number == 0 && unit.is_empty() {
        return Ok(Duration::ZERO);
    }
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(NO_UNIT)?;
    number.checked_mul(*millis).map(Duration::from_millis).ok_or(TOO_LONG)
}

fn helps(command: Command) -> String {
    let mut command = command.term_width(100).mut_args(|arg| arg.hide_env_values(true));
    let text = command.render_long_help().to_string();
    let of_its_own = command.get_subcommands().filter(|command| command.get_name() != "help");
    of_its_own.fold(text, |text, command| format!("{text}\n\n{}", helps(command.clone())))
}

fn table_prefix(text: &str) -> Result<String, &'static str> {
    // The longest of our own table names must still fit into DynamoDB's 255.
    let legal = text.len() <= 200 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    if legal { Ok(text.to_owned()) } else { Err("at most 200 letters, digits and _.-") }
}

fn shards(text: &str) -> Result<ShardCount, String> {
    let count = text.parse().map_err(|_| "not a whole number".to_owned())?;
    ShardCount::new(count).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests its arguments
    #[derive(Parser, Debug)]
    #[command(name = "tally-test", mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9099")))]
    struct TestArgs {
        /// Anything but nothing
        #[arg(long, value_parser = text())]
        brokers: Option<String>,
        /// Needs them
        #[arg(long, requires = "brokers", hide = true)]
        needs_brokers: bool,
        /// Contradicts them
        #[arg(long, conflicts_with = "brokers", value_parser = within::<u8>(1..=2), hide = true)]
        without: Option<u8>,
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        common: CommonArgs,
    }

    fn parse(args: &[&str]) -> Result<TestArgs, String> {
        TestArgs::try_parse_from(std::iter::once(&"tally-test").chain(args)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bad_value_is_refused_with_the_name_of_its_flag() {
        let bad = [
            ["--log-format", "xml"],
            ["--log", "tally=loud"],
            ["--shutdown-grace", "10"],
            ["--admin-listen", "localhost"],
            ["--admin-listen", "127.0.0.1:99999"],
            ["--table-prefix", "a b"],
            ["--shards", "12"],
            ["--shards", "0"],
            ["--shards", "512"],
            ["--brokers", ""],
        ];
        for [flag, value] in bad {
            let error = parse(&[flag, value]).expect_err("a bad value");
            assert!(error.contains(flag), "{flag} {value:?}: {error}");
        }
        assert!(parse(&["--admin-listen", "off", "--shards", "256", "--brokers", "b:9092"]).is_ok());
    }

    #[test]
    fn every_argument_that_is_refused_is_named_once() {
        let read = |given: &[&str]| {
            let (mut invalid, given) = (Invalid::none(), std::iter::once(&"tally-test").chain(given));
            let args = super::parse::<TestArgs>(given.map(OsString::from).collect(), &mut invalid);
            (args, invalid.to_string())
        };
        let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
        let (args, said) =
            read(&words("--log-format x --shards=x --brokers b:9092 --admin-listen --log x --shards 13"));
        assert_eq!(args.map(|args| (args.brokers, args.store.shards)).unwrap(), (Some("b:9092".to_owned()), None));
        let named: Vec<_> = said.split("; ").filter_map(|said| said.split(" (TALLY_").next()).collect();
        assert_eq!(named[..4], ["--log-format", "--shards", "--admin-listen", "--log"], "{said}");
        assert!(said.contains("must be one of json, pretty") && said.contains("has no value"), "{said}");
        let (args, said) = read(&["--broker", "canary", "--nothing=canary", "--brokers canary", "--shards", "13"]);
        let [similar, nothing, one_word] = ["; did you mean --brokers?", "", ": its value is in the same word"];
        let none = "there is no such argument";
        let expected =
            format!("--broker: {none}{similar}; --nothing: {none}{nothing}; --brokers: {none}{one_word}; --shards (");
        assert!(args.is_ok() && said.starts_with(&expected) && !said.contains("canary"), "{said}");
        assert!(read(&["--shards", "13", "-x"]).0.unwrap_err().is_some());
        let (args, said) = read(&words("--without 1 --brokers b --log info --log info --check --check --shards 13"));
        assert!(args.unwrap().brokers.is_some_and(|brokers| brokers == "b"), "{said}");
        let twice = "--log (TALLY_LOG): is given more than once; --check: is given more than once; --shards (";
        assert!(said.starts_with(twice) && said.ends_with("; --without: contradicts --brokers"), "{said}");
        assert_eq!(read(&["--without", "3"]).1, "--without: must be a number from 1 to 2");
        let (args, said) = read(&["--store", "x", "--needs-brokers"]);
        assert!(args.unwrap_err().is_some() && said.starts_with("--store: "), "{said}");
        assert!(read(&["--brokers", "", "--needs-brokers"]).0.unwrap_err().is_none());
    }

    #[test]
    fn listeners_on_the_same_address_are_detected() {
        let takes = |ours: &str, other: &str| ours.parse::<Listen>().unwrap().takes(other.parse().unwrap());
        assert!(takes("127.0.0.1:9090", "127.0.0.1:9090") && takes("0.0.0.0:9090", "127.0.0.1:9090"));
        assert!(takes("127.0.0.1:9090", "[::]:9090"));
        assert!(!takes("127.0.0.1:9090", "127.0.0.2:9090") && !takes("127.0.0.1:9090", "127.0.0.1:9091"));
        assert!(!takes("127.0.0.1:0", "127.0.0.1:0") && !takes("off", "127.0.0.1:9090"));
    }

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        let parsed = ["20ms", "10s", "5m", "2h", "1d", "0", "0ms", "007s"].map(|text| parse_duration(text).unwrap());
        assert_eq!(parsed.map(|span| span.as_millis()), [20, 10_000, 300_000, 7_200_000, 86_400_000, 0, 0, 7_000]);
    }

    #[test]
    fn anything_else_is_refused_with_its_reason() {
        for text in ["", "s", "-1s", "+1s", " 1s", ".5s", "ten"] {
            assert_eq!(parse_duration(text), Err(NO_NUMBER), "{text:?}");
        }
        for text in ["10", "1.5s", "10 s", "10S", "1s1s", "1us", "1sé"] {
            assert_eq!(parse_duration(text), Err(NO_UNIT), "{text:?}");
        }
        for text in ["18446744073709551615d", "18446744073709551616ms"] {
            assert_eq!(parse_duration(text), Err(TOO_LONG), "{text:?}");
        }
    }
}
