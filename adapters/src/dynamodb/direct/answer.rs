//! What the service answers, and how it refuses.

use aws_smithy_types::error::ErrorMetadata;
use serde::Deserialize;

use super::super::item::Item;
use super::value::item;

/// The answer to an update that returns the item.
#[derive(Debug, Default, Deserialize)]
pub(in super::super) struct Updated {
    #[serde(rename = "Attributes", default, deserialize_with = "item")]
    pub(in super::super) attributes: Item,
}

/// A refusal, with the item that it shows.
#[derive(Debug)]
pub(in super::super) struct Refusal {
    pub(in super::super) meta: ErrorMetadata,
    pub(super) status: u16,
    pub(in super::super) item: Item,
    /// Why each item of a transaction refused.
    reasons: Vec<Reason>,
}

/// Why one item of a transaction refused; `None` is also said by its name.
#[derive(Debug, Deserialize)]
struct Reason {
    #[serde(rename = "Code")]
    code: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Body {
    #[serde(rename = "__type", default)]
    kind: String,
    #[serde(alias = "Message", default)]
    message: Option<String>,
    #[serde(rename = "Item", default, deserialize_with = "item")]
    item: Item,
    #[serde(rename = "CancellationReasons", default)]
    reasons: Vec<Reason>,
}

impl Refusal {
    /// Reads a refusal; one that is no JSON, such as a proxy's, has no name.
    pub(in super::super) fn read(status: u16, body: &[u8]) -> Self {
        let Body { kind, message, item, reasons } = serde_json::from_slice(body).unwrap_or_default();
        // `com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException`, with or without what stands around the name.
        let name = kind.rsplit('#').next().and_then(|name| name.split(':').next()).filter(|name| !name.is_empty());
        let mut meta = ErrorMetadata::builder();
        if let Some(name) = name {
            meta = meta.code(name);
        }
        if let Some(message) = message {
            meta = meta.message(message);
        }
        Self { meta: meta.build(), status, item, reasons }
    }

    /// The codes of a cancelled transaction's reasons, in the order of its items.
    pub(in super::super) fn cancelled(&self) -> Option<impl Iterator<Item = Option<&str>>> {
        let is_cancelled = self.meta.code() == Some("TransactionCanceledException");
        is_cancelled.then(|| self.reasons.iter().map(|reason| reason.code.as_deref()))
    }

    /// Whether the request's condition did not hold.
    pub(in super::super) fn is_condition(&self) -> bool {
        self.meta.code() == Some("ConditionalCheckFailedException")
    }
}
