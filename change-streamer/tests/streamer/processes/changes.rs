//! The ledger of changes by processes of their own: killed, stopped and woken, all of them on every stream shard, over a
//! Kafka in this process, or over the brokers that `TALLY_TEST_BROKERS` names, which have an empty topic `changes`.
//! `TALLY_TEST_CHANGES=300000 TALLY_TEST_KILLS=20` is the whole of it.

use tally_adapters::kafka;
use tokio::time::Instant;

use super::{Process, Served, command, faults, served, size};
use crate::ledger::equals_the_stream;
use crate::world::{Writer, post};

const TOPIC: &str = "changes";

/// Partitions, so many that the Kafka in this process keeps all of what each is given.
const PARTITIONS: u32 = 64;

/// How many posts there are.
const POSTS: u64 = 60;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn the_ledger_equals_the_stream_over_crashes_and_zombies_without_leases() {
    let named = std::env::var("TALLY_TEST_BROKERS").ok();
    let cluster = named.is_none().then(|| kafka::Embedded::start(&[(TOPIC, PARTITIONS)]).unwrap());
    let brokers = &named.unwrap_or_else(|| cluster.as_ref().unwrap().bootstrap().to_owned());
    served(faults(), async |Served { world, endpoint, .. }| {
        let (changes, kills) = (size("TALLY_TEST_CHANGES", 6_000), size("TALLY_TEST_KILLS", 4));
        let ledger = ["--no-leases", "--changes-topic", TOPIC, "--brokers", brokers.as_str()];
        let start = || Process::spawn(command(endpoint).args(ledger));
        let mut processes = vec![start(), start(), start()];
        let mut writer = Writer::new(world, 5).await;
        let (mut zombie, mut zombies) = (None, 0);
        for round in 0..kills {
            writer.churn(usize::try_from(changes / kills).unwrap(), POSTS, 60 + changes / 20).await;
            // A process sleeps from a quarter of the way on and wakes a quarter later, and another after that.
            if round * 4 / kills.max(4) != (round + 1) * 4 / kills.max(4) {
                if let Some(woken) = zombie.take() {
                    let woken: Process = woken;
                    woken.signal("CONT");
                    processes.push(woken);
                } else if zombies < 2 {
                    let asleep = processes.swap_remove(0);
                    asleep.signal("STOP");
                    zombie = Some(asleep);
                    zombies += 1;
                }
            }
            let victim = writer.chance.token() % u64::try_from(processes.len()).unwrap();
            processes.swap_remove(usize::try_from(victim).unwrap()).kill();
            processes.push(start());
        }
        if let Some(woken) = zombie.take() {
            woken.signal("CONT");
            processes.push(woken);
        }
        assert_eq!(Process::spawn(command(endpoint).arg("--no-leases")).code().await, Some(78), "it has no ledger");
        writer.churn(400, POSTS, 60).await;
        let quiet = Instant::now();
        world.exact((0..POSTS).map(post)).await;
        let reader = kafka::TopicReader::new(&kafka::Settings::plaintext(brokers), "test", TOPIC).unwrap();
        let ledger = equals_the_stream(world, &reader).await;
        println!(
            "{} changes written, {} records in the ledger, {} copies passed over, {} messages, {kills} kills, {zombies} \
             zombies, {} stream shards; equal {:?} after the last change",
            writer.changes,
            ledger.counted.len(),
            ledger.copies,
            ledger.messages,
            world.states().await.len(),
            quiet.elapsed()
        );
        assert_eq!(world.ports.checkpoints.lapses().await, Ok(vec![]));
        assert!(world.gaps().await.is_empty());
        for process in processes {
            assert_eq!(process.stop().await, Some(0));
        }
    })
    .await;
}
