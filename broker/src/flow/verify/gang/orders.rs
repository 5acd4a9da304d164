//! The orders whose nodes are measured together: those of a lease or, where every order of a gang got nodes
//! of its own, of all its leases.

use std::slice;

use chrono::{DateTime, Utc};
use market::fabric::Internode;
use market::ids::LeaseId;
use store::StoreError;
use store::leases::Lease;
use verifier::gang::{Apart, MOST_NODES};

use crate::platform::app::Broker;

/// The leases whose nodes are measured together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Orders {
    /// In the order of their nodes; never empty.
    leases: Vec<Lease>,
    /// Why these are not all that their nodes were sold with.
    apart: Option<Apart>,
}

impl Orders {
    /// The orders that a lease belongs to; `all` are those of its reservation, which may be a `gang`.
    ///
    /// A failed order is still a member until another one replaces it: without its nodes no gang is complete.
    pub(crate) fn of(lease: &Lease, gang: bool, all: &[Lease]) -> Self {
        let counts = |other: &&Lease| other.replaced_by.is_none() && !other.given_up;
        let others =
            |other: &&Lease| gang && counts(&lease) && counts(other) && other.id != lease.id;
        let mut leases: Vec<Lease> = all.iter().filter(others).cloned().collect();
        leases.push(lease.clone());
        leases.sort_by_key(|lease| lease.node_base);
        let too_many = |leases: &[Lease]| {
            let nodes = usize::try_from(count(leases)).unwrap_or(usize::MAX);
            nodes > MOST_NODES && are_joined(leases)
        };
        if !too_many(&leases) {
            let apart = None;
            return Self { leases, apart };
        }
        let apart = match too_many(slice::from_ref(lease)) {
            true => Apart::TooMany,
            false => Apart::OtherOrders,
        };
        Self {
            leases: vec![lease.clone()],
            apart: Some(apart),
        }
    }

    /// As [`Self::of`], with the store's rows of the reservation.
    ///
    /// Errors: the database's.
    pub(crate) async fn read(broker: &Broker, lease: &Lease) -> Result<Self, StoreError> {
        let reservations = broker.store().reservations().across_tenants();
        let reservation = reservations.find(lease.reservation_id).await?;
        let reservation = reservation.ok_or(StoreError::NotFound {
            what: "reservation",
        })?;
        let all = match reservation.gang {
            true => {
                let leases = broker.store().leases().across_tenants();
                leases.of_reservation(lease.reservation_id).await?
            }
            false => Vec::new(),
        };
        Ok(Self::of(lease, reservation.gang, &all))
    }

    /// The leases, in the order of their nodes.
    pub(crate) fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Their ids, in the order of their nodes.
    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        self.leases.iter().map(|lease| lease.id).collect()
    }

    /// The one of the first node, under whose verification all is kept.
    pub(crate) fn first(&self) -> &Lease {
        // There is one at least.
        &self.leases[0]
    }

    /// Whether one of several is not to be waited for any more.
    pub(super) fn have_fallen(&self) -> bool {
        let mut leases = self.leases.iter();
        self.are_several() && leases.any(|lease| !lease.state.is_standing())
    }

    /// Whether the machines of all have come up.
    pub(super) fn are_up(&self) -> bool {
        self.leases.iter().all(|lease| lease.up_at.is_some())
    }

    /// Until when the last of them has to prove itself, of those that have come up.
    pub(crate) fn until(&self) -> Option<DateTime<Utc>> {
        let deadlines = self.leases.iter().filter_map(|lease| lease.verify_deadline);
        deadlines.max()
    }

    /// Whether they are more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.leases.len() > 1
    }

    /// The nodes of all of them.
    pub(crate) fn nodes(&self) -> u32 {
        count(&self.leases)
    }

    /// Whether their nodes are measured together: they were sold as joined, and the answers of all fit into
    /// one row.
    pub(crate) fn are_measured(&self) -> bool {
        let nodes = usize::try_from(self.nodes()).unwrap_or(usize::MAX);
        (2..=MOST_NODES).contains(&nodes) && are_joined(&self.leases)
    }

    /// Why a node is not measured with all nodes that it was sold with; `None` where it is, or was sold
    /// alone.
    pub(crate) const fn apart(&self) -> Option<Apart> {
        self.apart
    }

    /// The fabric of their nodes, where all were sold with the same.
    pub(super) fn sold_as(&self) -> Internode {
        let mut kinds = self.leases.iter().map(|lease| lease.offer.internode);
        let first = kinds.next().unwrap_or(Internode::Unknown);
        match kinds.all(|kind| kind == first) {
            true => first,
            false => Internode::Unknown,
        }
    }

    /// GPUs of each node, where all were sold with the same whole number.
    pub(super) fn gpus_of_each_node(&self) -> Option<u32> {
        let mut counts = self.leases.iter().map(|lease| lease.offer.gpus.as_whole());
        let first = counts.next().flatten();
        first.filter(|_| counts.all(|count| count == first))
    }
}

