//! Who is in a group, and which partitions of a topic each member holds.

use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::groups::{GroupList, GroupMemberInfo};
use tally_core::ports::Outcome;

use super::fault::fault_of;
use super::reader::TopicReader;

/// How long the brokers may take to describe a group.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What its process calls itself.
    pub client: String,
    /// Where it connects from.
    pub host: String,
    /// What it holds of the topic.
    pub partitions: Vec<u32>,
}

impl TopicReader {
    /// The members of the reader's group; none where there is no such group.
    ///
    /// # Errors
    /// The brokers do not say.
    pub async fn members(&self) -> Outcome<Vec<Member>> {
        let (group, topic) = (self.group.clone(), self.topic.clone());
        self.blocking(move |consumer| {
            let listed = consumer.fetch_group_list(Some(&group), TIMEOUT);
            let listed = listed.map_err(|error| fault_of(&format!("describing group `{group}`"), &error))?;
            Ok(members(&listed, &topic))
        })
        .await
    }
}

fn members(listed: &GroupList, topic: &str) -> Vec<Member> {
    let member = |member: &GroupMemberInfo| Member {
        client: member.client_id().to_owned(),
        // A broker writes it as `/10.0.0.7`.
        host: member.client_host().trim_start_matches('/').to_owned(),
        partitions: member.assignment().and_then(|assigned| assigned_of(assigned, topic)).unwrap_or_default(),
    };
    listed.groups().iter().flat_map(|group| group.members()).map(member).collect()
}

/// The partitions of `topic` in an assignment of Kafka's consumer protocol: a version, and for each topic its name and its
/// partitions. `None` for what is no such assignment.
fn assigned_of(mut assigned: &[u8], topic: &str) -> Option<Vec<u32>> {
    let rest = &mut assigned;
    take::<2>(rest)?;
    let mut found = Vec::new();
    for _ in 0..u32::from_be_bytes(take(rest)?) {
        let length = usize::from(u16::from_be_bytes(take(rest)?));
        let (name, behind) = rest.split_at_checked(length)?;
        *rest = behind;
        for _ in 0..u32::from_be_bytes(take(rest)?) {
            let partition = u32::from_be_bytes(take(rest)?);
            if name == topic.as_bytes() {
                found.push(partition);
            }
        }
    }
    Some(found)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_holds_of_a_topic_is_read_from_its_assignment_and_nothing_from_anything_else() {
        let of = |topic: &str, partitions: &[u32]| {
            let length = u16::try_from(topic.len()).unwrap().to_be_bytes();
            let count = u32::try_from(partitions.len()).unwrap().to_be_bytes();
            let each = partitions.iter().flat_map(|partition| partition.to_be_bytes());
            length.into_iter().chain(topic.bytes()).chain(count).chain(each).collect::<Vec<u8>>()
        };
        let head = [0, 1, 0, 0, 0, 2];
        let mut assigned = [&head[..], &of("likes", &[0, 300]), &of("views", &[7])].concat();
        assigned.extend([0xff; 4]);
        assert_eq!(assigned_of(&assigned, "likes"), Some(vec![0, 300]));
        assert_eq!(assigned_of(&assigned, "other"), Some(vec![]));
        assert_eq!(assigned_of(&assigned[..20], "likes"), None);
        assert_eq!(assigned_of(&[], "likes"), None);
    }
}
