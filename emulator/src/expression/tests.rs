//! Tests DynamoDB's expressions: conditions and updates in modules of their own; limits, projections, key conditions
//! and placeholders here.

mod conditions;
mod updates;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Comparator, Condition, KeyCondition, KeyRange, Placeholders, Projection, RangeCondition, Update};
use crate::value::{Item, Value};

fn item(json: &str) -> Item {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// Aliases for reserved names, and a value of every type.
fn placeholders() -> Placeholders {
    let names = [("#n", "name"), ("#dot", "a.b"), ("#a", "a"), ("#l", "l")];
    let values = r#"{
        ":one":{"N":"1"}, ":two":{"N":"2"}, ":five":{"N":"5"}, ":six":{"N":"6"}, ":big":{"N":"9E125"},
        ":a":{"S":"a"}, ":b":{"S":"b"}, ":ab":{"S":"ab"}, ":S":{"S":"S"}, ":bogus":{"S":"X"},
        ":bin":{"B":"YWI="}, ":bin1":{"B":"YQ=="}, ":true":{"BOOL":true}, ":null":{"NULL":true},
        ":list":{"L":[{"N":"7"}]}, ":map":{"M":{"k":{"S":"v"}}}, ":ss":{"SS":["a","b"]}, ":ss1":{"SS":["a"]},
        ":ns":{"NS":["1","2"]}, ":bs":{"BS":["YQ=="]}
    }"#;
    let names = names.map(|(key, name)| (key.to_owned(), name.to_owned()));
    Placeholders::new(Some(BTreeMap::from(names)), Some(serde_json::from_str(values).unwrap())).unwrap()
}

/// An item with an attribute of every type.
fn sample() -> Item {
    item(
        r#"{"pk":{"S":"p"},"s":{"S":"abc"},"n":{"N":"5"},"m5":{"N":"5.0"},"bin":{"B":"YWJj"},"t":{"BOOL":true},"z":{"NULL":true},
            "ss":{"SS":["a","b"]},"ns":{"NS":["1","5"]},"bs":{"BS":["YQ=="]},"name":{"S":"x"},"a.b":{"S":"dotted"},
            "l":{"L":[{"S":"l0"},{"N":"1"},{"M":{"x":{"S":"deep"}}}]},
            "m":{"M":{"k":{"S":"v"},"c":{"N":"3"},"nest":{"M":{"y":{"N":"9"}}},"tail":{"L":[{"S":"q"}]}}}}"#,
    )
}

fn holds(text: &str) -> bool {
    let condition = Condition::parse("ConditionExpression", text, &mut placeholders());
    condition.unwrap_or_else(|refusal| panic!("{text}: {refusal}")).holds(Some(&sample()))
}

fn condition_refusal(text: &str) -> String {
    Condition::parse("ConditionExpression", text, &mut placeholders()).expect_err(text).0
}

fn misused(function: &str) -> String {
    format!("The function is not allowed to be used this way in an expression; function: {function}")
}

fn wrong_count(function: &str, count: usize) -> String {
    let rule = "Incorrect number of operands for operator or function; operator or function:";
    format!("{rule} {function}, number of operands: {count}")
}

fn wrong_type(operator: &str, found: &str) -> String {
    let rule = "Incorrect operand type for operator or function; operator or function:";
    format!("{rule} {operator}, operand type: {found}")
}

/// Parses a text with every grammar, and evaluates it if it is valid.
fn attempt(text: &str) {
    let sample = sample();
    for parameter in ["ConditionExpression", "FilterExpression"] {
        if let Ok(condition) = Condition::parse(parameter, text, &mut placeholders()) {
            condition.holds(Some(&sample));
            condition.holds(None);
        }
    }
    if let Ok(update) = Update::parse(text, &mut placeholders()) {
        let _ = update.apply(&sample);
        update.touched(&sample);
    }
    if let Ok(projection) = Projection::parse(text, &mut placeholders()) {
        projection.project(&sample);
    }
    let _ = key(text);
}