fn count(leases: &[Lease]) -> u32 {
    let nodes = leases.iter().map(|lease| lease.nodes);
    nodes.fold(0, u32::saturating_add)
}

fn are_joined(leases: &[Lease]) -> bool {
    let mut kinds = leases.iter().map(|lease| lease.offer.internode);
    kinds.all(|kind| kind != Internode::None)
}

#[cfg(test)]
mod tests {
    use market::quantity::GpuCount;
    use uuid::Uuid;

    use super::*;
    use crate::samples;

    fn leases(nodes: &[u32]) -> Vec<Lease> {
        let mut node_base = 0;
        let mut lease = |(number, nodes): (usize, &u32)| {
            let id = LeaseId::from_uuid(Uuid::from_u128(number as u128 + 1));
            let lease = samples::lease(id, node_base, *nodes);
            node_base += nodes;
            lease
        };
        nodes.iter().enumerate().map(&mut lease).collect()
    }

    fn bases(orders: &Orders) -> Vec<u32> {
        orders
            .leases()
            .iter()
            .map(|lease| lease.node_base)
            .collect()
    }

    #[test]
    fn a_gang_is_all_of_its_orders_and_a_fleet_each_by_itself() {
        let mut all = leases(&[1, 2, 3]);
        all.reverse();
        let gang = Orders::of(&all[0], true, &all);
        assert_eq!(bases(&gang), [0, 1, 3]);
        assert_eq!((gang.nodes(), gang.are_several()), (6, true));
        assert!(gang.are_measured() && gang.apart().is_none());
        let fleet = Orders::of(&all[0], false, &all);
        assert_eq!(bases(&fleet), [3]);
        assert!(fleet.are_measured() && !fleet.are_several());
        assert!(
            !Orders::of(&all[2], false, &all).are_measured(),
            "one node alone"
        );
    }

    #[test]
    fn one_that_fell_is_missed_until_another_stands_for_it() {
        let mut all = leases(&[1, 1, 1]);
        all[1].state = market::lease::LeaseState::Releasing;
        assert_eq!(bases(&Orders::of(&all[0], true, &all)), [0, 1, 2]);
        all[1].replaced_by = Some(all[2].id);
        assert_eq!(bases(&Orders::of(&all[0], true, &all)), [0, 2]);
        assert_eq!(bases(&Orders::of(&all[1], true, &all)), [1], "it is over");
    }

    #[test]
    fn nodes_that_were_not_sold_as_joined_are_not_measured() {
        let mut all = leases(&[1, 1]);
        assert_eq!(
            Orders::of(&all[0], true, &all).sold_as(),
            Internode::InfinibandNdr400
        );
        all[1].offer.internode = Internode::Ethernet;
        assert_eq!(
            Orders::of(&all[0], true, &all).sold_as(),
            Internode::Unknown
        );
        all[1].offer.internode = Internode::None;
        assert!(!Orders::of(&all[0], true, &all).are_measured());
    }

    #[test]
    fn how_many_gpus_a_node_has_is_known_where_all_were_sold_with_as_many() {
        let mut all = leases(&[1, 1]);
        let gpus = |all: &[Lease]| Orders::of(&all[0], true, all).gpus_of_each_node();
        assert_eq!(gpus(&all), Some(8));
        all[1].offer.gpus = GpuCount::whole(4).expect("a count");
        assert_eq!(gpus(&all), None);
        for lease in &mut all {
            lease.offer.gpus = GpuCount::from_thousandths(500).expect("a count");
        }
        assert_eq!(gpus(&all), None);
    }

    #[test]
    fn of_too_many_nodes_each_order_is_measured_for_itself_and_says_so() {
        let all = leases(&[100, 28]);
        let just = Orders::of(&all[0], true, &all);
        assert_eq!((just.nodes(), just.apart()), (128, None));
        let all = leases(&[100, 29]);
        let apart = Orders::of(&all[1], true, &all);
        assert_eq!(
            (bases(&apart), apart.apart()),
            (vec![100], Some(Apart::OtherOrders))
        );
        assert!(apart.are_measured());
        let all = leases(&[129]);
        let alone = Orders::of(&all[0], false, &all);
        assert_eq!(
            (alone.are_measured(), alone.apart()),
            (false, Some(Apart::TooMany))
        );
    }
}
