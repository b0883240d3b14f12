//! Tests the table `recounts` on every DynamoDB engine. Recounts compare rows with counters; the table has their
//! records (runs), the queue of what is to be recounted, the progress of audits (recounts of everything), and the
//! ledgers of corrections and of operators' changes.

use tally_adapters::dynamodb::{Cursor, LedgerEntry, Operation, Queued, Recounts};
use tally_core::audit::{AuditRun, Cause, Cost, Drift, QueueReason, RunRecord, RunScope, Summary};
use tally_core::ids::{RowKey, Shard};
use tally_core::time::UnixMillis;

use crate::engine::Env;
use crate::likes::post;

/// Far ahead of every engine's clock, so that nothing expires meanwhile.
const NOW: UnixMillis = UnixMillis(4_000_000_000_000);

pub(crate) async fn contract(env: &Env) {
    let port = &env.recounts;
    the_latest_runs_come_first(port).await;
    a_key_is_queued_once_with_its_first_reason(port).await;
    an_audit_that_was_requested_again_stays_queued(port).await;
    the_progress_of_an_audit_is_the_last_one_stored_and_stays_done(port).await;
    a_line_of_the_ledger_is_put_once_and_the_newest_is_read_first(port).await;
    an_operators_change_is_one_line_whose_end_replaces_its_beginning(port).await;
}

async fn the_latest_runs_come_first(port: &Recounts) {
    let state = |run: u128, began| RunRecord {
        run: run.into(),
        began: UnixMillis(began),
        ended: None,
        scope: RunScope::Audit,
        dry_run: run == 2,
        summary: Summary::default(),
    };
    for (run, began) in [(1, 500), (3, 900), (2, 700)] {
        port.put_run(&state(run, began)).await.unwrap();
    }
    let ended = RunRecord { ended: Some(UnixMillis(990)), summary: found(7), ..state(3, 900) };
    port.put_run(&ended).await.unwrap();
    assert_eq!(port.run(3.into()).await, Ok(Some(ended.clone())));
    assert_eq!(port.run(9.into()).await, Ok(None));
    assert_eq!(port.runs(2).await, Ok(vec![ended.clone(), state(2, 700)]));
    port.put_run(&state(3, 900)).await.unwrap();
    assert_eq!(port.run(3.into()).await, Ok(Some(ended)), "its end is not taken back");
    let other = RunRecord { scope: RunScope::Queue, ..state(4, 100) };
    port.put_run(&other).await.unwrap();
    assert_eq!(port.run(4.into()).await, Ok(Some(other)));
}

/// A summary with all its parts.
fn found(counters: u64) -> Summary {
    let mut summary = Summary { counters, cost: Cost { read_units: 3, write_units: 4 }, ..Summary::default() };
    summary.corrected(Drift { key: "p\n#0".into(), before: -3, after: 5, cause: Cause::MissingCounter });
    summary.misplaced(|| "\"u\" in \"p#3\"".into());
    summary
}

async fn a_key_is_queued_once_with_its_first_reason(port: &Recounts) {
    let key: RowKey = "queued#3#1".parse().unwrap();
    let other: RowKey = "queued#0".parse().unwrap();
    for reason in [QueueReason::Drift, QueueReason::Asked] {
        port.enqueue(&key, reason, NOW).await.unwrap();
    }
    port.enqueue(&other, QueueReason::Negative, NOW).await.unwrap();
    let second = Queued { key: key.clone(), reason: QueueReason::Drift, asked: 2 };
    let first = Queued { key: other.clone(), reason: QueueReason::Negative, asked: 1 };
    let queued = port.queued(None).await.unwrap();
    assert_eq!(queued.items, [first.clone(), second.clone()]);
    assert_eq!(queued.next, None);
    let behind = Cursor(other.to_string());
    assert_eq!(port.queued(Some(&behind)).await.unwrap().items.len(), 1);

    port.enqueue(&key, QueueReason::Negative, NOW).await.unwrap();
    port.dequeue(&second).await.unwrap();
    let again = Queued { asked: 3, ..second };
    assert_eq!(port.queued(None).await.unwrap().items, [first.clone(), again.clone()], "it was asked for meanwhile");
    for _ in 0..2 {
        port.dequeue(&again).await.unwrap();
    }
    assert_eq!(port.queued(None).await.unwrap().items, [first]);
}

async fn an_audit_that_was_requested_again_stays_queued(port: &Recounts) {
    let queued = async || port.audit_queued().await.unwrap().map(|asked| asked.0);
    for (now, asked) in [(100, 100), (300, 300), (200, 301), (301, 302)] {
        port.enqueue_audit(UnixMillis(now)).await.unwrap();
        assert_eq!(queued().await, Some(asked), "every request is another, by whatever clock");
    }
    for (seen, left) in [(300, Some(302)), (9_000, Some(302)), (302, None), (302, None)] {
        port.audit_done(UnixMillis(seen)).await.unwrap();
        assert_eq!(queued().await, left, "an audit of what was queued as {seen}");
    }
}

async fn the_progress_of_an_audit_is_the_last_one_stored_and_stays_done(port: &Recounts) {
    let run = AuditRun::from(11);
    for (put, is_done, stands) in [("a", false, "a"), ("b", false, "b"), ("c", true, "c"), ("late", false, "c")] {
        port.put_audit_progress(run, put, 4, is_done, NOW).await.unwrap();
        assert_eq!(port.audit_progress(run).await, Ok(Some(stands.to_owned())));
    }
    assert_eq!(port.audit_progress(12.into()).await, Ok(None));
}

async fn a_line_of_the_ledger_is_put_once_and_the_newest_is_read_first(port: &Recounts) {
    let line = |at: u64, run: u128, shard: Option<u16>| LedgerEntry {
        counter: post("corrected#3"),
        shard: shard.map(|k| Shard::new(k).unwrap()),
        at: UnixMillis(at),
        run: run.into(),
        by: "batch-recount".to_owned(),
        before: 7,
        after: -2,
        why: "drift".to_owned(),
    };
    port.put_ledger(&[line(900, 2, Some(3)), line(1_000, 1, Some(3)), line(900, 2, None)]).await.unwrap();
    let other = LedgerEntry { counter: post("corrected"), ..line(5, 5, None) };
    port.put_ledger(&[line(900, 2, Some(3)), other]).await.unwrap();
    let newest = vec![line(1_000, 1, Some(3)), line(900, 2, None), line(900, 2, Some(3))];
    assert_eq!(port.ledger(&post("corrected#3"), 9).await, Ok(newest.clone()));
    assert_eq!(port.ledger(&post("corrected#3"), 2).await, Ok(newest[..2].to_vec()));
}

async fn an_operators_change_is_one_line_whose_end_replaces_its_beginning(port: &Recounts) {
    let began = |at: u64, token| Operation {
        at: UnixMillis(at),
        token,
        by: "anna".to_owned(),
        why: "the topic was re-created".to_owned(),
        command: "fence reset".to_owned(),
        plan: "likes/0: from 3 to 1".to_owned(),
        ended: None,
    };
    for line in [began(900, 7), began(1_000, u64::MAX), began(900, 8)] {
        port.put_operation(&line).await.unwrap();
    }
    let ended = Operation { ended: Some("done".to_owned()), ..began(900, 8) };
    for _ in 0..2 {
        port.put_operation(&ended).await.unwrap();
    }
    let newest = vec![began(1_000, u64::MAX), ended, began(900, 7)];
    assert_eq!(port.operations(9).await, Ok(newest.clone()));
    assert_eq!(port.operations(2).await, Ok(newest[..2].to_vec()));
}