#[test]
fn the_limits_of_expressions_are_exact() {
    let refused = |text: &str, reason: &str| {
        assert_eq!(condition_refusal(text), format!("Invalid ConditionExpression: {reason}"));
    };
    let padded = |size: usize| format!("n = :five{}", " ".repeat(size - 9));
    assert!(holds(&padded(4096)));
    refused(&padded(4097), "Expression size has exceeded the maximum allowed size; expression size: 4097");
    // n comparisons are joined by n - 1 operators.
    let joined = |comparisons: usize| vec!["n>:a"; comparisons].join(" OR ");
    assert!(!holds(&joined(150)));
    refused(&joined(151), "The expression contains too many operators; operator count: 301");
    let members = |count: usize| format!("n IN ({})", vec![":a"; count].join(","));
    assert!(!holds(&members(100)));
    refused(&members(101), "The IN operator is provided with too many operands; number of operands: 101");
    assert!(condition_refusal(&"(".repeat(4096)).contains("redundant parentheses"));
    assert!(condition_refusal(&"NOT ".repeat(1000)).contains("too many operators"));
    let path = |steps: usize| format!("attribute_not_exists(x{})", ".y".repeat(steps));
    assert!(holds(&path(31)));
    refused(&path(32), "The document path has too many nesting levels; nesting levels: 33");
}

#[test]
fn the_deepest_nesting_fits_into_a_small_stack() {
    let nested = |open: &str, leaf: &str, close: &str| format!("{}{leaf}{}", open.repeat(400), close.repeat(400));
    let deepest = |text: &str| vec![text.to_owned(), text.chars().take(4096).collect()];
    let texts: Vec<String> = [
        nested("(", "n = :one", ")"),
        nested("(NOT ", "n = :one", ")"),
        nested("(n=:a AND ", "n = :one", ")"),
        nested("size(", "n", ") = :one"),
        nested("n IN (", "n", ")"),
        nested("SET x = if_not_exists(", "n", ")"),
        nested("SET x = (", "n", ")"),
    ]
    .iter()
    .flat_map(|text| deepest(text))
    .chain([deepest_conditions().0, deepest_conditions().1])
    .collect();
    let small = std::thread::Builder::new().stack_size(1 << 20);
    let parsing = small.spawn(move || texts.iter().for_each(|text| attempt(text))).unwrap();
    assert!(parsing.join().is_ok());
    let (negations, alternatives) = deepest_conditions();
    assert!(!holds(&negations) && holds(&alternatives));
}

/// As many operators as an expression may have, each in its own parentheses.
fn deepest_conditions() -> (String, String) {
    let negations = format!("{}n = :five{}", "(NOT ".repeat(299), ")".repeat(299));
    let alternatives = format!("n > :five{}{}", " OR (n = :five".repeat(149), ")".repeat(149));
    (negations, alternatives)
}

