//! Tests the item `config` of the table `checkpoints` on every DynamoDB engine: a deployment's format, counters, usual
//! topic (of the counters whose definition names none) and ladder (the thresholds of its milestones).

use tally_adapters::dynamodb::Checkpoints;
use tally_core::definitions::{Definitions, Entry};
use tally_core::format::Format;
use tally_core::ids::ShardCount;
use tally_core::milestone::Ladder;

use crate::engine::Env;

pub(crate) async fn contract(env: &Env) {
    let port = &env.config;
    the_settings_of_the_first_process_decide(port).await;
    counters_are_defined_only_by_comparing_with_the_current_ones(port).await;
    a_ladder_is_raised_only_by_comparing_with_the_current_one(port).await;
    no_counter_has_the_usual_topic_for_its_own(port).await;
}

/// Each of a consumer that begins and an operator who defines counters has looked before the other one wrote.
async fn no_counter_has_the_usual_topic_for_its_own(port: &Checkpoints) {
    let seen = port.usual().await.unwrap();
    let define = async |topic: &str| {
        let own = Entry { topic: Some(topic.to_owned()), ..Entry::sum(topic, topic, None) };
        let seen = port.definitions().await.unwrap();
        port.define(&seen, &seen.grown(&Definitions::new(&[own]).unwrap()).unwrap()).await
    };
    assert_eq!(define("first").await, Ok(true));
    assert_eq!(port.move_usual(&seen, "first").await, Ok(false), "a counter has it for its own");
    let seen = port.usual().await.unwrap();
    assert_eq!(port.move_usual(&seen, "second").await, Ok(true));
    assert_eq!(define("second").await, Ok(false), "a consumer has begun with it");
    assert_eq!(define("third").await, Ok(true));
}

async fn the_settings_of_the_first_process_decide(port: &Checkpoints) {
    let count = |n| ShardCount::new(n).unwrap();
    assert_eq!(port.deployed().await, Ok(None), "asking decides nothing");
    assert_eq!(port.format().await, Ok(None));
    assert_eq!(port.config(Some(count(64))).await, Ok(count(64)));
    assert_eq!(port.deployed().await, Ok(Some(count(64))));
    assert_eq!(port.config(Some(count(16))).await, Ok(count(64)));
    assert_eq!(port.config(None).await, Ok(count(64)));
    assert_eq!(port.format().await, Ok(Some(Format::written())));
}

async fn a_ladder_is_raised_only_by_comparing_with_the_current_one(port: &Checkpoints) {
    let [none, one, two]: [Ladder; 3] = [Ladder::default(), "100".parse().unwrap(), "100,1000".parse().unwrap()];
    assert_eq!(port.ladder().await, Ok(none));
    assert_eq!(port.raise_ladder(&one, &two).await, Ok(false), "it is not the one that stands");
    assert_eq!(port.raise_ladder(&none, &one).await, Ok(true));
    assert_eq!(port.raise_ladder(&none, &one).await, Ok(false), "a repetition finds it there");
    assert_eq!(port.raise_ladder(&one, &two).await, Ok(true));
    assert_eq!(port.ladder().await, Ok(two));
    assert_eq!(port.deployed().await, Ok(Some(ShardCount::new(64).unwrap())), "what else is there stays");
}

async fn counters_are_defined_only_by_comparing_with_the_current_ones(port: &Checkpoints) {
    let full = Entry {
        name: "tagged".to_owned(),
        kind: "set".to_owned(),
        add: "tag".to_owned(),
        remove: Some("untag".to_owned()),
        subject: Some("hashtag".to_owned()),
        member: Some("post_id".to_owned()),
        topic: Some("tags".to_owned()),
    };
    let list = |entries: &[Entry]| Definitions::new(entries).unwrap();
    let (none, some) = (Definitions::likes_alone(), list(std::slice::from_ref(&full)));
    let all = list(&[full, Entry::sum("views", "view", None)]);
    assert_eq!(port.definitions().await, Ok(none.clone()));
    assert_eq!(port.define(&some, &all).await, Ok(false), "they are not the ones that stand");
    assert_eq!(port.define(&none, &some).await, Ok(true));
    assert_eq!(port.define(&none, &some).await, Ok(false), "a repetition finds them there");
    assert_eq!(port.definitions().await, Ok(some.clone()));
    assert_eq!(port.define(&some, &all).await, Ok(true));
    assert_eq!(port.definitions().await, Ok(all));
    assert_eq!(port.deployed().await, Ok(Some(ShardCount::new(64).unwrap())), "what else is there stays");
}
