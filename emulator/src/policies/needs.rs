//! Finds the permissions that a request to DynamoDB needs: actions, each on a table or stream.

use bytes::Bytes;
use http::Request;
use serde_json::{Map, Value};

use crate::expression::partiql;

/// One action on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(super) action: String,
    pub(super) resource: String,
    /// The statement of a batch that needs it, if statements have separate outcomes.
    pub(super) statement: Option<usize>,
}

impl Need {
    /// Whether it is about this table or its stream.
    pub(crate) fn is_of(&self, table: &str) -> bool {
        let resource = self.resource.split_once(":table/").map_or("", |(_, resource)| resource);
        resource.split('/').next() == Some(table)
    }
}

/// The permissions of a request. Each action of a transaction needs the same as a single request. A request whose resources
/// cannot be parsed needs its action on all resources, which no grant for a table covers.
pub(crate) fn of(request: &Request<Bytes>, region: &str) -> Vec<Need> {
    let target = request.headers().get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let operation = target.rsplit('.').next().unwrap_or_default();
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let arn = |table: &str| match table.starts_with("arn:") {
        true => table.to_owned(),
        false => format!("arn:aws:dynamodb:{region}:000000000000:table/{table}"),
    };
    let need =
        |operation: &str, resource: String| Need { action: format!("dynamodb:{operation}"), resource, statement: None };
    // A statement that cannot be parsed is refused elsewhere.
    let of_statement = |request: &Value, statement: Option<usize>| {
        let (action, table) = partiql::target(request["Statement"].as_str()?)?;
        Some(Need { statement, ..need(action, arn(&table)) })
    };
    let text = |name: &str| body[name].as_str();
    match operation {
        "TransactWriteItems" | "TransactGetItems" => {
            let actions = body["TransactItems"].as_array().into_iter().flatten().filter_map(Value::as_object).flatten();
            actions.map(|(kind, of)| need(alone(kind), arn(of["TableName"].as_str().unwrap_or_default()))).collect()
        }
        "BatchGetItem" | "BatchWriteItem" => {
            let tables = body["RequestItems"].as_object().into_iter().flat_map(Map::keys);
            tables.map(|table| need(operation, arn(table))).collect()
        }
        "ExecuteStatement" => of_statement(&body, None).into_iter().collect(),
        "BatchExecuteStatement" => {
            let statements = body["Statements"].as_array().into_iter().flatten().enumerate();
            statements.filter_map(|(nth, statement)| of_statement(statement, Some(nth))).collect()
        }
        "ListTables" | "ListStreams" => vec![need(operation, "*".to_owned())],
        _ => {
            // An iterator begins with the stream's ARN.
            let of_iterator = text("ShardIterator").and_then(|token| token.split('|').next());
            let stream = text("StreamArn").or(of_iterator);
            let resource = text("TableName").map(arn).unwrap_or_else(|| stream.unwrap_or("*").to_owned());
            vec![need(operation, resource)]
        }
    }
}

/// The operation that does the same as an action of a transaction.
fn alone(kind: &str) -> &'static str {
    match kind {
        "Put" => "PutItem",
        "Update" => "UpdateItem",
        "Delete" => "DeleteItem",
        "Get" => "GetItem",
        _ => "ConditionCheckItem",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operation: &str, body: &str, expected: &[(&str, &str)]) {
        let is_of_streams = ["GetRecords", "DescribeStream"].contains(&operation);
        let api = if is_of_streams { "DynamoDBStreams_20120810" } else { "DynamoDB_20120810" };
        let request = Request::builder().header("x-amz-target", format!("{api}.{operation}"));
        let request = request.body(Bytes::copy_from_slice(body.as_bytes())).unwrap();
        let needs = of(&request, "r");
        let needs: Vec<_> = needs.iter().map(|need| (need.action.as_str(), need.resource.as_str())).collect();
        let expected: Vec<_> = expected.iter().map(|(action, of)| (format!("dynamodb:{action}"), arn(of))).collect();
        let expected: Vec<_> = expected.iter().map(|(action, of)| (action.as_str(), of.as_str())).collect();
        assert_eq!(needs, expected, "{operation}");
    }

    fn arn(name: &str) -> String {
        if name == "*" { name.to_owned() } else { format!("arn:aws:dynamodb:r:000000000000:table/{name}") }
    }

    #[test]
    fn every_kind_of_request_names_its_tables_and_streams() {
        check("GetItem", r#"{"TableName":"a"}"#, &[("GetItem", "a")]);
        let both = [("BatchGetItem", "a"), ("BatchGetItem", "b")];
        check("BatchGetItem", r#"{"RequestItems":{"a":{},"b":{}}}"#, &both);
        check(
            "TransactWriteItems",
            r#"{"TransactItems":[{"Put":{"TableName":"a"}},{"Update":{"TableName":"b"}},{"Delete":{"TableName":"a"}},
                {"ConditionCheck":{"TableName":"c"}}]}"#,
            &[("PutItem", "a"), ("UpdateItem", "b"), ("DeleteItem", "a"), ("ConditionCheckItem", "c")],
        );
        let stream = arn("a/stream/2026");
        let iterator = format!(r#"{{"ShardIterator":"{stream}|1|xyz"}}"#);
        check("GetRecords", &iterator, &[("GetRecords", "a/stream/2026")]);
        let described = format!(r#"{{"StreamArn":"{stream}"}}"#);
        check("DescribeStream", &described, &[("DescribeStream", "a/stream/2026")]);
        let statements = [
            (r#"INSERT INTO \"a\" VALUE {'id': ?}"#, ("PartiQLInsert", "a")),
            ("update b set n = n + 1 where id = ?", ("PartiQLUpdate", "b")),
            ("DELETE /* x */ FROM a WHERE id = ?", ("PartiQLDelete", "a")),
            (r#"SELECT a, \"from\" FROM c WHERE id = ?"#, ("PartiQLSelect", "c")),
        ];
        let each = statements.map(|(statement, _)| format!(r#"{{"Statement":"{statement}"}}"#));
        for (body, (_, need)) in each.iter().zip(statements) {
            check("ExecuteStatement", body, &[need]);
        }
        let all = format!(r#"{{"Statements":[{}]}}"#, each.join(","));
        check("BatchExecuteStatement", &all, &statements.map(|(_, need)| need));
        check("ExecuteStatement", r#"{"Statement":"DROP TABLE a"}"#, &[]);
        check("ListTables", "{}", &[("ListTables", "*")]);
        check("GetItem", "no JSON", &[("GetItem", "*")]);
    }
}
