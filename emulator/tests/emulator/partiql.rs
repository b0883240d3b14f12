//! PartiQL through the real SDK, in process: what statements do, what each of a batch answers, and what is refused.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementRequest, BatchStatementResponse, ReturnConsumedCapacity,
    ReturnValuesOnConditionCheckFailure,
};
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use crate::raw::{call, table as table_of};
use crate::reader;
use crate::sdk::client_config;

pub(crate) const INSERT: &str = r#"INSERT INTO "likes" VALUE {'pk': ?, 'user_id': ?, 'v': ?}"#;
pub(crate) const UPDATE: &str = r#"UPDATE "likes" SET v = ? WHERE pk = ? AND user_id = ? AND v < ?"#;
pub(crate) const DELETE: &str = r#"DELETE FROM "likes" WHERE pk = ? AND user_id = ?"#;
pub(crate) const SELECT: &str = r#"SELECT * FROM "likes" WHERE pk = ? AND user_id = ?"#;

/// An emulator with the tables `likes` and `counts`, and a client that does not repeat what failed.
pub(crate) async fn started(config: Config) -> (Emulator, Client) {
    let emulator = Emulator::new(config);
    let client = client_config().http_client(emulator.http_client());
    for table in ["likes", "counts"] {
        let keys = [("pk", "S"), ("user_id", "S")];
        call(&emulator, "CreateTable", table_of(table, &keys)).await.unwrap();
    }
    (emulator, Client::from_conf(client.build()))
}

pub(crate) fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

pub(crate) fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A like of `user` for the post `p` at this version.
pub(crate) fn insert(user: &str, v: u64) -> BatchStatementRequest {
    statement(INSERT, [text("p"), text(user), number(v)])
}

/// The same, where the one that is there is older.
pub(crate) fn update(user: &str, v: u64) -> BatchStatementRequest {
    statement(UPDATE, [number(v), text("p"), text(user), number(v)])
}

pub(crate) fn statement(text: &str, parameters: impl IntoIterator<Item = AttributeValue>) -> BatchStatementRequest {
    let parameters = Some(parameters.into_iter().collect::<Vec<_>>()).filter(|parameters| !parameters.is_empty());
    BatchStatementRequest::builder()
        .statement(text)
        .set_parameters(parameters)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .unwrap()
}

/// The outcomes of a batch, or the code of its refusal as a whole.
pub(crate) async fn batch(
    client: &Client,
    statements: impl IntoIterator<Item = BatchStatementRequest>,
) -> Result<Vec<BatchStatementResponse>, String> {
    let statements = Some(statements.into_iter().collect());
    let answer = client.batch_execute_statement().set_statements(statements).send().await;
    answer.map(|answer| answer.responses.unwrap()).map_err(|error| error.code().unwrap_or("lost").to_owned())
}

/// The code of each outcome; an empty text is a success.
pub(crate) fn codes(outcomes: &[BatchStatementResponse]) -> Vec<&str> {
    outcomes.iter().map(|outcome| outcome.error().map_or("", |error| error.code().unwrap().as_str())).collect()
}

/// The version of a like, now.
pub(crate) async fn version(emulator: &Emulator, user: &str) -> Option<String> {
    let key = json!({"pk": {"S": "p"}, "user_id": {"S": user}});
    let get = json!({"TableName": "likes", "Key": key, "ConsistentRead": true});
    Some(call(emulator, "GetItem", get).await.unwrap()["Item"]["v"]["N"].as_str()?.to_owned())
}

