//! The service as a process with a disk, which is killed and begins where it was.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_adapters::kafka;
use tally_core::event::partition_of;
use tally_emulator::{Config, Emulator};
use tally_service::{Clock, Host};
use tally_trends::Claim;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::process::{PATIENCE, Process, command, listed};
use super::stage::{BOARDS, CHANGES, Ledger, PARTITIONS, shelf};

/// Those of both partitions of the ledger.
const SUBJECTS: [&str; 3] = ["a", "b", "d"];

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("tally-trends-{name}-{}", std::process::id())))
    }

    /// Every file of a partition that is no manifest.
    fn stretches(&self, partition: u32) -> Vec<PathBuf> {
        let files = fs::read_dir(self.0.join(format!("{CHANGES}-{partition}"))).unwrap();
        files.map(|file| file.unwrap().path()).filter(|path| !path.ends_with("manifest")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process with a disk.
struct Life {
    _process: Process,
    admin: SocketAddr,
}

impl Life {
    /// One that is alone in a group of its own, and so waits for no member that was killed.
    fn begin(endpoint: &str, brokers: &str, group: &str, folder: &Path) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = free.local_addr().unwrap();
        drop(free);
        let mut command = command(endpoint, brokers, [CHANGES, BOARDS]);
        command.args(["--group", group]).arg("--state-dir").arg(folder);
        let process = command.env("TALLY_ADMIN_LISTEN", admin.to_string()).spawn().unwrap();
        Self { _process: Process(process), admin }
    }

    /// A counter's value; 0 until it is there.
    fn metric(&self, series: &str) -> u64 {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(self.admin) {
            write!(stream, "GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").unwrap();
            stream.read_to_string(&mut answer).unwrap();
        }
        let value = answer.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    fn stretches(&self, outcome: &str) -> u64 {
        self.metric(&format!(r#"tally_trends_stretches_total{{outcome="{outcome}"}}"#))
    }

    fn counted(&self) -> u64 {
        self.metric(r#"tally_trends_changes_total{outcome="counted"}"#)
    }
}

/// Likes go on until something is so.
async fn like(ledger: &mut Ledger<'_>, clock: Clock, likes: &mut BTreeMap<&str, i64>, until: impl Fn() -> bool) {
    let began = Instant::now();
    while !until() {
        assert!(began.elapsed() < PATIENCE, "nothing is kept");
        for (subject, count) in SUBJECTS.iter().zip(1..) {
            for _ in 0..count {
                ledger.like(subject, clock.now().0 / 1000).await;
            }
            *likes.entry(subject).or_default() += count;
        }
        ledger.fed(clock.now()).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until the process lists what was liked, all of it, at a moment behind those that are told of.
async fn lists(ledger: &Ledger<'_>, clock: Clock, boards: &kafka::TopicReader, likes: &BTreeMap<&str, i64>) {
    let (began, told) = (Instant::now(), shelf(boards).await.moment());
    loop {
        ledger.fed(clock.now()).await;
        let top = listed(&shelf(boards).await).filter(|top| Some(top.list.moment) > told);
        let found = top.as_ref().map(|top| {
            top.list.items.iter().map(|item| (item.subject.as_str(), item.count())).collect::<BTreeMap<_, _>>()
        });
        if found.as_ref() == Some(likes) {
            assert_eq!(top.unwrap().claim, Claim::Exact);
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{found:?} is listed, and not {likes:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn a_process_that_was_killed_begins_with_its_disk_and_with_the_log_where_that_is_damaged() {
    let cluster = kafka::Embedded::start(&[(CHANGES, PARTITIONS), (BOARDS, 2)]).unwrap();
    let (emulator, listener) = (Emulator::new(Config::default()), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let test = async {
        let connection = Connection::open(&Settings { endpoint: Some(endpoint.clone()), ..Settings::local("") }).await;
        dynamodb::ensure_tables(&connection).await.unwrap();
        let settings = kafka::Settings::plaintext(cluster.bootstrap());
        let producer = kafka::Producer::new(&settings).unwrap();
        let (checkpoints, streams) = (dynamodb::Checkpoints::new(&connection), dynamodb::Streams::new(&connection));
        let mut ledger = Ledger::begin(&checkpoints, &streams, &producer, PARTITIONS).await;
        let boards = kafka::TopicReader::new(&settings, "test", BOARDS).unwrap();
        let (clock, folder, mut likes) = (Host::new("test").clock(), Folder::new("restarts"), BTreeMap::new());
        let partitions = SUBJECTS.map(|subject| partition_of(subject.as_bytes(), PARTITIONS));
        let [kept, other] = [partitions[0], 1 - partitions[0]];
        assert!(partitions.contains(&other), "{partitions:?}");
        // What is to be the folder of one partition is a file: nothing of it can be kept, and it is listed all the same.
        fs::create_dir_all(&folder.0).unwrap();
        fs::write(folder.0.join(format!("{CHANGES}-{other}")), "").unwrap();
        let begin = |group: &str| Life::begin(&endpoint, cluster.bootstrap(), group, &folder.0);

        let life = begin("first");
        like(&mut ledger, clock, &mut likes, || life.stretches("written") >= 2 && life.stretches("failed") >= 1).await;
        lists(&ledger, clock, &boards, &likes).await;
        let all = life.counted();
        assert_eq!((all, life.stretches("failed")), (likes.values().sum::<i64>().cast_unsigned(), 1));
        drop(life);

        let life = begin("second");
        lists(&ledger, clock, &boards, &likes).await;
        let (read, counted) = (life.stretches("read"), life.counted());
        assert!(read >= 2 && counted < all, "{read} stretches read, and {counted} of {all} changes");
        drop(life);

        for path in folder.stretches(kept) {
            let mut bytes = fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(path, bytes).unwrap();
        }
        let life = begin("third");
        lists(&ledger, clock, &boards, &likes).await;
        assert_eq!((life.stretches("read"), life.stretches("unfit"), life.counted()), (0, 1, all));
    };
    tokio::select! {
        ended = emulator.serve(listener, std::future::pending()) => panic!("the emulator stopped: {ended:?}"),
        () = test => {}
    }
}

#[test]
fn a_folder_that_takes_no_files_is_a_setting_that_is_wrong_and_named() {
    let folder = Folder::new("no-folder");
    fs::create_dir_all(&folder.0).unwrap();
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    // It cannot be made; it is none; it is one in which nothing can be made.
    let system = cfg!(target_os = "linux").then(|| PathBuf::from("/proc/self"));
    for unfit in [file.join("folder"), file].into_iter().chain(system) {
        let mut command = command("http://127.0.0.1:1", "127.0.0.1:1", [CHANGES, BOARDS]);
        let ended = command.arg("--state-dir").arg(&unfit).stderr(Stdio::piped()).output().unwrap();
        let (said, log) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.code(), Some(78), "{unfit:?}: {said}{log}");
        let named =
            [&said, &log].iter().any(|text| text.contains("--state-dir") && text.contains(unfit.to_str().unwrap()));
        assert!(named, "{unfit:?}: {said}{log}");
    }
}
