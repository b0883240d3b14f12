//! What the document says of an id.

use std::borrow::Cow;

use tally_core::ids::MAX_ID_BYTES;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// No control characters: C0, DEL and C1, in an escape that the regular expressions of every client's language know.
const PATTERN: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";

/// The id of a post or a user, as a schema.
pub(crate) enum Id {}

impl PartialSchema for Id {
    fn schema() -> RefOr<Schema> {
        let description =
            format!("The id of a post or a user: 1 to {MAX_ID_BYTES} bytes of UTF-8 without control characters.");
        let id = ObjectBuilder::new().schema_type(Type::String).description(Some(description));
        id.min_length(Some(1)).max_length(Some(MAX_ID_BYTES)).pattern(Some(PATTERN)).examples(["p-1"]).build().into()
    }
}

impl ToSchema for Id {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Id")
    }
}
