//! Tests the local stack's page with a real browser over the whole pipeline: starts a stack and the script `check.py`,
//! which looks at the page, and ends both.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use tally_testkit::process::{Signal, command};
use tally_testkit::{Process, until};
use tokio::time::Instant;

/// What an interrupt may take.
const AT_ONCE: Duration = Duration::from_secs(5);

/// What all checks may take together.
const AT_LAST: Duration = Duration::from_secs(1_800);

/// A script that checks the page.
struct Check(Process);

impl Check {
    fn start(command: &mut Command) -> Self {
        Self(Process::start("check", command).expect("the script starts"))
    }

    async fn prints(&self, text: &str) {
        let printed = async || self.0.printed().contains(text) || !self.0.is_running();
        until(text, AT_LAST, printed).await.expect("it goes on");
        assert!(self.0.printed().contains(text), "it ended early: {}", self.0.log());
    }

    /// What it has printed when it has ended.
    async fn end(&self) -> String {
        let code = self.0.exit(AT_LAST).await.expect("it ends");
        println!("{}", self.0.printed());
        assert_eq!(code, Some(0), "see above: {}", self.0.log());
        self.0.printed()
    }
}

impl Drop for Check {
    #[expect(clippy::disallowed_methods, reason = "this thread does nothing else")]
    fn drop(&mut self) {
        // Asked first: one that is killed leaves what it started behind, a browser for one.
        if self.0.signal(Signal::INT).is_ok() {
            let asked = Instant::now();
            while self.0.is_running() && asked.elapsed() < AT_ONCE {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// A stack of so many Regions whose page is at `port`, and its URL.
async fn stack(port: &str, regions: &str) -> (Process, String) {
    let mut command = command(env!("CARGO_BIN_EXE_tally-localstack"));
    command.args(["--api-port", port, "--kafka-port", "0", "--dynamodb-port", "0", "--admin-listen", "127.0.0.1:0"]);
    // Few posts: a recount of what changes all the time opens a window on every row key, one after the other.
    command.args(["--rate", "100", "--posts", "8", "--milestones", "3", "--regions", regions]);
    let stack = Process::start("stack", &mut command).expect("the stack starts");
    let line = stack.prints("page ").await;
    (stack, line.split_whitespace().last().expect("it prints where the page is").to_owned())
}

/// A free port, below those that a system hands out by itself: a second stack takes it when the first is gone.
fn port_to_come_back_to() -> String {
    let mut ports = (20_000..30_000).skip(usize::try_from(std::process::id()).expect("it fits") % 9_000);
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.expect("a port is free").to_string()
}

/// The script that checks the page at `url`.
fn check(url: &str) -> Command {
    let mut command = command("python3");
    command.args(["-B", "tests/page/check.py", url]);
    command
}

/// The check that has a stack and a test of its own: its two recounts take as long as all other checks.
const RECOUNTS: &str = "drift_is_found_by_a_recount";

/// The check that needs two Regions.
const MIRROR: &str = "the_mirror_is_cut";

/// The checks around it: services that were killed and a stream that was split before, and the page with corrections after.
const AROUND: [&str; 3] = ["services_are_killed", "a_split_grows", "wider_than_a_phone"];

#[tokio::test]
#[ignore = "needs Chromium and its driver; .ci/night runs it"]
async fn a_person_with_a_browser_sees_a_recount_find_drift() {
    let (_stack, url) = stack("0", "1").await;
    let only = AROUND.iter().chain([&RECOUNTS]).flat_map(|name| ["--only", name]);
    let said = Check::start(check(&url).args(only)).end().await;
    assert_eq!(said.lines().count(), AROUND.len() + 1, "each name is of one check: {said}");
}

#[tokio::test]
#[ignore = "needs Chromium and its driver; .ci/night runs it"]
async fn a_person_with_a_browser_cuts_the_mirror_and_heals_it() {
    let (_stack, url) = stack("0", "2").await;
    let said = Check::start(check(&url).args(["--only", MIRROR])).end().await;
    assert_eq!(said.lines().count(), 1, "the name is of one check: {said}");
}

#[tokio::test]
#[ignore = "needs Chromium and its driver; .ci/night runs it"]
async fn a_person_with_a_browser_sees_counts_move_and_can_make_things_go_wrong() {
    let (first, url) = stack(&port_to_come_back_to(), "1").await;

    let skip = AROUND[..2].iter().chain([&RECOUNTS, &MIRROR]).flat_map(|name| ["--skip", name]);
    let mut looking = check(&url);
    let looking = Check::start(looking.arg("--leave").args(skip).stdin(Stdio::piped()));
    looking.prints("watching").await;

    let asked = Instant::now();
    first.signal(Signal::INT).unwrap();
    assert_eq!(first.code().await, Some(0), "the stack ends well while a page is open");
    assert!(asked.elapsed() < AT_ONCE, "it took {:?}", asked.elapsed());
    let mut stdin = looking.0.child().stdin.take().expect("stdin is piped");
    stdin.write_all(b"gone\n").expect("the script listens");
    looking.prints("the_stack_is_gone").await;
    let (_second, same) = stack(url.trim_end_matches('/').rsplit(':').next().expect("a URL with a port"), "1").await;
    assert_eq!(same, url);
    stdin.write_all(b"back\n").expect("the script listens");
    looking.end().await;
}
