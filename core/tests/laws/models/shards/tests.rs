use super::*;
use crate::explore::{bounds, breaks, holds_and_ends_well, strands};

/// A shard and its child.
const CHAIN: &[Option<usize>] = &[None, Some(0)];
/// A shard, its child, and the child's.
const LINE: &[Option<usize>] = &[None, Some(0), Some(1)];
/// A shard and its two children.
const FAMILY: &[Option<usize>] = &[None, Some(0), Some(0)];

#[test]
fn one_worker_reads_every_record_of_a_family_that_splits_while_listings_leave_shards_out() {
    holds_and_ends_well(&World { parents: FAMILY, lies: 2, crashes: 1, ..World::ONE });
}

#[test]
fn one_worker_records_every_loss_of_a_line_of_shards_that_are_trimmed_and_vanish() {
    holds_and_ends_well(&World { parents: LINE, trims: 2, crashes: bounds(0, 1), lies: bounds(0, 1), ..World::ONE });
}

#[test]
fn a_worker_that_crashes_meets_every_loss_again() {
    holds_and_ends_well(&World { parents: CHAIN, trims: 2, crashes: 2, ..World::ONE });
}

#[test]
fn two_workers_without_leases_read_every_record_and_record_every_loss() {
    holds_and_ends_well(&World { parents: CHAIN, workers: 2, coarse: true, trims: 1, ..World::ONE });
}

#[test]
#[ignore = "night: walks hundreds of thousands of states"]
fn two_workers_with_leases_read_every_record_though_one_crashes() {
    holds_and_ends_well(&World { parents: CHAIN, workers: 2, coarse: true, leases: true, crashes: 1, ..World::ONE });
}

#[test]
#[ignore = "night: walks hundreds of thousands of states"]
fn a_stream_first_seen_late_is_read_behind_its_gap() {
    holds_and_ends_well(&World { parents: CHAIN, workers: 2, coarse: true, late: true, crashes: 1, ..World::ONE });
}

#[test]
fn a_closed_shard_is_forgotten_and_never_numbered_again() {
    holds_and_ends_well(&World { parents: CHAIN, days: 1, lies: bounds(1, 2), ..World::ONE });
}

#[test]
fn a_child_read_before_its_parent_is_closed_is_seen() {
    breaks(&World { parents: CHAIN, ..World::ONE }.without(Rule::ParentsFirst), PARENT);
}

#[test]
fn a_shard_that_vanishes_without_a_record_is_seen() {
    breaks(&World { parents: CHAIN, trims: 1, ..World::ONE }.without(Rule::RecordVanished), SKIPPED);
}

#[test]
fn a_trim_without_a_record_is_seen() {
    breaks(&World { trims: 1, ..World::ONE }.without(Rule::RecordTrim), SKIPPED);
}

#[test]
fn a_stream_first_seen_without_a_record_is_seen() {
    breaks(&World { late: true, ..World::ONE }.without(Rule::RecordFirstSight), SKIPPED);
}

#[test]
fn a_living_shard_given_up_unasked_is_seen() {
    breaks(&World { lies: 3, ..World::ONE }.without(Rule::ProbeByName), LIVING);
}

#[test]
fn going_on_behind_a_loss_at_once_is_seen() {
    breaks(&World { trims: 1, ..World::ONE }.without(Rule::Hold), HASTE);
    breaks(&World { parents: CHAIN, trims: 1, ..World::ONE }.without(Rule::Hold), HASTE);
    breaks(&World { late: true, ..World::ONE }.without(Rule::Hold), HASTE);
}

#[test]
fn a_parent_closed_before_its_children_have_numbers_is_seen() {
    let lagging = World { parents: CHAIN, lies: 2, ..World::ONE };
    breaks(&lagging.without(Rule::ChildrenNumbered), CHILDLESS);
}

#[test]
fn a_shard_closed_before_all_of_it_is_applied_is_seen() {
    breaks(&World { parents: CHAIN, ..World::ONE }.without(Rule::AllApplied), SKIPPED);
}

#[test]
fn a_shard_forgotten_while_it_may_be_listed_again_is_seen() {
    breaks(&World { parents: LINE, lies: 1, ..World::ONE }.without(Rule::Memory), TWICE);
}

#[test]
fn a_child_numbered_before_its_parent_is_seen() {
    breaks(&World { parents: CHAIN, ..World::ONE }.without(Rule::AncestorsFirst), ORDER);
}

#[test]
fn a_lease_that_is_never_taken_from_a_dead_worker_strands_its_shard() {
    strands(&World { parents: CHAIN, leases: true, crashes: 1, ..World::ONE }.without(Rule::StaleLeases));
}
