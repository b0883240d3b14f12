//! Names and values of one request's expressions. Every attribute is used through an alias, so that no reserved word
//! and no character of a name can break an expression.

use std::collections::HashMap;
use std::fmt::Display;

use aws_sdk_dynamodb::types::{AttributeValue, BatchStatementRequest, ReturnValuesOnConditionCheckFailure};

/// Attributes by alias.
pub(super) type Names = HashMap<String, String>;
/// Values by alias.
pub(super) type Values = HashMap<String, AttributeValue>;

/// A statement of a batch. One whose condition is false shows the item that stands there.
pub(super) fn statement(text: impl Into<String>, parameters: Vec<AttributeValue>) -> BatchStatementRequest {
    BatchStatementRequest::builder()
        .statement(text)
        .set_parameters(Some(parameters))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .expect("the statement is set")
}

/// What stands for `#name` and `:value`. The aliases are short: an expression has room for 4 KB.
#[derive(Clone, Debug, Default)]
pub(super) struct Aliases {
    names: Names,
    values: Vec<AttributeValue>,
}

impl Aliases {
    /// An alias of an attribute.
    pub(super) fn name(&mut self, attribute: impl Into<String>) -> String {
        let alias = format!("#{}", self.names.len());
        self.names.insert(alias.clone(), attribute.into());
        alias
    }

    /// Aliases of several attributes.
    pub(super) fn names<const N: usize>(&mut self, attributes: [&str; N]) -> [String; N] {
        attributes.map(|attribute| self.name(attribute))
    }

    /// An alias of a value.
    pub(super) fn value(&mut self, value: AttributeValue) -> String {
        let alias = format!(":{}", self.values.len());
        self.values.push(value);
        alias
    }

    /// An alias of a text.
    pub(super) fn text(&mut self, text: impl Into<String>) -> String {
        self.value(AttributeValue::S(text.into()))
    }

    /// An alias of a number.
    pub(super) fn number(&mut self, number: impl Display) -> String {
        self.value(AttributeValue::N(number.to_string()))
    }

    /// Both maps as a request takes them: none rather than an empty one.
    pub(super) fn finish(self) -> (Option<Names>, Option<Values>) {
        let names = (!self.names.is_empty()).then_some(self.names);
        let by_alias = |(nth, value)| (format!(":{nth}"), value);
        let values = (!self.values.is_empty()).then(|| self.values.into_iter().enumerate().map(by_alias).collect());
        (names, values)
    }
}
