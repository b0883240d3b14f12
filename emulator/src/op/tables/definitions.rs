//! Checks the keys and indexes in a CreateTable request: the declared types, and their use in key schemas and
//! projections.

use serde::Deserialize;

use crate::engine::schema::{KeyAttribute, Schema};
use crate::engine::table::LocalIndex;
use crate::error::Error;
use crate::limits::{KEY_NAME_BYTES, LOCAL_INDEXES};
use crate::op::params::{check_table_name, one_of, wrong_length};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AttributeDefinition {
    attribute_name: String,
    attribute_type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct KeyElement {
    attribute_name: String,
    key_type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct LocalIndexRequest {
    index_name: String,
    key_schema: Vec<KeyElement>,
    projection: Option<ProjectionRequest>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct ProjectionRequest {
    projection_type: String,
}

/// The declared types of key attributes.
pub(super) struct Definitions(Vec<AttributeDefinition>);

impl Definitions {
    /// Checks that all definitions have different names.
    pub(super) fn new(definitions: Vec<AttributeDefinition>) -> Result<Self, Error> {
        for (nth, AttributeDefinition { attribute_name: name, .. }) in definitions.iter().enumerate() {
            check_key_name("attributeDefinitions.attributeName", name)?;
            if definitions[..nth].iter().any(|earlier| earlier.attribute_name == *name) {
                return Err(Error::validation(format!("Attribute Name is duplicated: {name}")));
            }
        }
        Ok(Self(definitions))
    }

    fn key_attribute(&self, name: &str) -> Result<KeyAttribute, Error> {
        let found = self.0.iter().find(|definition| definition.attribute_name == name).ok_or_else(|| {
            Error::parameters(format!(
                "Some index key attributes are not defined in AttributeDefinitions. Keys: [{name}]"
            ))
        })?;
        let types = ["B", "N", "S"].map(|code| (code, code));
        let key_type = one_of("attributeDefinitions.attributeType", Some(&found.attribute_type), &types)?;
        Ok(KeyAttribute { name: name.to_owned(), key_type })
    }

    pub(super) fn schema(&self, elements: &[KeyElement]) -> Result<Schema, Error> {
        let (hash, range) = match elements {
            [hash] => (hash, None),
            [hash, range] => (hash, Some(range)),
            _ => return Err(wrong_length("keySchema", 2)),
        };
        for element in elements {
            check_key_name("keySchema.attributeName", &element.attribute_name)?;
        }
        if hash.key_type != "HASH" || range.is_some_and(|range| range.key_type != "RANGE") {
            return Err(Error::validation(
                "Invalid KeySchema: The first KeySchemaElement is not a HASH key type, or the second is not a RANGE key type",
            ));
        }
        if range.is_some_and(|range| range.attribute_name == hash.attribute_name) {
            return Err(Error::validation(
                "Both the Hash Key and the Range Key element in the KeySchema have the same name",
            ));
        }
        Ok(Schema {
            hash: self.key_attribute(&hash.attribute_name)?,
            range: range.map(|range| self.key_attribute(&range.attribute_name)).transpose()?,
        })
    }

    pub(super) fn indexes(&self, requests: Vec<LocalIndexRequest>, schema: &Schema) -> Result<Vec<LocalIndex>, Error> {
        if requests.len() > LOCAL_INDEXES {
            let most = format!("Number of LocalSecondaryIndexes exceeds per-table limit of {LOCAL_INDEXES}");
            return Err(Error::parameters(most));
        }
        let mut indexes: Vec<LocalIndex> = Vec::new();
        for request in requests {
            let name = request.index_name;
            check_table_name(&name)?;
            let own = self.schema(&request.key_schema)?;
            let Some(range) = own.range.filter(|_| own.hash == schema.hash && schema.range.is_some()) else {
                return Err(Error::parameters(format!(
                    "Index {name} needs the table's HASH key and a RANGE key of its own: \
                     Local Secondary indices are not allowed on hash tables, only hash and range tables"
                )));
            };
            if indexes.iter().any(|index| index.name == name) {
                return Err(Error::parameters(format!("Duplicate index name: {name}")));
            }
            let missing = || Error::parameters(format!("Projection is missing of index {name}"));
            let projection = request.projection.ok_or_else(missing)?;
            let types = ["ALL", "KEYS_ONLY"].map(|word| (word, word));
            let projection = one_of("projection.projectionType", Some(&projection.projection_type), &types)?;
            indexes.push(LocalIndex { name, range, projection });
        }
        Ok(indexes)
    }

    /// Checks that only key attributes have declared types.
    pub(super) fn refuse_unused(&self, schema: &Schema, indexes: &[LocalIndex]) -> Result<(), Error> {
        let used =
            |name: &str| schema.names().any(|key| key == name) || indexes.iter().any(|index| index.range.name == name);
        match self.0.iter().find(|definition| !used(&definition.attribute_name)) {
            None => Ok(()),
            Some(unused) => Err(Error::parameters(format!(
                "Some AttributeDefinitions are not used. AttributeDefinitions: [{}]",
                unused.attribute_name
            ))),
        }
    }
}

fn check_key_name(parameter: &str, name: &str) -> Result<(), Error> {
    if (1..=KEY_NAME_BYTES).contains(&name.len()) { Ok(()) } else { Err(wrong_length(parameter, KEY_NAME_BYTES)) }
}
