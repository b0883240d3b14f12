//! The rows of a whole partition equal its last events, although requests fail and events are read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::registers::{Registers, Written};
use tally_core::fault::Fault;
use tally_core::register::{Change, Progress, Settled, Write};
use tally_core::topic::Offset;
use tally_emulator::{Config, Fault as Injected, Rule};
use tally_testkit::Store;

use super::{GONE, TABLE, confirmed, like, unlike, write_all};

const EVENTS: u64 = 600;

/// Returns the event at an offset, from a sequence of members and actions that repeats itself only after long.
fn event(offset: u64) -> Arc<Write> {
    let member = ((offset * offset + offset / 7) % 40).to_string();
    if offset.is_multiple_of(3) { unlike(&member, offset) } else { like(&member, offset) }
}

/// Writes all events of a partition from an offset on, with two requests under way, for at most `rounds` rounds.
async fn consume(registers: &Registers, from: u64, rounds: usize) -> Offset {
    let mut progress = Progress::new(Offset(from));
    for round in 0..rounds {
        for offset in (progress.next().0..EVENTS).take(20) {
            progress.take((*event(offset)).clone());
        }
        let requests = [progress.cut(10), progress.cut(Progress::STATEMENTS)];
        let [one, other] = &requests;
        let (one, other) =
            tokio::join!(registers.write(one, GONE, confirmed()), registers.write(other, GONE, confirmed()));
        for (attempt, written) in requests.iter().flatten().zip(one.iter().chain(&other)) {
            let settled = progress.settle(attempt.write.version.offset(), written.answer().unwrap());
            assert!(matches!(settled, Settled::Finished | Settled::Again), "{round}: {settled:?}");
        }
        if progress.committable() == Offset(EVENTS) {
            break;
        }
    }
    progress.committable()
}

#[tokio::test(start_paused = true)]
async fn rows_equal_the_last_events_despite_failed_requests_and_repeated_reading() {
    for seed in 0..10 {
        let store = Store::with(Config { seed, ..Config::default() }).await;
        let registers = Registers::new(&store.connection);
        let faults = [
            Injected::Throttle,
            Injected::DropReply,
            Injected::InternalError { applied: None },
            Injected::Ghost { max_delay_ms: 60_000, hang_ms: 0 },
        ];
        let operations = ["PartiQLInsert", "PartiQLUpdate", "BatchExecuteStatement"];
        let each = operations.map(|operation| faults.map(|fault| Rule::new(fault).on(operation).chance(0.05)));
        store.faults(each.into_iter().flatten());
        let committed = consume(&registers, 0, 15).await;
        assert!(committed < Offset(EVENTS), "a consumer stops in the middle");
        assert_eq!(consume(&registers, committed.0, 2_000).await, Offset(EVENTS), "{seed}");
        tokio::time::advance(Duration::from_secs(60)).await;
        let last: BTreeMap<_, _> = (0..EVENTS).map(event).map(|event| (event.row.member.to_string(), event)).collect();
        let rows = store.items(TABLE).await;
        assert_eq!(rows.len(), last.len());
        for row in rows {
            let event = &last[row["user_id"]["S"].as_str().unwrap()];
            let (version, is_tombstone) = (event.version.to_string(), event.change == Change::Remove);
            assert_eq!(
                (&row["v"]["N"], row.get("gone").is_some()),
                (&json!(version), is_tombstone),
                "{seed}: {event:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_like_costs_one_write_unit_and_replacing_a_row_two() {
    let store = Store::with(Config { key_write_units: Some(20), ..Config::default() }).await;
    let registers = Registers::new(&store.connection);
    for (offset, members, paid) in [(1, 25, 20), (2, 12, 8)] {
        tokio::time::advance(Duration::from_secs(2)).await;
        let writes: Vec<_> = (0..members).map(|n| like(&n.to_string(), offset)).collect();
        let mut stored = 0;
        for written in write_all(&registers, &writes, GONE, confirmed()).await {
            match written {
                Written::Stored => stored += 1,
                written => assert!(matches!(written, Written::Failed(Fault::Throttled(_))), "{written:?}"),
            }
        }
        assert_eq!(stored, paid, "twenty units: of the second ones, twelve find the rows that are there");
    }
}
