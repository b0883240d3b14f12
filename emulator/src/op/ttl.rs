//! UpdateTimeToLive and DescribeTimeToLive: switch the expiry of a table's items on or off, and tell which attribute it
//! goes by.

use serde::Deserialize;

use crate::engine::Engine;
use crate::error::Error;
use crate::json::Writer;

use super::params::{TableRequest, check_table_name, required};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Specification {
    enabled: bool,
    attribute_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct UpdateTimeToLive {
    #[serde(default)]
    table_name: String,
    time_to_live_specification: Option<Specification>,
}

/// Enables or disables expiry at once.
pub(super) fn update(request: UpdateTimeToLive, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    check_table_name(&request.table_name)?;
    let specification = required("timeToLiveSpecification", request.time_to_live_specification)?;
    let Specification { enabled, attribute_name } = specification;
    if !(1..=255).contains(&attribute_name.len()) {
        return Err(Error::validation("TimeToLiveSpecification.AttributeName must have between 1 and 255 characters"));
    }
    let table = engine.table_mut(&request.table_name)?;
    match (enabled, &table.expiry) {
        (true, Some(_)) => return Err(Error::validation("TimeToLive is already enabled")),
        (false, None) => return Err(Error::validation("TimeToLive is already disabled")),
        (false, Some(expiry)) if expiry.attribute != attribute_name => {
            return Err(Error::validation(format!(
                "TimeToLive is active on a different AttributeName: current AttributeName is {}",
                expiry.attribute
            )));
        }
        (true, None) => table.expire_by(attribute_name.clone()),
        (false, Some(_)) => table.expiry = None,
    }
    Ok(Writer::document(|out| {
        out.key("TimeToLiveSpecification").object(|out| {
            out.key("Enabled").plain(enabled);
            out.key("AttributeName").string(&attribute_name);
        });
    }))
}

/// Returns the expiry of a table.
pub(super) fn describe(request: TableRequest, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let table = engine.table(&request.checked_name()?)?;
    Ok(Writer::document(|out| {
        out.key("TimeToLiveDescription").object(|out| {
            let status = if table.expiry.is_some() { "ENABLED" } else { "DISABLED" };
            out.key("TimeToLiveStatus").string(status);
            if let Some(expiry) = &table.expiry {
                out.key("AttributeName").string(&expiry.attribute);
            }
        });
    }))
}
