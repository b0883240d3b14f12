//! Processes start, stop and are killed under load: no answer that is called exact is wrong, and no answer goes back in
//! time.

use std::collections::BTreeMap;
use std::time::Duration;

use tally_core::ids::{CounterName, PostId};
use tally_core::ports::TopicReader;
use tally_core::topic::Offset;
use tally_trends::{Claim, Place, Published, Ranked, Shelf};

use super::component::World;
use super::stage::{BOARDS, CHANGES, Relay};

const SIX: u32 = 6;
const LISTED: usize = 10;

/// The age in seconds up to which an answer counts as fresh.
const FRESH: u64 = 8;

/// A reader of the topic of boards that resumes at its position, and the expected lists.
#[derive(Default)]
struct Watch {
    shelf: Shelf,
    next: BTreeMap<u32, Offset>,
    /// The second, the subject and its gain.
    truth: Vec<(u64, u64, i64)>,
    exact: u64,
    /// The number of seconds in which an answer was not fresh, and the age of the oldest answer.
    stale: u64,
    oldest: u64,
}

impl Watch {
    async fn look(&mut self, world: &World) {
        let reader = world.broker.reader("test", BOARDS);
        for (partition, log) in reader.logs().await.unwrap() {
            let next = self.next.entry(partition.index).or_insert(log.start);
            while *next < log.end {
                let records = reader.read(&partition, *next, log.end).await.unwrap();
                *next = records.last_offset().map_or(log.end, Offset::next);
                for record in records.iter() {
                    if let Some(value) = record.value {
                        self.shelf.take(Published::read(record.key.unwrap(), value).unwrap());
                    }
                }
            }
        }
        self.shelf.read_whole();
        let before = self.shelf.moment();
        self.shelf.settle();
        assert!(self.shelf.moment() >= before, "it never goes back");
        let Some(moment) = self.shelf.moment() else { return };
        let age = world.clock.now().0 / 1000 - moment;
        self.stale += u64::from(age > FRESH);
        self.oldest = self.oldest.max(age);
        for window in ["1m", "10m"] {
            let place = Place { counter: CounterName::LIKES, region: None };
            let top = self.shelf.top(&place, window.parse().unwrap(), LISTED).unwrap();
            if top.claim == Claim::Exact {
                assert_eq!(top.list.items, self.gained(top.list.from, moment), "{window} at {moment}");
                self.exact += 1;
            }
        }
    }

    fn gained(&self, from: u64, moment: u64) -> Vec<Ranked> {
        let mut sums: BTreeMap<u64, i64> = BTreeMap::new();
        for (_, subject, gained) in self.truth.iter().filter(|(second, ..)| *second > from && *second <= moment) {
            *sums.entry(*subject).or_default() += gained;
        }
        let worth = sums.into_iter().filter(|(_, sum)| *sum > 0);
        let mut ranked: Vec<Ranked> =
            worth.map(|(subject, sum)| Ranked::new(PostId::new(&format!("p{subject}")).unwrap(), sum)).collect();
        ranked.sort_unstable();
        ranked.truncate(LISTED);
        ranked
    }

    /// The exact lists, the seconds that were not fresh and the greatest age since the last call.
    fn told(&mut self) -> [u64; 3] {
        [&mut self.exact, &mut self.stale, &mut self.oldest].map(std::mem::take)
    }

    /// Runs this many seconds of load.
    async fn go_on(&mut self, world: &World, relay: &mut Relay<'_>, seconds: u64) {
        for _ in 0..seconds {
            world.clock.sleep(Duration::from_secs(1)).await;
            let second = world.clock.now().0 / 1000;
            for nth in 0..6 {
                // Some subjects are liked far more than others, and a fifth of the likes is taken back.
                let drawn = (second * 6 + nth).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                let subject = (drawn % 40).min(drawn / 64 % 40);
                let sides = if (drawn / 4096).is_multiple_of(5) { [1, 0] } else { [0, 1] };
                relay.change(&format!("p{subject}"), sides, world.clock.now());
                self.truth.push((second, subject, sides[1] - sides[0]));
            }
            relay.feed(world.clock.now()).await;
            self.look(world).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_never_wrong_while_workers_start_stop_and_are_killed() {
    let world = World::new(SIX, &[(CHANGES, SIX), (BOARDS, 2)]).await;
    let producer = world.producer();
    let mut relay = Relay::begin(&producer, SIX, world.clock.now()).await;
    let mut watch = Watch::default();
    let mut workers = vec![world.start()];
    watch.go_on(&world, &mut relay, 40).await;
    for (become_so_many, kills) in [(1, 1), (3, 3), (2, 2)] {
        while workers.len() > become_so_many {
            assert!(workers.remove(0).stop(Duration::from_secs(5)).await.exit().is_clean());
        }
        while workers.len() < become_so_many {
            workers.push(world.start());
        }
        watch.go_on(&world, &mut relay, 60).await;
        for _ in 0..kills {
            workers.remove(0).kill().await;
            watch.go_on(&world, &mut relay, 7).await;
            workers.push(world.start());
            watch.go_on(&world, &mut relay, 60).await;
        }
        let [exact, stale, oldest] = watch.told();
        println!(
            "{become_so_many} workers, {kills} killed: {exact} exact lists, {stale} s not fresh, the oldest {oldest} s"
        );
        assert!(exact > 0);
    }
    watch.go_on(&world, &mut relay, 30).await;
    let age = world.clock.now().0 / 1000 - watch.shelf.moment().unwrap();
    assert!(age <= FRESH, "{age} s");
}
