//! Tests of how relays share stream shards by leases: in each round all workers plan and then act, until they have
//! equal shares and nothing moves, also after one of them is gone.

use std::collections::BTreeSet;

use super::*;

/// Stream shards and their leases, which change as workers follow their plans.
struct Table {
    shards: BTreeMap<StreamShardId, Option<Lease>>,
    rounds: usize,
}

impl Table {
    fn with(shards: usize) -> Self {
        Self { shards: (0..shards).map(|n| (format!("s{n}").as_str().into(), None)).collect(), rounds: 0 }
    }

    fn plan(&self, me: &Worker, gone: &BTreeSet<Worker>) -> Plan {
        let offers: Vec<_> = self
            .shards
            .iter()
            .map(|(shard, lease)| Offer {
                shard,
                lease: lease.as_ref(),
                is_stale: lease.as_ref().is_some_and(|lease| gone.contains(&lease.holder)),
            })
            .collect();
        plan(me, &offers)
    }

    /// Runs one round: all workers plan at the same moment, then act one after the other, each round in another order.
    fn round(&mut self, workers: &[Worker], gone: &BTreeSet<Worker>) {
        let mut plans: Vec<_> = workers.iter().map(|me| (me, self.shards.clone(), self.plan(me, gone))).collect();
        self.rounds += 1;
        plans.rotate_left(self.rounds % workers.len());
        for (me, seen, plan) in plans {
            for (shard, _) in plan {
                if self.shards[&shard] == seen[&shard] {
                    let beat = seen[&shard].as_ref().map_or(0, |lease| lease.beat + 1);
                    self.shards.insert(shard, Some(Lease { holder: me.clone(), beat }));
                }
            }
        }
    }

    fn loads(&self, workers: &[Worker]) -> Vec<usize> {
        let held = |me: &Worker| self.shards.values().flatten().filter(|lease| lease.holder == *me).count();
        workers.iter().map(held).collect()
    }
}

fn workers(count: usize) -> Vec<Worker> {
    (0..count).map(|n| Worker(format!("w{n}"))).collect()
}

fn is_balanced(loads: &[usize], shards: usize) -> bool {
    let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
    loads.iter().sum::<usize>() == shards && most - least <= 1
}

#[test]
fn any_number_of_workers_comes_to_equal_shares_and_rests_and_shares_what_one_that_is_gone_held() {
    for (shards, count) in [(7, 1), (8, 2), (7, 3), (64, 5), (3, 5), (1, 2), (200, 20), (9, 3)] {
        let workers = workers(count);
        let mut table = Table::with(shards);
        table.round(&workers[..1], &BTreeSet::new());
        for _ in 0..60 {
            table.round(&workers, &BTreeSet::new());
        }
        let loads = table.loads(&workers);
        assert!(is_balanced(&loads, shards), "{shards} shards: {loads:?}");
        let idle = workers
            .iter()
            .all(|me| table.plan(me, &BTreeSet::new()).iter().all(|(_, change)| *change == Change::Renewed));
        assert!(idle, "{shards} shards over {} workers keep moving", workers.len());
        let (gone, left) = (BTreeSet::from([workers[0].clone()]), &workers[1..]);
        if !left.is_empty() {
            for _ in 0..60 {
                table.round(left, &gone);
            }
            assert!(is_balanced(&table.loads(left), shards), "{shards} shards: {:?}", table.loads(left));
        }
    }
}
