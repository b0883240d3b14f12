use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Condition, KeyCondition, KeyRange, Kind, Placeholders, Projection, RangeCondition, Update};
use crate::value::{Item, Value};

fn item(json: &str) -> Item {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// Aliases for names that need them, and a value of every type.
fn placeholders() -> Placeholders {
    let names = [("#n", "name"), ("#dot", "a.b"), ("#a", "a"), ("#l", "l")];
    let values = r#"{
        ":one":{"N":"1"}, ":two":{"N":"2"}, ":five":{"N":"5"}, ":big":{"N":"9E125"},
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
    let condition = Condition::parse(Kind::Condition, text, &mut placeholders());
    condition.unwrap_or_else(|refusal| panic!("{text}: {refusal}")).holds(Some(&sample()))
}

fn condition_refusal(text: &str) -> String {
    Condition::parse(Kind::Condition, text, &mut placeholders()).expect_err(text).0
}

fn update(text: &str, old: &Item) -> Result<Item, String> {
    Update::parse(text, &mut placeholders()).and_then(|update| update.apply(old)).map_err(|refusal| refusal.0)
}

/// The attributes that are different after an update of the sample item, as JSON; null for what is gone.
fn changes(text: &str) -> String {
    let old = sample();
    let new = update(text, &old).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
    let mut names: Vec<_> = old.iter().chain(new.iter()).map(|(name, _)| name.clone()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| old.get(name) != new.get(name));
    serde_json::to_string(&names.iter().map(|name| (name, new.get(name))).collect::<BTreeMap<_, _>>()).unwrap()
}

fn update_refusal(text: &str) -> String {
    update(text, &sample()).expect_err(text)
}

#[test]
fn conditions_are_true_of_what_they_say() {
    for text in [
        "s = s2 OR s > :a",
        "n = :five",
        "m5 = n",
        ":five = n",
        "(n) = (:five)",
        "n <> :one",
        "absent <> :one",
        "n <> s",
        "n > :one AND n >= :five AND n <= :five AND NOT n < :five",
        "s BETWEEN :a AND :b",
        "n BETWEEN :one AND :five",
        "n IN (:one, :two, :five)",
        "attribute_exists(s)",
        "attribute_exists(m.nest.y)",
        "attribute_exists(l[2].x)",
        "attribute_not_exists(l[3])",
        "attribute_not_exists(m.nest.y.z)",
        "attribute_exists(#dot)",
        "attribute_type(s, :S)",
        "begins_with(s, :ab)",
        "begins_with(bin, :bin)",
        "contains(s, :b)",
        "contains(ss, :a)",
        "contains(ns, :five)",
        "contains(bs, :bin1)",
        "contains(bin, :bin)",
        "contains(l, :one)",
        "size(s) > :two",
        "size(l) > size(ss)",
        "size(m) > :two",
        "l[2].x > :a",
        "m.k <> :a",
        "#n > :a",
        "t = :true AND z = :null",
        "ss = :ss",
        "n = :one OR n = :five AND s > :a",
        "(n = :five OR n = :one) AND s > :a",
        "NOT (n = :one)",
        "NOT n = :one AND n = :five",
        "not n = :one and n = :five",
        "((n = :five) AND n > :one) AND s > :a",
    ] {
        assert!(holds(text), "{text}");
    }
}

#[test]
fn conditions_are_false_of_what_they_do_not_say() {
    for text in [
        "n = :a",
        "s = :five",
        "absent = :one",
        "absent = absent2",
        "absent < :one",
        "NOT n > :one",
        "n > :a",
        "s < :five",
        "t > :a",
        "absent BETWEEN :one AND :five",
        "n BETWEEN :one AND :two",
        "s BETWEEN :one AND :two",
        "n IN (:a, :b)",
        "absent IN (:a)",
        "attribute_exists(absent)",
        "attribute_exists(s.k)",
        "attribute_exists(l.k)",
        "attribute_exists(m[0])",
        "attribute_type(n, :S)",
        "attribute_type(absent, :S)",
        "begins_with(n, :ab)",
        "begins_with(s, :b)",
        "contains(s, :five)",
        "contains(l, :a)",
        "contains(n, :five)",
        "size(n) > :one",
        "size(absent) > :one",
        "n = :five AND s = :a",
        "n = :one OR s = :a",
        "NOT (n = :five OR s = :a)",
        "ss = :ss1",
    ] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn an_absent_item_has_no_attributes() {
    let parse = |text| Condition::parse(Kind::Condition, text, &mut placeholders()).unwrap();
    assert!(parse("attribute_not_exists(pk)").holds(None));
    assert!(!parse("attribute_exists(pk)").holds(None));
    assert!(parse("n <> :one").holds(None));
}

#[test]
fn conditions_outside_the_grammar_are_syntax_errors() {
    for (text, token, near) in [
        ("foo", "<EOF>", "foo"),
        ("n =", "<EOF>", "="),
        ("n = :one AND", "<EOF>", "AND"),
        ("n == :one", "=", "==:one"),
        ("n = 1", "1", "= 1"),
        ("n ! :one", "!", "n ! :one"),
        ("_n = :one", "_", "_n"),
        ("n IN ()", ")", "()"),
        ("AND n = :one", "AND", "AND n"),
        ("n = :one n", "n", ":one n"),
        ("(n = :one", "<EOF>", ":one"),
        ("n = :one)", ")", ":one)"),
        ("n BETWEEN :one OR :two", "OR", ":one OR :two"),
        ("m..k = :one", ".", "..k"),
        ("l[-1] = :one", "-", "[-1"),
        ("l[:one] = :one", ":one", "[:one]"),
        ("n = : one", ":", "= : one"),
        ("é = :one", "é", "é ="),
        ("(n = :one) = :two", "=", ") = :two"),
    ] {
        let near = near.replace("==:one", "== :one");
        assert_eq!(
            condition_refusal(text),
            format!("Invalid ConditionExpression: Syntax error; token: \"{token}\", near: \"{near}\""),
            "{text}"
        );
    }
}

#[test]
fn conditions_without_meaning_are_refused_in_dynamodbs_words() {
    for (text, reason) in [
        ("", "The expression can not be empty;"),
        ("name = :one", "Attribute name is a reserved keyword; reserved keyword: name"),
        ("m.Sequence = :one", "Attribute name is a reserved keyword; reserved keyword: Sequence"),
        ("#x = :one", "An expression attribute name used in the document path is not defined; attribute name: #x"),
        ("n = :x", "An expression attribute value used in expression is not defined; attribute value: :x"),
        ("((n = :one))", "The expression has redundant parentheses;"),
        ("((n)) = :one", "The expression has redundant parentheses;"),
        ("bogus(n)", "Invalid function name; function: bogus"),
        ("ATTRIBUTE_EXISTS(n)", "Invalid function name; function: ATTRIBUTE_EXISTS"),
        ("size(s)", "The function is not allowed to be used this way in an expression; function: size"),
        ("size(s) AND n = :one", "The function is not allowed to be used this way in an expression; function: size"),
        (
            "attribute_exists(s) = :true",
            "The function is not allowed to be used this way in an expression; function: attribute_exists",
        ),
        (
            "contains(s, begins_with(s, :a))",
            "The function is not allowed to be used this way in an expression; function: begins_with",
        ),
        (
            "attribute_exists(s, n)",
            "Incorrect number of operands for operator or function; operator or function: attribute_exists, number of operands: 2",
        ),
        (
            "begins_with(s)",
            "Incorrect number of operands for operator or function; operator or function: begins_with, number of operands: 1",
        ),
        (
            "contains(s, :a, :b)",
            "Incorrect number of operands for operator or function; operator or function: contains, number of operands: 3",
        ),
        (
            "attribute_exists(:a)",
            "Operator or function requires a document path; operator or function: attribute_exists",
        ),
        (
            "begins_with(s, :one)",
            "Incorrect operand type for operator or function; operator or function: begins_with, operand type: N",
        ),
        ("n > :true", "Incorrect operand type for operator or function; operator or function: >, operand type: BOOL"),
        (
            "n BETWEEN :ss AND :ss",
            "Incorrect operand type for operator or function; operator or function: BETWEEN, operand type: SS",
        ),
        (
            "size(:one) = :one",
            "Incorrect operand type for operator or function; operator or function: size, operand type: N",
        ),
        (
            "attribute_type(s, n)",
            "Incorrect operand type for operator or function; operator or function: attribute_type, operand type: {NS,SS,L,BS,N,M,B,BOOL,NULL,S}",
        ),
        (
            "attribute_type(s, :bogus)",
            "Invalid attribute type name found; type: X, valid types: {B,NULL,SS,BOOL,L,BS,N,NS,S,M}",
        ),
        (
            "m.k = m.k",
            "The first operand must be distinct from the remaining operands for this operator or function; operator: =, first operand: [m, k]",
        ),
        (
            "n BETWEEN :five AND :one",
            "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound operand: AttributeValue: {N:5}, upper bound operand: AttributeValue: {N:1}",
        ),
        (
            "n BETWEEN :one AND :b",
            "The BETWEEN operator requires same data type for lower and upper bounds; lower bound operand: AttributeValue: {N:1}, upper bound operand: AttributeValue: {S:b}",
        ),
        ("l[2147483648] = :one", "List index is not within the allowable range; index: [2147483648]"),
    ] {
        assert_eq!(condition_refusal(text), format!("Invalid ConditionExpression: {reason}"), "{text}");
    }
}

#[test]
fn a_refusal_names_the_parameter_of_its_expression() {
    let refusal = |kind| Condition::parse(kind, "x", &mut placeholders()).unwrap_err().0;
    assert!(refusal(Kind::Filter).starts_with("Invalid FilterExpression: Syntax error"));
    assert!(refusal(Kind::Condition).starts_with("Invalid ConditionExpression: Syntax error"));
}

#[test]
fn syntax_goes_before_meaning() {
    assert!(condition_refusal("name = :undefined AND").contains("Syntax error"));
    assert!(condition_refusal("name = :undefined").contains("reserved keyword"));
}

#[test]
fn the_limits_of_an_expression_hold_exactly() {
    let padded = |size: usize| format!("n = :five{}", " ".repeat(size - 9));
    assert!(holds(&padded(4096)));
    assert_eq!(
        condition_refusal(&padded(4097)),
        "Invalid ConditionExpression: Expression size has exceeded the maximum allowed size; expression size: 4097"
    );
    // n comparisons are joined by n - 1 operators.
    let joined = |comparisons: usize| vec!["n>:a"; comparisons].join(" OR ");
    assert!(!holds(&joined(150)));
    assert!(!holds(&format!("{} OR NOT n>:a", joined(149)).replacen("NOT n>:a", "(n>:a)", 1)));
    assert_eq!(
        condition_refusal(&joined(151)),
        "Invalid ConditionExpression: The expression contains too many operators; operator count: 301"
    );
    let members = |count: usize| format!("n IN ({})", vec![":a"; count].join(","));
    assert!(!holds(&members(100)));
    assert_eq!(
        condition_refusal(&members(101)),
        "Invalid ConditionExpression: The IN operator is provided with too many operands; number of operands: 101"
    );
    assert!(condition_refusal(&"(".repeat(4096)).contains("redundant parentheses"));
    assert!(condition_refusal(&"NOT ".repeat(1000)).contains("too many operators"));
    let path = |steps: usize| format!("attribute_not_exists(x{})", ".y".repeat(steps));
    assert!(holds(&path(31)));
    assert_eq!(
        condition_refusal(&path(32)),
        "Invalid ConditionExpression: The document path has too many nesting levels; nesting levels: 33"
    );
}

#[test]
fn the_deepest_nesting_fits_a_small_stack() {
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
    .chain([format!("{}n = :five{}", "(NOT ".repeat(99), ")".repeat(99))])
    .collect();
    let small = std::thread::Builder::new().stack_size(1 << 20);
    let parsing = small.spawn(move || texts.iter().for_each(|text| attempt(text))).unwrap();
    assert!(parsing.join().is_ok());
    assert!(!holds(&format!("{}n = :five{}", "(NOT ".repeat(99), ")".repeat(99))));
}

#[test]
fn a_condition_knows_which_attributes_it_reads() {
    for text in [
        "pk = :a",
        ":a = pk",
        "n = :one OR NOT pk = :a",
        "attribute_exists(pk)",
        "attribute_not_exists(pk)",
        "n BETWEEN pk AND :a",
        "n IN (:a, pk)",
        "contains(n, pk)",
        "size(pk) > :one",
        "attribute_type(pk, :S)",
    ] {
        assert!(Condition::parse(Kind::Filter, text, &mut placeholders()).unwrap().reads("pk"), "{text}");
    }
    assert!(!Condition::parse(Kind::Filter, "m.pk = :a", &mut placeholders()).unwrap().reads("pk"));
}

#[test]
fn set_writes_what_it_computes() {
    for (text, expected) in [
        ("SET x = :a", r#"{"x":{"S":"a"}}"#),
        ("set x=:a,y=n", r#"{"x":{"S":"a"},"y":{"N":"5"}}"#),
        ("SET n = n + :one", r#"{"n":{"N":"6"}}"#),
        ("SET n = :one - n", r#"{"n":{"N":"-4"}}"#),
        ("SET n = (n + :one)", r#"{"n":{"N":"6"}}"#),
        ("SET n = if_not_exists(n, :one) + :one", r#"{"n":{"N":"6"}}"#),
        ("SET x = if_not_exists(x, :one) + :one", r#"{"x":{"N":"2"}}"#),
        ("SET x = if_not_exists(x, if_not_exists(y, s))", r#"{"x":{"S":"abc"}}"#),
        ("SET x = list_append(:list, :list)", r#"{"x":{"L":[{"N":"7"},{"N":"7"}]}}"#),
        ("SET x = list_append(if_not_exists(x, :list), :list)", r#"{"x":{"L":[{"N":"7"},{"N":"7"}]}}"#),
        ("SET #n = :a", r#"{"name":{"S":"a"}}"#),
        ("SET #dot = :a", r#"{"a.b":{"S":"a"}}"#),
        ("SET l[0] = :a", r#"{"l":{"L":[{"S":"a"},{"N":"1"},{"M":{"x":{"S":"deep"}}}]}}"#),
        ("SET l[2].x = :a", r#"{"l":{"L":[{"S":"l0"},{"N":"1"},{"M":{"x":{"S":"a"}}}]}}"#),
        (
            "SET l[90] = :b, l[50] = :a",
            r#"{"l":{"L":[{"S":"l0"},{"N":"1"},{"M":{"x":{"S":"deep"}}},{"S":"a"},{"S":"b"}]}}"#,
        ),
    ] {
        assert_eq!(changes(text), expected, "{text}");
    }
}

#[test]
fn operands_are_read_from_the_item_as_it_was_before() {
    assert_eq!(changes("SET n = :one, x = n"), r#"{"n":{"N":"1"},"x":{"N":"5"}}"#);
    assert_eq!(changes("SET s = n, n = s"), r#"{"n":{"S":"abc"},"s":{"N":"5"}}"#);
    assert_eq!(changes("SET x = s REMOVE s"), r#"{"s":null,"x":{"S":"abc"}}"#);
    assert_eq!(changes("ADD n :one SET x = n"), r#"{"n":{"N":"6"},"x":{"N":"5"}}"#);
    assert_eq!(changes("SET x = l[0] REMOVE l[0], l[1]"), r#"{"l":{"L":[{"M":{"x":{"S":"deep"}}}]},"x":{"S":"l0"}}"#);
}

#[test]
fn remove_takes_away_what_is_there() {
    assert_eq!(changes("REMOVE s, absent"), r#"{"s":null}"#);
    assert_eq!(changes("REMOVE l[0], l[2]"), r#"{"l":{"L":[{"N":"1"}]}}"#);
    assert_eq!(changes("REMOVE l[2], l[0]"), r#"{"l":{"L":[{"N":"1"}]}}"#);
    assert_eq!(changes("REMOVE l[9]"), "{}");
    assert_eq!(changes("REMOVE l[2].x"), r#"{"l":{"L":[{"S":"l0"},{"N":"1"},{"M":{}}]}}"#);
    assert_eq!(changes("REMOVE l[3] SET l[9999] = :a").matches("\"a\"").count(), 1, "an appended element stays");
}

#[test]
fn add_adds_numbers_and_unites_sets() {
    assert_eq!(changes("ADD n :one"), r#"{"n":{"N":"6"}}"#);
    assert_eq!(changes("ADD x :one"), r#"{"x":{"N":"1"}}"#);
    assert_eq!(changes("ADD ns :ns"), r#"{"ns":{"NS":["1","2","5"]}}"#);
    assert_eq!(changes("ADD x :ss, ss :ss"), r#"{"x":{"SS":["a","b"]}}"#);
    assert_eq!(changes("ADD m.c :one").matches(r#""c":{"N":"4"}"#).count(), 1);
}

#[test]
fn delete_takes_members_away_and_an_empty_set_with_them() {
    assert_eq!(changes("DELETE ss :ss1"), r#"{"ss":{"SS":["b"]}}"#);
    assert_eq!(changes("DELETE ss :ss"), r#"{"ss":null}"#);
    assert_eq!(changes("DELETE bs :bs"), r#"{"bs":null}"#);
    assert_eq!(changes("DELETE absent :ss"), "{}");
}

#[test]
fn updates_that_do_not_fit_the_item_are_refused() {
    let no_attribute = "The provided expression refers to an attribute that does not exist in the item";
    let wrong_type = "An operand in the update expression has an incorrect data type";
    let no_parent = "The document path provided in the update expression is invalid for update";
    let overflow = "Number overflow. Attempting to store a number with magnitude larger than supported range";
    for (text, message) in [
        ("SET x = absent", no_attribute),
        ("SET x = absent + :one", no_attribute),
        ("SET x = list_append(absent, :list)", no_attribute),
        ("SET x = s + :one", wrong_type),
        ("SET x = list_append(s, :list)", wrong_type),
        ("ADD s :one", wrong_type),
        ("ADD n :ss", wrong_type),
        ("ADD ns :ss", wrong_type),
        ("DELETE n :ss", wrong_type),
        ("DELETE ns :ss", wrong_type),
        ("SET absent.x = :a", no_parent),
        ("SET s.x = :a", no_parent),
        ("SET m[0] = :a", no_parent),
        ("SET l.x = :a", no_parent),
        ("REMOVE absent.x", no_parent),
        ("ADD absent.x :one", no_parent),
        ("DELETE absent.x :ss", no_parent),
        ("SET x = :big + :big", overflow),
        ("SET x = :big + :one", overflow),
    ] {
        assert_eq!(update_refusal(text), message, "{text}");
    }
}

#[test]
fn updates_without_meaning_are_refused_in_dynamodbs_words() {
    let overlap = "Two document paths overlap with each other; must remove or rewrite one of these paths";
    let conflict = "Two document paths conflict with each other; must remove or rewrite one of these paths";
    for (text, reason) in [
        ("", "The expression can not be empty;".to_owned()),
        ("SET x = :a SET y = :a", r#"The "SET" section can only be used once in an update expression;"#.to_owned()),
        ("ADD x :one REMOVE s add y :one", r#"The "ADD" section can only be used once in an update expression;"#.to_owned()),
        ("SET m = :map, m.k = :a", format!("{overlap}; path one: [m], path two: [m, k]")),
        ("SET x = :a REMOVE #a.#a, x", format!("{overlap}; path one: [x], path two: [x]")),
        ("SET l[1] = :a, #l[1].x = :a", format!("{overlap}; path one: [l, [1]], path two: [l, [1], x]")),
        ("REMOVE a.b SET a[1] = :a", format!("{conflict}; path one: [a, b], path two: [a, [1]]")),
        ("SET x = bogus(s)", "Invalid function name; function: bogus".to_owned()),
        (
            "SET x = if_not_exists(s)",
            "Incorrect number of operands for operator or function; operator or function: if_not_exists, number of operands: 1".to_owned(),
        ),
        (
            "SET x = if_not_exists(:a, s)",
            "Operator or function requires a document path; operator or function: if_not_exists".to_owned(),
        ),
        (
            "SET x = list_append(:a, s)",
            "Incorrect operand type for operator or function; operator or function: list_append, operand type: S".to_owned(),
        ),
        (
            "SET x = n + :a",
            "Incorrect operand type for operator or function; operator or function: +, operand type: S".to_owned(),
        ),
        ("ADD x :a", "Incorrect operand type for operator or function; operator: ADD, operand type: STRING".to_owned()),
        ("ADD x :list", "Incorrect operand type for operator or function; operator: ADD, operand type: LIST".to_owned()),
        ("DELETE x :one", "Incorrect operand type for operator or function; operator: DELETE, operand type: NUMBER".to_owned()),
        ("SET owner = :a", "Attribute name is a reserved keyword; reserved keyword: owner".to_owned()),
    ] {
        assert_eq!(update_refusal(text), format!("Invalid UpdateExpression: {reason}"), "{text}");
    }
}

#[test]
fn updates_outside_the_grammar_are_syntax_errors() {
    for text in [
        "whatever",
        "SET",
        "SET x",
        "SET x =",
        "SET x = SET",
        "SET :a = x",
        "SET x = s / n",
        "SET x = 1",
        "SET x = n + n + n",
        "SET x = (n + :one) + :one",
        "SET x = (m.c).d",
        "SET (x = :a)",
        "REMOVE x = :a",
        "REMOVE :a",
        "REMOVE x y",
        "ADD x",
        "ADD x y",
        "ADD x = :one",
        "ADD x if_not_exists(x, :one)",
        "DELETE x y",
        "SET x = :a,",
        "SET x = :a ,, y = :a",
        "SET x = :a y = :b",
    ] {
        let refusal = update_refusal(text);
        assert!(refusal.starts_with("Invalid UpdateExpression: Syntax error; token: "), "{text}: {refusal}");
    }
}

#[test]
fn a_write_may_not_nest_deeper_than_an_item_may() {
    let nested =
        |levels: usize| value(&format!("{}{{\"L\":[]}}{}", "{\"L\":[".repeat(levels - 1), "]}".repeat(levels - 1)));
    let set = |levels: usize| {
        let values = BTreeMap::from([(":deep".to_owned(), nested(levels))]);
        let mut placeholders = Placeholders::new(None, Some(values)).unwrap();
        Update::parse("SET m.k = :deep", &mut placeholders).unwrap().apply(&sample())
    };
    assert!(set(31).is_ok());
    assert!(set(32).unwrap_err().0.starts_with("Nesting Levels have exceeded supported limits"));
}

#[test]
fn an_update_of_the_key_is_refused() {
    let update = Update::parse("SET x = :a REMOVE pk.x", &mut placeholders()).unwrap();
    assert!(update.refuse_keys(&["sk"]).is_ok());
    assert_eq!(
        update.refuse_keys(&["sk", "pk"]).unwrap_err().0,
        "One or more parameter values were invalid: Cannot update attribute pk. This attribute is part of the key"
    );
}

#[test]
fn an_update_shows_only_what_it_touches() {
    let update = Update::parse("SET m.c = :a, l[1] = :a, x = :a REMOVE s", &mut placeholders()).unwrap();
    let (old, new) = (sample(), update.apply(&sample()).unwrap());
    assert_eq!(update.touched(&old), item(r#"{"s":{"S":"abc"},"l":{"L":[{"N":"1"}]},"m":{"M":{"c":{"N":"3"}}}}"#));
    assert_eq!(update.touched(&new), item(r#"{"x":{"S":"a"},"l":{"L":[{"S":"a"}]},"m":{"M":{"c":{"S":"a"}}}}"#));
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
    assert_eq!(key("pk = :a"), selected(None));
    assert_eq!(key("(pk = :a) AND (sk = :b)"), selected(Some(RangeCondition::Eq(b.clone()))));
    assert_eq!(key("sk < :b AND :a = pk"), selected(Some(RangeCondition::Lt(b.clone()))));
    assert_eq!(key("pk = :a AND :b < sk"), selected(Some(RangeCondition::Gt(b.clone()))));
    assert_eq!(key("pk = :a AND :b >= sk"), selected(Some(RangeCondition::Le(b.clone()))));
    assert_eq!(key("pk = :a AND sk >= :b"), selected(Some(RangeCondition::Ge(b.clone()))));
    assert_eq!(key("pk = :a AND begins_with(sk, :b)"), selected(Some(RangeCondition::BeginsWith(b.clone()))));
    assert_eq!(key("pk = :a AND sk BETWEEN :a AND :b"), selected(Some(RangeCondition::Between(a.clone(), b))));
}

#[test]
fn key_conditions_beyond_keys_are_refused() {
    for (text, message) in [
        ("pk = :a OR sk = :b", "Invalid operator used in KeyConditionExpression: OR"),
        ("NOT pk = :a", "Invalid operator used in KeyConditionExpression: NOT"),
        ("pk IN (:a)", "Invalid operator used in KeyConditionExpression: IN"),
        ("pk = :a AND sk <> :b", "Invalid operator used in KeyConditionExpression: <>"),
        ("attribute_exists(pk)", "Invalid operator used in KeyConditionExpression: attribute_exists"),
        ("contains(pk, :a)", "Invalid operator used in KeyConditionExpression: contains"),
        ("pk = sk", "Invalid condition in KeyConditionExpression: Multiple attribute names used in one condition"),
        (":a = :b", "Invalid condition in KeyConditionExpression: No key attribute specified"),
        (
            "begins_with(:a, pk)",
            "Invalid condition in KeyConditionExpression: begins_with operator must have the key attribute as its first operand",
        ),
        ("pk.x = :a", "KeyConditionExpressions cannot have conditions on nested attributes"),
        ("size(pk) = :one", "KeyConditionExpressions cannot contain nested operations"),
        ("pk = :a AND pk = :b", "KeyConditionExpressions must only contain one condition per key"),
        ("sk = :a", "Query condition missed key schema element: pk"),
        ("pk > :a", "Query key condition not supported"),
        ("pk = :a AND elsewhere = :b", "Query condition missed key schema element: sk"),
        ("pk = :a AND sk = :b AND n = :one", "Conditions can be of length 1 or 2 only"),
        (
            "begins_with(sk, :one)",
            "Invalid KeyConditionExpression: Incorrect operand type for operator or function; operator or function: begins_with, operand type: N",
        ),
    ] {
        assert_eq!(key(text), Err(message.to_owned()), "{text}");
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
        Condition::parse(Kind::Condition, text, &mut open).unwrap();
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

/// Parses a text with every grammar and, where it is accepted, evaluates it.
fn attempt(text: &str) {
    let sample = sample();
    for kind in [Kind::Condition, Kind::Filter] {
        if let Ok(condition) = Condition::parse(kind, text, &mut placeholders()) {
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

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC{0,60}") {
        attempt(&text);
    }

    #[test]
    fn no_row_of_tokens_makes_a_parser_panic(tokens in prop::collection::vec(prop::sample::select(vec![
        "SET", "REMOVE", "ADD", "DELETE", "AND", "OR", "NOT", "IN", "BETWEEN", "size", "contains", "begins_with", "if_not_exists",
        "list_append", "attribute_type", "attribute_exists", "(", ")", "[", "]", ",", ".", "=", "<>", "<=", "+", "-", "0", "7",
        "n", "s", "l", "m", "ss", "#n", "#x", ":one", ":a", ":ss", ":list", ":S", ":x", "_", "é", "#", ":",
    ]), 0..24)) {
        attempt(&tokens.join(" "));
        attempt(&tokens.concat());
    }

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
        attempt(&characters.into_iter().collect::<String>());
    }

    #[test]
    fn a_comparison_and_its_negation_are_never_both_true(n in -9i64..9, m in -9i64..9) {
        let item: Item = [("n", Value::N(n.into())), ("m", Value::N(m.into()))].into_iter().collect();
        let holds = |text: &str| Condition::parse(Kind::Condition, text, &mut placeholders()).unwrap().holds(Some(&item));
        for (text, expected) in [("n = m", n == m), ("n <> m", n != m), ("n < m", n < m), ("n <= m", n <= m), ("n > m", n > m), ("n >= m", n >= m)] {
            prop_assert_eq!(holds(text), expected, "{}", text);
            prop_assert_eq!(holds(&format!("NOT {text}")), !expected, "{}", text);
        }
    }

    #[test]
    fn begins_with_is_what_it_says(text in "[ab]{0,4}", prefix in "[ab]{0,3}") {
        let (sk, operand) = (Value::S(text.clone()), Value::S(prefix.clone()));
        prop_assert_eq!(RangeCondition::BeginsWith(operand).matches(&sk), text.starts_with(&prefix));
        prop_assert!(!RangeCondition::BeginsWith(Value::B("".into())).matches(&sk));
    }

    #[test]
    fn a_range_holds_exactly_the_keys_in_order(key in -5i64..5, low in -5i64..5, high in -5i64..5) {
        let number = |n: i64| Value::N(n.into());
        let sk = number(key);
        prop_assert_eq!(RangeCondition::Between(number(low), number(high)).matches(&sk), (low..=high).contains(&key));
        prop_assert_eq!(RangeCondition::Lt(number(low)).matches(&sk), key < low);
        prop_assert_eq!(RangeCondition::Le(number(low)).matches(&sk), key <= low);
        prop_assert_eq!(RangeCondition::Gt(number(low)).matches(&sk), key > low);
        prop_assert_eq!(RangeCondition::Ge(number(low)).matches(&sk), key >= low);
        prop_assert_eq!(RangeCondition::Eq(number(low)).matches(&sk), key == low);
        prop_assert!(!RangeCondition::Le(Value::S("zzz".into())).matches(&sk));
    }
}
