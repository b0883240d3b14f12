//! Tests what `tally regions`, `tally status` and `tally post show` say about the other Regions whose counts a
//! deployment adds to its own.

use std::time::Duration;

use tally_adapters::dynamodb::regions::Regions;
use tally_core::cached::{StandingAt, Value};
use tally_core::changes::{Place, Standing};
use tally_core::ids::{CounterId, Region};
use tally_core::regions::RemotePosition;
use tally_core::topic::{Offset, TopicId};

use crate::stage::{PARTITIONS, Stage};

fn region(name: &str) -> Region {
    Region::new(name).unwrap()
}

/// Stores for the first partitions that a Region's entries have everything that was acknowledged up to `age` ago.
async fn heard(stage: &Stage, name: &str, age: Duration, partitions: u32) {
    for partition in 0..PARTITIONS {
        let as_of = Some(stage.clock.now().minus(age));
        let standing = StandingAt { at: Place::new(1, Offset(9)), standing: Standing { as_of, ..Standing::default() } };
        let start = RemotePosition::start(TopicId("t".into()), Offset(1));
        let position = RemotePosition { standing: (partition < partitions).then_some(standing), ..start };
        Regions::new(&stage.connection).store_position(&region(name), partition, &position).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_is_listed_with_its_age_and_one_that_is_silent_is_wrong_until_it_is_forgotten() {
    let stage = Stage::set().await;
    stage.shows("regions list", 0, ["this Region has no name"]).await;
    let regions = Regions::new(&stage.connection);
    regions.name(&region("eu"), &[region("us"), region("ap")]).await.unwrap();
    heard(&stage, "us", Duration::ZERO, PARTITIONS).await;
    heard(&stage, "ap", Duration::ZERO, 1).await;
    let said = stage.shows("status --late 10m", 1, []).await;
    let row = |of: &str| said.out.lines().filter(|line| line.contains(of)).map(str::to_owned).collect::<Vec<_>>();
    assert!(
        matches!(&row("us: 2 partitions, complete up to ")[..], [found] if found.starts_with("Regions ")),
        "{said:?}"
    );
    let ap = row("ap: 2 partitions, complete up to a time that is not known, nothing known of 1");
    assert!(ap.len() == 2 && ap[1].starts_with("Region silent") && ap[1].contains("TallyRegionSilent.md"), "{said:?}");
    heard(&stage, "ap", Duration::from_secs(61), PARTITIONS).await;
    let said = stage.tally("regions list").await;
    let row = |name: &str| said.out.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(said.code == Some(1) && row("eu").ends_with("this one") && row("ap").ends_with("silent"), "{said:?}");
    assert!(row("us").ends_with("2 of 2"), "{said:?}");
    for (name, code) in [("ap", 0), ("eu", 1), ("A", 2)] {
        stage.shows(&format!("regions forget {name}"), code, []).await;
        assert_eq!(stage.checkpoints.defined().await.unwrap().1.remotes.len(), 2, "{name}");
    }
    stage.shows("regions forget ap --yes --why gone-for-good", 0, ["ap is forgotten"]).await;
    let said = stage.tally("status --late 10m").await;
    assert!(said.code == Some(0) && !said.out.contains("ap: "), "{said:?}");
    stage.shows("ledger", 0, ["regions forget", "gone-for-good"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entries_of_other_regions_are_shown_with_a_post_that_is_explained() {
    let stage = Stage::set().await;
    let regions = Regions::new(&stage.connection);
    regions.name(&region("eu"), &[region("us")]).await.unwrap();
    let p = CounterId::likes("p".parse().unwrap());
    let value = Value { likes: 4, version: Place::new(1, Offset(3)), ..Value::default() };
    regions.put_entry(&p.in_region(&region("us")), &value, stage.clock.now()).await.unwrap();
    stage.shows("post show p --explain", 1, ["likes in us: 4, not exact, version"]).await;
    heard(&stage, "us", Duration::ZERO, PARTITIONS).await;
    stage.shows("post show p --explain", 0, ["likes in us: 4, exact, version"]).await;
    let shown = stage.tally("post show another --explain -o json").await;
    let us = &shown.json()["counters"][0]["regions"][0];
    assert!(us["region"] == "us" && us["value"] == 0 && us["exact"] == true && us["as_of"].is_u64(), "{shown:?}");
    let shown = stage.tally("post show p -o json").await;
    assert!(shown.json()["counters"][0]["regions"].is_null(), "{shown:?}");
}
