//! The HTTP route that lists the counters that the deployment defines, each with its kind and the actions of its
//! events.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tally_core::definitions::Definition;
use tally_core::ids::CounterKind;
use utoipa::ToSchema;

use super::Api;

/// The deployment's counters.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CounterList {
    /// In the order in which they were defined; likes come first.
    counters: Vec<CounterDefinition>,
}

/// One counter of each post, or of each hashtag.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CounterDefinition {
    /// What it is called.
    #[schema(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "retweets")]
    name: String,
    kind: Kind,
    /// The action of an event that puts a member, or adds an amount.
    #[schema(example = "retweet")]
    add: String,
    /// The action that takes a member away, or an amount off; absent where nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "unretweet")]
    remove: Option<String>,
    /// The field of an event that names what is counted.
    #[schema(example = "post_id")]
    subject: &'static str,
    /// The field that names the member; absent of a sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "user_id")]
    member: Option<&'static str>,
    /// The topic that its events are in; absent where that is the topic of likes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "retweets")]
    topic: Option<String>,
}

/// A set has members, each of which counts once. A sum is what was added, less what was taken off.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(example = "set")]
enum Kind {
    Set,
    Sum,
}

impl From<&Definition> for CounterDefinition {
    fn from(definition: &Definition) -> Self {
        let (kind, member) = match definition.kind() {
            CounterKind::Set => (Kind::Set, Some(definition.member.as_str())),
            CounterKind::Sum => (Kind::Sum, None),
        };
        Self {
            name: definition.name.to_string(),
            kind,
            add: definition.add.to_string(),
            remove: definition.remove.as_deref().map(str::to_owned),
            subject: definition.subject.as_str(),
            member,
            topic: definition.topic.as_deref().map(str::to_owned),
        }
    }
}

/// Which counters there are
///
/// The list only grows, at its end, and no entry of it ever changes. A counter that was defined a moment ago may take a
/// second to appear.
#[utoipa::path(
    get,
    path = "/v1/counters",
    tag = "counters",
    responses((status = 200, body = CounterList, description = "Their definitions")),
)]
pub(super) async fn list_counters(State(api): State<Api>) -> Json<CounterList> {
    Json(CounterList { counters: api.defined.all().iter().map(CounterDefinition::from).collect() })
}
