//! Measures a statement of BatchExecuteStatement: in process, from the bytes of a request to the bytes of its answer; and on
//! the client's side, in the plain SDK over loopback.

use aws_sdk_dynamodb::types::{AttributeValue, BatchStatementRequest};
use bytes::Bytes;
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use super::figures::{Processor, median};
use super::{Clients, TABLE, all, create, raw, serve};

const BATCHES: usize = 2000;
const STATEMENTS: usize = 25;
const ROUNDS: usize = 5;

const INSERT: &str =
    r#"INSERT INTO "likes" VALUE {'pk': ?, 'user_id': ?, 'post_id': ?, 'liked_at': ?, 'v': ?, 'region': ?}"#;
const UPDATE: &str =
    r#"UPDATE "likes" SET "liked_at" = ? SET "v" = ? REMOVE "gone" WHERE "pk" = ? AND "user_id" = ? AND "v" < ?"#;

/// Prints the median processor time per statement over some rounds, each with its own emulator.
pub(super) async fn measure() {
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let emulator = Emulator::new(Config::default());
        create(&emulator).await;
        rounds[0].push(micros(&emulator, |n| insert(n, 1), false).await);
        rounds[1].push(micros(&emulator, |n| update(n, 2), false).await);
        rounds[2].push(micros(&emulator, |n| update(n, 2), true).await);
        assert_eq!(emulator.stats().tables[TABLE].items, BATCHES * STATEMENTS);
    }
    println!("BatchExecuteStatement in process, {STATEMENTS} statements each; medians of {ROUNDS} rounds");
    let names = ["INSERT of a new key", "UPDATE whose condition holds", "UPDATE whose condition is false"];
    for (name, micros) in names.into_iter().zip(rounds) {
        println!("{name:<40} {:>12.2} microseconds a statement", median(micros));
    }
    let mut sdk = Vec::new();
    for _ in 0..ROUNDS {
        sdk.push(sdk_micros().await);
    }
    println!("{:<40} {:>12.2} microseconds a statement", "the SDK that sends an INSERT", median(sdk));
}

/// The processor time of this thread per statement, from values to values; the server has its own thread.
async fn sdk_micros() -> f64 {
    let emulators = [Emulator::new(Config::default()), Emulator::new(Config::default())];
    create(&emulators[0]).await;
    let ([address, _], _) = serve(emulators);
    let client = Clients::new(&format!("http://{address}")).tables;
    let processor = Processor::of_this_thread();
    let began = processor.used();
    let sent = all((0..BATCHES).collect(), |nth| {
        let statements = (0..STATEMENTS).map(|at| sdk_insert(nth * STATEMENTS + at)).collect();
        let request = client.batch_execute_statement().set_statements(Some(statements));
        async move {
            let answer = request.send().await.expect("no faults are set");
            answer.responses().iter().filter(|response| response.error().is_none()).count()
        }
    });
    assert_eq!(sent.await, BATCHES * STATEMENTS);
    a_statement(processor.used() - began)
}

fn sdk_insert(n: usize) -> BatchStatementRequest {
    let text = |value: String| AttributeValue::S(value);
    let number = |value: String| AttributeValue::N(value);
    BatchStatementRequest::builder()
        .statement(INSERT)
        .parameters(text(format!("post-{}#{}", n % 1000, n % 64)))
        .parameters(text(format!("user-{n:08}")))
        .parameters(text("post".to_owned()))
        .parameters(number("1700000000000".to_owned()))
        .parameters(number("1".to_owned()))
        .parameters(text("eu".to_owned()))
        .build()
        .expect("a statement has a text")
}

/// Microseconds per statement of all batches.
fn a_statement(used: std::time::Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^53")]
    let count = (BATCHES * STATEMENTS) as f64;
    used.as_secs_f64() * 1e6 / count
}

fn insert(n: usize, v: usize) -> Value {
    let (pk, user) = row(n);
    let post = json!({"S": "post"});
    let parameters = [pk, user, post, json!({"N": "1700000000000"}), json!({"N": v.to_string()}), json!({"S": "eu"})];
    json!({"Statement": INSERT, "Parameters": parameters, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"})
}

fn update(n: usize, v: usize) -> Value {
    let (pk, user) = row(n);
    let v = json!({"N": v.to_string()});
    let parameters = [json!({"N": "1700000000001"}), v.clone(), pk, user, v];
    json!({"Statement": UPDATE, "Parameters": parameters, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"})
}

fn row(n: usize) -> (Value, Value) {
    (json!({"S": format!("post-{}#{}", n % 1000, n % 64)}), json!({"S": format!("user-{n:08}")}))
}

/// Carries out every batch, and returns this thread's processor time per statement.
async fn micros(emulator: &Emulator, statement: impl Fn(usize) -> Value, fails: bool) -> f64 {
    let batch = |nth: usize| {
        let statements: Vec<Value> = (0..STATEMENTS).map(|at| statement(nth * STATEMENTS + at)).collect();
        Bytes::from(json!({"Statements": statements}).to_string())
    };
    let bodies: Vec<Bytes> = (0..BATCHES).map(batch).collect();
    let processor = Processor::of_this_thread();
    let began = processor.used();
    for body in bodies {
        let answer = raw(emulator, "BatchExecuteStatement", body).await;
        assert_eq!(answer.windows(7).any(|window| window == b"\"Error\""), fails, "{answer:?}");
    }
    a_statement(processor.used() - began)
}
