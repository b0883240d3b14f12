//! Tests that a write of `likes` is not sent too late: only for a while after the consumer's claim to its Kafka
//! partition was confirmed, and each is signed with the time of the store's clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::HttpConnector as _;
use tally_adapters::dynamodb::claims::Confirmed;
use tally_adapters::dynamodb::registers::{CellUpdate, Registers};
use tally_adapters::dynamodb::{Connection, Settings};
use tally_core::fault::Fault;
use tally_core::register::{Answer, Cell};
use tally_core::time::UnixMillis;
use tally_core::topic::Partition;
use tally_testkit::{BEGAN, Store};

use super::{GONE, TABLE, confirmed, like, start, version, write_all};

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_confirmation_expires() {
    let (store, registers) = start().await;
    let old = confirmed();
    tokio::time::advance(Confirmed::GOOD_FOR).await;
    assert_eq!(write_all(&registers, &[like("u", 1)], GONE, old).await, [Ok(Answer::Stored)]);
    tokio::time::advance(Duration::from_millis(1)).await;
    let requests = store.requests("BatchExecuteStatement");
    let written = write_all(&registers, &[like("u", 2), like("w", 2)], GONE, old).await;
    for written in &written {
        assert!(matches!(written, Err(Fault::Transient(why)) if why.contains("not confirmed")), "{written:?}");
    }
    assert_eq!(written.len(), 2);
    let cell = CellUpdate { key: "p#+views.0".parse().unwrap(), from: None, to: Cell { n: 1, to: version(2) } };
    let partition = Partition { topic: "likes".into(), index: 0 };
    let advanced = registers.advance_cells(&partition, std::slice::from_ref(&cell), old).await;
    assert!(format!("{advanced:?}").contains("not confirmed"), "{advanced:?}");
    assert_eq!(store.requests("BatchExecuteStatement"), requests);
    assert_eq!(write_all(&registers, &[like("w", 2)], GONE, confirmed()).await, [Ok(Answer::Stored)]);
}

#[tokio::test(start_paused = true)]
async fn statements_are_signed_by_the_stores_clock_each_time_anew() {
    for off in [-600_000, 0, 600_000] {
        let store = Store::start().await;
        let dates = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::clone(&dates);
        let machine = store.emulator.http_client_through(move |request, emulator| {
            if request.headers().get("x-amz-target").is_some_and(|target| target.ends_with("Statement")) {
                let date = request.headers().get("x-amz-date").expect("a signature has a date");
                sent.lock().unwrap().push(date.to_owned());
            }
            emulator.call(request)
        });
        let settings = Settings { attempts: 1, ..Settings::local("") };
        let now = UnixMillis(BEGAN.0.checked_add_signed(off).unwrap());
        let registers = Registers::new(&Connection::in_process(&settings, machine, now));
        // The first answer shows the store's time.
        let partition = Partition { topic: "likes".into(), index: 0 };
        registers.read_cells(&partition, &["p#+views.0".parse().unwrap()]).await.unwrap();
        for (offset, seconds) in [(1, 5), (2, 50)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            write_all(&registers, &[like(&offset.to_string(), offset)], GONE, confirmed()).await;
        }
        assert_eq!(*dates.lock().unwrap(), ["20231114T221325Z", "20231114T221415Z"], "{off}");
        assert_eq!(store.items(TABLE).await.len(), 2);
    }
}
