//! Tests the HTTP routes that list the members of a set (such as the users who like a post) page by page, or answer for
//! one member. No answer shows a member that was removed.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use tally_core::ids::{RowKey, ShardCount};
use tally_count_api::Config;

use crate::harness::{Api, With, counter_id, get, post, post_id};

/// The routes that list the members of a set of `p#1`, each with the set and with what it calls the list and a member.
const LISTS: [(&str, &str, &str, &str); 4] = [
    ("/v1/posts/p%231/likers", "likes", "likers", "user_id"),
    ("/v1/posts/p%231/counters/likes/members", "likes", "members", "member"),
    ("/v1/posts/p%231/counters/retweets/members", "retweets", "members", "member"),
    ("/v1/hashtags/p%231/counters/posts/members", "posts", "members", "member"),
];

/// Returns the members on each page of a list.
async fn pages(api: &Api, (target, _, list, member): (&str, &str, &str, &str), limit: &str) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(api.address, &format!("{target}?{limit}{cursor}")).await.json();
        assert!(page["post_id"] == "p#1" || page["hashtag"] == "p#1", "{page}");
        let listed = page[list].as_array().unwrap();
        pages.push(listed.iter().map(|one| one[member].as_str().unwrap().to_owned()).collect());
        assert!(pages.len() < 500, "paging ends");
        let Some(next) = page["next"].as_str() else { return pages };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn members_are_paged_over_all_shards_each_exactly_once() {
    let api = Api::start(Config::default(), With::default()).await;
    for set in ["likes", "retweets", "posts"] {
        for nth in 0..120 {
            api.tables.plant_row(&counter_id("p#1", set), &format!("{set}-{nth}/é")).await;
            api.tables.plant_tombstone(&counter_id("p#1", set), &format!("was-{nth}")).await;
        }
    }
    for list in LISTS {
        let members: BTreeSet<String> = (0..120).map(|nth| format!("{}-{nth}/é", list.1)).collect();
        for (limit, most) in [("limit=1", 1), ("limit=7", 7), ("limit=100", 100), ("", 50)] {
            let pages = pages(&api, list, limit).await;
            assert!(pages.iter().all(|page| page.len() <= most), "{limit}");
            let seen = pages.concat();
            assert_eq!((seen.len(), seen.into_iter().collect()), (members.len(), members.clone()), "{list:?} {limit}");
        }
    }
    assert_eq!(get(api.address, "/v1/posts/q/likers").await.json(), json!({"post_id": "q", "likers": []}));
}

#[tokio::test]
async fn a_page_is_asked_for_by_known_parameters_alone() {
    let api = Api::start(Config::default(), With::default()).await;
    let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    for (target, ..) in LISTS {
        for query in ["limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "x=1", "limit=1&limit=2"] {
            let answer = get(api.address, &format!("{target}?{query}")).await;
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-query"), "{query}");
            let (said, parameter) = (answer.json(), &query[..query.find('=').unwrap()]);
            assert_eq!(said["parameter"], parameter, "{query}");
            assert!(said["detail"].as_str().unwrap().starts_with(&format!("query: {parameter}: ")), "{said}");
        }
        // Well-encoded cursors with bad contents.
        let wrapped = ["", "1/0", "2/0/", "1/256/", "1/x/"].map(|text| URL_SAFE_NO_PAD.encode(text));
        for cursor in ["x", "MS8wLw%3D%3D", "🙂"].into_iter().chain(wrapped.iter().map(String::as_str)) {
            let answer = get(api.address, &format!("{target}?cursor={}", escape(cursor))).await;
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-cursor"), "{cursor}");
            assert_eq!(answer.json()["parameter"], "cursor", "{cursor}");
        }
        // No store gives such cursors. If it refuses one, the client gets a 400.
        for after in ["\u{1}recount", &"x".repeat(1500), "é"] {
            let cursor = URL_SAFE_NO_PAD.encode(format!("1/0/{after}"));
            let answer = get(api.address, &format!("{target}?cursor={cursor}")).await;
            assert!([200, 400].contains(&answer.status.as_u16()), "{after}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_member_is_read_from_its_row() {
    let api = Api::start(Config::default(), With::default()).await;
    for name in ["likes", "retweets", "posts"] {
        api.tables.plant_row(&counter_id("p", name), "is/é").await;
        api.tables.plant_tombstone(&counter_id("p", name), "was").await;
    }
    for (member, asked, is_in) in [("is/é", "is%2F%C3%A9", true), ("was", "was", false), ("other", "other", false)] {
        for (target, present, since) in [
            ("posts/p/likes", "liked", "liked_at"),
            ("posts/p/counters/retweets/members", "present", "since"),
            ("hashtags/p/counters/posts/members", "present", "since"),
        ] {
            let answer = get(api.address, &format!("/v1/{target}/{asked}")).await;
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            let state = answer.json();
            assert_eq!((&state[present], state[since].is_u64()), (&json!(is_in), is_in), "{target} {member}");
            assert_eq!(state.as_object().unwrap().len(), 1 + usize::from(is_in), "{state}");
        }
        let asked =
            json!({"post_ids": ["p"], "counters": ["likes", "views", "retweets"], "member": member}).to_string();
        let batch = post(api.address, "/v1/counters:batchGet", &asked).await.json();
        let mine: Vec<_> = batch["counts"].as_array().unwrap().iter().map(|count| count.get("mine")).collect();
        assert_eq!(mine, [Some(&json!(is_in)), None, Some(&json!(is_in))], "a sum has no members");
    }
}

#[tokio::test]
async fn a_page_that_has_much_to_pass_over_ends_with_what_it_has_and_the_next_one_goes_on() {
    let api = Api::start(Config::default(), With::default()).await;
    // Of 40 KB, and ten read units, each.
    let (id, large) = (post_id("p#1"), "x".repeat(40_000));
    for nth in 0..120 {
        let member = format!("was-{nth}");
        api.tables.plant_tombstone(&id, &member).await;
        let key = RowKey::of(&id, &member, ShardCount::DEFAULT).to_string();
        let key = json!({"pk": {"S": key}, "user_id": {"S": member}});
        api.tables.store.edit("likes", key, "large", json!({"S": large})).await;
    }
    for nth in 0..3 {
        api.tables.plant_row(&id, &format!("z-{nth}")).await;
    }
    let pages = pages(&api, LISTS[0], "limit=100").await;
    let seen: BTreeSet<String> = pages.concat().into_iter().collect();
    assert!(seen.iter().eq(["z-0", "z-1", "z-2"]), "{seen:?}");
    assert!(pages.len() > 1 && pages.len() < 10, "{pages:?}");
}
