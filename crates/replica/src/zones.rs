//! What the placement of copies takes into account of a node: its zone and its weight.
//!
//! Nodes of one zone may fail together, so the copies of a slot go to different zones. The table keeps each
//! name of a zone once, and each member names its zone by a number.

use crate::{Members, Version};
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

/// Longest name of a zone, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// How large a node is compared with others: a node of weight 2 is to have twice as much as one of weight 1.
/// From 1 to [`Weight::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight(NonZeroU16);

/// What a starting node says about itself for the placement of copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementHints {
    /// The name of its zone: a rack, a room, a site. Nodes without one are in one zone if they are on one
    /// host.
    pub zone: Option<Box<str>>,
    /// How large it is.
    pub weight: Weight,
}

/// The number of a zone that has a name, in one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ZoneId(NonZeroU32);

/// The names of all zones that have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones {
    /// The name of zone 1 first. A number whose last node left its zone gets another name when one is needed.
    pub names: Arc<[Box<str>]>,
    /// The table since which these are the names.
    pub since: Version,
}

impl Weight {
    /// The largest weight.
    pub const MAX: u16 = 1_000;

    /// A weight from 1 to [`Weight::MAX`].
    #[must_use]
    pub fn new(weight: u16) -> Option<Self> {
        NonZeroU16::new(weight).filter(|weight| weight.get() <= Self::MAX).map(Self)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(NonZeroU16::MIN)
    }
}

/// What is wrong with a name of a zone, if anything.
#[must_use]
pub fn problem_of_zone(name: &str) -> Option<&'static str> {
    let is_right =
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    (!is_right).then_some("the name of a zone is 1 to 64 visible ASCII characters, without spaces")
}

impl PlacementHints {
    /// What is wrong with them, if anything.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        self.zone.as_deref().and_then(problem_of_zone)
    }
}

impl ZoneId {
    /// The number of a zone, counted from 1.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    fn at(place: usize) -> Option<Self> {
        Self::new(u32::try_from(place + 1).ok()?)
    }
}

impl Zones {
    /// The name of a zone.
    #[must_use]
    pub fn name(&self, zone: ZoneId) -> Option<&str> {
        self.names.get(zone.get() as usize - 1).map(|name| &**name)
    }

    /// The number of the zone with this name, which gets one in table `version` if it has none. Names of
    /// which no member is left make room, so there are never more names than members.
    pub(crate) fn number(&mut self, name: &str, members: &Members, version: Version) -> Option<ZoneId> {
        if let Some(place) = self.names.iter().position(|known| **known == *name) {
            return ZoneId::at(place);
        }
        let is_used = |zone: &ZoneId| members.values().any(|member| member.zone == Some(*zone));
        let unused = (0..self.names.len()).filter_map(ZoneId::at).find(|zone| !is_used(zone));
        let zone = unused.or_else(|| ZoneId::at(self.names.len()))?;
        let mut names = self.names.to_vec();
        let place = zone.get() as usize - 1;
        names.resize(names.len().max(place + 1), Box::default());
        names[place] = name.into();
        (self.names, self.since) = (names.into(), version);
        Some(zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Group, GroupOptions, NodeId, PlacementHints, Survived};

    fn register(group: &mut Group, node: u32, nonce: u64, zone: Option<&str>) {
        let hints = PlacementHints { zone: zone.map(Into::into), weight: Weight::default() };
        let (node, survived) = (NodeId(node), Survived::Nothing);
        group.apply(Change::Register { node, nonce, address: String::new(), hints, survived });
    }

    fn zones(group: &Group) -> Vec<Option<String>> {
        let table = group.table();
        table.members.values().map(|member| Some(table.zones.name(member.zone?)?.to_owned())).collect()
    }

    #[test]
    fn each_member_has_the_zone_it_named_last() {
        let mut group = Group::new(GroupOptions { slots: 1, copies: 1 });
        let named =
            |names: &[Option<&str>]| -> Vec<_> { names.iter().map(|name| name.map(str::to_owned)).collect() };
        register(&mut group, 1, 1, Some("red"));
        register(&mut group, 2, 1, Some("blue"));
        register(&mut group, 3, 1, Some("red"));
        register(&mut group, 4, 1, None);
        assert_eq!(zones(&group), named(&[Some("red"), Some("blue"), Some("red"), None]));
        let since = group.table().zones.since;
        register(&mut group, 2, 2, Some("red"));
        assert_eq!(group.table().zones.since, since, "no name changed");
        register(&mut group, 4, 2, Some("green"));
        assert_eq!(zones(&group), named(&[Some("red"), Some("red"), Some("red"), Some("green")]));
        assert!(group.table().zones.since > since);
    }

    #[test]
    fn names_that_no_member_has_any_more_make_room() {
        let mut group = Group::new(GroupOptions { slots: 1, copies: 1 });
        register(&mut group, 1, 0, Some("kept"));
        for life in 0..100 {
            register(&mut group, 2, life, Some(&format!("zone-{life}")));
            assert_eq!(zones(&group), [Some("kept".to_owned()), Some(format!("zone-{life}"))]);
        }
        assert!(group.table().zones.names.len() <= 3, "{:?}", group.table().zones);
    }

    #[test]
    fn names_and_weights_that_make_no_sense_are_refused() {
        assert!(Weight::new(0).is_none() && Weight::new(1_001).is_none());
        assert_eq!(Weight::new(1_000).map(Weight::get), Some(1_000));
        let problem = |zone: &str| {
            let zone = Some(zone.into());
            PlacementHints { zone, ..PlacementHints::default() }.problem()
        };
        assert!(
            problem("").is_some() && problem("two words").is_some() && problem(&"z".repeat(65)).is_some()
        );
        assert_eq!(problem("site-1/room-2/rack-3"), None);
        assert_eq!(PlacementHints::default().problem(), None);
    }
}
