//! Tests PartiQL requests to the emulator: the effects of statements, the outcomes of batches, and errors.

use std::time::Duration;

use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use crate::raw::{call, invalid, kind, table as table_of};

pub(crate) const INSERT: &str = r#"INSERT INTO "likes" VALUE {'pk': ?, 'user_id': ?, 'v': ?}"#;
pub(crate) const UPDATE: &str = r#"UPDATE "likes" SET v = ? WHERE pk = ? AND user_id = ? AND v < ?"#;
pub(crate) const DELETE: &str = r#"DELETE FROM "likes" WHERE pk = ? AND user_id = ?"#;
pub(crate) const SELECT: &str = r#"SELECT * FROM "likes" WHERE pk = ? AND user_id = ?"#;

/// An emulator with the tables `likes` and `counts`.
pub(crate) async fn started(config: Config) -> Emulator {
    let emulator = Emulator::new(config);
    for table in ["likes", "counts"] {
        let keys = [("pk", "S"), ("user_id", "S")];
        call(&emulator, "CreateTable", table_of(table, &keys)).await.unwrap();
    }
    emulator
}

fn text(value: &str) -> Value {
    json!({"S": value})
}

fn number(value: u64) -> Value {
    json!({"N": value.to_string()})
}

/// Inserts a like of `user` for the post `p` with this version.
pub(crate) fn insert(user: &str, v: u64) -> Value {
    statement(INSERT, json!([text("p"), text(user), number(v)]))
}

/// Updates the like if the stored version is older.
pub(crate) fn update(user: &str, v: u64) -> Value {
    statement(UPDATE, json!([number(v), text("p"), text(user), number(v)]))
}

