//! What goes wrong and when, drawn from the seed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tally_core::fault::Fault as PortFault;
use tally_core::ids::{RowKey, Shard};
use tally_core::ports::{QueueReason, Recounts as _};
use tally_emulator::{Fault, Rule};
use tally_service::Chance;

use super::fleet::{Fleet, Role};
use super::kind::{Kind, Kinds};
use super::producer::Producer;
use super::world::{GROUP, LETTERS, World};

/// The seed's choice of what happens how often.
pub(super) struct Chaos {
    kinds: Kinds,
    chance: Chance,
    /// How often a step does something besides saying events.
    pace: f64,
    fired: BTreeMap<&'static str, u64>,
}

impl Chaos {
    pub(super) fn new(kinds: Kinds, chance: Chance) -> Self {
        let pace = 0.3 + 0.6 * chance.fraction();
        Self { kinds, chance, pace, fired: BTreeMap::new() }
    }

    /// Sets the store's own faults: each kind at a rate of its own, some of them not at all.
    pub(super) fn begin(&mut self, world: &World) {
        let latency = Fault::Latency { min_ms: 1, max_ms: 4_000 };
        let ghost = Fault::Ghost { max_delay_ms: 300_000, hang_ms: 0 };
        let rates = [
            (Kind::Throttle, Fault::Throttle, 0.08),
            (Kind::Conflict, Fault::Conflict, 0.05),
            (Kind::InternalError, Fault::InternalError { applied: None }, 0.04),
            (Kind::DropReply, Fault::DropReply, 0.04),
            (Kind::Ghost, ghost, 0.03),
            (Kind::Latency, latency, 0.05),
        ];
        let mut rules = Vec::new();
        for (kind, fault, most) in rates {
            let (is_on, rate) = (self.chance.fraction() < 0.7, most * self.chance.fraction());
            if is_on && self.kinds.has(kind) {
                rules.push(Rule::new(fault).chance(rate));
            }
        }
        world.emulator.set_faults(rules);
    }

    /// Heals what can be healed.
    pub(super) fn end(&mut self, world: &World) {
        world.emulator.set_faults(Vec::new());
        world.broker.set_down(false);
        world.broker.refuse_writes(LETTERS, None);
    }

    /// Lets some time pass, and perhaps something happen.
    pub(super) async fn strike(&mut self, world: &World, fleet: &mut Fleet<'_>) {
        tokio::time::sleep(self.chance.up_to(Duration::from_secs(2))).await;
        if self.chance.fraction() >= self.pace {
            fleet.fill_up();
            return;
        }
        let draw = usize::try_from(self.chance.token() % 11).expect("below eleven");
        let kind = [
            Kind::Crash,
            Kind::Crash,
            Kind::Stall,
            Kind::Twin,
            Kind::Rebalance,
            Kind::LogDown,
            Kind::LettersRefused,
            Kind::Split,
            Kind::Roll,
            Kind::Trim,
            Kind::Drift,
        ][draw];
        if self.kinds.has(kind) && self.happen(kind, world, fleet).await {
            *self.fired.entry(kind.name()).or_default() += 1;
        }
    }

    async fn happen(&mut self, kind: Kind, world: &World, fleet: &mut Fleet<'_>) -> bool {
        match kind {
            Kind::Crash => fleet.kill_any().await,
            Kind::Stall => tokio::time::advance(self.chance.up_to(Duration::from_secs(120))).await,
            Kind::Twin => {
                let role = [Role::Consumer, Role::Streamer, Role::Recount][usize::from(self.coin()) + usize::from(self.coin())];
                if fleet.count(role) > 2 {
                    return false;
                }
                fleet.start(role);
            }
            Kind::Rebalance => world.broker.expire(GROUP),
            Kind::LogDown => {
                world.broker.set_down(true);
                tokio::time::sleep(self.chance.up_to(Duration::from_secs(20))).await;
                world.broker.set_down(false);
            }
            Kind::LettersRefused => {
                world.broker.refuse_writes(LETTERS, Some(PortFault::Transient("refused".to_owned())));
                tokio::time::sleep(self.chance.up_to(Duration::from_secs(10))).await;
                world.broker.refuse_writes(LETTERS, None);
            }
            Kind::Split => return self.split(world),
            Kind::Roll => return world.emulator.roll_shards("likes", None).is_ok(),
            // One time in three: a loss costs an audit.
            Kind::Trim => return self.coin() && self.coin() && world.emulator.trim("likes", None, None).is_ok_and(|lost| lost > 0),
            Kind::Drift => return self.drift(world).await,
            _ => return false,
        }
        true
    }

    fn coin(&self) -> bool {
        self.chance.token().is_multiple_of(2)
    }

    /// Cuts some open shard; not without end.
    fn split(&self, world: &World) -> bool {
        let stats = world.emulator.stats();
        let Some(stream) = stats.tables.get("likes").and_then(|table| table.stream.as_ref()) else { return false };
        let open = &stream.open_shards;
        if open.len() > 10 {
            return false;
        }
        let draw = usize::try_from(self.chance.token() % open.len() as u64).expect("an index");
        world.emulator.split_shard("likes", Some(&open[draw]), None).is_ok()
    }

    /// Changes a counter behind everybody's back, as a mistaken hand would, and asks for a recount.
    async fn drift(&self, world: &World) -> bool {
        let post = Producer::posts().nth(usize::from(self.coin())).expect("there are several");
        let shard = Shard::new(u16::from(self.coin())).expect("a small number");
        let by = if self.coin() { 3 } else { -2 };
        let body = serde_json::json!({
            "TableName": "like_counts",
            "Key": {"post_id": {"S": post.as_str()}},
            "UpdateExpression": "SET #s = if_not_exists(#s, :zero) + :by ADD #likes :by, #version :one",
            "ExpressionAttributeNames": {"#s": format!("s{}", shard.index()), "#likes": "likes", "#version": "version"},
            "ExpressionAttributeValues": {":by": {"N": by.to_string()}, ":zero": {"N": "0"}, ":one": {"N": "1"}},
        });
        let request = Request::post("http://localhost/")
            .header("x-amz-target", "DynamoDB_20120810.UpdateItem")
            .header("authorization", "any")
            .body(Bytes::from(body.to_string()))
            .expect("a request of valid parts");
        let drifted = world.emulator.handle(request).await;
        let key = RowKey { post, shard };
        for _ in 0..50 {
            // The store fails here as everywhere.
            if world.recounts.enqueue(&key, QueueReason::Asked, world.clock.now()).await.is_ok() {
                break;
            }
        }
        // Whether or not the reply was lost, the change may be there.
        drifted.is_ok_and(|answer| answer.status().is_success())
    }

    /// What went wrong, the store's own faults among it.
    pub(super) fn fired(&self, world: &World) -> BTreeMap<&'static str, u64> {
        let mut fired = self.fired.clone();
        for faults in world.emulator.stats().faults.values() {
            for (name, count) in faults {
                if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == name) {
                    *fired.entry(kind.name()).or_default() += count;
                }
            }
        }
        fired
    }
}
