//! Properties of the core's pure parts, checked on generated inputs, each against the simplest statement of its
//! behaviour.

mod events;
mod ids;
mod regions;
mod safe;
mod spread;

use proptest::prelude::{ProptestConfig, Strategy};
use proptest::sample::select;

/// Returns a configuration whose runs leave no files behind: a failure worth keeping becomes a test with a name.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Generates ids that often coincide, and ids that look like row keys.
fn id() -> impl Strategy<Value = String> {
    let tricky = select(vec!["a", "b", "#", "a#0", "a#", "#1", "a#0#1", "é", "🎈", "\"", "\\", "a b"]);
    proptest::prop_oneof![3 => tricky.prop_map(str::to_owned), 1 => "[^\\p{Cc}]{1,20}"]
}
