//! A real browser over the whole pipeline: `check.py` looks, and this starts what it looks at and ends it.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::time::Instant;

/// What an interrupt may take.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A process that does not outlive its test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> (Self, Lines<BufReader<ChildStdout>>) {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        (Self(child), lines)
    }

    /// As Ctrl-C does; whether that could be.
    fn ask_to_end(&self) -> bool {
        Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().is_ok_and(|sent| sent.success())
    }

    fn wait(&mut self) -> ExitStatus {
        self.0.wait().expect("it is our child")
    }
}

impl Drop for Process {
    #[expect(clippy::disallowed_methods, reason = "this thread does nothing else")]
    fn drop(&mut self) {
        // Asked first: one that is killed leaves what it started behind, a browser for one.
        if matches!(self.0.try_wait(), Ok(None)) && self.ask_to_end() {
            let asked = Instant::now();
            while matches!(self.0.try_wait(), Ok(None)) && asked.elapsed() < AT_ONCE {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A stack whose page is at `port`, and its URL.
fn stack(port: &str) -> (Process, String) {
    let (stack, mut printed) = Process::start(&mut command(port));
    let url = page(&mut printed);
    // A full pipe would stop it.
    std::thread::spawn(move || printed.map_while(Result::ok).for_each(drop));
    (stack, url)
}

fn command(port: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally-localstack"));
    let tally = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TALLY_"));
    tally.for_each(|(name, _)| _ = command.env_remove(name));
    command.args(["--api-port", port, "--kafka-port", "0", "--dynamodb-port", "0", "--admin-listen", "127.0.0.1:0"]);
    // Few posts: a recount of what changes all the time opens a window on every row key, one after the other.
    command.args(["--rate", "100", "--posts", "8", "--milestones", "3"]);
    command
}

/// The page's URL, as it is printed.
fn page(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let mut lines = lines.map_while(Result::ok);
    let url = lines.find_map(|line| line.trim().strip_prefix("page").map(|url| url.trim().to_owned()));
    url.expect("it prints where the page is")
}

/// A free port, below those that a system hands out by itself: a second stack takes it when the first is gone.
fn port_to_come_back_to() -> String {
    let mut ports = (20_000..30_000).skip(usize::try_from(std::process::id()).expect("it fits") % 9_000);
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.expect("a port is free").to_string()
}

/// The script that checks the page at `url`.
fn check(url: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-B", "tests/page/check.py", url]);
    command
}

/// The check that has a stack and a test of its own: its two recounts take as long as all other checks.
const RECOUNTS: &str = "drift_is_found_by_a_recount";

/// The checks around it: services that were killed and a stream that was split before, and the page with corrections after.
const AROUND: [&str; 4] = ["services_are_killed", "a_split_grows", "every_text_can_be_read", "wider_than_a_phone"];

#[test]
#[ignore = "needs Chromium and its driver; .ci/night runs it"]
fn a_person_with_a_browser_sees_a_recount_find_drift() {
    let (_stack, url) = stack("0");
    let only = AROUND.iter().chain([&RECOUNTS]).flat_map(|name| ["--only", name]);
    let (mut checking, said) = Process::start(check(&url).args(only));
    let said: Vec<_> = said.map_while(Result::ok).inspect(|line| println!("{line}")).collect();
    assert!(checking.wait().success(), "see above");
    assert_eq!(said.len(), AROUND.len() + 1, "each name is of one check: {said:?}");
}

#[test]
#[ignore = "needs Chromium and its driver; .ci/night runs it"]
fn a_person_with_a_browser_sees_counts_move_and_can_make_things_go_wrong() {
    let (mut first, url) = stack(&port_to_come_back_to());

    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let skip = AROUND[..2].iter().chain([&RECOUNTS]).flat_map(|name| ["--skip", name]);
    let (mut looking, mut said) =
        Process::start(check(&url).arg(&folder).arg("--leave").args(skip).stdin(Stdio::piped()));
    let mut said = said.by_ref().map_while(Result::ok).inspect(|line| println!("{line}"));
    assert!(said.any(|line| line == "watching"), "the script ended early");

    let asked = Instant::now();
    assert!(first.ask_to_end());
    assert!(first.wait().success(), "the stack ends well while a page is open");
    assert!(asked.elapsed() < AT_ONCE, "it took {:?}", asked.elapsed());
    let mut stdin = looking.0.stdin.take().expect("stdin is piped");
    stdin.write_all(b"gone\n").expect("the script listens");
    assert!(said.any(|line| line.contains("the_stack_is_gone")), "the page has not noticed");
    let (_second, same) = stack(url.trim_end_matches('/').rsplit(':').next().expect("a URL with a port"));
    assert_eq!(same, url);
    stdin.write_all(b"back\n").expect("the script listens");
    said.for_each(drop);
    assert!(looking.wait().success(), "see above; screenshots are in {}", folder.display());
}
