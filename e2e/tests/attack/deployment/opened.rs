//! A deployment of the last version before several counters, stopped, and opened by this one.

use std::collections::BTreeSet;

use serde_json::json;
use tally_core::ids::CounterKind;
use tally_core::ports::{Gaps as _, Runs as _};
use tally_service::Exit;

use super::before::{items, likes, stopped};
use super::raw;
use super::stack::{Stack, counter};

/// A post with a count that lost nothing, one that lost records of its stream, and their events from here on.
const TOUCHED: [(&str, &str, &str); 2] = [("p-0", "u-new", "like"), ("p-1", "u-2", "unlike")];

async fn shown(stack: &Stack, post: &str) -> (serde_json::Value, serde_json::Value) {
    let shown = stack.ask(&format!("/v1/posts/{}/likes", post.replace('#', "%23"))).await;
    (shown["likes"].clone(), shown["exact"].clone())
}

/// What of an item an event of a touched post may change, or a streamer that follows; the rest of the items stays.
fn may_change(item: &str) -> bool {
    let moves = ["\"id\":{\"S\":\"kafka/likes/", "\"id\":{\"S\":\"stream/"].iter().any(|id| item.contains(id));
    let touched = TOUCHED.iter().any(|(post, ..)| item.contains(&format!("\"post_id\":{{\"S\":\"{post}\"}}")));
    let counts = item.starts_with("like_counts ") && touched;
    let rows = TOUCHED.iter().any(|(_, user, _)| item.contains(&format!("\"user_id\":{{\"S\":\"{user}\"}}")));
    moves || counts || (item.starts_with("likes ") && touched && rows)
}

/// The item of the gaps, without what streamers say beside them.
fn without_what_is_told(item: &str) -> String {
    let Some(rest) = item.strip_prefix(r#"checkpoints {"as_of":"#).filter(|_| item.contains(r#""id":{"S":"gaps"}"#))
    else {
        return item.to_owned();
    };
    let (_, gaps) = rest.split_once(',').unwrap();
    let (gaps, _) = gaps.rsplit_once(r#","told":"#).unwrap();
    format!("checkpoints {{{gaps}}}")
}

#[tokio::test(start_paused = true)]
async fn a_deployment_of_before_goes_on_exact_and_nothing_is_rewritten_that_no_event_touched() {
    let stack = stopped().await;
    let mut expected = likes();
    assert!(!stack.checkpoints.gaps().await.unwrap().is_empty(), "it was left with a gap");
    let (_consumer, streamer) = (stack.consumer(), stack.streamer());
    stack.quiet().await;
    for (post, user, action) in TOUCHED {
        stack.say(post, user, action);
        let users = expected.get_mut(post).unwrap();
        let changed = if action == "like" { users.insert(user.to_owned()) } else { users.remove(user) };
        assert!(changed, "{post} {user}");
    }
    stack.quiet().await;

    let opened = raw::lines(&stack.emulator).await;
    let stays = |items: &[String]| -> BTreeSet<String> {
        let stated = |item: &String| {
            let config = item.replace(r#"{"format":{"N":"1"},"id":{"S":"config"}"#, r#"{"id":{"S":"config"}"#);
            without_what_is_told(&config)
        };
        items.iter().filter(|item| !may_change(item)).map(stated).collect()
    };
    let (before, after) = (stays(&items()), stays(&opened));
    assert!(before.len() > 30, "{}", before.len());
    let changed: Vec<_> = before.symmetric_difference(&after).collect();
    assert_eq!(changed, [""; 0], "of {} items", before.len());
    let fences =
        items().into_iter().filter(|item| item.contains("\"id\":{\"S\":\"kafka/likes/") && !opened.contains(item));
    assert!((1..=TOUCHED.len()).contains(&fences.count()), "only partitions with an event move their fences");
    let config = opened.iter().filter(|item| item.contains(r#""id":{"S":"config"}"#)).collect::<Vec<_>>();
    assert_eq!(config, [r#"checkpoints {"format":{"N":"1"},"id":{"S":"config"},"shards":{"N":"4"}}"#]);
    let rows = |items: &[String]| items.iter().filter(|item| item.starts_with("likes ")).count();
    assert_eq!(rows(&opened), rows(&items()), "one more, and one less");
    assert_eq!(shown(&stack, "p-0").await, (json!(expected["p-0"].len()), json!(false)), "a gap is open");

    assert_eq!(stack.recount(&[]).await, Exit::CLEAN, "{:?}", stack.recounts.runs(1).await);
    assert_eq!(stack.checkpoints.gaps().await, Ok(vec![]));
    for (post, users) in &expected {
        let count = i64::try_from(users.len()).unwrap();
        assert_eq!(stack.exact(&counter(post, "likes", CounterKind::Set)).await, count, "{post}");
        assert_eq!(shown(&stack, post).await, (json!(count), json!(true)), "{post}");
    }
    assert_eq!(stack.recount(&[]).await, Exit::CLEAN);
    let run = stack.recounts.runs(1).await.unwrap().remove(0);
    assert_eq!((run.summary.found(), run.summary.rows > 30), (0, true), "{run:?}");

    stack.say("p#3", "u-3", "unlike");
    stack.say("p#3", "u-late", "like");
    stack.quiet().await;
    assert_eq!(shown(&stack, "p#3").await, (json!(expected["p#3"].len()), json!(true)));
    streamer.kill().await;
}
