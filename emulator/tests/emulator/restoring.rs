//! Tests point-in-time recovery in the emulator: once it is enabled, a table can be restored to each earlier state
//! under another name.

use std::time::Duration;

use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use crate::raw::{call, items, kind, put as put_item, table};

async fn started() -> Emulator {
    let emulator = Emulator::new(Config::default());
    let mut request = table("rows", &[("p", "S"), ("s", "S")]);
    let names = ["p", "s", "pin"].map(|name| json!({"AttributeName": name, "AttributeType": "S"}));
    request["AttributeDefinitions"] = json!(names);
    let key = |name: &str, kind: &str| json!({"AttributeName": name, "KeyType": kind});
    request["LocalSecondaryIndexes"] = json!([{
        "IndexName": "pin", "KeySchema": [key("p", "HASH"), key("pin", "RANGE")], "Projection": {"ProjectionType": "KEYS_ONLY"},
    }]);
    call(&emulator, "CreateTable", request).await.unwrap();
    emulator
}

async fn recovery(emulator: &Emulator, is_on: bool) -> Value {
    let specification = json!({"PointInTimeRecoveryEnabled": is_on});
    let request = json!({"TableName": "rows", "PointInTimeRecoverySpecification": specification});
    let said = call(emulator, "UpdateContinuousBackups", request).await.unwrap();
    assert_eq!(call(emulator, "DescribeContinuousBackups", json!({"TableName": "rows"})).await.unwrap(), said);
    said["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"].clone()
}

async fn put(emulator: &Emulator, s: &str, n: u32) {
    let item = json!({"p": {"S": "a"}, "s": {"S": s}, "n": {"N": n.to_string()}});
    put_item(emulator, item).await.unwrap();
}

async fn delete(emulator: &Emulator, s: &str) {
    let key = json!({"p": {"S": "a"}, "s": {"S": s}});
    call(emulator, "DeleteItem", json!({"TableName": "rows", "Key": key})).await.unwrap();
}

async fn held(emulator: &Emulator, table: &str) -> Vec<(String, String)> {
    let pair =
        |item: &Value| (item["s"]["S"].as_str().unwrap().to_owned(), item["n"]["N"].as_str().unwrap().to_owned());
    items(emulator, table).await.iter().map(pair).collect()
}

async fn restore(emulator: &Emulator, to: &str, at_ms: u64) -> Result<Value, Value> {
    #[expect(clippy::cast_precision_loss, reason = "a time in milliseconds is below 2^53")]
    let seconds = at_ms as f64 / 1000.0;
    let request = json!({"SourceTableName": "rows", "TargetTableName": to, "RestoreDateTime": seconds});
    call(emulator, "RestoreTableToPointInTime", request).await
}

#[tokio::test(start_paused = true)]
async fn a_table_can_be_restored_to_each_earlier_state() {
    let emulator = started().await;
    put(&emulator, "before", 1).await;
    assert_eq!(recovery(&emulator, true).await, "ENABLED");
    let mut moments = Vec::new();
    for step in 0..6_u32 {
        emulator.advance_clock(Duration::from_secs(1));
        match step {
            0 => put(&emulator, "x", 1).await,
            1 => put(&emulator, "x", 2).await,
            2 => delete(&emulator, "before").await,
            3 => delete(&emulator, "x").await,
            4 => put(&emulator, "x", 5).await,
            _ => put(&emulator, "y", 6).await,
        }
        moments.push((emulator.stats().now_ms, held(&emulator, "rows").await));
    }
    for (nth, (at, then)) in moments.iter().enumerate() {
        let name = format!("then-{nth}");
        let described = restore(&emulator, &name, *at).await.unwrap();
        assert_eq!(held(&emulator, &name).await, *then, "{nth}");
        let table = &described["TableDescription"];
        assert_eq!(
            (&table["LatestStreamArn"], &table["LocalSecondaryIndexes"][0]["IndexName"]),
            (&Value::Null, &json!("pin"))
        );
    }
    assert_eq!(held(&emulator, "rows").await, moments[5].1, "the source stays as it is");
}

#[tokio::test(start_paused = true)]
async fn impossible_restores_are_refused_by_name() {
    let emulator = started().await;
    put(&emulator, "x", 1).await;
    let early = emulator.stats().now_ms;
    assert_eq!(kind(&restore(&emulator, "then", early).await.unwrap_err()), "PointInTimeRecoveryUnavailableException");
    emulator.advance_clock(Duration::from_secs(1));
    recovery(&emulator, true).await;
    let since = emulator.stats().now_ms;
    for at in [early, since + 5_000] {
        assert_eq!(kind(&restore(&emulator, "then", at).await.unwrap_err()), "InvalidRestoreTimeException");
    }
    assert_eq!(kind(&restore(&emulator, "rows", since).await.unwrap_err()), "TableAlreadyExistsException");
    restore(&emulator, "then", since).await.unwrap();
    assert_eq!(recovery(&emulator, false).await, "DISABLED");
    assert_eq!(kind(&restore(&emulator, "other", since).await.unwrap_err()), "PointInTimeRecoveryUnavailableException");
}
