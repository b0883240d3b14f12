//! The streamer as processes of their own, over an emulator on the loopback: signals, crashes, zombies. Ends everything
//! it starts. `TALLY_STREAMER_KILLS=20 TALLY_STREAMER_STOPPED=60` is the whole of it.

#[cfg(test)]
#[expect(dead_code, reason = "the tests' world, of which processes need a part")]
#[path = "streamer/world.rs"]
mod world;

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use tally_adapters::dynamodb::{self, Connection, Settings};
    use tally_emulator::{Config as EmulatorConfig, Emulator, Fault, Rule};
    use tally_service::Clock;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use crate::world::{World, Writer, eventually, post};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn size(variable: &str, default: u64) -> u64 {
        std::env::var(variable).ok().and_then(|size| size.parse().ok()).unwrap_or(default)
    }

    fn command(endpoint: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally-change-streamer"));
        let tally = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TALLY_"));
        tally.for_each(|(name, _)| _ = command.env_remove(name));
        command
            .args(["--redis", "off", "--admin-listen", "off", "--poll-idle", "200ms", "--log", "warn"])
            .env("AWS_ENDPOINT_URL", endpoint)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "local")
            .env("AWS_SECRET_ACCESS_KEY", "local")
            .stdin(Stdio::null());
        command
    }

    /// A streamer, ended when dropped.
    struct Process(Child);

    impl Process {
        fn start(endpoint: &str) -> Self {
            Self(command(endpoint).spawn().expect("the binary starts"))
        }

        fn signal(&self, name: &str) {
            let sent = Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).status();
            assert!(sent.expect("kill runs").success());
        }

        fn kill(mut self) {
            self.0.kill().expect("the child is ours");
            self.0.wait().expect("the child is ours");
        }

        /// Its exit code after SIGTERM.
        async fn stop(mut self) -> Option<i32> {
            self.signal("TERM");
            let deadline = Instant::now() + PATIENCE;
            loop {
                if let Some(status) = self.0.try_wait().expect("the child is ours") {
                    return status.code();
                }
                assert!(Instant::now() < deadline, "still running");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            // Already gone unless a test failed.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// What goes wrong now and then. (The ghost of a lease may land after it was given back; it goes stale, then.)
    fn faults() -> Vec<Rule> {
        vec![
            Rule::new(Fault::DropReply).on("UpdateItem").chance(0.01),
            Rule::new(Fault::Throttle).on("UpdateItem").chance(0.01),
            Rule::new(Fault::Ghost { max_delay_ms: 5_000, hang_ms: 0 }).on("UpdateItem").chance(0.01),
        ]
    }

    /// An emulator on the loopback, and its tables.
    async fn served(faults: Vec<Rule>, with: impl AsyncFnOnce(World, &str)) {
        let emulator = Emulator::new(EmulatorConfig {
            shards: 4,
            split_after: Some(900),
            max_open_shards: 8,
            ..EmulatorConfig::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let test = async {
            let settings = Settings { endpoint: Some(endpoint.clone()), ..Settings::local("") };
            let connection = Connection::open(&settings).await;
            dynamodb::ensure_tables(&connection).await.unwrap();
            emulator.set_faults(faults);
            with(World::over(&connection, Clock::system()), &endpoint).await;
        };
        tokio::select! {
            ended = emulator.serve(listener, std::future::pending()) => panic!("the emulator stopped: {ended:?}"),
            () = test => {}
        }
    }

    async fn leases(world: &World) -> usize {
        world.states().await.iter().filter(|state| !state.checkpoint.closed && state.lease.is_some()).count()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_streamer_stops_cleanly_and_hands_its_leases_over() {
        served(Vec::new(), async |world, endpoint| {
            let process = Process::start(endpoint);
            let mut writer = Writer::new(&world, 1).await;
            writer.churn(300, 20, 40).await;
            world.exact((0..20).map(post)).await;
            assert!(leases(&world).await > 0);
            assert_eq!(process.stop().await, Some(0));
            assert_eq!(leases(&world).await, 0);
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn streamers_killed_under_load_are_exact() {
        served(faults(), async |world, endpoint| {
            let mut processes = vec![Process::start(endpoint), Process::start(endpoint)];
            let mut writer = Writer::new(&world, 2).await;
            for _ in 0..size("TALLY_STREAMER_KILLS", 4) {
                writer.churn(400, 60, 80).await;
                tokio::time::sleep(writer.chance.up_to(Duration::from_secs(2))).await;
                processes.swap_remove(usize::try_from(writer.chance.token() % 2).unwrap()).kill();
                processes.push(Process::start(endpoint));
            }
            writer.churn(400, 60, 80).await;
            let quiet = Instant::now();
            world.exact((0..60).map(post)).await;
            println!("exact {:?} after the last change", quiet.elapsed());
            assert!(world.gaps().await.is_empty());
            for process in processes {
                assert_eq!(process.stop().await, Some(0));
            }
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_streamer_that_was_stopped_while_others_took_over_does_no_harm_when_it_wakes() {
        served(faults(), async |world, endpoint| {
            let sleeper = Process::start(endpoint);
            let mut writer = Writer::new(&world, 3).await;
            writer.churn(400, 30, 60).await;
            world.quiet().await;
            let other = Process::start(endpoint);
            writer.churn(400, 30, 60).await;
            sleeper.signal("STOP");
            let asleep = Instant::now();
            writer.churn(800, 30, 60).await;
            world.exact((0..30).map(post)).await;
            let rest = Duration::from_secs(size("TALLY_STREAMER_STOPPED", 5));
            while asleep.elapsed() < rest {
                writer.churn(99, 30, 60).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            sleeper.signal("CONT");
            writer.churn(400, 30, 60).await;
            eventually("both read again", async || {
                let states = world.states().await;
                let mut holders: Vec<_> = states
                    .iter()
                    .filter(|state| !state.checkpoint.closed)
                    .filter_map(|state| state.lease.as_ref())
                    .map(|lease| &lease.holder)
                    .collect();
                holders.sort();
                holders.dedup();
                holders.len() == 2
            })
            .await;
            world.exact((0..30).map(post)).await;
            assert_eq!((sleeper.stop().await, other.stop().await), (Some(0), Some(0)));
        })
        .await;
    }

    #[test]
    fn a_bad_configuration_is_refused_at_once_and_by_name() {
        let output = Command::new(env!("CARGO_BIN_EXE_tally-change-streamer"))
            .args(["--check", "--concurrency", "0"])
            .env_remove("TALLY_REDIS")
            .output()
            .expect("the binary starts");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{stderr}");
        assert!(stderr.contains("--redis (TALLY_REDIS): missing") && stderr.contains("--concurrency"), "{stderr}");
        let good = command("http://127.0.0.1:1").arg("--check").output().expect("the binary starts");
        assert_eq!(good.status.code(), Some(0));
    }
}
