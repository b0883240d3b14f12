//! Fences of a partition with several lanes.

use tally_core::batch::Change;
use tally_core::event::Action;
use tally_core::fence::{Advance, Commit, Fence, Fences, Next, Offset, Partition, Terms};
use tally_core::ids::{Lane, LaneCount};
use tally_core::time::UnixMillis;

use crate::engine::Env;
use crate::likes::{fence, partition, post, user};

pub(crate) async fn contract(env: &Env) {
    lanes_are_made_moved_and_dropped_together(env).await;
    each_lane_moves_under_its_own_condition(env).await;
    a_change_is_refused_where_any_lane_is_elsewhere(env).await;
}

fn lanes(n: u64) -> Terms {
    Terms { lanes: LaneCount::new(n).unwrap(), generation: 2, defs: 3, ..Terms::default() }
}

fn lane(fences: &Fences, index: u8) -> Fence {
    fences.get(Lane::new(index).unwrap()).unwrap().clone()
}

async fn stored(env: &Env, partition: &Partition) -> Fences {
    env.fenced.lanes(partition).await.unwrap().unwrap()
}

/// Replaces all fences by so many at one offset, and answers what stands then.
async fn changed(env: &Env, partition: &Partition, at: u64, n: u64) -> Fences {
    let seen = stored(env, partition).await;
    let to = seen.level(Offset(at), lanes(n));
    assert_eq!(env.fenced.replace_fences(partition, &seen, &to).await, Ok(true));
    assert_eq!(env.fenced.replace_fences(partition, &seen, &to).await, Ok(false), "the condition holds once");
    let stands = stored(env, partition).await;
    assert_eq!(stands, to.raised_above(&seen));
    stands
}

async fn lanes_are_made_moved_and_dropped_together(env: &Env) {
    let partition = partition("lanes", 0);
    assert_eq!(env.fenced.lanes(&partition).await, Ok(None));
    env.fenced.create_fence(&partition, &fence(5)).await.unwrap();
    assert_eq!(stored(env, &partition).await, fence(5).into());
    for (cfg, n) in (1..).zip([2, 16, 4, 1]) {
        let stands = changed(env, &partition, 5 + n, n).await;
        assert_eq!((stands.cfg(), stands.lanes().get() as u64, stands.terms().defs), (cfg, n, 3));
        let listed = env.fenced.fences("lanes").await.unwrap();
        let listed: Vec<_> = listed.iter().map(|(of, fence)| (of.index, fence.lane.index() as u64)).collect();
        assert_eq!(listed, (0..n).map(|lane| (0, lane)).collect::<Vec<_>>());
    }
}

async fn each_lane_moves_under_its_own_condition(env: &Env) {
    let partition = partition("lanes-move", 0);
    env.fenced.create_fence(&partition, &fence(5)).await.unwrap();
    let level = changed(env, &partition, 7, 2).await;
    let (post, user) = (post("laned"), user("u"));
    let change = [Change::like(&post, &user, Action::Like, UnixMillis(1))];
    let written = Advance { from: lane(&level, 1), to: Offset(9) };
    assert_eq!(env.fenced.commit(&partition, &written, &change).await, Commit::Done);
    assert_eq!(env.fenced.commit(&partition, &written, &change).await.next(), Next::Reload, "a late copy");
    let follows = Advance { from: lane(&level, 0), to: Offset(8) };
    assert_eq!(env.fenced.commit(&partition, &follows, &[]).await, Commit::Done);
    assert_eq!(
        env.fenced.commit(&partition, &follows, &[]).await.next(),
        Next::Reload,
        "a late copy that writes nothing"
    );
    let stands = stored(env, &partition).await;
    assert_eq!((lane(&stands, 0).offset, lane(&stands, 1).offset), (Offset(8), Offset(9)));
    let zombie = Advance { from: Fence { cfg: level.cfg() - 1, ..lane(&stands, 1) }, to: Offset(10) };
    for changes in [&change[..], &[]] {
        assert_eq!(env.fenced.commit(&partition, &zombie, changes).await.next(), Next::Reload);
    }
    let gone = Advance { from: Fence { lane: Lane::new(2).unwrap(), ..lane(&stands, 1) }, to: Offset(10) };
    assert_eq!(env.fenced.commit(&partition, &gone, &change).await.next(), Next::Reload, "there is no such lane");
}

async fn a_change_is_refused_where_any_lane_is_elsewhere(env: &Env) {
    let partition = partition("lanes-moved", 0);
    env.fenced.create_fence(&partition, &fence(5)).await.unwrap();
    let level = changed(env, &partition, 7, 4).await;
    for index in 0..4 {
        let moved = Advance { from: lane(&stored(env, &partition).await, index), to: Offset(9) };
        assert_eq!(env.fenced.commit(&partition, &moved, &[]).await, Commit::Done);
        for n in [1, 2, 8] {
            let to = level.level(Offset(7), lanes(n));
            assert_eq!(env.fenced.replace_fences(&partition, &level, &to).await, Ok(false), "lane {index} is at 9");
        }
        let stands = stored(env, &partition).await;
        assert_eq!((stands.lanes().get(), stands.cfg()), (4, level.cfg()), "all or nothing");
    }
    changed(env, &partition, 9, 2).await;
}
