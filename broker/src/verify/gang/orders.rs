//! Whose nodes are measured together: those of a lease or, where every order of a gang got nodes of its
//! own, of all its leases.

use std::slice;

use market::fabric::Internode;
use store::StoreError;
use store::leases::Lease;
use store::reservations::Reservation;
use verifier::gang::{Apart, MOST_NODES};

use crate::app::Broker;

/// The leases whose nodes are measured together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Orders {
    /// In the order of their nodes; never empty.
    leases: Vec<Lease>,
    /// Why these are not all that their nodes were sold with.
    apart: Option<Apart>,
}

impl Orders {
    /// The orders that a lease belongs to; `all` are those of its reservation.
    ///
    /// One that fell is still one of them until another one stands for it: without its nodes no gang is whole.
    pub(crate) fn of(lease: &Lease, reservation: &Reservation, all: &[Lease]) -> Self {
        let counts = |other: &&Lease| {
            other.id == lease.id || (other.replaced_by.is_none() && !other.given_up)
        };
        let is_over = lease.replaced_by.is_some() || lease.given_up;
        let mut leases: Vec<Lease> = match reservation.gang && !is_over {
            true => all.iter().filter(counts).cloned().collect(),
            false => vec![lease.clone()],
        };
        leases.sort_by_key(|lease| lease.node_base);
        if leases.is_empty() {
            leases.push(lease.clone());
        }
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

    /// As [`Self::of`], with what the store has of the reservation.
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
        Ok(Self::of(lease, &reservation, &all))
    }

    /// The leases, in the order of their nodes.
    pub(crate) fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Whether they are more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.leases.len() > 1
    }

    /// The nodes of all of them.
    pub(crate) fn nodes(&self) -> u32 {
        count(&self.leases)
    }

    /// Whether their nodes are measured together: they were sold as joined, and what all of them show is of
    /// a size that one row holds.
    pub(crate) fn are_measured(&self) -> bool {
        let nodes = usize::try_from(self.nodes()).unwrap_or(usize::MAX);
        (2..=MOST_NODES).contains(&nodes) && are_joined(&self.leases)
    }

    /// Why a node is not measured with all nodes that it was sold with; `None` where it is, or was sold
    /// alone.
    pub(crate) const fn apart(&self) -> Option<Apart> {
        self.apart
    }

    /// What joins their nodes, where all were sold with the same.
    pub(super) fn sold_as(&self) -> Internode {
        let mut kinds = self.leases.iter().map(|lease| lease.offer.internode);
        let first = kinds.next().unwrap_or(Internode::Unknown);
        match kinds.all(|kind| kind == first) {
            true => first,
            false => Internode::Unknown,
        }
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
