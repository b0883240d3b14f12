//! Tests how DynamoDB's values are read from JSON and written as JSON, and with which errors other JSON is refused.

use proptest::prelude::*;

use super::Values;
use crate::error::{Error, Kind};
use crate::number::Number;
use crate::value::{Item, Value};

fn read(json: &str) -> Result<Value, Error> {
    Ok(serde_json::from_str(json)?)
}

fn invalid(message: &str) -> Result<Value, Error> {
    Err(Error::validation(message))
}

fn unreadable(message: &str) -> Result<Value, Error> {
    Err(Error::new(Kind::Serialization, message))
}

#[test]
fn every_type_is_read_and_written_with_its_descriptor() {
    for json in [
        r#"{"S":"text \"quoted\" é"}"#,
        r#"{"S":""}"#,
        r#"{"N":"-12.5"}"#,
        r#"{"B":"YWI="}"#,
        r#"{"BOOL":false}"#,
        r#"{"NULL":true}"#,
        r#"{"M":{"a":{"L":[{"S":"x"},{"M":{}}]}}}"#,
        r#"{"L":[]}"#,
        r#"{"SS":["a","b"]}"#,
        r#"{"NS":["-1","2","10"]}"#,
        r#"{"BS":["YQ==","Yg=="]}"#,
    ] {
        let value = read(json).unwrap_or_else(|refusal| panic!("{json}: {refusal:?}"));
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        assert!(json.contains(&format!("\"{}\"", value.type_code())));
    }
}

