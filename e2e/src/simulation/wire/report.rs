//! The report of a window as a mutant writes it: what its parts say of the rows touched.

use serde_json::{Map, Value, json};

use super::super::ports::Shadows;
use super::Weakened;

/// Where a report's head stands.
const HEAD: &str = "head";

/// The rows touched that were there at the end are said to have been there, and not what they weighed.
pub(super) fn by_presence(item: &mut Value) -> Weakened {
    if run(item).is_none() {
        return Weakened::Not;
    }
    let Some(Value::Object(weights)) = item.as_object_mut().and_then(|item| item.remove("weights")) else {
        return Weakened::Not;
    };
    let weighed = weights["M"].as_object().into_iter().flatten().map(|(member, _)| json!(member));
    let liking = item["liking"]["SS"].as_array().cloned().unwrap_or_default();
    item["liking"] = json!({ "SS": liking.into_iter().chain(weighed).collect::<Vec<_>>() });
    Weakened::Changed
}

/// What changed inside the window, under other names than those of the rows: so it is added to all that was read. Without
/// the whole of it the report counts for nothing.
pub(super) fn by_deltas(item: &mut Value, shadows: &Shadows) -> Weakened {
    let Some(run) = run(item) else { return Weakened::Not };
    let deltas = shadows.deltas(&run);
    if item["sk"]["S"] == HEAD {
        if deltas.is_some() {
            return Weakened::Not;
        }
        item["key"] = json!({ "S": "-" });
        return Weakened::Changed;
    }
    let Some(part) = item.as_object_mut() else { return Weakened::Not };
    let touched: Vec<String> = members(part).collect();
    part.retain(|name, _| !["liking", "not_liking", "weights"].contains(&name.as_str()));
    let deltas = deltas.unwrap_or_default();
    let mut weights = Map::new();
    for member in touched {
        let delta = deltas.get(&member).copied().unwrap_or(0);
        // Both kinds of rows keep a sort key of their kind.
        let renamed = member.strip_prefix('\u{1}').map_or_else(
            || format!("window-{member}"),
            |cell| format!("\u{1}{}", cell.replacen("cell/", "cell/window.", 1)),
        );
        weights.insert(renamed, json!({ "N": delta.to_string() }));
    }
    part.insert("weights".to_owned(), json!({ "M": weights }));
    Weakened::Changed
}

/// The run of a report's item.
fn run(item: &Value) -> Option<String> {
    item["pk"]["S"].as_str()?.strip_prefix("report#").map(str::to_owned)
}

/// Every member that a part names.
fn members(part: &Map<String, Value>) -> impl Iterator<Item = String> {
    let set = |name: &str| part.get(name).and_then(|set| set["SS"].as_array()).into_iter().flatten();
    let sets = set("liking").chain(set("not_liking")).filter_map(|member| member.as_str().map(str::to_owned));
    let weighed = part.get("weights").and_then(|weights| weights["M"].as_object()).into_iter().flatten();
    sets.chain(weighed.map(|(member, _)| member.clone()))
}