/// A statement that returns the item if its condition fails.
pub(crate) fn statement(text: &str, parameters: Value) -> Value {
    let mut statement =
        json!({"Statement": text, "ConsistentRead": true, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"});
    if parameters != json!([]) {
        statement["Parameters"] = parameters;
    }
    statement
}

/// The outcomes of a batch, or the kind of its error as a whole.
pub(crate) async fn batch(
    emulator: &Emulator,
    statements: impl IntoIterator<Item = Value>,
) -> Result<Vec<Value>, String> {
    let request = json!({"Statements": statements.into_iter().collect::<Vec<_>>()});
    let answer = call(emulator, "BatchExecuteStatement", request).await;
    answer.map(|answer| answer["Responses"].as_array().unwrap().clone()).map_err(|refused| kind(&refused).to_owned())
}

/// The code of each outcome; empty for a success.
pub(crate) fn codes(outcomes: &[Value]) -> Vec<&str> {
    outcomes.iter().map(|outcome| outcome["Error"]["Code"].as_str().unwrap_or_default()).collect()
}

/// The current version of a like.
pub(crate) async fn version(emulator: &Emulator, user: &str) -> Option<String> {
    let key = json!({"pk": {"S": "p"}, "user_id": {"S": user}});
    let get = json!({"TableName": "likes", "Key": key, "ConsistentRead": true});
    Some(call(emulator, "GetItem", get).await.unwrap()["Item"]["v"]["N"].as_str()?.to_owned())
}

/// Executes a single statement, and returns its items or its error.
pub(crate) async fn execute(emulator: &Emulator, text: &str, parameters: Value) -> Result<Value, String> {
    let answer = call(emulator, "ExecuteStatement", statement(text, parameters)).await;
    answer
        .map(|answer| answer["Items"].clone())
        .map_err(|refusal| format!("{}: {}", kind(&refusal), refusal["message"].as_str().unwrap()))
}

/// The effects of statements are compared with those of the other operations in `partiql_laws`.
#[tokio::test(start_paused = true)]
async fn a_select_has_a_key_filters_and_parts() {
    let emulator = started(Config::default()).await;
    for (user, v) in [("a", 1), ("b", 2), ("c", 3)] {
        let item =
            format!("INSERT INTO likes VALUE {{'pk': 'p', 'user_id': '{user}', 'v': {v}, 'm': {{'x': [0, {v}]}}}}");
        execute(&emulator, &item, json!([])).await.unwrap();
    }
    let select = async |text: &str| execute(&emulator, text, json!([])).await;
    let shown = select("SELECT v, m.x[1], nothing FROM likes WHERE pk = 'p' AND user_id = 'a'").await;
    assert_eq!(shown, Ok(json!([{"v": {"N": "1"}, "x[1]": {"N": "1"}}])));
    assert_eq!(select("SELECT * FROM likes WHERE pk = 'p' AND user_id = 'a' AND v = 2").await, Ok(json!([])));
    for scan in [
        "SELECT * FROM likes",
        "SELECT * FROM likes WHERE pk = 'p'",
        "SELECT * FROM likes WHERE pk = 'p' OR v = 1",
        "SELECT * FROM likes WHERE pk = 'p' AND user_id IN ['a', 'b']",
    ] {
        assert!(select(scan).await.unwrap_err().contains("not supported by this emulator"), "{scan}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_statement_of_a_batch_has_an_outcome_at_its_position() {
    let emulator = started(Config::default()).await;
    let inserted = batch(&emulator, ["a", "b", "c"].map(|user| insert(user, 5))).await.unwrap();
    assert_eq!(inserted, vec![json!({"TableName": "likes"}); 3]);
    let statements = [
        insert("a", 9),
        update("b", 6),
        update("nobody", 6),
        statement(DELETE, json!([text("p"), text("c")])),
        statement(DELETE, json!([text("p"), text("none")])),
        statement(r#"INSERT INTO "nowhere" VALUE {'pk': 'p'}"#, json!([])),
        statement(INSERT, json!([text("p")])),
        statement("UPDATE likes SET", json!([])),
        statement(INSERT, json!([number(1), text("u"), number(1)])),
    ];
    let outcomes = batch(&emulator, statements).await.unwrap();
    let (failed, invalid) = ("ConditionalCheckFailed", "ValidationError");
    let expected = ["DuplicateItem", "", failed, "", "", "ResourceNotFound", invalid, invalid, invalid];
    assert_eq!(codes(&outcomes), expected);
    for (nth, message) in [
        (0, "Duplicate primary key exists in table"),
        (2, "The conditional request failed"),
        (5, "Requested resource not found"),
        (6, "Number of parameters in request and statement don't match."),
        (8, "Key attribute's data type should match its data type in table's schema: Key pk"),
    ] {
        assert_eq!(outcomes[nth]["Error"]["Message"], message);
    }
    for (user, v) in [("a", Some("5")), ("b", Some("6")), ("c", None)] {
        assert_eq!(version(&emulator, user).await.as_deref(), v);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_condition_returns_the_item_if_asked_to() {
    let emulator = started(Config::default()).await;
    batch(&emulator, [insert("a", 5), insert("b", 5)]).await.unwrap();
    let mut silent = update("b", 4);
    silent["ReturnValuesOnConditionCheckFailure"] = json!("NONE");
    let outcomes = batch(&emulator, [update("a", 4), update("nobody", 4), silent]).await.unwrap();
    assert_eq!(codes(&outcomes), ["ConditionalCheckFailed"; 3]);
    let shown = |nth: usize| &outcomes[nth]["Error"]["Item"];
    assert_eq!(shown(0)["v"], number(5));
    assert!(shown(1).is_null() && shown(2).is_null(), "of a missing item there is nothing to show");
    let alone = call(&emulator, "ExecuteStatement", update("a", 4)).await.unwrap_err();
    assert_eq!((kind(&alone), &alone["Item"]["v"]), ("ConditionalCheckFailedException", &number(5)));
}

#[tokio::test(start_paused = true)]
async fn each_read_of_a_batch_names_one_item() {
    let emulator = started(Config::default()).await;
    batch(&emulator, [insert("a", 5)]).await.unwrap();
    let statements = [
        statement(SELECT, json!([text("p"), text("none")])),
        statement("SELECT v FROM likes WHERE user_id = ? AND pk = ?", json!([text("a"), text("p")])),
        statement("SELECT * FROM likes WHERE pk = ?", json!([text("p")])),
        statement("SELECT * FROM likes WHERE pk = ? AND user_id = ? AND v = 5", json!([text("p"), text("b")])),
    ];
    let outcomes = batch(&emulator, statements).await.unwrap();
    assert_eq!(codes(&outcomes), ["", "", "ValidationError", "ValidationError"]);
    assert_eq!((outcomes[0].get("Item"), outcomes[1].get("Item")), (None, Some(&json!({"v": number(5)}))));
    let refused = "Select statements within BatchExecuteStatement must specify the primary key in the where clause.";
    assert_eq!(outcomes[2]["Error"]["Message"], refused);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_batch_is_refused_as_a_whole_and_does_nothing() {
    let emulator = started(Config::default()).await;
    let many = |count: u64| (0..count).map(|n| insert(&n.to_string(), 1)).collect::<Vec<_>>();
    let long = format!("{INSERT}{}", " ".repeat(8192));
    for statements in [
        vec![],
        many(26),
        vec![insert("a", 1), statement(SELECT, json!([text("p"), text("b")]))],
        vec![insert("a", 1), insert("b", 1), update("a", 2)],
        vec![insert("a", 1), statement(&long, json!([text("p"), text("b"), number(1)]))],
    ] {
        assert_eq!(batch(&emulator, statements).await, Err("ValidationException".to_owned()));
    }
    assert_eq!(emulator.stats().tables["likes"].items, 0);
    batch(&emulator, many(25)).await.unwrap();
    let elsewhere = statement(r#"INSERT INTO "counts" VALUE {'pk': 'p', 'user_id': '0'}"#, json!([]));
    assert_eq!(codes(&batch(&emulator, [update("0", 2), elsewhere]).await.unwrap()), ["", ""], "one key, two tables");
    for (request, message) in [
        (json!({"Statement": "", "Parameters": [{"S": "a"}]}), "'statement'"),
        (json!({"Statement": DELETE, "Parameters": []}), "'parameters'"),
        (json!({"Statement": DELETE, "NextToken": "x"}), "NextToken is not supported"),
        (json!({"Statement": DELETE, "Limit": 1}), "Limit is not supported"),
    ] {
        invalid(&emulator, "ExecuteStatement", request, message).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_names_its_whole_key_and_cannot_change_it() {
    let emulator = started(Config::default()).await;
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
    let nested = "DELETE FROM likes WHERE (pk = 'p' AND (user_id = 'u' AND v = 1)) AND pk = 'p'";
    for _ in 0..2 {
        assert_eq!(execute(&emulator, nested, json!([])).await, Ok(json!([])), "what is not there is deleted");
        assert_eq!(version(&emulator, "u").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_statement_costs_the_same_as_its_operation_even_without_an_effect() {
    let emulator = started(Config::default()).await;
    let units = async |statements: Vec<Value>| {
        let request = json!({"Statements": statements, "ReturnConsumedCapacity": "TOTAL"});
        let consumed = call(&emulator, "BatchExecuteStatement", request).await.unwrap()["ConsumedCapacity"].clone();
        let of =
            |table: &Value| (table["TableName"].as_str().unwrap().to_owned(), table["CapacityUnits"].as_f64().unwrap());
        consumed.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let likes = |units: f64| -> Vec<(String, f64)> { vec![("likes".to_owned(), units)] };
    assert_eq!(units(vec![insert("a", 1), insert("b", 1)]).await, likes(2.0));
    assert_eq!(units(vec![insert("a", 1), update("b", 0), update("none", 1)]).await, likes(3.0));
    let large = "UPDATE likes SET s = ? WHERE pk = 'p' AND user_id = 'a'";
    assert_eq!(units(vec![statement(large, json!([text(&"x".repeat(3000))]))]).await, likes(3.0));
    assert_eq!(units(vec![update("a", 1)]).await, likes(3.0), "a failed condition costs what the item as it is would");
    let mut late = statement(SELECT, json!([text("p"), text("b")]));
    late["ConsistentRead"] = json!(false);
    assert_eq!(units(vec![late]).await, likes(0.5));
    let both = vec![update("b", 2), statement("INSERT INTO counts VALUE {'pk': 'p', 'user_id': 'u'}", json!([]))];
    assert_eq!(units(both).await, [("counts".to_owned(), 1.0), ("likes".to_owned(), 1.0)]);
    let refused = ["DELETE FROM nowhere WHERE pk = 'p'", "DELETE"].map(|text| statement(text, json!([])));
    assert_eq!(units(refused.into()).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_throttles_only_its_own_statements() {
    let emulator = started(Config { key_write_units: Some(10), ..Config::default() }).await;
    let outcomes = batch(&emulator, (0..12).map(|n| insert(&n.to_string(), 1))).await.unwrap();
    assert_eq!(codes(&outcomes)[9..], ["", "ThrottlingError", "ThrottlingError"]);
    let cold = statement(INSERT, json!([text("cold"), text("u"), number(1)]));
    assert_eq!(codes(&batch(&emulator, [insert("x", 1), cold]).await.unwrap()), ["ThrottlingError", ""]);
    tokio::time::advance(Duration::from_secs(1)).await;
    for _ in 0..10 {
        assert_eq!(codes(&batch(&emulator, [update("0", 0)]).await.unwrap()), ["ConditionalCheckFailed"]);
    }
    assert_eq!(codes(&batch(&emulator, [update("0", 9)]).await.unwrap()), ["ThrottlingError"]);
    assert_eq!(emulator.stats().tables["likes"].items, 11);
}
