//! Many items of one table by their keys.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::super::expression::Names;
use super::super::item::Item;
use super::value::{AsItem, item};

/// Read consistently.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(in super::super) struct BatchGetItem<'a> {
    request_items: HashMap<&'a str, Keys<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Keys<'a> {
    keys: Vec<AsItem<'a>>,
    consistent_read: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    projection_expression: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expression_attribute_names: Option<&'a Names>,
}

impl<'a> BatchGetItem<'a> {
    pub(in super::super) fn of(
        table: &'a str,
        keys: &'a [Item],
        projection_expression: Option<&'a str>,
        expression_attribute_names: Option<&'a Names>,
    ) -> Self {
        let keys = keys.iter().map(AsItem).collect();
        let keys = Keys { keys, consistent_read: true, projection_expression, expression_attribute_names };
        Self { request_items: HashMap::from([(table, keys)]) }
    }
}

/// What there is, and what was left out, by table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(in super::super) struct Batch {
    #[serde(default)]
    pub(in super::super) responses: HashMap<String, Items>,
    #[serde(default)]
    pub(in super::super) unprocessed_keys: HashMap<String, LeftOut>,
}

#[derive(Debug, Default)]
pub(in super::super) struct Items(pub(in super::super) Vec<Item>);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(in super::super) struct LeftOut {
    pub(in super::super) keys: Items,
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct One(#[serde(deserialize_with = "item")] Item);

        Ok(Self(Vec::<One>::deserialize(deserializer)?.into_iter().map(|One(item)| item).collect()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::item::{flag, item as of, number, text};
    use super::*;

    #[test]
    fn a_batch_is_asked_for_by_its_keys_and_read_with_what_was_left_out() {
        let keys = [of([("id", text("a"))])];
        let names = Names::from([("#0".to_owned(), "n".to_owned())]);
        let asked = serde_json::to_value(BatchGetItem::of("t", &keys, Some("#0"), Some(&names))).unwrap();
        let expected = json!({ "RequestItems": { "t": {
            "Keys": [{ "id": { "S": "a" } }], "ConsistentRead": true,
            "ProjectionExpression": "#0", "ExpressionAttributeNames": { "#0": "n" } } } });
        assert_eq!(asked, expected);
        let whole = serde_json::to_value(BatchGetItem::of("t", &keys, None, None)).unwrap();
        assert_eq!(
            whole,
            json!({ "RequestItems": { "t": { "Keys": [{ "id": { "S": "a" } }], "ConsistentRead": true } } })
        );
        let answer = json!({
            "Responses": { "t": [{ "id": { "S": "b" }, "n": { "N": "5" }, "is": { "BOOL": true } }] },
            "UnprocessedKeys": { "t": { "Keys": [{ "id": { "S": "a" } }], "ConsistentRead": true } },
        });
        let Batch { responses, unprocessed_keys } = serde_json::from_value(answer).unwrap();
        assert_eq!(responses["t"].0, [of([("id", text("b")), ("n", number(5)), ("is", flag(true))])]);
        assert_eq!(unprocessed_keys["t"].keys.0, keys);
        let Batch { responses, unprocessed_keys } = serde_json::from_value(json!({})).unwrap();
        assert!(responses.is_empty() && unprocessed_keys.is_empty());
    }
}
