//! Tests that the emulator's answers take as long as configured: one latency for transactions, one for batches, and one
//! for all other requests.

use serde_json::json;
use tally_emulator::Config;
use tokio::time::Instant;

use crate::raw::{call, with_rows};

#[tokio::test(start_paused = true)]
async fn every_answer_takes_the_configured_time() {
    let config = Config {
        transaction_latency: "20ms..40ms".parse().ok(),
        batch_latency: "9ms..18ms".parse().ok(),
        latency: "3ms..8ms".parse().ok(),
        ..Config::default()
    };
    let emulator = with_rows(config, &[("p", "S")]).await;
    let item = json!({"p": {"S": "a"}});
    let put = json!({"TableName": "rows", "Item": item});
    let transaction = json!({"TransactItems": [{"Put": put}]});
    let keys = json!({"RequestItems": {"rows": {"Keys": [item]}}});
    let statements = json!({"Statements": [{"Statement": "SELECT * FROM \"rows\" WHERE p = 'a'"}]});
    let reads = json!({"TransactItems": [{"Get": {"TableName": "rows", "Key": item}}]});
    for (operation, request, least, most) in [
        ("PutItem", &put, 3, 8),
        ("BatchGetItem", &keys, 9, 18),
        ("TransactWriteItems", &transaction, 20, 40),
        ("BatchExecuteStatement", &statements, 9, 18),
        ("TransactGetItems", &reads, 20, 40),
    ] {
        let mut took = Vec::new();
        for _ in 0..200 {
            let asked = Instant::now();
            call(&emulator, operation, request.clone()).await.unwrap();
            took.push(asked.elapsed().as_millis());
        }
        took.sort_unstable();
        assert_eq!((took[0], took[took.len() - 1]), (least, most), "{operation}");
    }
}
