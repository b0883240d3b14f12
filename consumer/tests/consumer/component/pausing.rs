//! An operator pauses partitions and lets them go on.

use std::sync::Arc;
use std::time::Duration;

use tally_consumer::{Fences, Going};
use tally_core::consume::LanePolicy;
use tally_core::event::Action::{Like, Unlike};
use tally_core::fence::Partition;
use tally_core::ids::LaneCount;
use tokio::sync::Notify;

use super::common::{Answer, TOPIC, World, eventually, stop};

fn fences(world: &World) -> Fences {
    Fences {
        rows: Arc::new(world.table.clone()),
        checkpoints: Arc::new(world.memory.checkpoints()),
        reader: Arc::new(world.broker.reader("test", TOPIC)),
        topic: TOPIC.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn while_it_is_paused_no_request_lands_however_late_and_then_it_goes_on_where_it_was() {
    let partition = Partition { topic: TOPIC.into(), index: 0 };
    for lanes in [1, 2] {
        let mut world = World::new(1);
        world.settings.lanes = LanePolicy::Pinned(LaneCount::new(lanes).unwrap());
        world.say(0, "a", Like);
        let consumer = world.consumer();
        eventually("it has said the first", async || world.rows().await == *world.expected()).await;
        let (before, fences) = (world.rows().await, fences(&world));
        let under_way = Arc::new(Notify::new());
        let held = Arc::clone(&under_way);
        let asked = world.table.asked().len();
        world.table.script(move |request| match request.users.is_empty() {
            true => Answer::Truth,
            false => Answer::Hold(Arc::clone(&held)),
        });
        world.say(0, "b", Like);
        eventually("a transaction is under way", async || world.table.asked().len() > asked).await;
        assert_eq!(fences.to_switch(Going::Paused).await.unwrap(), std::slice::from_ref(&partition));
        fences.switch(&partition, Going::Paused).await.unwrap();
        assert_eq!(fences.to_switch(Going::Paused).await.unwrap(), []);
        under_way.notify_one();
        world.say(0, "a", Unlike);
        // Long enough for the consumer to look several times.
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(world.rows().await, before, "{lanes} lanes");
        world.table.script(|_| Answer::Truth);
        fences.switch(&partition, Going::Resumed).await.unwrap();
        eventually("it goes on", async || world.rows().await == *world.expected()).await;
        stop(consumer).await;
    }
}
