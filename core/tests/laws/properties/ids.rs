//! Properties of the keys of rows, counters and cache: they are parsed as they were written, whatever an id contains,
//! and no two things share a key.

use std::collections::BTreeSet;

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use tally_core::ids::{
    CachePrefix, CounterId, CounterKind, CounterName, MemberKey, PostId, ReservedKey, RowKey, Shard, ShardCount,
};

use super::{cases, id};

/// Ids that consist of the separators of keys.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = "# . + : / @ 0 3 likes views +views #+views.0 #views.3 likes: é 日";
    let piece = select(pieces.split(' ').collect::<Vec<_>>());
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

/// Generates table prefixes that the flag accepts.
fn prefix() -> impl Strategy<Value = String> {
    proptest::prop_oneof![1 => select(vec!["", "a", "likes", "a-", "a."]).prop_map(str::to_owned), 1 => "[a-zA-Z0-9_.-]{0,8}"]
}

/// Generates the text after the last `#`, or U+001F, of a key that belongs to no counter.
fn foreign_name() -> impl Strategy<Value = String> {
    let known = select(vec!["likes", "+likes", "", "+", "++views", "Views", "3", "views+", "views.", "vi#ews", "é"]);
    proptest::prop_oneof![2 => known.prop_map(str::to_owned), 1 => "[+A-Z0-9_][+.:a-z0-9]{0,6}"].prop_filter(
        "it is no name",
        |name| {
            let plain = name.strip_prefix('+').unwrap_or(name);
            plain == "likes" || CounterName::new(plain, CounterKind::Set).is_err()
        },
    )
}

/// Returns every id of one to four of the characters that keys are made of.
fn short_ids() -> Vec<String> {
    let longer = |ids: &Vec<String>| {
        let grown = ids.iter().flat_map(|id| ["#", ".", "+", ":", "/", "0", "v"].map(|end| format!("{id}{end}")));
        grown.collect::<Vec<_>>()
    };
    let lengths = std::iter::successors(Some(vec![String::new()]), |ids| Some(longer(ids)));
    lengths.skip(1).take(4).flatten().collect()
}

/// Tests all combinations instead of random ones: different subjects, counters, shards and deployments have different
/// keys.
#[test]
fn no_two_counters_of_short_ids_share_a_key() {
    let name = |name, kind| CounterName::new(name, kind).unwrap();
    let set = |text| name(text, CounterKind::Set);
    // A deployment's prefix followed by one name may read like another name.
    let names = [CounterName::LIKES, set("v"), set("vv"), name("v", CounterKind::Sum)];
    let deployments = ["", "v", "0", "likes"].map(CachePrefix::of_tables);
    let (mut rows, mut counts, mut cached, mut counters) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), 0);
    for id in short_ids() {
        for name in &names {
            let counter = CounterId { post: PostId::new(&id).unwrap(), name: name.clone() };
            for shard in [0, 3].map(|k| Shard::new(k).unwrap()) {
                let key = RowKey { counter: counter.clone(), shard };
                assert_eq!(key.to_string().parse(), Ok(key.clone()));
                assert!(rows.insert(key.to_string()), "{key}");
            }
            assert_eq!(counter.stored().parse(), Ok(counter.clone()));
            assert!(counts.insert(counter.stored().into_owned()), "{counter:?}");
            for deployment in &deployments {
                assert!(cached.insert(deployment.value(7, &counter)), "{deployment:?} {counter:?}");
            }
            counters += 1;
        }
    }
    assert_eq!((rows.len(), counts.len(), cached.len()), (2 * counters, counters, 4 * counters));
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn a_key_that_names_no_counter_is_foreign(post in hostile(), name in foreign_name(), shard in 0..ShardCount::MAX.get()) {
        let mut rows = vec![format!("{post}#views.{shard}.{shard}"), format!("{post}#+views.0{shard}")];
        // A `#` in the name begins it anew, and a dot ends it.
        if !name.contains(['#', '.']) {
            rows.push(format!("{post}#{name}.{shard}"));
        }
        for row in rows {
            prop_assert!(row.parse::<RowKey>().is_err(), "{row}");
        }
        let stored = format!("{post}\u{1f}{name}");
        prop_assert!(stored.parse::<CounterId>().is_err(), "{stored}");
    }

    #[test]
    fn a_row_key_survives_being_written(key in row_key()) {
        prop_assert_eq!(key.to_string().parse(), Ok(key));
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
        let key = |(prefix, counter): &(String, CounterId)| CachePrefix::of_tables(prefix).value(7, counter);
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
        let member = MemberKey::new(&text).map(|member| member.is_cell());
        prop_assert_eq!(member, (is_id || is_cell).then_some(is_cell));
    }
}