#[test]
fn a_projection_keeps_the_named_parts() {
    for (text, expected) in [
        ("n", r#"{"n":{"N":"5"}}"#),
        ("n, absent, m.nothing, l[9], s.k", r#"{"n":{"N":"5"}}"#),
        ("#n, #dot", r#"{"name":{"S":"x"},"a.b":{"S":"dotted"}}"#),
        ("m.k, m.nest.y", r#"{"m":{"M":{"k":{"S":"v"},"nest":{"M":{"y":{"N":"9"}}}}}}"#),
        ("l[2], l[0]", r#"{"l":{"L":[{"S":"l0"},{"M":{"x":{"S":"deep"}}}]}}"#),
        ("l[2].x, m.tail[0]", r#"{"l":{"L":[{"M":{"x":{"S":"deep"}}}]},"m":{"M":{"tail":{"L":[{"S":"q"}]}}}}"#),
    ] {
        let projection = Projection::parse(text, &mut placeholders()).unwrap();
        assert_eq!(projection.project(&sample()), item(expected), "{text}");
    }
}

#[test]
fn a_projection_that_names_a_part_twice_is_refused() {
    let refusal = |text| Projection::parse(text, &mut placeholders()).unwrap_err().0;
    assert_eq!(
        refusal("m, n, m.k"),
        "Invalid ProjectionExpression: Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [m], path two: [m, k]"
    );
    assert!(refusal("m.k, m[0]").contains("conflict with each other"));
    assert_eq!(refusal(""), "Invalid ProjectionExpression: The expression can not be empty;");
    for text in ["n,", "n m", ":a", "n = :a", "[0]", "(n)"] {
        assert!(refusal(text).starts_with("Invalid ProjectionExpression: Syntax error"), "{text}");
    }
}

fn key(text: &str) -> Result<KeyRange, String> {
    let range = |condition: KeyCondition| condition.resolve("pk", Some("sk"));
    KeyCondition::parse(text, &mut placeholders()).and_then(range).map_err(|refusal| refusal.0)
}

#[test]
fn a_key_condition_is_a_hash_key_and_a_range() {
    let (a, b) = (value(r#"{"S":"a"}"#), value(r#"{"S":"b"}"#));
    let selected = |range| Ok(KeyRange { hash: a.clone(), range });
    let compared = |comparator| selected(Some(RangeCondition::Compare(comparator, b.clone())));
    assert_eq!(key("pk = :a"), selected(None));
    assert_eq!(key("(pk = :a) AND (sk = :b)"), compared(Comparator::Equal));
    assert_eq!(key("sk < :b AND :a = pk"), compared(Comparator::Less));
    assert_eq!(key("pk = :a AND :b < sk"), compared(Comparator::Greater));
    assert_eq!(key("pk = :a AND :b >= sk"), compared(Comparator::LessOrEqual));
    assert_eq!(key("pk = :a AND sk >= :b"), compared(Comparator::GreaterOrEqual));
    assert_eq!(key("pk = :a AND begins_with(sk, :b)"), selected(Some(RangeCondition::BeginsWith(b.clone()))));
    assert_eq!(key("pk = :a AND sk BETWEEN :a AND :b"), selected(Some(RangeCondition::Between(a.clone(), b.clone()))));
}

#[test]
fn conditions_that_are_not_key_conditions_are_refused() {
    let operator = |found: &str| format!("Invalid operator used in KeyConditionExpression: {found}");
    let condition = |why: &str| format!("Invalid condition in KeyConditionExpression: {why}");
    let expressions = |rule: &str| format!("KeyConditionExpressions {rule}");
    for (text, message) in [
        ("pk = :a OR sk = :b", operator("OR")),
        ("NOT pk = :a", operator("NOT")),
        ("pk IN (:a)", operator("IN")),
        ("pk = :a AND sk <> :b", operator("<>")),
        ("attribute_exists(pk)", operator("attribute_exists")),
        ("contains(pk, :a)", operator("contains")),
        ("pk = sk", condition("Multiple attribute names used in one condition")),
        (":a = :b", condition("No key attribute specified")),
        ("begins_with(:a, pk)", condition("begins_with operator must have the key attribute as its first operand")),
        ("pk.x = :a", expressions("cannot have conditions on nested attributes")),
        ("size(pk) = :one", expressions("cannot contain nested operations")),
        ("pk = :a AND pk = :b", expressions("must only contain one condition per key")),
        ("sk = :a", "Query condition missed key schema element: pk".to_owned()),
        ("pk > :a", "Query key condition not supported".to_owned()),
        ("pk = :a AND elsewhere = :b", "Query condition missed key schema element: sk".to_owned()),
        ("pk = :a AND sk = :b AND n = :one", "Conditions can be of length 1 or 2 only".to_owned()),
        ("begins_with(sk, :one)", format!("Invalid KeyConditionExpression: {}", wrong_type("begins_with", "N"))),
    ] {
        assert_eq!(key(text), Err(message), "{text}");
    }
    let hash_only = KeyCondition::parse("pk = :a AND sk = :b", &mut placeholders()).unwrap().resolve("pk", None);
    assert_eq!(hash_only.unwrap_err().0, "Query key condition not supported");
}

#[test]
fn placeholders_must_be_well_formed_and_used() {
    let names = |key: &str, name: &str| Some(BTreeMap::from([(key.to_owned(), name.to_owned())]));
    let values = |key: &str| Some(BTreeMap::from([(key.to_owned(), Value::Null)]));
    let refusal = |names, values| Placeholders::new(names, values).unwrap_err().0;
    assert_eq!(refusal(Some(BTreeMap::new()), None), "ExpressionAttributeNames must not be empty");
    assert_eq!(refusal(None, Some(BTreeMap::new())), "ExpressionAttributeValues must not be empty");
    for key in ["a", "#", "#a-b", ":a", "##a", "#é"] {
        let expected = format!("ExpressionAttributeNames contains invalid key: Syntax error; key: \"{key}\"");
        assert_eq!(refusal(names(key, "a"), None), expected);
    }
    assert_eq!(refusal(None, values("v")), "ExpressionAttributeValues contains invalid key: Syntax error; key: \"v\"");
    assert_eq!(
        refusal(names("#a", ""), None),
        "ExpressionAttributeNames contains invalid value: Empty attribute name for key #a"
    );
    assert!(Placeholders::new(None, values(&format!(":{}", "v".repeat(254)))).is_ok());
    assert!(refusal(None, values(&format!(":{}", "v".repeat(255)))).contains("key that is too long"));
    let heavy = |size: usize| Some(BTreeMap::from([(":v".to_owned(), Value::S("x".repeat(size)))]));
    assert!(Placeholders::new(None, heavy(2 * 1024 * 1024 - 2)).is_ok());
    assert_eq!(refusal(None, heavy(2 * 1024 * 1024 - 1)), "ExpressionAttributeValues exceeds max size");

    let given = || Placeholders::new(names("#n", "name"), values(":v")).unwrap();
    let after = |text: &str| {
        let mut open = given();
        Condition::parse("ConditionExpression", text, &mut open).unwrap();
        open.finish().map_err(|refusal| refusal.0)
    };
    assert_eq!(after("#n = :v"), Ok(()));
    assert_eq!(
        after("x = :v"),
        Err("Value provided in ExpressionAttributeNames unused in expressions: keys: {#n}".to_owned())
    );
    assert_eq!(
        after("attribute_exists(#n)"),
        Err("Value provided in ExpressionAttributeValues unused in expressions: keys: {:v}".to_owned())
    );
    let unexpressed = given().refuse_without_expression("FilterExpression is null").unwrap_err().0;
    assert_eq!(unexpressed, "ExpressionAttributeNames can only be specified when using expressions");
    let unexpressed = Placeholders::new(None, values(":v")).unwrap();
    assert_eq!(
        unexpressed.refuse_without_expression("FilterExpression is null").unwrap_err().0,
        "ExpressionAttributeValues can only be specified when using expressions: FilterExpression is null"
    );
    assert!(Placeholders::default().refuse_without_expression("").is_ok());
}

proptest! {
    #[test]
    fn no_mutation_of_a_valid_expression_makes_a_parser_panic(
        text in prop::sample::select(vec![
            "SET m.c = if_not_exists(m.c, :one) + :one, l[9] = list_append(l, :list) REMOVE s, l[0] ADD n :one DELETE ss :ss1",
            "(n BETWEEN :one AND :five OR NOT size(l[2].x) >= :two) AND s IN (:a, :b) AND begins_with(#n, :ab)",
            "pk = :a AND begins_with(sk, :b)",
            "m.nest.y, l[2].x, #dot",
        ]),
        at in any::<prop::sample::Index>(), character in any::<char>(), cut in any::<bool>(),
    ) {
        let mut characters: Vec<char> = text.chars().collect();
        let at = at.index(characters.len());
        if cut { characters.truncate(at); } else { characters[at] = character; }
        attempt(&String::from_iter(characters));
    }
}
