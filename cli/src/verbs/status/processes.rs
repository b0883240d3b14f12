//! The parts of `tally status` about processes: the members of the Kafka groups, and the services that the operator
//! names with `--service`.

use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb;
use tally_adapters::kafka::Member;
use tally_core::ports::TopicReader as _;
use tally_service::Host;

use super::{Status, within};
use crate::desk::{Desk, folds_of};
use crate::ended;
use crate::probe::{Found, Target};
use crate::said::{ago, counted, ranges};

/// How long a service may take to say whether it is ready.
const PATIENCE: Duration = Duration::from_secs(2);
/// The runbook for a process that is missing.
const RUNBOOK: Option<&str> = Some("ops/runbooks/TallyServiceMissing.md");

/// Looks at the groups of consumers and change-streamers: their members, and partitions that no member has.
pub(super) async fn members(desk: &Desk, status: &mut Status) {
    if !desk.has_kafka() {
        return;
    }
    let folds = folds_of(&desk.connection.tables().prefix);
    let groups = [("consumers", &desk.group, &desk.topic), ("change-streamers", &folds, &desk.changes_topic)];
    for (what, group, topic) in groups {
        let looked = async {
            let reader = desk.reader_of(group, topic)?;
            let partitions = reader.logs().await?.len();
            anyhow::Ok((reader.members().await?, u32::try_from(partitions)?))
        };
        match within(desk.patience, looked).await {
            Err(error) => status.unseen(what, format!("Kafka does not say who is in {group}: {}", ended::line(&error))),
            Ok((members, partitions)) => seen(what, group, topic, members, partitions, status),
        }
    }
}

fn seen(what: &'static str, group: &str, topic: &str, members: Vec<Member>, partitions: u32, status: &mut Status) {
    let text: Vec<String> = members
        .iter()
        .map(|member| format!("{} at {}: {}", member.client, member.host, ranges(member.partitions.iter().copied())))
        .collect();
    let text = if text.is_empty() { "none".to_owned() } else { text.join("; ") };
    status.figure(what, format!("{group}: {text}"), json!({"group": group, "members": members.len()}));
    let is_held = |index: &u32| members.iter().any(|member| member.partitions.contains(index));
    let missing: Vec<u32> = (0..partitions).filter(|index| !is_held(index)).collect();
    if !missing.is_empty() {
        let detail = format!("{topic}/{}: no member of {group} reads it", ranges(missing));
        status.wrong("process missing", detail, RUNBOOK);
    }
    let process = |Member { client, host, partitions }: Member| json!({"group": group, "client": client, "host": host, "partitions": partitions});
    status.processes.extend(members.into_iter().map(process));
}

/// Asks the services whether they are ready, and compares their clocks and this machine's with the store's.
pub(super) fn services(desk: &Desk, urls: &[Target], status: &mut Status) {
    let store = desk.connection.store_clock();
    let off = |at| store.bounds().and_then(|bounds| bounds.off(at).map(|off| (off, at > bounds.latest)));
    let said = |(off, is_fast): (Duration, bool)| format!("{} {}", ago(off), if is_fast { "fast" } else { "slow" });
    if let Some(off) = off(Host::new("tally").clock().now()) {
        status.wrong("clock off", format!("this machine's clock is {}", said(off)), None);
    }
    if urls.is_empty() {
        let why = "count-api, batch-recount, tally-trends, and the clock of every process: say --service URL for each";
        status.unseen("services", why);
        return;
    }
    let mut ready = 0;
    for url in urls {
        match url.ask_whether_ready(PATIENCE) {
            Ok(Found { status: code, body, date }) => {
                match code {
                    200 => ready += 1,
                    code => status.wrong("not ready", format!("{url} answers {code}: {}", body.trim()), None),
                }
                if let Some(off) = date.and_then(|date| off(dynamodb::http_date(&date)?)) {
                    status.wrong("clock off", format!("the clock of {url} is {}", said(off)), None);
                }
            }
            Err(error) => status.wrong("not ready", format!("{url} does not answer: {error}"), RUNBOOK),
        }
    }
    let text = format!("{ready} of {} ready", counted(urls.len() as u64, "service"));
    status.figure("services", text, json!({"asked": urls.len(), "ready": ready}));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_no_member_reads_is_a_missing_process_and_members_are_named() {
        let mut status = Status::default();
        let member = Member { client: "c-1".into(), host: "10.0.0.7".into(), partitions: vec![0, 1, 4] };
        seen("consumers", "tally-consumer", "likes", vec![member], 6, &mut status);
        assert_eq!(status.figures[0].1, "tally-consumer: c-1 at 10.0.0.7: 0-1, 4");
        let (what, detail, _) = &status.wrong[0];
        assert_eq!((*what, detail.as_str()), ("process missing", "likes/2-3, 5: no member of tally-consumer reads it"));
    }

    #[test]
    fn the_group_of_folds_is_the_change_streamers() {
        assert_eq!(folds_of("blue-"), tally_change_streamer::group_of("blue-"));
    }
}
