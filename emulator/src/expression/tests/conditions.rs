//! Tests the meaning of conditions, and the errors of invalid ones.

use super::*;

#[test]
fn conditions_that_hold_are_true() {
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
fn conditions_that_do_not_hold_are_false() {
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

/// Conditions with valid syntax but without meaning, each with DynamoDB's error message.
const MEANINGLESS: &[(&str, &str)] = &[
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
    ("attribute_exists(:a)", "Operator or function requires a document path; operator or function: attribute_exists"),
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
];

#[test]
fn meaningless_conditions_are_refused_with_dynamodbs_messages() {
    for (text, reason) in MEANINGLESS {
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
