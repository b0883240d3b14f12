//! Properties that hold for every text and every value.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_sequence_of_tokens_makes_a_parser_panic(tokens in prop::collection::vec(prop::sample::select(vec![
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
        let holds = |text: &str| Condition::parse("ConditionExpression", text, &mut placeholders()).unwrap().holds(Some(&item));
        for (text, expected) in [("n = m", n == m), ("n <> m", n != m), ("n < m", n < m), ("n <= m", n <= m), ("n > m", n > m), ("n >= m", n >= m)] {
            prop_assert_eq!(holds(text), expected, "{}", text);
            prop_assert_eq!(holds(&format!("NOT {text}")), !expected, "{}", text);
        }
    }
}
