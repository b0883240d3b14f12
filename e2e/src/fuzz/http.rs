//! Paths, queries, headers and bodies, sent to a count API over emulated tables as it runs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use tally_adapters::dynamodb::changes::{Changes, Config as Log};
use tally_adapters::dynamodb::{Checkpoints, Connection, Settings, ensure_tables};
use tally_core::changes::DeploymentId;
use tally_core::time::UnixMillis;
use tally_core::topic::TopicId;
use tally_count_api::{App, Config, Ports};
use tally_emulator::Emulator;
use tally_service::{Clock, Host, Running};
use tokio::net::TcpListener;

const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);
const PATIENCE: Duration = Duration::from_secs(30);
/// What is no whole request is given up soon: inputs come one after the other.
const SOON: Duration = Duration::from_millis(100);

/// The first line of the input is the method and the target, the rest goes out as it is: the answer is never a fault of
/// ours.
pub(super) fn http(data: &[u8]) {
    let line = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let rest = data.get(line.len() + 1..).unwrap_or_default();
    let request = [line, b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n", rest].concat();
    let mut stream = TcpStream::connect(api()).expect("the API listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    // The server may have had enough before all is written.
    let _ = stream.write_all(&request);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the connection never ends");
    }
    let head = String::from_utf8_lossy(&answer);
    if let Some(status) = head.strip_prefix("HTTP/1.1 ") {
        let status: u16 = status.get(..3).and_then(|status| status.parse().ok()).expect("an answer has a status");
        assert!(status < 500 || status == 501 || status == 505, "{status}: {head}");
    }
}

/// Where it listens; started once a process, and gone with it.
fn api() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime starts").block_on(async move {
                let mut config = Config::default();
                (config.limits.head_time, config.limits.unread_time) = (SOON, SOON);
                let (address, running) = serve(config).await;
                send.send(address).expect("the receiver waits for the address");
                let _ = running.ended().await;
            });
        });
        receive.recv().expect("the API starts")
    })
}

/// Where a count API over emulated tables listens, and its run; it is ready.
pub async fn serve(config: Config) -> (SocketAddr, Running) {
    let emulator = Emulator::new(tally_emulator::Config::default());
    let connection = Connection::in_process(&Settings::local(""), emulator.http_client(), BEGAN);
    ensure_tables(&connection).await.expect("an emulator takes the tables");
    Checkpoints::new(&connection).config(None).await.expect("an emulator does not fail");
    let (deployment, topic) = (DeploymentId("fuzz".into()), TopicId("fuzz".into()));
    let log = Log { deployment, partitions: 1, topic, generation: 0 };
    Changes::new(&connection).begin_log(&log).await.expect("an emulator does not fail");
    let ports = Ports::over(&connection);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("a bound port has an address");
    let app = App::with_ports(config, ports).listening_on(listener);
    let running = Running::start(app, Host::new("count-api").with_clock(Clock::starting_at(BEGAN)));
    running.ready().await.expect("it becomes ready");
    (address, running)
}
