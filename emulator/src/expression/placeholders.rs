//! The names and values that a request gives for `#name` and `:value` in its expressions, with a record of which were
//! used: unused ones are refused.

use std::collections::BTreeMap;

use crate::limits::NAME_BYTES;
use crate::value::{Invalid, NAME_TOO_LONG, Value};

const MAX_KEY_SIZE: usize = 255;
const MAX_TOTAL_SIZE: usize = 2 * 1024 * 1024;

/// `ExpressionAttributeNames` and `ExpressionAttributeValues` of one request, shared by all its expressions.
#[derive(Debug, Default)]
pub(crate) struct Placeholders {
    names: BTreeMap<String, Slot<String>>,
    values: BTreeMap<String, Slot<Value>>,
}

#[derive(Debug)]
struct Slot<T> {
    content: T,
    used: bool,
}

impl Placeholders {
    /// Checks the maps of a request: empty maps and keys that are not placeholders are refused.
    pub(crate) fn new(
        names: Option<BTreeMap<String, String>>,
        values: Option<BTreeMap<String, Value>>,
    ) -> Result<Self, Invalid> {
        let names = slots("ExpressionAttributeNames", '#', names)?;
        let values = slots("ExpressionAttributeValues", ':', values)?;
        if let Some((key, _)) = names.iter().find(|(_, slot)| slot.content.is_empty()) {
            return Err(Invalid::new(format!(
                "ExpressionAttributeNames contains invalid value: Empty attribute name for key {key}"
            )));
        }
        if let Some((key, _)) = names.iter().find(|(_, slot)| slot.content.len() > NAME_BYTES) {
            return Err(Invalid::new(format!(
                "ExpressionAttributeNames contains invalid value: {NAME_TOO_LONG} for key {key}"
            )));
        }
        let names_size: usize = names.iter().map(|(key, slot)| key.len() + slot.content.len()).sum();
        let values_size: usize = values.iter().map(|(key, slot)| key.len() + slot.content.size()).sum();
        if names_size + values_size > MAX_TOTAL_SIZE {
            return Err(Invalid::new("ExpressionAttributeValues exceeds max size"));
        }
        Ok(Self { names, values })
    }

    /// Refuses placeholders that no expression has used. Call this once, after all expressions are parsed.
    pub(crate) fn finish(self) -> Result<(), Invalid> {
        refuse_unused("ExpressionAttributeNames", &self.names)?;
        refuse_unused("ExpressionAttributeValues", &self.values)
    }

    /// Refuses placeholders in a request without any expression that could use them.
    ///
    /// `absent` names the missing expressions for the message.
    pub(crate) fn refuse_without_expression(&self, absent: &str) -> Result<(), Invalid> {
        if !self.names.is_empty() {
            return Err(Invalid::new("ExpressionAttributeNames can only be specified when using expressions"));
        }
        if !self.values.is_empty() {
            return Err(Invalid::new(format!(
                "ExpressionAttributeValues can only be specified when using expressions: {absent}"
            )));
        }
        Ok(())
    }

    /// The name for `#key`, which is marked as used.
    pub(super) fn name(&mut self, key: &str) -> Option<&str> {
        let slot = self.names.get_mut(key)?;
        slot.used = true;
        Some(&slot.content)
    }

    /// The value for `:key`, which is marked as used.
    pub(super) fn value(&mut self, key: &str) -> Option<&Value> {
        let slot = self.values.get_mut(key)?;
        slot.used = true;
        Some(&slot.content)
    }
}

fn slots<T>(
    parameter: &str,
    sigil: char,
    given: Option<BTreeMap<String, T>>,
) -> Result<BTreeMap<String, Slot<T>>, Invalid> {
    let Some(given) = given else { return Ok(BTreeMap::new()) };
    if given.is_empty() {
        return Err(Invalid::new(format!("{parameter} must not be empty")));
    }
    for key in given.keys() {
        let word = key.strip_prefix(sigil).unwrap_or_default();
        if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(Invalid::new(format!("{parameter} contains invalid key: Syntax error; key: \"{key}\"")));
        }
        if key.len() > MAX_KEY_SIZE {
            return Err(Invalid::new(format!(
                "{parameter} contains invalid key: The expression attribute map contains a key that is too long; key: \"{key}\""
            )));
        }
    }
    Ok(given.into_iter().map(|(key, content)| (key, Slot { content, used: false })).collect())
}

fn refuse_unused<T>(parameter: &str, slots: &BTreeMap<String, Slot<T>>) -> Result<(), Invalid> {
    let unused: Vec<&str> = slots.iter().filter(|(_, slot)| !slot.used).map(|(key, _)| key.as_str()).collect();
    if unused.is_empty() {
        return Ok(());
    }
    Err(Invalid::new(format!("Value provided in {parameter} unused in expressions: keys: {{{}}}", unused.join(", "))))
}
