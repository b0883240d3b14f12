//! Properties of the encoder and the decoder of events, such as likes: an encoded event is decoded unchanged, any other
//! bytes are a valid event or rejected for a listed reason, and nothing panics.

use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};
use proptest::sample::{Index, select};
use tally_core::definitions::{Definition, Definitions, Direction};
use tally_core::event::{Deed, Event, Rejection, Said, decode_value, encode};
use tally_core::ids::{CounterName, PostId, Region, UserId};
use tally_core::time::UnixMillis;

use super::{cases, id};

const RECORDED: UnixMillis = UnixMillis(77);

fn direction() -> impl Strategy<Value = Direction> {
    select(vec![Direction::Add, Direction::Remove])
}

/// Returns the value of a like or unlike.
fn like(post: &str, user: &str, direction: Direction, region: Option<&Region>, at: UnixMillis) -> Vec<u8> {
    let user = UserId::new(user).unwrap();
    encode(&Definition::likes(), post, direction, Said::Member(&user), region, at).unwrap()
}

/// Returns the encoded value of a decoded event.
fn again(event: &Event<'_>) -> Vec<u8> {
    let Deed::Member { id, present } = &event.deed else { panic!("{event:?}") };
    let direction = if *present { Direction::Add } else { Direction::Remove };
    like(event.subject(), id, direction, event.region().as_ref(), event.at)
}

/// Generates a damage: at some place, how many bytes are replaced, and by which.
fn damage() -> impl Strategy<Value = (Index, usize, Vec<u8>)> {
    let texts = vec!["\"", "{", "}", "null", "\\u0001", ",\"ts\":", "\"data\":{", "\u{1}", "é", ""];
    let texts = select(texts).prop_map(|text| text.as_bytes().to_vec());
    let new = proptest::prop_oneof![3 => texts, 1 => proptest::collection::vec(any::<u8>(), 0..40)];
    (any::<Index>(), select(vec![0, 0, 1, 1, 2, usize::MAX]), new)
}

fn damaged(mut value: Vec<u8>, (at, count, new): (Index, usize, Vec<u8>)) -> Vec<u8> {
    let at = at.index(value.len() + 1);
    value.splice(at..at.saturating_add(count).min(value.len()), new);
    value
}

/// Asserts that an accepted event has valid ids and is encoded unchanged, and that a rejected one has a reason from
/// the list.
fn check(value: &[u8]) {
    let likes = Definitions::likes_alone();
    match decode_value(Some(value), RECORDED, &likes) {
        Ok(event) => {
            assert!(PostId::new(event.subject()).is_ok() && UserId::new(event.member().unwrap()).is_ok());
            assert_eq!(decode_value(Some(&again(&event)), UnixMillis(0), &likes), Ok(event));
        }
        Err(rejection) => assert!(Rejection::REASONS.contains(&rejection.reason())),
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn an_event_survives_being_encoded(
        (post, user) in (id(), id()),
        direction in direction(),
        region in select(vec![None, Region::new("eu")]),
        at in 0..=UnixMillis::MAX.0,
    ) {
        let (at, likes) = (UnixMillis(at), Definitions::likes_alone());
        let value = like(&post, &user, direction, region.as_ref(), at);
        let event = decode_value(Some(&value), RECORDED, &likes).unwrap();
        let deed = Deed::Member { id: user.into(), present: direction == Direction::Add };
        prop_assert_eq!((event.counter.clone(), event.subject(), event.at), (CounterName::LIKES, &*post, at));
        prop_assert_eq!((&event.deed, event.region()), (&deed, region));
    }

    #[test]
    fn any_bytes_are_an_event_or_rejected(value in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(&value);
    }

    #[test]
    fn a_damaged_event_is_an_event_or_rejected(
        post in id(),
        envelope in any::<bool>(),
        damages in proptest::collection::vec(damage(), 1..4),
    ) {
        let event = like(&post, "u", Direction::Add, None, RECORDED);
        let value = if envelope {
            [b"{\"specversion\":\"1.0\",\"data\":", event.as_slice(), b"}"].concat()
        } else {
            event
        };
        check(&value);
        check(&damages.into_iter().fold(value, damaged));
    }

}