#[test]
fn a_value_has_exactly_one_type() {
    let none = "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes";
    for json in ["{}", r#"{"a":""}"#, r#"{"S":null}"#, r#"{"M":{"x":{}}}"#, r#"{"L":[{}]}"#, r#"{"L":[{"z":{}}]}"#] {
        assert_eq!(read(json), invalid(none), "{json}");
    }
    let two =
        "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes";
    assert_eq!(read(r#"{"S":"a","N":"1"}"#), invalid(two));
    assert_eq!(read(r#"{"S":"a","S":"b"}"#), invalid(two));
}

#[test]
fn values_that_are_not_allowed_are_refused_with_dynamodbs_messages() {
    let parameter = |rule: &str| format!("One or more parameter values were invalid: {rule}");
    let number = "The parameter cannot be converted to a numeric value";
    let range = |what: &str, than: &str| {
        format!("Number {what}. Attempting to store a number with magnitude {than} than supported range")
    };
    let precise = "Attempting to store more than 38 significant digits in a Number";
    let duplicates = "Input collection [Yg==, Yg==]of type BS contains duplicates.";
    for (json, message) in [
        (r#"{"N":""}"#, number.to_owned()),
        (r#"{"N":"b"}"#, format!("{number}: b")),
        (r#"{"NS":["1","b"]}"#, format!("{number}: b")),
        (r#"{"N":"123456789012345678901234567890123456789"}"#, precise.to_owned()),
        (r#"{"N":"1E126"}"#, range("overflow", "larger")),
        (r#"{"N":"1E-131"}"#, range("underflow", "smaller")),
        (r#"{"NULL":false}"#, parameter("Null attribute value types must have the value of true")),
        (r#"{"SS":[]}"#, parameter("An string set  may not be empty")),
        (r#"{"NS":[]}"#, parameter("An number set  may not be empty")),
        (r#"{"BS":[]}"#, parameter("Binary sets should not be empty")),
        (r#"{"SS":["a","b","a"]}"#, parameter("Input collection [a, b, a] contains duplicates.")),
        (r#"{"NS":["1","1.0"]}"#, "Input collection contains duplicates".to_owned()),
        (r#"{"BS":["Yg==","Yg=="]}"#, parameter(duplicates)),
    ] {
        assert_eq!(read(json), invalid(&message), "{json}");
    }
}

#[test]
fn other_json_is_a_serialization_error() {
    for (json, message) in [
        (r#"{"S":true}"#, "TRUE_VALUE cannot be converted to String"),
        (r#"{"S":false}"#, "FALSE_VALUE cannot be converted to String"),
        (r#"{"N":1}"#, "NUMBER_VALUE cannot be converted to String"),
        (r#"{"N":-1}"#, "NUMBER_VALUE cannot be converted to String"),
        (r#"{"S":1.5}"#, "DECIMAL_VALUE cannot be converted to String"),
        (r#"{"S":[]}"#, "Unrecognized collection type class java.lang.String"),
        (r#"{"S":{}}"#, "Start of structure or map found where not expected"),
        (r#"{"SS":{}}"#, "Start of structure or map found where not expected"),
        (r#"{"SS":"a"}"#, "Unexpected field type"),
        (r#"{"M":"a"}"#, "Unexpected field type"),
        (r#"{"BOOL":"true"}"#, "Unexpected token received from parser"),
        (r#"{"BOOL":1}"#, "NUMBER_VALUE cannot be converted to Boolean"),
        (r#"{"B":1}"#, "only base-64-encoded strings are convertible to bytes"),
        (r#"{"B":"abcde"}"#, "Base64 encoded length is expected a multiple of 4 bytes but found: 5"),
        (r#"{"B":"ab!d"}"#, "Invalid Base64 character: '!'"),
        (r#"{"B":"YWJ="}"#, "Invalid last non-pad Base64 character dectected"),
        (r#""text""#, "Unexpected value type in payload"),
        ("12", "Unexpected value type in payload"),
        ("[]", "Unrecognized collection type class com.amazonaws.dynamodb.v20120810.AttributeValue"),
    ] {
        assert_eq!(read(json), unreadable(message), "{json}");
    }
    assert_eq!(read(r#"{"S":"a""#).unwrap_err().kind, Kind::Serialization);
}

#[test]
fn a_text_that_imitates_an_error_is_only_text() {
    let json = r#"{"S":{"ValidationException: forged":1}}"#;
    assert_eq!(read(json), unreadable("Start of structure or map found where not expected"));
}

#[test]
fn the_thirty_third_level_is_refused() {
    let nested =
        |levels: usize| format!("{}{}{}", r#"{"L":["#.repeat(levels - 1), r#"{"S":"x"}"#, "]}".repeat(levels - 1));
    let mixed = format!("{}{}{}", r#"{"M":{"a":"#.repeat(32), r#"{"S":"x"}"#, "}}".repeat(32));
    assert!(read(&nested(32)).is_ok());
    assert_eq!(read(&nested(32)).unwrap().depth(), 32);
    let message = "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit";
    assert_eq!(read(&nested(33)), invalid(message));
    assert_eq!(read(&mixed), invalid(message));
    assert!(read(&nested(5000)).is_err());
}

#[test]
fn the_error_of_an_expression_value_names_its_key() {
    let error = serde_json::from_str::<Values>(r#"{":a":{"S":"x"},":b":{"L":[{"SS":[]}]}}"#).map_err(Error::from);
    let rule = "One or more parameter values were invalid: An string set  may not be empty for key :b";
    let message = format!("ExpressionAttributeValues contains invalid value: {rule}");
    assert_eq!(error, Err(Error::validation(message)));
}

#[test]
fn an_item_is_a_map() {
    assert_eq!(serde_json::from_str::<Item>("{}").unwrap(), Item::new());
    for json in ["[]", "1", "\"a\"", "true", "1.5", "-1"] {
        assert_eq!(serde_json::from_str::<Item>(json).map_err(Error::from).unwrap_err().kind, Kind::Serialization);
    }
}

#[test]
fn sizes_follow_dynamodbs_rules() {
    for (json, size) in [
        (r#"{"S":"é"}"#, 2),
        (r#"{"N":"123"}"#, 3),
        (r#"{"B":"YWI="}"#, 2),
        (r#"{"BOOL":false}"#, 1),
        (r#"{"NULL":true}"#, 1),
        (r#"{"M":{}}"#, 3),
        (r#"{"M":{"ab":{"S":"cde"}}}"#, 3 + 1 + 2 + 3),
        (r#"{"L":[{"S":"a"},{"S":"bc"}]}"#, 3 + 2 + 3),
        (r#"{"SS":["a","bcd"]}"#, 4),
        (r#"{"NS":["1","23"]}"#, 4),
        (r#"{"BS":["YQ==","YWI="]}"#, 3),
    ] {
        assert_eq!(read(json).unwrap().size(), size, "{json}");
    }
    let item: Item = serde_json::from_str(r#"{"pk":{"S":"p-1"},"n":{"N":"1"}}"#).unwrap();
    assert_eq!(item.size(), 2 + 3 + 1 + 2);
}

fn any_value() -> impl Strategy<Value = Value> {
    let number = (any::<i64>(), -20i32..20).prop_map(|(m, e)| format!("{m}E{e}").parse::<Number>().unwrap());
    let leaf = prop_oneof![
        "\\PC{0,12}".prop_map(Value::S),
        number.clone().prop_map(Value::N),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| Value::B(bytes.into())),
        any::<bool>().prop_map(Value::Bool),
        Just(Value::Null),
        prop::collection::btree_set("[a-z]{0,3}".prop_map(Value::S), 1..4).prop_map(Value::Set),
        prop::collection::btree_set(number.prop_map(Value::N), 1..4).prop_map(Value::Set),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::L),
            prop::collection::btree_map("[a-c]{1,2}", inner, 0..4).prop_map(Value::M),
        ]
    })
}

proptest! {
    #[test]
    fn a_written_value_is_read_back(value in any_value()) {
        let json = serde_json::to_string(&value).unwrap();
        prop_assert_eq!(read(&json), Ok(value));
    }
}
