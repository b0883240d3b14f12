//! Parses and checks the parameters that requests of several operations share: names of tables, limits, projections,
//! placeholders, and what to return.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::Error;
use crate::expression::{Placeholders, Projection};
use crate::value::Values;

/// `ExpressionAttributeNames`.
pub(super) type Names = Option<BTreeMap<String, String>>;

/// A request that only names a table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TableRequest {
    #[serde(default)]
    table_name: String,
}

impl TableRequest {
    pub(super) fn checked_name(self) -> Result<String, Error> {
        check_table_name(&self.table_name)?;
        Ok(self.table_name)
    }
}

/// Parses a parameter with a few possible words. The first one is the default.
pub(super) fn one_of<T: Copy>(parameter: &str, given: Option<&str>, choices: &[(&str, T)]) -> Result<T, Error> {
    let Some(given) = given else { return Ok(choices[0].1) };
    choices.iter().find(|(word, _)| *word == given).map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        constraint(parameter, given, &format!("Member must satisfy enum value set: [{}]", words.join(", ")))
    })
}

/// DynamoDB's error for a parameter that violates a constraint.
pub(super) fn constraint(parameter: &str, value: &str, rule: &str) -> Error {
    Error::validation(format!(
        "1 validation error detected: Value '{value}' at '{parameter}' failed to satisfy constraint: {rule}"
    ))
}

/// DynamoDB's error for an empty or too long text or list.
pub(super) fn wrong_length(parameter: &str, most: usize) -> Error {
    Error::validation(format!(
        "1 validation error detected: Value at '{parameter}' failed to satisfy constraint: \
         Member must have length less than or equal to {most}, Member must have length greater than or equal to 1"
    ))
}

/// Returns a parameter that must be present.
pub(super) fn required<T>(parameter: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| {
        Error::validation(format!(
            "1 validation error detected: Value null at '{parameter}' failed to satisfy constraint: Member must not be null"
        ))
    })
}

/// Checks a table's name: 3 to 255 letters, digits, dots, dashes and underscores.
pub(super) fn check_table_name(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return required("tableName", None);
    }
    if !(3..=255).contains(&name.len()) {
        return Err(Error::validation("TableName must be at least 3 characters long and at most 255 characters long"));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')) {
        return Err(constraint("tableName", name, "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"));
    }
    Ok(())
}

/// Parses `Limit`, which is at least one.
pub(super) fn check_limit(limit: Option<i64>) -> Result<Option<usize>, Error> {
    limit
        .map(|limit| match usize::try_from(limit) {
            Ok(limit) if limit > 0 => Ok(limit),
            _ => Err(constraint("limit", &limit.to_string(), "Member must have value greater than or equal to 1")),
        })
        .transpose()
}

/// Parses the `Limit` of a request with a maximum page size.
pub(super) fn page_limit(limit: Option<i64>, most: usize) -> Result<usize, Error> {
    let limit = check_limit(limit)?.unwrap_or(most);
    if limit > most {
        let rule = format!("Member must have value less than or equal to {most}");
        return Err(constraint("limit", &limit.to_string(), &rule));
    }
    Ok(limit)
}

/// Parses the projection of a read without other expressions.
pub(super) fn parse_projection(text: Option<&str>, names: Names) -> Result<Option<Projection>, Error> {
    let mut placeholders = Placeholders::new(names, None)?;
    let Some(text) = text else {
        placeholders.refuse_without_expression("ProjectionExpression is null")?;
        return Ok(None);
    };
    let projection = Projection::parse(text, &mut placeholders)?;
    placeholders.finish()?;
    Ok(Some(projection))
}

/// The placeholders of a request.
pub(super) fn placeholders(names: Names, values: Option<Values>) -> Result<Placeholders, Error> {
    Ok(Placeholders::new(names, values.map(|values| values.0))?)
}

/// `ReturnValues`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReturnValues {
    None,
    AllOld,
    UpdatedOld,
    AllNew,
    UpdatedNew,
}

impl ReturnValues {
    pub(super) fn parse(given: Option<&str>) -> Result<Self, Error> {
        let choices = [
            ("NONE", Self::None),
            ("ALL_OLD", Self::AllOld),
            ("UPDATED_OLD", Self::UpdatedOld),
            ("ALL_NEW", Self::AllNew),
            ("UPDATED_NEW", Self::UpdatedNew),
        ];
        one_of("returnValues", given, &choices)
    }

    /// Checks that a put or delete only asks for old values.
    pub(super) fn only_old(self) -> Result<Self, Error> {
        match self {
            Self::None | Self::AllOld => Ok(self),
            _ => Err(Error::validation("Return values set to invalid value")),
        }
    }
}

/// Parses `ReturnValuesOnConditionCheckFailure`: whether a failed condition returns the item.
pub(super) fn shows_item_on_failure(given: Option<&str>) -> Result<bool, Error> {
    one_of("returnValuesOnConditionCheckFailure", given, &[("NONE", false), ("ALL_OLD", true)])
}
