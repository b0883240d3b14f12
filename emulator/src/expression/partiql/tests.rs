//! Tests the parser of PartiQL: what statements mean, and with which errors invalid ones are refused.

use proptest::prelude::*;

use super::{Body, Statement, target};
use crate::value::{Item, Value};

fn item(json: &str) -> Item {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn parameters(json: &str) -> Vec<Value> {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn parsed(text: &str) -> Statement {
    Statement::parse(text, Vec::new()).unwrap_or_else(|refusal| panic!("{text}: {refusal}"))
}

fn refusal(text: &str, given: &str) -> String {
    Statement::parse(text, parameters(given)).map(|_| ()).expect_err(text).0
}

fn sample() -> Item {
    item(
        r#"{"pk":{"S":"p"},"s":{"S":"abc"},"n":{"N":"5"},"z":{"NULL":true},"t":{"BOOL":true},"ss":{"SS":["a","b"]},"a.b":{"S":"dotted"},
            "to":{"N":"7"},"l":{"L":[{"N":"1"},{"N":"2"}]},"m":{"M":{"k":{"S":"v"},"c":{"N":"3"}}}}"#,
    )
}

/// Whether a condition holds for the sample.
fn holds(condition: &str) -> bool {
    let Body::Select(None, filter) = parsed(&format!("SELECT * FROM \"likes\" WHERE {condition}")).body else {
        panic!("{condition}")
    };
    filter.into_condition().expect(condition).holds(Some(&sample()))
}

#[test]
fn an_insert_has_literals_of_every_type_and_parameters_in_order() {
    let text = r#"INSERT INTO "likes" VALUE {'pk': 'it''s', 'n': -1.50, 'e': 7.3e6, 'h': .5, 't': TRUE, 'f': false, 'z': null,
        'l': [1, 'a', []], 'm': {'x': ?, 'y': {}}, 'p': ?} -- done
        ;"#;
    let statement = Statement::parse(text, parameters(r#"[{"B":"YQ=="},{"S":"?"}]"#)).unwrap();
    let Body::Insert(inserted) = statement.body else { panic!("an insert") };
    let expected = item(
        r#"{"pk":{"S":"it's"},"n":{"N":"-1.5"},"e":{"N":"7300000"},"h":{"N":"0.5"},"t":{"BOOL":true},"f":{"BOOL":false},
            "z":{"NULL":true},"l":{"L":[{"N":"1"},{"S":"a"},{"L":[]}]},"m":{"M":{"x":{"B":"YQ=="},"y":{"M":{}}}},
            "p":{"S":"?"}}"#,
    );
    assert_eq!((statement.table.as_str(), inserted), ("likes", expected));
}

#[test]
fn a_condition_equals_the_same_expression_and_has_more_spellings() {
    for (condition, expected) in [
        ("n < 5 OR s >= 'abc'", true),
        ("NOT NOT (n != 5)", false),
        ("n BETWEEN 1 AND 5 AND t = true", true),
        ("n IN [1, 5] AND n IN (5)", true),
        ("nothing IS MISSING AND s IS NOT MISSING", true),
        ("s IS MISSING", false),
        ("z IS NULL AND s IS NOT NULL", true),
        ("s IS STRING AND n IS NUMERIC AND t IS BOOL AND m IS STRUCT AND l IS LIST", true),
        ("begins_with(s, 'ab') AND CONTAINS(ss, 'a') AND attribute_type(n, 'N')", true),
        ("m.c = 3 AND l[1] = 2 AND m['k'] = 'v'", true),
        (r#""a.b" = 'dotted' AND "to" = 7 AND "n" = 5"#, true),
    ] {
        assert_eq!(holds(condition), expected, "{condition}");
    }
}

const MALFORMED: &str = "Statement wasn't well formed, can't be processed: ";

#[test]
fn syntax_errors_have_dynamodbs_messages() {
    for (text, detail) in [
        ("SELECT * FROM likes WHERE pk = 1 foo", "Unexpected token after expression"),
        ("SELECT * FROM likes WHERE pk = 1)", "Unexpected token after expression"),
        ("INSERT INTO likes VALUE {'pk': 1} foo", "Unexpected token after expression"),
        ("INSERT INTO likes r VALUE {'pk': 1}", "Unexpected token after expression"),
        ("UPDATE likes SET a = 9 WHERE pk = 1 foo", "Unexpected token after expression"),
        ("DELETE FROM likes WHERE pk = 1 ORDER BY pk", "Unexpected token after expression"),
        ("SELECT * FROM likes WHERE pk = 1 # note", ""),
        ("SELECT * FROM likes WHERE pk = 1 /* note", ""),
        ("SELECT * FROM likes WHERE pk = 'open", ""),
        ("SELECT * FROM likes WHERE", "Unexpected term"),
        ("SELECT * FROM likes WHERE;", "Unexpected term"),
        ("UPDATE likes SET a = 1 WHERE", "Unexpected term"),
        ("SELECT * FROM likes WHERE NOT", "Unexpected term"),
        ("SELECT * FROM likes WHERE (", "Unexpected term"),
        ("SELECT * FROM", "Unexpected term"),
        ("SELECT * FROM likes WHERE pk = 'p1' AND", "Missing right-hand side expression of infix operator"),
        ("SELECT * FROM likes WHERE ORDER BY pk", "Unexpected keyword"),
        ("UPDATE likes SET to = 1 WHERE pk = 1", "Unexpected keyword"),
        ("SELECT * FROM likes WHERE x IS FOO", "Expected type name"),
        ("DELETE FROM", "Expected identifier for simple path"),
        ("DELETE FROM WHERE pk = 'a'", "Expected identifier for simple path"),
        ("SELECT * FROM likes WHERE attribute_exists(m.inner)", "Invalid path dot component"),
        ("DROP TABLE likes", "Unexpected keyword"),
        ("", "Unexpected term"),
    ] {
        assert_eq!(refusal(text, "[]"), format!("{MALFORMED}{detail}"), "{text}");
    }
}

#[test]
fn semantic_errors_have_dynamodbs_messages() {
    const COUNT: &str = "Number of parameters in request and statement don't match.";
    let wrong = "Incorrect operand type for operator or function; operator or function: ";
    for (text, given, expected) in [
        ("SELECT * FROM likes r WHERE pk = 1", "[]", "Aliasing is not supported".to_owned()),
        ("UPDATE likes AS r SET a = 1 WHERE pk = 1", "[]", "Aliasing is not supported".to_owned()),
        ("DELETE FROM likes \"r\" WHERE pk = 1", "[]", "Aliasing is not supported".to_owned()),
        ("DELETE FROM likes WHERE pk = ?", "[]", COUNT.to_owned()),
        ("DELETE FROM likes WHERE pk = ?", r#"[{"S":"a"},{"S":"b"}]"#, COUNT.to_owned()),
        ("SELECT * FROM likes WHERE v < ?", r#"[{"BOOL":true}]"#, format!("{wrong}<, operand type: BOOL")),
        ("SELECT * FROM likes WHERE v < ? AND", r#"[{"BOOL":true}]"#,
            format!("{MALFORMED}Missing right-hand side expression of infix operator")),
        ("UPDATE likes SET n = n + 'a' WHERE pk = 1", "[]", format!("{wrong}+, operand type: S")),
        ("SELECT * FROM likes WHERE pk = 1e126", "[]",
            "Number overflow. Attempting to store a number with magnitude larger than supported range under root".to_owned()),
        ("INSERT INTO likes VALUE {'pk': 1, 'm': {'x': [1, 1e-131]}}", "[]",
            "Number underflow. Attempting to store a number with magnitude smaller than supported range under root.x[1]".to_owned()),
        ("INSERT INTO likes VALUE {'pk': 1, 'pk': 2}", "[]", "Duplicate keys in tuple. Key: pk under root".to_owned()),
        ("INSERT INTO likes VALUE ?", r#"[{"M":{}}]"#,
            "Unsupported format in item expression. Please use struct format {...} to express item values for insert statement.".to_owned()),
        ("INSERT INTO likes VALUE {'s': <<1>>}", "[]", "A bag is not supported by this emulator".to_owned()),
        ("UPDATE likes SET a = set_add(a, ?) WHERE pk = 1", r#"[{"SS":["x"]}]"#,
            "set_add is not supported by this emulator".to_owned()),
        ("DELETE FROM likes WHERE pk = 1 RETURNING ALL OLD *", "[]",
            "RETURNING is not supported by this emulator".to_owned()),
        ("SELECT * FROM likes WHERE a = MISSING", "[]", "MISSING must be compared using IS operator".to_owned()),
        ("SELECT * FROM likes WHERE attribute_exists('a')", "[]",
            "Operator or function requires a document path; operator or function: attribute_exists".to_owned()),
        ("SELECT * FROM likes WHERE attribute_exists()", "[]",
            "Incorrect number of operands for operator or function; operator or function: attribute_exists, number of operands: 0".to_owned()),
        ("SELECT * FROM likes WHERE EXISTS(ss)", "[]", "Unrecognized function: exists at 1:27:6".to_owned()),
        ("SELECT * FROM likes\nWHERE set_add(a, 1) = a", "[]", "Unrecognized function: set_add at 2:7:7".to_owned()),
        ("UPDATE likes SET a = 1 REMOVE a.b WHERE pk = 1", "[]",
            "Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [a], path two: [a, b]".to_owned()),
        ("SELECT l[2147483648] FROM likes WHERE pk = ?", "[]", "List index is not within the allowable range; index: [2147483648]".to_owned()),
        ("SELECT m.z, z FROM likes WHERE pk = 1", "[]", "Duplicate identifiers in select clause: z".to_owned()),
    ] {
        assert_eq!(refusal(text, given), expected, "{text}");
    }
}

#[test]
fn nesting_is_limited_to_what_the_stack_can_hold() {
    let deep = |open: &str, leaf: &str, close: &str| format!("{}{leaf}{}", open.repeat(2000), close.repeat(2000));
    let conditions =
        [deep("(", "n = 1", ")"), deep("(NOT ", "n = 1", ")"), deep("size(", "n", ") = 1"), deep("[", "", "]")];
    let values = [deep("[", "1", "]"), deep("{'a': ", "1", "}")];
    let small = std::thread::Builder::new().stack_size(1 << 20);
    let parsing = small.spawn(move || {
        for condition in conditions {
            attempt(&format!("DELETE FROM likes WHERE {condition}"));
        }
        for value in values {
            attempt(&format!("INSERT INTO likes VALUE {{'a': {value}}}"));
            attempt(&format!("UPDATE likes SET a = {value} WHERE pk = 1"));
        }
    });
    assert!(parsing.unwrap().join().is_ok());
    let nested = format!("{}1{}", "[".repeat(31), "]".repeat(31));
    let with = |parameter: &str| Statement::parse(&format!("INSERT INTO likes VALUE {{'a': {parameter}}}"), vec![]);
    assert!(with(&nested).is_ok());
    assert!(with(&format!("[{nested}]")).unwrap_err().0.starts_with("Nesting Levels"));
}

/// Parses a text with too many parameters and with none, and evaluates it if it is valid.
fn attempt(text: &str) {
    for count in [0, 9] {
        let Ok(statement) = Statement::parse(text, vec![Value::N(1.into()); count]) else { continue };
        assert!(
            target(text).is_some_and(|(_, table)| table == statement.table.as_str() || table.contains('"')),
            "{text}"
        );
        match statement.body {
            Body::Insert(_) => {}
            Body::Update(update, filter) => {
                let _ = update.apply(&sample());
                filter.of_an_item("pk").holds(Some(&sample()));
            }
            Body::Delete(filter) => {
                let _ = filter.of_any_item("pk").is_some_and(|condition| condition.holds(None));
            }
            Body::Select(fields, mut filter) => {
                let _ = filter.take_value("pk");
                fields.map(|fields| fields.project(&sample()));
                let _ = filter.into_condition().is_some_and(|condition| condition.holds(Some(&sample())));
            }
        }
    }
}

proptest! {
    #[test]
    fn no_mutation_of_a_statement_makes_the_parser_panic(
        text in prop::sample::select(vec![
            r#"INSERT INTO "likes" VALUE {'pk': ?, 'l': [1, -2e3, 'it''s'], 'm': {'x': 'a'}}"#,
            r#"UPDATE "likes" SET a = ?, "b" = b + 1 SET c = list_append(c, [?]) REMOVE d.e[0] WHERE pk = ? AND NOT (v < ? OR size(s) > 3)"#,
            r"DELETE FROM likes /* all */ WHERE pk = ? AND begins_with(s, 'ab') AND n BETWEEN 1 AND 5 AND x IS NOT MISSING",
            r#"SELECT a, m.b, l[1] FROM "likes" WHERE pk IN [?, ?] AND user_id = ? -- one"#,
        ]),
        at in any::<prop::sample::Index>(),
        inserted in prop::collection::vec(prop::sample::select(vec![
            "INTO", "VALUE", "SET", "REMOVE", "RETURNING", "WHERE", "AND", "OR", "NOT", "IN", "BETWEEN", "IS", "MISSING", "NULL", "size",
            "set_add", "exists", "(", ")", "[", "]", "{", "}", "<<", "<", ",", ".", ":", "=", "+", "-", "--", "/*", ";", "?", "'", "\"",
            "1", ".5", "1e", "'a'", "pk", "é", "$", "\n",
        ]), 0..4),
        character in any::<char>(), cut in any::<bool>(),
    ) {
        let characters: Vec<char> = text.chars().collect();
        let (before, after) = characters.split_at(at.index(characters.len()));
        let after = if cut { &[] } else { &after[1..] };
        attempt(&format!("{} {} {}", String::from_iter(before), inserted.join(" "), String::from_iter(after)));
        attempt(&format!("{}{}{}", String::from_iter(before), inserted.concat(), String::from_iter(after)));
        attempt(&format!("{}{character}{}", String::from_iter(before), String::from_iter(after)));
    }
}
