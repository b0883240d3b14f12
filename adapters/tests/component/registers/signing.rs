//! Each statement is signed with the time of the store's clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::HttpConnector as _;
use tally_adapters::dynamodb::registers::Registers;
use tally_adapters::dynamodb::{Connection, Settings};
use tally_core::time::UnixMillis;
use tally_core::topic::Partition;
use tally_testkit::{BEGAN, Store};

use super::{GONE, TABLE, confirmed, like, write_all};

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
