//! The fences of a partition's lanes, as they stand together: one configuration, one topic, and each its own offset.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Fence, Offset, Partition, Terms, TopicId};
use crate::ids::{Lane, LaneCount};

/// The fences of all lanes of one partition, in order. All have the terms that lane 0 states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fences(Vec<Fence>);

/// Fences that cannot have stood together: the change that makes lanes is one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Torn {
    /// Lane 0 states more lanes or fewer than have a fence.
    #[error("{stated} lanes are stated, and {found} have a fence")]
    Count { stated: usize, found: usize },
    /// A lane is of another configuration, topic or generation than lane 0.
    #[error("lane {0} is of another configuration than lane 0: was an item edited, or restored without the others")]
    Lane(Lane),
}

impl Fences {
    /// Fences read at one moment, lane 0's first. The others take its terms.
    ///
    /// # Errors
    /// They cannot have stood together.
    pub fn together(mut lanes: Vec<Fence>) -> Result<Self, Torn> {
        let found = lanes.len();
        let Some(first) = lanes.first().cloned() else { return Err(Torn::Count { stated: 1, found }) };
        let stated = first.terms.lanes.get();
        if stated != found {
            return Err(Torn::Count { stated, found });
        }
        for (lane, fence) in first.terms.lanes.all().zip(&mut lanes) {
            let fits = fence.lane == lane && fence.cfg == first.cfg && fence.topic == first.topic;
            if !fits || fence.terms.generation != first.terms.generation {
                return Err(Torn::Lane(lane));
            }
            fence.terms = first.terms;
        }
        Ok(Self(lanes))
    }

    /// Lane 0's fence.
    pub fn first(&self) -> &Fence {
        &self.0[0]
    }

    /// The fence of the lane that is furthest behind: reading starts there, and everything before it is done.
    pub fn least(&self) -> &Fence {
        self.0.iter().min_by_key(|fence| fence.offset).expect("there is one lane at least")
    }

    /// The offset of the lane that is furthest ahead.
    pub fn furthest(&self) -> Offset {
        self.0.iter().map(|fence| fence.offset).max().expect("there is one lane at least")
    }

    /// The fence of `lane`, if there is such a lane.
    pub fn get(&self, lane: Lane) -> Option<&Fence> {
        self.0.get(lane.index())
    }

    /// Each of them, in the order of lanes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Fence> {
        self.0.iter()
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> LaneCount {
        self.first().terms.lanes
    }

    /// What all of them state.
    pub fn terms(&self) -> Terms {
        self.first().terms
    }

    /// The topic that their offsets count in.
    pub fn topic(&self) -> &TopicId {
        &self.first().topic
    }

    /// The configuration of all of them.
    pub fn cfg(&self) -> u64 {
        self.first().cfg
    }

    /// The fences of as many lanes as `terms` states, all at `offset` of the same topic.
    #[must_use]
    pub fn level(&self, offset: Offset, terms: Terms) -> Self {
        let lane = |lane| Fence { lane, offset, terms, ..self.first().clone() };
        Self(terms.lanes.all().map(lane).collect())
    }

    /// The same lanes in `topic`, under `terms`, each where `offset` says.
    #[must_use]
    pub fn reset(&self, topic: &TopicId, terms: Terms, offset: impl Fn(&Fence) -> Offset) -> Self {
        let terms = Terms { lanes: self.lanes(), ..terms };
        let lane = |fence: &Fence| Fence { offset: offset(fence), topic: topic.clone(), terms, ..fence.clone() };
        Self(self.0.iter().map(lane).collect())
    }

    /// The same with a configuration one above that of `seen`: what the store makes of fences that are put in the place of others.
    #[must_use]
    pub fn raised_above(&self, seen: &Self) -> Self {
        let cfg = seen.cfg() + 1;
        Self(self.0.iter().map(|fence| Fence { cfg, ..fence.clone() }).collect())
    }

    /// Takes note that one of them has moved.
    pub fn moved(&mut self, lane: Lane, to: Offset) {
        if let Some(fence) = self.0.get_mut(lane.index()) {
            fence.offset = to;
        }
    }
}

/// How far each partition is: where its least lane is, of fences read in any order.
pub fn least_of_each(fences: &[(Partition, Fence)]) -> BTreeMap<u32, Offset> {
    let mut least = BTreeMap::new();
    for (partition, fence) in fences {
        let offset = least.entry(partition.index).or_insert(fence.offset);
        *offset = fence.offset.min(*offset);
    }
    least
}

/// The fence of a partition of one lane.
impl From<Fence> for Fences {
    fn from(fence: Fence) -> Self {
        let terms = Terms { lanes: LaneCount::ONE, ..fence.terms };
        Self(vec![Fence { lane: Lane::FIRST, terms, ..fence }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(lane: u8, offset: u64) -> Fence {
        let terms = Terms { lanes: LaneCount::new(2).unwrap(), defs: 3, ..Terms::default() };
        let lane = Lane::new(lane).unwrap();
        let terms = if lane == Lane::FIRST { terms } else { Terms::default() };
        Fence { lane, terms, ..Fence::new(Offset(offset), 4, TopicId("t".into())) }
    }

    #[test]
    fn lanes_stand_together_by_one_configuration_and_have_the_terms_of_the_first() {
        let fences = Fences::together(vec![fence(0, 9), fence(1, 5)]).unwrap();
        assert_eq!((fences.least().offset, fences.furthest(), fences.lanes().get()), (Offset(5), Offset(9), 2));
        assert_eq!(fences.get(Lane::new(1).unwrap()).unwrap().terms.defs, 3);
        assert_eq!(Fences::together(vec![]), Err(Torn::Count { stated: 1, found: 0 }));
        assert_eq!(Fences::together(vec![fence(0, 9)]), Err(Torn::Count { stated: 2, found: 1 }));
        let second = Lane::new(1).unwrap();
        for other in [
            Fence { cfg: 5, ..fence(1, 5) },
            Fence { topic: TopicId("u".into()), ..fence(1, 5) },
            Fence { terms: Terms { generation: 1, ..Terms::default() }, ..fence(1, 5) },
            fence(0, 5),
        ] {
            assert_eq!(Fences::together(vec![fence(0, 9), other]), Err(Torn::Lane(second)));
        }
    }

    #[test]
    fn a_level_has_as_many_lanes_as_its_terms_state_at_one_offset() {
        let fences = Fences::from(Fence::new(Offset(5), 4, TopicId("t".into())));
        let terms = Terms { lanes: LaneCount::new(4).unwrap(), ..Terms::default() };
        let level = fences.level(Offset(7), terms);
        assert_eq!(
            level.iter().map(|fence| (fence.lane.index(), fence.offset.0)).collect::<Vec<_>>(),
            [(0, 7), (1, 7), (2, 7), (3, 7)]
        );
        assert_eq!(Fences::together(level.iter().cloned().collect()), Ok(level.clone()));
        assert_eq!(level.raised_above(&fences).cfg(), 5);
        assert_eq!(
            level.level(Offset(8), Terms::default()),
            Fences::from(Fence { offset: Offset(8), ..fences.first().clone() })
        );
    }
}