/// One statement by itself: the items it returns, or its refusal.
async fn execute(emulator: &Emulator, text: &str, parameters: Value) -> Result<Value, String> {
    let mut request = json!({"Statement": text, "ConsistentRead": true});
    if parameters != json!([]) {
        request["Parameters"] = parameters;
    }
    let answer = call(emulator, "ExecuteStatement", request).await;
    answer.map(|answer| answer["Items"].clone()).map_err(|refusal| {
        let kind = refusal["__type"].as_str().unwrap().rsplit('#').next().unwrap();
        format!("{kind}: {}", refusal["message"].as_str().unwrap())
    })
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_statement_does_what_its_operation_does() {
    let (_emulator, client) = started(Config::default()).await;
    let run = |text: &'static str, parameters: Vec<AttributeValue>| {
        let request = client.execute_statement().statement(text).set_parameters(Some(parameters)).consistent_read(true);
        async move { request.send().await.map(|answer| answer.items.unwrap_or_default()) }
    };
    let key = || vec![text("p"), text("u")];
    assert_eq!(run(SELECT, key()).await.unwrap(), []);
    assert_eq!(run(INSERT, vec![text("p"), text("u"), number(1)]).await.unwrap(), []);
    let twice = run(INSERT, vec![text("p"), text("u"), number(2)]).await.unwrap_err();
    assert_eq!(twice.code(), Some("DuplicateItemException"));
    assert_eq!(twice.message(), Some("Duplicate primary key exists in table"));
    let found = run(SELECT, key()).await.unwrap();
    assert_eq!((found.len(), &found[0]["v"]), (1, &number(1)));

    assert_eq!(run(UPDATE, vec![number(5), text("p"), text("u"), number(5)]).await.unwrap(), []);
    let older = run(UPDATE, vec![number(4), text("p"), text("u"), number(4)]).await.unwrap_err();
    assert_eq!(older.code(), Some("ConditionalCheckFailedException"));
    let counted =
        "UPDATE likes SET v = v + ? SET gone = ? REMOVE nothing WHERE pk = ? AND user_id = ? RETURNING ALL NEW *";
    let counted = run(counted, vec![number(2), number(9), text("p"), text("u")]).await.unwrap();
    assert_eq!((&counted[0]["v"], &counted[0]["gone"]), (&number(7), &number(9)));
    let modified = "UPDATE likes SET v = 8 REMOVE gone WHERE pk = ? AND user_id = ? RETURNING MODIFIED OLD *";
    let modified = run(modified, key()).await.unwrap();
    assert_eq!((modified[0].len(), &modified[0]["v"], &modified[0]["gone"]), (2, &number(7), &number(9)));

    let kept = "DELETE FROM likes WHERE pk = ? AND user_id = ? AND v = 1";
    assert_eq!(run(kept, key()).await.unwrap_err().code(), Some("ConditionalCheckFailedException"));
    let deleted = "DELETE FROM likes WHERE pk = ? AND user_id = ? RETURNING ALL OLD *";
    assert_eq!(run(deleted, key()).await.unwrap()[0]["v"], number(8));
    for absent in [deleted, kept] {
        assert_eq!(run(absent, key()).await.unwrap(), [], "what is not there is deleted, whatever the condition");
    }
    let absent = run("UPDATE likes SET v = 8 WHERE pk = ? AND user_id = ?", key()).await.unwrap_err();
    assert_eq!(absent.code(), Some("ConditionalCheckFailedException"), "an update makes no item");
    assert_eq!(run(SELECT, key()).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_select_names_keys_filters_and_parts() {
    let (emulator, _client) = started(Config::default()).await;
    for (user, v) in [("a", 1), ("b", 2), ("c", 3)] {
        let item = format!("INSERT INTO likes VALUE {{'pk': 'p', 'user_id': '{user}', 'v': {v}, 'm': {{'x': {v}}}}}");
        execute(&emulator, &item, json!([])).await.unwrap();
    }
    let select = async |text: &str| execute(&emulator, text, json!([])).await;
    let shown = select("SELECT v, m.x FROM likes WHERE pk = 'p' AND user_id = 'a'").await;
    assert_eq!(shown, Ok(json!([{"v": {"N": "1"}, "x": {"N": "1"}}])));
    let several = "SELECT v FROM likes WHERE pk = 'p' AND user_id IN ['c', 'a', 'c', 'none'] AND v > 0";
    assert_eq!(select(several).await, Ok(json!([{"v": {"N": "3"}}, {"v": {"N": "1"}}])));
    assert_eq!(select("SELECT * FROM likes WHERE pk = 'p' AND user_id = 'a' AND v = 2").await, Ok(json!([])));
    for scan in
        ["SELECT * FROM likes", "SELECT * FROM likes WHERE pk = 'p'", "SELECT * FROM likes WHERE pk = 'p' OR v = 1"]
    {
        assert!(select(scan).await.unwrap_err().contains("not supported by this emulator"), "{scan}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_statement_of_a_batch_has_an_outcome_at_its_place() {
    let (emulator, client) = started(Config::default()).await;
    let inserted = batch(&client, ["a", "b", "c"].map(|user| insert(user, 5))).await.unwrap();
    assert_eq!(codes(&inserted), ["", "", ""]);
    assert!(inserted.iter().all(|outcome| outcome.table_name() == Some("likes") && outcome.item().is_none()));
    let outcomes = batch(
        &client,
        [
            insert("a", 9),
            update("a", 4),
            update("b", 6),
            update("nobody", 6),
            statement(DELETE, [text("p"), text("c")]),
            statement(DELETE, [text("p"), text("none")]),
            statement(r#"INSERT INTO "nowhere" VALUE {'pk': 'p'}"#, []),
            statement(INSERT, [text("p")]),
            statement("UPDATE likes SET", []),
            statement(INSERT, [number(1), text("u"), number(1)]),
        ]
        .into_iter()
        .enumerate()
        // No two statements may be about one item.
        .filter_map(|(nth, statement)| (nth != 1).then_some(statement)),
    )
    .await
    .unwrap();
    assert_eq!(
        codes(&outcomes),
        [
            "DuplicateItem",
            "",
            "ConditionalCheckFailed",
            "",
            "",
            "ResourceNotFound",
            "ValidationError",
            "ValidationError",
            "ValidationError"
        ]
    );
    let messages: Vec<_> = outcomes.iter().map(|outcome| outcome.error().and_then(|error| error.message())).collect();
    assert_eq!(messages[0], Some("Duplicate primary key exists in table"));
    assert_eq!(messages[2], Some("The conditional request failed"));
    assert_eq!(messages[5], Some("Requested resource not found"));
    assert_eq!(messages[6], Some("Number of parameters in request and statement don't match."));
    assert_eq!(messages[8], Some("Key attribute's data type should match its data type in table's schema: Key pk"));
    assert_eq!(version(&emulator, "a").await.as_deref(), Some("5"));
    assert_eq!(version(&emulator, "b").await.as_deref(), Some("6"));
    assert_eq!(version(&emulator, "c").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_failed_condition_shows_the_item_it_failed_on_to_who_asks() {
    let (_emulator, client) = started(Config::default()).await;
    batch(&client, [insert("a", 5), insert("b", 5)]).await.unwrap();
    let mut silent = update("b", 4);
    silent.return_values_on_condition_check_failure = None;
    let outcomes = batch(&client, [update("a", 4), update("nobody", 4), silent]).await.unwrap();
    assert_eq!(codes(&outcomes), ["ConditionalCheckFailed"; 3]);
    let shown = |nth: usize| outcomes[nth].error().and_then(|error| error.item());
    assert_eq!(shown(0).unwrap()["v"], number(5));
    assert_eq!((shown(1), shown(2)), (None, None), "of a missing item there is nothing to show");
    let alone = client
        .execute_statement()
        .statement(UPDATE)
        .set_parameters(Some(vec![number(4), text("p"), text("a"), number(4)]))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    let refused = alone.send().await.unwrap_err().into_service_error();
    let aws_sdk_dynamodb::operation::execute_statement::ExecuteStatementError::ConditionalCheckFailedException(failed) =
        refused
    else {
        panic!("{refused}")
    };
    assert_eq!(failed.item().unwrap()["v"], number(5));
}

#[tokio::test(start_paused = true)]
async fn reads_of_a_batch_name_one_item_each() {
    let (_emulator, client) = started(Config::default()).await;
    batch(&client, [insert("a", 5)]).await.unwrap();
    let outcomes = batch(
        &client,
        [
            statement(SELECT, [text("p"), text("none")]),
            statement("SELECT v FROM likes WHERE user_id = ? AND pk = ?", [text("a"), text("p")]),
            statement("SELECT * FROM likes WHERE pk = ?", [text("p")]),
            statement("SELECT * FROM likes WHERE pk = ? AND user_id = ? AND v = 5", [text("p"), text("b")]),
        ]
        .map(|mut statement| {
            statement.consistent_read = Some(true);
            statement
        }),
    )
    .await
    .unwrap();
    assert_eq!(codes(&outcomes), ["", "", "ValidationError", "ValidationError"]);
    assert_eq!(outcomes[0].item(), None);
    assert_eq!(outcomes[1].item().unwrap(), &[("v".to_owned(), number(5))].into());
    let refused = "Select statements within BatchExecuteStatement must specify the primary key in the where clause.";
    assert_eq!(outcomes[2].error().unwrap().message(), Some(refused));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_breaks_a_rule_is_refused_as_a_whole_and_does_nothing() {
    let (emulator, client) = started(Config::default()).await;
    let many = |count: u64| (0..count).map(|n| insert(&n.to_string(), 1));
    let invalid = Err("ValidationException".to_owned());
    let refused = async |statements: Vec<BatchStatementRequest>| batch(&client, statements).await.map(|_| ());
    assert_eq!(refused(vec![]).await, invalid);
    assert_eq!(refused(many(26).collect()).await, invalid);
    assert_eq!(refused(vec![insert("a", 1), statement(SELECT, [text("p"), text("b")])]).await, invalid);
    assert_eq!(refused(vec![insert("a", 1), insert("b", 1), update("a", 2)]).await, invalid);
    let long = format!("{INSERT}{}", " ".repeat(8192));
    assert_eq!(refused(vec![insert("a", 1), statement(&long, [text("p"), text("b"), number(1)])]).await, invalid);
    assert_eq!(emulator.stats().tables["likes"].items, 0);
    assert_eq!(refused(many(25).collect()).await, Ok(()));
    let elsewhere = statement(r#"INSERT INTO "counts" VALUE {'pk': 'p', 'user_id': '0'}"#, []);
    assert_eq!(codes(&batch(&client, [update("0", 2), elsewhere]).await.unwrap()), ["", ""], "one key, two tables");
    for (request, message) in [
        (json!({"Statement": "", "Parameters": [{"S": "a"}]}), "'statement'"),
        (json!({"Statement": DELETE, "Parameters": []}), "'parameters'"),
        (json!({"Statement": DELETE, "NextToken": "x"}), "NextToken is not supported"),
        (json!({"Statement": DELETE, "Limit": 1}), "Limit is not supported"),
    ] {
        let refused = call(&emulator, "ExecuteStatement", request).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains(message), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_names_its_whole_key_and_leaves_it_alone() {
    let (emulator, _client) = started(Config::default()).await;
    execute(&emulator, INSERT, json!([{"S": "p"}, {"S": "u"}, {"N": "1"}])).await.unwrap();
    let no_key = "ValidationException: Where clause does not contain a mandatory equality on all key attributes";
    for (text, expected) in [
        ("UPDATE likes SET v = 2", no_key),
        ("UPDATE likes SET v = 2 WHERE pk = 'p'", no_key),
        ("DELETE FROM likes WHERE user_id = 'u' AND v = 1", no_key),
        ("DELETE FROM likes WHERE pk = 'p' AND user_id >= 'u'", no_key),
        ("DELETE FROM likes WHERE pk = 'p' OR user_id = 'u'", no_key),
        (
            "DELETE FROM likes WHERE pk = 'p' AND user_id = 'u' AND pk = 'q'",
            "ValidationException: Multiple conditions on same key pk. Only single item Update/Insert/Delete are supported",
        ),
        (
            "UPDATE likes SET pk = 'q' WHERE pk = 'p' AND user_id = 'u'",
            "ValidationException: One or more parameter values were invalid: Cannot update attribute pk. This attribute is part of the key",
        ),
        (
            "INSERT INTO likes VALUE {'pk': 'p'}",
            "ValidationException: Key attribute should be present in the item: Key user_id",
        ),
        (
            "UPDATE likes SET v = nothing + 1 WHERE pk = 'p' AND user_id = 'u'",
            "ValidationException: The provided expression refers to an attribute that does not exist in the item",
        ),
        ("DELETE FROM nowhere WHERE pk = 'p'", "ResourceNotFoundException: Requested resource not found"),
        (
            "DELETE FROM \"x\" WHERE pk = 'p'",
            "ValidationException: Table name should be within the length [3, 255] and only contain 'a-z', 'A-Z', '0-9', '-', '_', '.'.",
        ),
    ] {
        assert_eq!(execute(&emulator, text, json!([])).await, Err(expected.to_owned()), "{text}");
    }
    let nested = "DELETE FROM likes WHERE (pk = 'p' AND (user_id = 'u' AND v = 1)) AND pk = 'p' RETURNING ALL OLD *";
    assert_eq!(execute(&emulator, nested, json!([])).await.unwrap().as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_statement_that_changes_something_writes_one_record() {
    let (emulator, client) = started(Config::default()).await;
    batch(&client, [insert("a", 1), insert("b", 1)]).await.unwrap();
    batch(&client, [update("a", 2), update("b", 1), insert("c", 1)]).await.unwrap();
    let same = statement("UPDATE likes SET v = 2 WHERE pk = ? AND user_id = ?", [text("p"), text("a")]);
    batch(&client, [same, statement(DELETE, [text("p"), text("b")]), insert("c", 2)]).await.unwrap();
    let arn = reader::stream_arn(&emulator, "likes").await;
    let records = reader::everything(&emulator, &arn, 1000).await.into_iter().flat_map(|(_, records)| records);
    let mut seen: Vec<(u128, String)> = records
        .map(|record| {
            let change = &record["dynamodb"];
            let shown = |image: &str| change[image]["v"]["N"].as_str().unwrap_or("-").to_owned();
            let user = change["Keys"]["user_id"]["S"].as_str().unwrap();
            let name = record["eventName"].as_str().unwrap();
            let change_of = format!("{name} {user} {} {}", shown("OldImage"), shown("NewImage"));
            (change["SequenceNumber"].as_str().unwrap().parse().unwrap(), change_of)
        })
        .collect();
    seen.sort_unstable();
    let seen: Vec<&str> = seen.iter().map(|(_, change)| change.as_str()).collect();
    assert_eq!(seen, ["INSERT a - 1", "INSERT b - 1", "MODIFY a 1 2", "INSERT c - 1", "REMOVE b 1 -"]);
}

#[tokio::test(start_paused = true)]
async fn a_statement_costs_what_its_operation_costs_also_when_it_does_nothing() {
    let (_emulator, client) = started(Config::default()).await;
    let units = async |statements: Vec<BatchStatementRequest>| {
        let request = client.batch_execute_statement().set_statements(Some(statements));
        let answer = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await.unwrap();
        let consumed = answer.consumed_capacity.unwrap();
        consumed
            .iter()
            .map(|table| (table.table_name().unwrap().to_owned(), table.capacity_units().unwrap()))
            .collect::<Vec<_>>()
    };
    let likes = |units: f64| -> Vec<(String, f64)> { vec![("likes".to_owned(), units)] };
    assert_eq!(units(vec![insert("a", 1), insert("b", 1)]).await, likes(2.0));
    assert_eq!(units(vec![insert("a", 1), update("b", 0), update("none", 1)]).await, likes(3.0));
    let large = statement("UPDATE likes SET s = ? WHERE pk = 'p' AND user_id = 'a'", [text(&"x".repeat(3000))]);
    assert_eq!(units(vec![large]).await, likes(3.0));
    assert_eq!(units(vec![update("a", 1)]).await, likes(3.0), "a failed condition costs what the item as it is would");
    assert_eq!(units(vec![statement(SELECT, [text("p"), text("b")])]).await, likes(0.5));
    let both = vec![update("b", 2), statement("INSERT INTO counts VALUE {'pk': 'p', 'user_id': 'u'}", [])];
    assert_eq!(units(both).await, [("counts".to_owned(), 1.0), ("likes".to_owned(), 1.0)]);
    let refused = vec![statement("DELETE FROM nowhere WHERE pk = 'p'", []), statement("DELETE", [])];
    assert_eq!(units(refused).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_throttles_its_own_statements_alone() {
    let (emulator, client) = started(Config { key_write_units: Some(10), ..Config::default() }).await;
    let outcomes = batch(&client, (0..12).map(|n| insert(&n.to_string(), 1))).await.unwrap();
    assert_eq!(codes(&outcomes)[9..], ["", "ThrottlingError", "ThrottlingError"]);
    let cold = statement(INSERT, [text("cold"), text("u"), number(1)]);
    assert_eq!(codes(&batch(&client, [insert("x", 1), cold]).await.unwrap()), ["ThrottlingError", ""]);
    tokio::time::advance(Duration::from_secs(1)).await;
    for _ in 0..10 {
        assert_eq!(codes(&batch(&client, [update("0", 0)]).await.unwrap()), ["ConditionalCheckFailed"]);
    }
    assert_eq!(codes(&batch(&client, [update("0", 9)]).await.unwrap()), ["ThrottlingError"]);
    assert_eq!(emulator.stats().tables["likes"].items, 11);
}
