//! Tests condition expressions: which hold for a sample item, and with which errors invalid ones are refused.

use super::*;

#[test]
fn conditions_that_hold_are_true() {
    for text in [
        "s = s2 OR s > :a",
        "m5 = n",
        ":five = n",
        "(n) = (:five)",
        "absent <> :one",
        "n <> s",
        "n <= :five",
        "n < :six",
        "n >= :five",
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
        "NOT n = :one AND n = :five",
        "not n = :one and n = :five",
        "((n = :five) AND n > :one) AND s > :a",
    ] {
        assert!(holds(text), "{text}");
    }
}

#[test]
fn conditions_that_do_not_hold_are_false() {
    for text in [
        "n = :a",
        "s = :five",
        "absent = :one",
        "absent = absent2",
        "absent < :one",
        "n > :a",
        "n < :five",
        "n > :five",
        "n <= :two",
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
    let parse = |text| Condition::parse("ConditionExpression", text, &mut placeholders()).unwrap();
    assert!(parse("attribute_not_exists(pk)").holds(None));
    assert!(!parse("attribute_exists(pk)").holds(None));
    assert!(parse("n <> :one").holds(None));
}

#[test]
fn conditions_outside_of_the_grammar_are_syntax_errors() {
    for (text, token, near) in [
        ("foo", "<EOF>", "foo"),
        ("n =", "<EOF>", "="),
        ("n = :one AND", "<EOF>", "AND"),
        ("n == :one", "=", "== :one"),
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
        assert_eq!(
            condition_refusal(text),
            format!("Invalid ConditionExpression: Syntax error; token: \"{token}\", near: \"{near}\""),
            "{text}"
        );
    }
}

#[test]
fn conditions_without_meaning_are_refused_with_dynamodbs_messages() {
    let not_defined = |what: &str, key: &str| format!("An expression attribute {what} is not defined; attribute {key}");
    let no_path = "Operator or function requires a document path; operator or function: attribute_exists".to_owned();
    let same = "The first operand must be distinct from the remaining operands for this operator or function";
    let bounds = |rule: &str, low: &str, high: &str| {
        let operands =
            format!("lower bound operand: AttributeValue: {low}, upper bound operand: AttributeValue: {high}");
        format!("The BETWEEN operator requires {rule}; {operands}")
    };
    for (text, reason) in [
        ("", "The expression can not be empty;".to_owned()),
        ("name = :one", "Attribute name is a reserved keyword; reserved keyword: name".to_owned()),
        ("m.Sequence = :one", "Attribute name is a reserved keyword; reserved keyword: Sequence".to_owned()),
        ("#x = :one", not_defined("name used in the document path", "name: #x")),
        ("n = :x", not_defined("value used in expression", "value: :x")),
        ("((n = :one))", "The expression has redundant parentheses;".to_owned()),
        ("((n)) = :one", "The expression has redundant parentheses;".to_owned()),
        ("bogus(n)", "Invalid function name; function: bogus".to_owned()),
        ("ATTRIBUTE_EXISTS(n)", "Invalid function name; function: ATTRIBUTE_EXISTS".to_owned()),
        ("size(s)", misused("size")),
        ("size(s) AND n = :one", misused("size")),
        ("attribute_exists(s) = :true", misused("attribute_exists")),
        ("contains(s, begins_with(s, :a))", misused("begins_with")),
        ("attribute_exists(s, n)", wrong_count("attribute_exists", 2)),
        ("begins_with(s)", wrong_count("begins_with", 1)),
        ("contains(s, :a, :b)", wrong_count("contains", 3)),
        ("attribute_exists(:a)", no_path),
        ("begins_with(s, :one)", wrong_type("begins_with", "N")),
        ("n > :true", wrong_type(">", "BOOL")),
        ("n BETWEEN :ss AND :ss", wrong_type("BETWEEN", "SS")),
        ("size(:one) = :one", wrong_type("size", "N")),
        ("attribute_type(s, n)", wrong_type("attribute_type", "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}")),
        (
            "attribute_type(s, :bogus)",
            "Invalid attribute type name found; type: X, valid types: {B,NULL,SS,BOOL,L,BS,N,NS,S,M}".to_owned(),
        ),
        ("m.k = m.k", format!("{same}; operator: =, first operand: [m, k]")),
        (
            "n BETWEEN :five AND :one",
            bounds("upper bound to be greater than or equal to lower bound", "{N:5}", "{N:1}"),
        ),
        ("n BETWEEN :one AND :b", bounds("same data type for lower and upper bounds", "{N:1}", "{S:b}")),
        ("l[2147483648] = :one", "List index is not within the allowable range; index: [2147483648]".to_owned()),
    ] {
        assert_eq!(condition_refusal(text), format!("Invalid ConditionExpression: {reason}"), "{text}");
    }
}

#[test]
fn an_error_names_the_parameter_of_its_expression() {
    let refusal = Condition::parse("FilterExpression", "x", &mut placeholders()).unwrap_err().0;
    assert!(refusal.starts_with("Invalid FilterExpression: Syntax error"), "{refusal}");
}

#[test]
fn syntax_errors_take_precedence_over_semantic_ones() {
    assert!(condition_refusal("name = :undefined AND").contains("Syntax error"));
    assert!(condition_refusal("name = :undefined").contains("reserved keyword"));
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
        assert!(Condition::parse("FilterExpression", text, &mut placeholders()).unwrap().reads("pk"), "{text}");
    }
    assert!(!Condition::parse("FilterExpression", "m.pk = :a", &mut placeholders()).unwrap().reads("pk"));
}
