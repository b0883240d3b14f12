//! Keys of counters survive being written down, whatever is in an id, and no two things share one.

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use tally_core::ids::{
    CachePrefix, CounterId, CounterKind, CounterName, MemberKey, PostId, ReservedKey, RowKey, Shard, ShardCount,
};

use super::{cases, id};

/// Ids made of what keys are made of.
fn hostile() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "#",
        ".",
        "+",
        ":",
        "/",
        "@",
        "0",
        "3",
        "likes",
        "views",
        "+views",
        "#+views.0",
        "#views.3",
        "likes:",
        "é",
        "日",
    ]);
    let made = proptest::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat());
    proptest::prop_oneof![2 => made, 1 => id()]
}

fn name() -> impl Strategy<Value = CounterName> {
    let text = proptest::prop_oneof![1 => select(vec!["likes", "views", "v"]).prop_map(str::to_owned), 1 => "[a-z][a-z0-9_]{0,31}"];
    (text, any::<bool>()).prop_map(|(name, is_sum)| {
        let kind = if is_sum && name != "likes" { CounterKind::Sum } else { CounterKind::Set };
        CounterName::new(&name, kind).unwrap()
    })
}

fn counter() -> impl Strategy<Value = CounterId> {
    (hostile(), name()).prop_map(|(post, name)| CounterId { post: PostId::new(&post).unwrap(), name })
}

fn row_key() -> impl Strategy<Value = RowKey> {
    let shard = (0..ShardCount::MAX.get()).prop_map(|k| Shard::new(k).unwrap());
    (counter(), shard).prop_map(|(counter, shard)| RowKey { counter, shard })
}

/// Table prefixes as the flag takes them.
fn prefix() -> impl Strategy<Value = String> {
    proptest::prop_oneof![1 => select(vec!["", "a", "likes", "a-", "a."]).prop_map(str::to_owned), 1 => "[a-zA-Z0-9_.-]{0,8}"]
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn a_row_key_survives_being_written(key in row_key()) {
        prop_assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn different_row_keys_are_written_differently(one in row_key(), other in row_key()) {
        prop_assert_eq!(one.to_string() == other.to_string(), one == other);
    }

    #[test]
    fn a_text_is_a_row_key_in_one_spelling_only(text in "[a#.+0-9likesv]{0,10}") {
        if let Ok(key) = text.parse::<RowKey>() {
            prop_assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn a_key_of_the_counts_table_survives_and_is_one_counters_alone(one in counter(), other in counter()) {
        prop_assert_eq!(one.stored().parse(), Ok(one.clone()));
        prop_assert_eq!(one.stored() == other.stored(), one == other);
        prop_assert_eq!(one.stored().cmp(&other.stored()), one.cmp(&other), "a page ends where the table's order has it");
    }

    #[test]
    fn a_text_is_a_key_of_the_counts_table_in_one_spelling_only(text in "[a+\u{1f}likesv]{0,10}") {
        if let Ok(counter) = text.parse::<CounterId>() {
            prop_assert_eq!(counter.stored(), text);
        }
    }

    #[test]
    fn a_cache_key_is_one_counters_of_one_deployment((one, other) in ((prefix(), counter()), (prefix(), counter()))) {
        let key = |(prefix, counter): &(String, CounterId)| CachePrefix::of_tables(prefix).key(counter);
        prop_assert_eq!(key(&one) == key(&other), one == other);
    }

    #[test]
    fn a_cell_is_a_member_and_never_an_id(topic in "[a-zA-Z0-9._-]{1,12}", partition in any::<u32>()) {
        let cell = ReservedKey::Cell { topic: &topic, partition };
        let written = cell.to_string();
        prop_assert_eq!(ReservedKey::read(&written), Some(cell));
        prop_assert!(MemberKey::new(&written).is_some_and(|member| member.is_cell() && member.as_str() == written));
        prop_assert!(PostId::new(&written).is_err());
    }

    #[test]
    fn any_id_is_a_member_and_any_other_text_but_a_cell_is_none(text in "[\u{1}\u{2}\u{1f}a/#0-9]{0,8}") {
        let is_id = PostId::new(&text).is_ok();
        let is_cell = ReservedKey::read(&text).is_some_and(ReservedKey::is_counted);
        prop_assert_eq!(MemberKey::new(&text).is_some(), is_id || is_cell);
    }
}
