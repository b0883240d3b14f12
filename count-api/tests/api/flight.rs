//! Many requests at once: one of them reads, and past the gate none does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tally_count_api::Config;
use tally_count_api::definitions::FollowDefinitions;
use tally_count_api::read::{Bounds, ReadPath, Reader};
use tally_service::{Clock, Host};
use tokio::time::sleep;

use crate::harness::{Api, BEGAN, Deployed, With, counter, get, post_id};

const BOUNDS: Bounds =
    Bounds { concurrency: 256, patience: Duration::from_millis(100), budget: Duration::from_secs(20) };

/// How long a read of the table takes.
const SLOW: Duration = Duration::from_millis(500);

/// A reader without a server around it: a call that was polled has asked.
struct Stage {
    reader: Reader,
    tables: Deployed,
    _host: Host,
}

/// A reader of a post with seven likes.
async fn stage(local_ttl: Duration, cached: bool) -> Stage {
    let (tables, host) = (Deployed::start().await, Host::new("test").with_clock(Clock::starting_at(BEGAN)));
    tables.plant(&post_id("hot"), counter(7, 7)).await;
    tables.slow_down(SLOW);
    let cache_budget = Duration::from_millis(50);
    let config = Config { table: BOUNDS, local_posts: 1_000, local_ttl, cache_budget, ..Config::default() };
    let whole = Arc::new(|| true);
    let ports = tables.ports(cached);
    let defined = FollowDefinitions::begin(&ports.tables, &host).await.unwrap().defined();
    let reader = ReadPath::open(&config, &ports, defined, whole, &host).await.unwrap().reader;
    Stage { reader, tables, _host: host }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_misses_of_one_post_are_one_read_of_the_table() {
    for (ttl, cached) in [(100, true), (100, false), (0, true), (0, false)] {
        let Stage { reader, tables, _host } = stage(Duration::from_millis(ttl), cached).await;
        let post = post_id("hot");
        // join_all asks for all of them before it is the turn of the read.
        let answers = join_all((0..10_000).map(|_| reader.count(&post))).await;
        for answer in answers {
            let answer = answer.unwrap();
            let served = answer.served;
            assert_eq!((served.likes, served.version, served.exact, served.as_of), (7, 7, true, BEGAN));
            assert!(answer.fresh);
        }
        assert_eq!(tables.reads(), 1, "ttl {ttl} ms, cached {cached}");
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_batches_that_name_one_missing_post_are_one_read_of_it() {
    let Stage { reader, tables, _host } = stage(Duration::from_millis(100), false).await;
    let (batch, post) = ([post_id("hot"), post_id("cold"), post_id("hot")], post_id("hot"));
    let asking = join_all((0..10_000).map(|_| reader.counts(&batch)));
    let alone = join_all((0..100).map(|_| reader.count(&post)));
    let (answers, alone) = tokio::join!(asking, alone);
    for answer in answers {
        let likes: Vec<_> = answer.into_iter().map(|answer| answer.unwrap().served.likes).collect();
        assert_eq!(likes, [7, 0, 7]);
    }
    assert!(alone.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.served.likes == 7)));
    assert_eq!(tables.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn clients_that_leave_neither_end_a_read_nor_begin_it_again() {
    let Stage { reader, tables, _host } = stage(Duration::from_millis(100), false).await;
    let post = post_id("hot");
    let mut patient = Box::pin(reader.count(&post));
    assert!(patient.as_mut().now_or_never().is_none());
    for _ in 0..1_000 {
        assert!(reader.count(&post).now_or_never().is_none(), "who asked has left");
    }
    assert_eq!(patient.await.map(|answer| answer.served.likes), Ok(7));
    assert_eq!(tables.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_whose_only_client_left_is_finished_and_kept() {
    let Stage { reader, tables, _host } = stage(Duration::from_secs(1), false).await;
    let post = post_id("hot");
    assert!(reader.count(&post).now_or_never().is_none());
    sleep(SLOW * 3 / 2).await;
    assert!(reader.count(&post).now_or_never().is_some(), "it is in memory");
    assert_eq!(tables.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_fails_all_who_wait_and_is_not_kept() {
    let Stage { reader, tables, _host } = stage(Duration::from_millis(100), false).await;
    let post = post_id("hot");
    tables.away();
    let answers = join_all((0..100).map(|_| reader.count(&post))).await;
    assert!(answers.iter().all(Result::is_err));
    tables.mended();
    assert!(reader.count(&post).await.is_ok());
}

#[tokio::test]
async fn past_the_gate_the_answer_is_busy_and_when_to_come_back() {
    let table = Bounds { concurrency: 4, patience: Duration::from_millis(50), budget: Duration::from_secs(20) };
    let api = Api::start(Config { table, ..Config::default() }, With::default()).await;
    api.tables.slow_down(Duration::from_secs(1));
    let targets: Vec<String> = (0..20).map(|n| format!("/v1/posts/p{n}/likes")).collect();
    let answers = join_all(targets.iter().map(|target| get(api.address, target))).await;
    let busy: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert_eq!((busy.len(), api.tables.reads()), (16, 4));
    assert!(busy.iter().all(|answer| answer.problem() == "busy" && answer.header("retry-after") == Some("1")));
    assert!(answers.iter().all(|answer| [200, 503].contains(&answer.status.as_u16())));
}
