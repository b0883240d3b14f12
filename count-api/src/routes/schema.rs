//! What the document says of ids and of the paths that several operations have.

use std::borrow::Cow;

use tally_core::ids::MAX_ID_BYTES;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

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

/// The path of one like.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes what extractors read")]
pub(super) struct LikePath {
    /// The post
    #[param(value_type = Id, example = "p-1")]
    post_id: String,
    /// The user
    #[param(value_type = Id, example = "u-1")]
    user_id: String,
}

/// The path of one member of a set.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes what extractors read")]
pub(super) struct MemberPath {
    /// The post
    #[param(value_type = Id, example = "p-1")]
    post_id: String,
    /// The set's name
    #[param(example = "retweets")]
    counter: String,
    /// The member
    #[param(value_type = Id, example = "u-1")]
    member: String,
}
