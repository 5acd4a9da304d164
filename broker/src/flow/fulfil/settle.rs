//! The next step of a reservation, given the states of its leases. Pure: no clock, no I/O.

use market::ids::LeaseId;
use market::lease::LeaseState;
use market::reservation::ReservationState;

/// A lease as far as its reservation cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Which lease.
    pub id: LeaseId,
    /// Its state.
    pub state: LeaseState,
    /// Whether another lease took its place, or its fleet goes on without it.
    pub replaced: bool,
    /// Whether its provider does not show it, and it is not decided whether it is gone.
    pub missing: bool,
}

impl Standing {
    fn has_fallen(&self) -> bool {
        !self.replaced && !self.state.is_standing()
    }
}

/// The next step of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing until something changes.
    Wait,
    /// Note that leases failed. `dismissed` are the standing ones that end with them.
    Fall {
        /// Of a gang, every other lease; of a fleet, none.
        dismissed: Vec<LeaseId>,
    },
    /// Take the next candidate in the place of these.
    Replace {
        /// The failed leases.
        fallen: Vec<LeaseId>,
    },
    /// Every lease passed before the hand-off: hand all of these over.
    HandOver {
        /// The passed leases.
        passed: Vec<LeaseId>,
    },
    /// A fleet in the tenant's hands is whole again: hand these over.
    Repaired {
        /// The passed leases.
        passed: Vec<LeaseId>,
    },
    /// A gang in the tenant's hands cannot be made whole.
    GiveUp,
    /// Every lease is gone.
    Close,
}

/// Decides the next step of a reservation in `state`.
#[must_use]
pub fn next(state: ReservationState, gang: bool, leases: &[Standing]) -> Next {
    use ReservationState as S;
    let fallen: Vec<_> = leases.iter().filter(|lease| lease.has_fallen()).collect();
    let standing = || leases.iter().filter(|lease| lease.state.is_standing());
    let ids = |leases: &[&Standing]| leases.iter().map(|lease| lease.id).collect::<Vec<_>>();
    // A lease that may be gone is handed to nobody.
    let passed: Vec<_> = standing()
        .filter(|l| l.state == LeaseState::Passed && !l.missing)
        .map(|l| l.id)
        .collect();
    let is_through = |l: &Standing| l.state == LeaseState::HandedOff || passed.contains(&l.id);
    match state {
        S::Releasing(_) if leases.iter().all(|lease| lease.state == LeaseState::Gone) => {
            Next::Close
        }
        S::Provisioning | S::HandingOff | S::Active if !fallen.is_empty() => Next::Fall {
            dismissed: if gang {
                standing().map(|lease| lease.id).collect()
            } else {
                Vec::new()
            },
        },
        S::Repairing if gang => Next::GiveUp,
        S::Replacing if fallen.is_empty() => Next::Wait,
        // A gang starts again only when nothing of the old one runs any more.
        S::Replacing if gang && leases.iter().any(|lease| lease.state.is_live()) => Next::Wait,
        S::Replacing => Next::Replace {
            fallen: ids(&fallen),
        },
        S::Repairing if !fallen.is_empty() => Next::Replace {
            fallen: ids(&fallen),
        },
        S::Repairing if standing().all(is_through) => Next::Repaired { passed },
        S::Provisioning | S::HandingOff
            if !passed.is_empty() && standing().count() == passed.len() =>
        {
            Next::HandOver { passed }
        }
        _ => Next::Wait,
    }
}

#[cfg(test)]
mod tests {
    use market::reservation::CloseReason;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn lease(number: u128, state: LeaseState) -> Standing {
        Standing {
            id: LeaseId::from_uuid(Uuid::from_u128(number)),
            state,
            replaced: false,
            missing: false,
        }
    }

    #[test]
    fn one_lease_that_is_not_through_holds_up_the_hand_off() {
        let leases = [
            lease(1, LeaseState::Passed),
            lease(2, LeaseState::Verifying),
        ];
        assert_eq!(
            next(ReservationState::Provisioning, false, &leases),
            Next::Wait
        );
    }

    #[test]
    fn a_lease_that_passed_and_is_missing_holds_up_the_hand_off() {
        let mut missing = lease(1, LeaseState::Passed);
        missing.missing = true;
        let other = lease(2, LeaseState::HandedOff);
        for (state, leases) in [
            (ReservationState::Provisioning, &[missing][..]),
            (ReservationState::HandingOff, &[missing]),
            (ReservationState::Repairing, &[missing, other]),
        ] {
            assert_eq!(next(state, false, leases), Next::Wait, "{state}");
        }
    }

    #[test]
    fn a_gang_falls_as_one_and_a_fleet_lease_by_lease() {
        let leases = [
            lease(1, LeaseState::Passed),
            lease(2, LeaseState::Releasing),
        ];
        let fall = |gang| next(ReservationState::Provisioning, gang, &leases);
        assert_eq!(
            fall(true),
            Next::Fall {
                dismissed: vec![leases[0].id]
            }
        );
        assert_eq!(
            fall(false),
            Next::Fall {
                dismissed: Vec::new()
            }
        );
    }

    #[test]
    fn a_gang_is_replaced_only_when_all_of_it_is_gone() {
        let mut leases = [lease(1, LeaseState::Gone), lease(2, LeaseState::Releasing)];
        assert_eq!(next(ReservationState::Replacing, true, &leases), Next::Wait);
        leases[1].state = LeaseState::Gone;
        let fallen = leases.iter().map(|lease| lease.id).collect();
        assert_eq!(
            next(ReservationState::Replacing, true, &leases),
            Next::Replace { fallen }
        );
    }

    #[test]
    fn a_gang_that_fell_in_use_is_given_up() {
        let leases = [lease(1, LeaseState::Releasing)];
        assert_eq!(
            next(ReservationState::Repairing, true, &leases),
            Next::GiveUp
        );
    }

    #[test]
    fn closing_waits_for_the_last_provider() {
        let state = ReservationState::Releasing(CloseReason::Released);
        let leases = [lease(1, LeaseState::Gone), lease(2, LeaseState::Withdrawn)];
        assert_eq!(next(state, false, &leases), Next::Wait);
        assert_eq!(next(state, false, &leases[..1]), Next::Close);
    }

    proptest! {
        #[test]
        fn nothing_unverified_is_ever_handed_over(
            state in 0..ReservationState::all().len(),
            gang in any::<bool>(),
            states in proptest::collection::vec((0..LeaseState::ALL.len(), any::<bool>()), 0..6),
        ) {
            let leases: Vec<_> = states
                .iter()
                .enumerate()
                .map(|(number, (state, replaced))| {
                    let standing = lease(number as u128, LeaseState::ALL[*state]);
                    Standing { replaced: *replaced && !standing.state.is_standing(), ..standing }
                })
                .collect();
            let decided = next(ReservationState::all()[state], gang, &leases);
            if let Next::HandOver { passed } | Next::Repaired { passed } = &decided {
                for id in passed {
                    let lease = leases.iter().find(|lease| lease.id == *id).expect("one of them");
                    prop_assert_eq!(lease.state, LeaseState::Passed);
                }
            }
            if let Next::HandOver { .. } = decided {
                prop_assert!(leases.iter().all(|l| l.replaced || l.state == LeaseState::Passed));
            }
        }
    }
}
