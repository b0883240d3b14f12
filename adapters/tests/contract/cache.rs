//! The cache: filled only under a token, and of the values offered it keeps the one that `Served::replaces` keeps.

use std::time::Duration;

use tally_adapters::memory::Memory;
use tally_core::ids::CounterId;
use tally_core::ports::{Cache, Cached};
use tally_core::served::Served;
use tally_core::time::UnixMillis;

use crate::engine::BEGAN;
use crate::likes::post;

/// Works with any cache, whatever else is in it: posts are named after the `run`.
pub(crate) async fn contract(cache: &dyn Cache, run: &str) {
    let named = |law: &str| post(&format!("{run}{law}"));
    a_value_is_filled_under_a_token(cache, named("filled"), named("never filled")).await;
    a_version_never_goes_back(cache, named("versions")).await;
    an_update_ends_a_fill_under_way(cache, named("overtaken")).await;
    an_exact_count_takes_the_place_of_an_inexact_one_of_its_version(cache, named("settled")).await;
    the_cores_order_decides_what_is_kept(cache, |pair| named(&format!("order {pair}"))).await;
}

fn served(version: u64) -> Served {
    Served { likes: 10 * i64::try_from(version).unwrap(), version, exact: true, as_of: BEGAN }
}

async fn cached(cache: &dyn Cache, post: &CounterId) -> Cached {
    cache.get(std::slice::from_ref(post)).await.unwrap().remove(0)
}

async fn a_value_is_filled_under_a_token(cache: &dyn Cache, post: CounterId, other: CounterId) {
    assert_eq!(cache.update(&[(post.clone(), served(9))]).await, Ok(0), "no reader asked for it");
    let token = cache.begin_fill(&post).await.unwrap().unwrap();
    assert_eq!(cache.begin_fill(&post).await, Ok(None), "one fill at a time");
    assert_eq!(cached(cache, &post).await, Cached::Miss);
    assert_eq!(cache.fill(&post, &token, &served(3)).await, Ok(true));
    assert_eq!(cache.fill(&post, &token, &served(2)).await, Ok(false), "the token is taken");
    let found = cache.get(&[other, post]).await;
    assert_eq!(found, Ok(vec![Cached::Miss, Cached::Hit(served(3))]));
}

async fn a_version_never_goes_back(cache: &dyn Cache, post: CounterId) {
    let token = cache.begin_fill(&post).await.unwrap().unwrap();
    assert!(cache.fill(&post, &token, &served(3)).await.unwrap());
    for (version, standing) in [(2, 3), (3, 3), (5, 5), (4, 5)] {
        let replaced = cache.update(&[(post.clone(), served(version))]).await.unwrap();
        assert_eq!(replaced, usize::from(version == 5));
        assert_eq!(cached(cache, &post).await, Cached::Hit(served(standing)));
    }
}

async fn an_update_ends_a_fill_under_way(cache: &dyn Cache, post: CounterId) {
    let token = cache.begin_fill(&post).await.unwrap().unwrap();
    assert_eq!(cache.update(&[(post.clone(), served(8))]).await, Ok(1));
    assert_eq!(cache.fill(&post, &token, &served(7)).await, Ok(false));
    assert_eq!(cached(cache, &post).await, Cached::Hit(served(8)));
}

async fn an_exact_count_takes_the_place_of_an_inexact_one_of_its_version(cache: &dyn Cache, post: CounterId) {
    let count = |version, exact| Served { exact, ..served(version) };
    let token = cache.begin_fill(&post).await.unwrap().unwrap();
    assert_eq!(cache.fill(&post, &token, &count(10, false)).await, Ok(true));
    for (version, exact, standing) in [
        (10, false, count(10, false)),
        (9, true, count(10, false)),
        (10, true, count(10, true)),
        (10, false, count(10, true)),
        (11, false, count(11, false)),
        (10, true, count(11, false)),
    ] {
        let update = count(version, exact);
        let replaces = update == standing && cached(cache, &post).await != Cached::Hit(standing);
        assert_eq!(cache.update(&[(post.clone(), update)]).await, Ok(usize::from(replaces)), "{update:?}");
        assert_eq!(cached(cache, &post).await, Cached::Hit(standing), "{update:?}");
    }
}

/// Of every pair of values, one held and one offered, the cache keeps what the core's order keeps.
async fn the_cores_order_decides_what_is_kept(cache: &dyn Cache, post: impl Fn(usize) -> CounterId) {
    // Of one length and of several, and past what Lua's numbers hold.
    let numbers = [0, 9, 10, 9_007_199_254_740_992, 9_007_199_254_740_993, u64::MAX];
    let value = |version, exact, as_of| Served { likes: -7, version, exact, as_of: UnixMillis(as_of) };
    let of_version =
        |version: &u64| [(false, 9), (true, 9), (true, 10)].map(|(exact, as_of)| value(*version, exact, as_of));
    let of_time = |as_of: &u64| value(10, true, *as_of);
    let values: Vec<Served> = numbers.iter().flat_map(of_version).chain(numbers.iter().map(of_time)).collect();
    let pairs = || values.iter().flat_map(|held| values.iter().map(move |offered| (*held, *offered)));
    for (n, (held, _)) in pairs().enumerate() {
        let token = cache.begin_fill(&post(n)).await.unwrap().unwrap();
        assert_eq!(cache.fill(&post(n), &token, &held).await, Ok(true));
    }
    let offers: Vec<_> = pairs().enumerate().map(|(n, (_, offered))| (post(n), offered)).collect();
    let replaced = pairs().filter(|(held, offered)| offered.replaces(held)).count();
    assert_eq!(cache.update(&offers).await, Ok(replaced));
    let posts: Vec<_> = offers.iter().map(|(post, _)| post.clone()).collect();
    for ((held, offered), found) in pairs().zip(cache.get(&posts).await.unwrap()) {
        let kept = if offered.replaces(&held) { offered } else { held };
        assert_eq!(found, Cached::Hit(kept), "{offered:?} offered to {held:?}");
    }
}

#[tokio::test]
async fn on_the_twin() {
    contract(&Memory::new(BEGAN, 1).cache(), "").await;
}

#[tokio::test(start_paused = true)]
async fn the_right_to_fill_ends() {
    let cache = Memory::new(BEGAN, 1).cache();
    let post = post("p");
    let late = cache.begin_fill(&post).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cache.fill(&post, &late, &served(1)).await, Ok(false));
    let token = cache.begin_fill(&post).await.unwrap().unwrap();
    assert_eq!(cache.fill(&post, &late, &served(1)).await, Ok(false), "nor does it come back");
    assert_eq!(cache.fill(&post, &token, &served(2)).await, Ok(true));
    cache.evict(&post);
    assert_eq!(cached(&cache, &post).await, Cached::Miss);
}
