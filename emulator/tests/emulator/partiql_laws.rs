//! Tests that random PartiQL statements have the same effect on the table and the stream as the same writes by PutItem,
//! UpdateItem and DeleteItem.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use crate::laws::create;
use crate::raw::{call, items};
use crate::reader;

async fn started(seed: u64) -> Emulator {
    let epoch = Some(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let emulator = Emulator::new(Config { seed, epoch, ..Config::default() });
    create(&emulator).await;
    emulator
}

/// One write: as a statement with its parameters, and as the corresponding operation.
struct Write {
    statement: String,
    parameters: Vec<Value>,
    operation: &'static str,
    request: Value,
}

/// Conditions in both languages, with the value `:c`.
const CONDITIONS: [(&str, &str); 6] = [
    ("v < ?", "v < :c"),
    ("v <> ? OR w IS MISSING", "v <> :c OR attribute_not_exists(w)"),
    ("NOT (v >= ? AND w IS NOT MISSING)", "NOT (v >= :c AND attribute_exists(w))"),
    ("m.x = ?", "m.x = :c"),
    ("size(i) > ?", "size(i) > :c"),
    ("attribute_type(v, 'N') AND v IN [?, 1]", "attribute_type(v, :n) AND v IN (:c, :one)"),
];

/// Changes in both languages, with the value `:x`.
const CHANGES: [(&str, &str); 7] = [
    ("SET v = ?", "SET v = :x"),
    ("SET v = v + ? SET w = v", "SET v = v + :x, w = v"),
    ("SET m = {'x': ?}", "SET m = :m"),
    ("SET m.x = ? REMOVE w", "SET m.x = :x REMOVE w"),
    ("REMOVE w, m SET i = 'k' SET v = ?", "SET i = :k, v = :x REMOVE w, m"),
    ("SET l = list_append(l, [?])", "SET l = list_append(l, :l)"),
    ("SET l = [?, 'a'], v = v - 1", "SET l = :la, v = v - :one"),
];

fn number(rng: &mut StdRng) -> Value {
    json!({"N": rng.random_range(0..4).to_string()})
}

fn values(text: &str, x: &Value, c: &Value) -> Value {
    let all = json!({
        ":x": x, ":c": c, ":n": {"S": "N"}, ":one": {"N": "1"}, ":k": {"S": "k"}, ":m": {"M": {"x": x}}, ":l": {"L": [x]},
        ":la": {"L": [x, {"S": "a"}]},
    });
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != ':').collect();
    let used = all.as_object().unwrap().iter().filter(|(key, _)| words.contains(&key.as_str()));
    used.map(|(key, value)| (key.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into()
}

fn write(rng: &mut StdRng) -> Write {
    let (p, s) = (json!({"S": format!("p{}", rng.random_range(0..3))}), number(rng));
    let (x, c) = (number(rng), number(rng));
    let condition = rng.random_bool(0.6).then(|| CONDITIONS[rng.random_range(0..CONDITIONS.len())]);
    let with = |text: &str| condition.map_or_else(|| text.to_owned(), |(ours, _)| format!("{text} AND ({ours})"));
    let mut request = json!({"TableName": "rows", "Key": {"p": p, "s": s}});
    let mut parameters = Vec::new();
    let (statement, operation) = match rng.random_range(0..5) {
        0 | 1 => {
            request = json!({
                "TableName": "rows", "ConditionExpression": "attribute_not_exists(p)",
                "Item": {"p": p, "s": s, "v": x, "i": {"S": "ab"}, "w": {"BOOL": true}},
            });
            parameters.extend([p, s, x]);
            ("INSERT INTO \"rows\" VALUE {'p': ?, 's': ?, 'v': ?, 'i': 'ab', 'w': true}".to_owned(), "PutItem")
        }
        2 => {
            let theirs = condition.map(|(_, theirs)| format!("attribute_not_exists(p) OR {theirs}"));
            if let Some(theirs) = theirs {
                request["ExpressionAttributeValues"] = values(&theirs, &x, &c);
                request["ConditionExpression"] = json!(theirs);
            }
            parameters.extend([p, s]);
            (with("DELETE FROM \"rows\" WHERE p = ? AND s = ?"), "DeleteItem")
        }
        _ => {
            let (ours, theirs) = CHANGES[rng.random_range(0..CHANGES.len())];
            let holds = condition.map_or_else(String::new, |(_, theirs)| format!(" AND ({theirs})"));
            let holds = format!("attribute_exists(p){holds}");
            request["ExpressionAttributeValues"] = values(&format!("{theirs} {holds}"), &x, &c);
            request["UpdateExpression"] = json!(theirs);
            request["ConditionExpression"] = json!(holds);
            parameters.extend([x, p, s]);
            (with(&format!("UPDATE \"rows\" {ours} WHERE p = ? AND s = ?")), "UpdateItem")
        }
    };
    if condition.is_some() && operation != "PutItem" {
        parameters.push(c);
    }
    Write { statement, parameters, operation, request }
}

/// The exception of an error. The one of an insert is translated into that of a put with a condition.
fn refused(outcome: Result<Value, Value>) -> Option<String> {
    let kind = outcome.err()?["__type"].as_str()?.rsplit('#').next()?.to_owned();
    Some(if kind == "DuplicateItemException" { "ConditionalCheckFailedException".to_owned() } else { kind })
}

#[tokio::test(start_paused = true)]
async fn statements_have_the_same_effect_as_the_same_operations() {
    let mut outcomes: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for seed in 0..40 {
        let (mut rng, single, plain, batched) =
            (StdRng::seed_from_u64(seed), started(seed).await, started(seed).await, started(seed).await);
        for _ in 0..80 {
            let Write { statement, parameters, operation, request } = write(&mut rng);
            let alone = json!({"Statement": statement, "Parameters": parameters});
            let batch = json!({"Statements": [alone]});
            let expected = refused(call(&plain, operation, request.clone()).await);
            let found = refused(call(&single, "ExecuteStatement", alone).await);
            assert_eq!(found, expected, "{statement} {parameters:?} {request}");
            let answer = call(&batched, "BatchExecuteStatement", batch).await.unwrap();
            let code = answer["Responses"][0]["Error"]["Code"].as_str();
            assert_eq!(code.is_some(), expected.is_some(), "{statement}: {answer}");
            *outcomes.entry((operation, expected.is_none())).or_default() += 1;
        }
        let expected = items(&plain, "rows").await;
        assert_eq!(items(&single, "rows").await, expected, "seed {seed}");
        assert_eq!(items(&batched, "rows").await, expected, "seed {seed}");
        let arn = reader::stream_arn(&plain, "rows").await;
        let expected = reader::everything(&plain, &arn, 1000).await;
        for other in [&single, &batched] {
            let arn = reader::stream_arn(other, "rows").await;
            assert_eq!(reader::everything(other, &arn, 1000).await, expected, "seed {seed}");
        }
    }
    assert!(outcomes.len() == 6 && outcomes.values().all(|times| *times > 50), "{outcomes:?}");
}
