//! Projection expressions: which parts of an item a read returns.

use std::collections::BTreeMap;

use super::Placeholders;
use super::parser;
use super::path::{Path, Step};
use crate::value::{Invalid, Item, Value};

/// Several paths in an item. No path leads through another one.
#[derive(Clone, Debug)]
pub(crate) struct Projection(Vec<Path>);

impl Projection {
    /// Parses the text and resolves the placeholders.
    pub(crate) fn parse(text: &str, placeholders: &mut Placeholders) -> Result<Self, Invalid> {
        parser::parse("ProjectionExpression", text, placeholders, |parser| {
            let paths = parser.list(|parser| parser.path(&[]))?;
            parser.refuse_clashes(&paths.iter().collect::<Vec<_>>());
            Ok(Self(paths))
        })
    }

    /// The selected parts of this item. Absent ones are left out.
    pub(crate) fn project(&self, item: &Item) -> Item {
        project(&self.0.iter().collect::<Vec<_>>(), item)
    }
}

/// The parts of an item at these paths.
pub(super) fn project(paths: &[&Path], item: &Item) -> Item {
    let mut paths = paths.to_vec();
    paths.sort_unstable();
    let parts = paths.chunk_by(|one, next| one.root == next.root).filter_map(|of_attribute| {
        let name = of_attribute[0].root.as_str();
        let ways: Vec<&[Step]> = of_attribute.iter().map(|path| path.steps.as_slice()).collect();
        Some((name, pick(item.get(name)?, &ways)?))
    });
    parts.collect()
}

/// The parts of a value at the ends of these ways. Maps and lists on the way have only the parts that were found.
fn pick(value: &Value, ways: &[&[Step]]) -> Option<Value> {
    if ways.iter().any(|way| way.is_empty()) {
        return Some(value.clone());
    }
    let below = |leads_there: &dyn Fn(&Step) -> bool, value: &Value| {
        let ways: Vec<&[Step]> = ways.iter().filter(|way| leads_there(&way[0])).map(|way| &way[1..]).collect();
        if ways.is_empty() { None } else { pick(value, &ways) }
    };
    match value {
        Value::M(map) => {
            let part = |(name, value): (&String, &Value)| {
                let leads_there = |step: &Step| matches!(step, Step::Field(field) if field == name);
                Some((name.clone(), below(&leads_there, value)?))
            };
            let parts: BTreeMap<String, Value> = map.iter().filter_map(part).collect();
            (!parts.is_empty()).then_some(Value::M(parts))
        }
        Value::L(list) => {
            let part = |(index, value): (usize, &Value)| below(&|step| *step == Step::Index(index), value);
            let parts: Vec<Value> = list.iter().enumerate().filter_map(part).collect();
            (!parts.is_empty()).then_some(Value::L(parts))
        }
        _ => None,
    }
}
