//! Projections: selected parts of an item.

use std::collections::BTreeMap;

use super::Placeholders;
use super::parser;
use super::path::{Path, Step};
use crate::value::{Invalid, Item, Value};

/// Several paths in an item as a tree. No path leads through another one.
#[derive(Clone, Debug)]
pub struct Projection(BTreeMap<String, Part>);

impl Projection {
    /// Parses the text and resolves the placeholders.
    pub fn parse(text: &str, placeholders: &mut Placeholders) -> Result<Self, Invalid> {
        let paths = parser::parse("ProjectionExpression", text, placeholders, |parser| {
            let paths = parser.list(|parser| parser.path(&[]))?;
            parser.refuse_clashes(&paths.iter().collect::<Vec<_>>());
            Ok(paths)
        })?;
        Ok(Self::of(paths.iter()))
    }

    pub(super) fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let mut roots = BTreeMap::new();
        for path in paths {
            Part::add(&path.steps, roots.entry(path.root.clone()));
        }
        Self(roots)
    }

    /// The selected parts of this item. Absent ones are left out.
    pub fn project(&self, item: &Item) -> Item {
        Item(pick_fields(&self.0, &item.0))
    }
}

#[derive(Clone, Debug)]
enum Part {
    Whole,
    Fields(BTreeMap<String, Part>),
    Elements(BTreeMap<usize, Part>),
}

impl Part {
    fn add<K: Ord>(steps: &[Step], entry: std::collections::btree_map::Entry<'_, K, Part>) {
        let Some((step, rest)) = steps.split_first() else {
            entry.or_insert(Self::Whole);
            return;
        };
        match (step, entry.or_insert_with(|| Self::of(step))) {
            (Step::Field(name), Self::Fields(fields)) => Self::add(rest, fields.entry(name.clone())),
            (Step::Index(index), Self::Elements(elements)) => Self::add(rest, elements.entry(*index)),
            _ => {}
        }
    }

    fn of(step: &Step) -> Self {
        match step {
            Step::Field(_) => Self::Fields(BTreeMap::new()),
            Step::Index(_) => Self::Elements(BTreeMap::new()),
        }
    }

    fn pick(&self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::Whole, _) => Some(value.clone()),
            (Self::Fields(fields), Value::M(map)) => {
                Some(pick_fields(fields, map)).filter(|picked| !picked.is_empty()).map(Value::M)
            }
            (Self::Elements(elements), Value::L(list)) => {
                let picked = elements.iter().filter_map(|(index, part)| part.pick(list.get(*index)?));
                Some(picked.collect::<Vec<_>>()).filter(|picked| !picked.is_empty()).map(Value::L)
            }
            _ => None,
        }
    }
}

fn pick_fields(fields: &BTreeMap<String, Part>, map: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    fields.iter().filter_map(|(name, part)| Some((name.clone(), part.pick(map.get(name)?)?))).collect()
}
