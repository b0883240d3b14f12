//! Many requests at once: one of them reads, and past the gate none does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tally_adapters::memory::Memory;
use tally_core::served::Served;
use tally_count_api::read::{Bounds, ReadPath, Reader};
use tally_count_api::{Config, Ports};
use tally_service::{Clock, Host};

use crate::harness::{Api, BEGAN, Watched, With, counter, eventually, follow, get, post_id};

const BOUNDS: Bounds =
    Bounds { concurrency: 256, patience: Duration::from_millis(100), budget: Duration::from_secs(20) };

/// A reader and the host its tasks run on.
struct Stage {
    reader: Reader,
    _host: Host,
}

/// A reader without a server around it: a call that was polled has asked.
async fn stage(memory: &Memory, counts: &Watched, local_ttl: Duration, cached: bool) -> Stage {
    follow(memory).await;
    let host = Host::new("test").with_clock(Clock::starting_at(BEGAN));
    let ports = Ports {
        counts: Arc::new(counts.clone()),
        rows: Arc::new(memory.rows()),
        maps: Arc::new(memory.maps()),
        checkpoints: Arc::new(memory.checkpoints()),
        stream: Arc::new(memory.streams()),
        recounts: Arc::new(memory.recounts()),
        cache: cached.then(|| Arc::new(memory.cache()) as _),
        producer: None,
    };
    let cache_budget = Duration::from_millis(50);
    let config = Config { table: BOUNDS, local_posts: 1_000, local_ttl, cache_budget, ..Config::default() };
    let reader = ReadPath::open(&config, &ports, &host).await.unwrap().reader;
    Stage { reader, _host: host }
}

#[tokio::test]
async fn ten_thousand_misses_of_one_post_are_one_read_of_the_table() {
    for (ttl, cached) in [(100, true), (100, false), (0, true), (0, false)] {
        let memory = Memory::new(BEGAN, 2);
        let counts = Watched::new(memory.counts());
        memory.counts().plant(&post_id("hot"), counter(7, 7));
        let Stage { reader, _host } = stage(&memory, &counts, Duration::from_millis(ttl), cached).await;
        let post = post_id("hot");
        counts.hold(true);
        let asking = join_all((0..10_000).map(|_| reader.count(&post)));
        let release = async {
            // join_all asks for all of them before it is the turn of this.
            eventually("the read is under way", async || counts.reads() > 0).await;
            counts.hold(false);
        };
        let (answers, ()) = tokio::join!(asking, release);
        let expected = Served { likes: 7, version: 7, exact: true, as_of: BEGAN };
        assert!(answers.iter().all(|answer| *answer == Ok(expected)));
        assert_eq!(counts.reads(), 1, "ttl {ttl} ms, cached {cached}");
    }
}

#[tokio::test]
async fn ten_thousand_batches_that_name_one_missing_post_are_one_read_of_it() {
    let memory = Memory::new(BEGAN, 2);
    let counts = Watched::new(memory.counts());
    memory.counts().plant(&post_id("hot"), counter(7, 7));
    let Stage { reader, _host } = stage(&memory, &counts, Duration::from_millis(100), false).await;
    let (batch, post) = ([post_id("hot"), post_id("cold"), post_id("hot")], post_id("hot"));
    counts.hold(true);
    let asking = join_all((0..10_000).map(|_| reader.counts(&batch)));
    let alone = join_all((0..100).map(|_| reader.count(&post)));
    let release = async {
        eventually("the read is under way", async || counts.reads() > 0).await;
        counts.hold(false);
    };
    let (answers, alone, ()) = tokio::join!(asking, alone, release);
    for answer in answers {
        let likes: Vec<_> = answer.into_iter().map(|served| served.unwrap().likes).collect();
        assert_eq!(likes, [7, 0, 7]);
    }
    assert!(alone.iter().all(|answer| answer.as_ref().is_ok_and(|served| served.likes == 7)));
    assert_eq!(counts.reads(), 1);
}

#[tokio::test]
async fn clients_that_leave_neither_end_a_read_nor_begin_it_again() {
    let memory = Memory::new(BEGAN, 2);
    let counts = Watched::new(memory.counts());
    memory.counts().plant(&post_id("p"), counter(7, 7));
    let Stage { reader, _host } = stage(&memory, &counts, Duration::from_millis(100), false).await;
    let post = post_id("p");
    counts.hold(true);
    let mut patient = Box::pin(reader.count(&post));
    assert!(patient.as_mut().now_or_never().is_none());
    for _ in 0..1_000 {
        assert!(reader.count(&post).now_or_never().is_none(), "who asked has left");
    }
    eventually("the read is under way", async || counts.reads() > 0).await;
    counts.hold(false);
    assert_eq!(patient.await.map(|served| served.likes), Ok(7));
    assert_eq!(counts.reads(), 1);
}

#[tokio::test]
async fn a_read_whose_only_client_left_is_finished_and_kept() {
    let memory = Memory::new(BEGAN, 2);
    let counts = Watched::new(memory.counts());
    let Stage { reader, _host } = stage(&memory, &counts, Duration::from_secs(5), false).await;
    let post = post_id("p");
    assert!(reader.count(&post).now_or_never().is_none());
    eventually("it is in memory", async || reader.count(&post).now_or_never().is_some()).await;
    assert_eq!(counts.reads(), 1);
}

#[tokio::test]
async fn a_failed_read_fails_all_who_wait_and_is_not_kept() {
    let memory = Memory::new(BEGAN, 2);
    let counts = Watched::new(memory.counts());
    let Stage { reader, _host } = stage(&memory, &counts, Duration::from_millis(100), false).await;
    let post = post_id("p");
    counts.down.store(true, std::sync::atomic::Ordering::SeqCst);
    counts.hold(true);
    let asking = join_all((0..100).map(|_| reader.count(&post)));
    let release = async {
        eventually("the read is under way", async || counts.reads() > 0).await;
        counts.hold(false);
    };
    let (answers, ()) = tokio::join!(asking, release);
    assert!(answers.iter().all(Result::is_err));
    assert_eq!(counts.reads(), 1);
    counts.down.store(false, std::sync::atomic::Ordering::SeqCst);
    assert!(reader.count(&post).await.is_ok());
}

#[tokio::test]
async fn past_the_gate_the_answer_is_busy_and_when_to_come_back() {
    let table = Bounds { concurrency: 4, patience: Duration::from_millis(50), budget: Duration::from_secs(20) };
    let api = Api::start(Config { table, ..Config::default() }, With::default()).await;
    api.counts.hold(true);
    let targets: Vec<String> = (0..20).map(|n| format!("/v1/posts/p{n}/likes")).collect();
    let asking = join_all(targets.iter().map(|target| get(api.address, target)));
    let release = async {
        eventually("the gate is full", async || api.counts.reads() == 4).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        api.counts.hold(false);
    };
    let (answers, ()) = tokio::join!(asking, release);
    let busy: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert_eq!((busy.len(), api.counts.reads()), (16, 4));
    assert!(busy.iter().all(|answer| answer.problem() == "busy" && answer.header("retry-after") == Some("1")));
    assert!(answers.iter().all(|answer| [200, 503].contains(&answer.status.as_u16())));
}
