//! What recounts leave behind, and for how long: an operator who runs one every few minutes must not pay for it for ever.

use std::time::Duration;

use tally_core::ids::RowKey;
use tally_core::ports::{Judged, LedgerEntry};
use tally_core::window::{Form, Report, Verdict, WindowRun};

use crate::counts::{entry, touch, update};
use crate::engine::{BEGAN, Env, in_process};
use crate::likes::post;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn reports_and_verdicts_of_nothing_are_deleted_and_corrections_stay() {
    let (_emulator, connection) = in_process();
    let env = Env::dynamodb(&connection).await;
    let key: RowKey = "p#2".parse().unwrap();
    let (counts, recounts) = (&*env.counts, &*env.recounts);

    let report = Report { key: key.clone(), run: 9.into(), touched: tally_core::Map::default() };
    recounts.put_report(&report, BEGAN).await.unwrap();
    let judged = async |moment, run: WindowRun, correction| {
        let window = tally_core::counter::Touch { window: Some(run), ..touch(2, 0) };
        counts.apply(&post("p"), &update(1, moment, moment, vec![window])).await.unwrap();
        let entry = LedgerEntry { before: 7, after: 7 + correction, ..entry(&post("p"), run, BEGAN.0 + moment) };
        let verdict = Verdict { key: key.clone(), run, correction, form: Form::Plain };
        assert_eq!(counts.judge(&verdict, &entry).await, Ok(Judged::Stands));
        entry
    };
    let correction = judged(1, 1.into(), -2).await;
    let nothing = judged(2, 2.into(), 0).await;

    let ledger = async || recounts.ledger(&post("p"), 9).await.unwrap();
    tokio::time::sleep(HOUR / 2).await;
    assert_eq!(recounts.report(&key, 9.into()).await, Ok(Some(report)));
    assert_eq!(ledger().await, [nothing, correction.clone()]);
    tokio::time::sleep(HOUR).await;
    assert_eq!(recounts.report(&key, 9.into()).await, Ok(None));
    assert_eq!(ledger().await, [correction]);
}
