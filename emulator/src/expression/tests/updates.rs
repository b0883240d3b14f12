//! Tests update expressions: what they make of a sample item, and with which errors invalid ones are refused.

use super::*;

fn update(text: &str, old: &Item) -> Result<Item, String> {
    Update::parse(text, &mut placeholders()).and_then(|update| update.apply(old)).map_err(|refusal| refusal.0)
}

/// The attributes that an update of the sample item changes, as JSON, with null for removed ones.
fn changes(text: &str) -> String {
    let old = sample();
    let new = update(text, &old).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
    let mut names: Vec<_> = old.0.iter().chain(&new.0).map(|(name, _)| name.clone()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| old.get(name) != new.get(name));
    serde_json::to_string(&names.iter().map(|name| (name, new.get(name))).collect::<BTreeMap<_, _>>()).unwrap()
}

fn update_refusal(text: &str) -> String {
    update(text, &sample()).expect_err(text)
}

#[test]
fn set_stores_the_computed_value() {
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
fn operands_are_read_from_the_item_before_the_update() {
    assert_eq!(changes("SET n = :one, x = n"), r#"{"n":{"N":"1"},"x":{"N":"5"}}"#);
    assert_eq!(changes("SET s = n, n = s"), r#"{"n":{"S":"abc"},"s":{"N":"5"}}"#);
    assert_eq!(changes("SET x = s REMOVE s"), r#"{"s":null,"x":{"S":"abc"}}"#);
    assert_eq!(changes("ADD n :one SET x = n"), r#"{"n":{"N":"6"},"x":{"N":"5"}}"#);
    assert_eq!(changes("SET x = l[0] REMOVE l[0], l[1]"), r#"{"l":{"L":[{"M":{"x":{"S":"deep"}}}]},"x":{"S":"l0"}}"#);
}

#[test]
fn remove_deletes_existing_parts() {
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
fn delete_removes_members_and_an_empty_set() {
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
fn meaningless_updates_are_refused_with_dynamodbs_messages() {
    let clash = |how: &str, one: &str, two: &str| {
        let rule = format!("Two document paths {how} with each other; must remove or rewrite one of these paths");
        format!("{rule}; path one: {one}, path two: {two}")
    };
    let twice = |clause: &str| format!("The \"{clause}\" section can only be used once in an update expression;");
    let no_path = "Operator or function requires a document path; operator or function: if_not_exists".to_owned();
    let no_operand = |operator: &str, found: &str| {
        format!("Incorrect operand type for operator or function; operator: {operator}, operand type: {found}")
    };
    for (text, reason) in [
        ("", "The expression can not be empty;".to_owned()),
        ("SET x = :a SET y = :a", twice("SET")),
        ("ADD x :one REMOVE s add y :one", twice("ADD")),
        ("SET m = :map, m.k = :a", clash("overlap", "[m]", "[m, k]")),
        ("SET x = :a REMOVE #a.#a, x", clash("overlap", "[x]", "[x]")),
        ("SET l[1] = :a, #l[1].x = :a", clash("overlap", "[l, [1]]", "[l, [1], x]")),
        ("REMOVE a.b SET a[1] = :a", clash("conflict", "[a, b]", "[a, [1]]")),
        ("SET x = bogus(s)", "Invalid function name; function: bogus".to_owned()),
        ("SET x = if_not_exists(s)", wrong_count("if_not_exists", 1)),
        ("SET x = list_append(list_append(l, :list), :list)", misused("list_append")),
        ("SET x = list_append(:list, list_append(l, :list))", misused("list_append")),
        ("SET x = if_not_exists(:a, s)", no_path),
        ("SET x = list_append(:a, s)", wrong_type("list_append", "S")),
        ("SET x = n + :a", wrong_type("+", "S")),
        ("ADD x :a", no_operand("ADD", "STRING")),
        ("ADD x :list", no_operand("ADD", "LIST")),
        ("DELETE x :one", no_operand("DELETE", "NUMBER")),
        ("SET owner = :a", "Attribute name is a reserved keyword; reserved keyword: owner".to_owned()),
    ] {
        assert_eq!(update_refusal(text), format!("Invalid UpdateExpression: {reason}"), "{text}");
    }
}

#[test]
fn updates_outside_of_the_grammar_are_syntax_errors() {
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
fn a_write_cannot_nest_deeper_than_an_item_may() {
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
fn an_update_returns_only_what_it_touches() {
    let update = Update::parse("SET m.c = :a, l[1] = :a, x = :a REMOVE s", &mut placeholders()).unwrap();
    let (old, new) = (sample(), update.apply(&sample()).unwrap());
    assert_eq!(update.touched(&old), item(r#"{"s":{"S":"abc"},"l":{"L":[{"N":"1"}]},"m":{"M":{"c":{"N":"3"}}}}"#));
    assert_eq!(update.touched(&new), item(r#"{"x":{"S":"a"},"l":{"L":[{"S":"a"}]},"m":{"M":{"c":{"S":"a"}}}}"#));
}
