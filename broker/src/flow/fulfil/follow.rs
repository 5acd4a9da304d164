//! The next step of a reservation, from the states of its leases: orders, the hand-off, a failure, a repair,
//! the end. [`settle`] decides; this module acts and saves.

use futures_util::future::BoxFuture;
use market::ids::LeaseId;
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::{ReservationEvent, ReservationState};
use store::change::{Change, LeaseFacts, LeaseUpdate, NewLease, WindowEnd};
use store::leases::Lease;
use tracing::info;

use super::round::{LOOK_AGAIN, Round};
use super::settle::{self, Next, Standing};
use super::watch::LOOK_AT_MISSING;
use super::{FulfilError, replace, start};
use crate::flow::reserve;
use crate::platform::metrics;

impl Round<'_> {
    /// Does the reservation's next step; returns whether there was one. Each is boxed here, so that no round
    /// needs the stack of all of them.
    pub(super) fn follow(&mut self) -> BoxFuture<'_, Result<bool, FulfilError>> {
        match self.reservation.state {
            ReservationState::Scheduled => Box::pin(start::start(self)),
            ReservationState::Confirmed => Box::pin(self.request_leases()),
            _ => Box::pin(self.settle()),
        }
    }

    /// Does the step that follows from the states of the leases; returns whether there was one.
    async fn settle(&mut self) -> Result<bool, FulfilError> {
        let standings: Vec<_> = self
            .leases
            .iter()
            .map(|lease| Standing {
                id: lease.id,
                state: lease.state,
                replaced: lease.replaced_by.is_some() || lease.given_up,
                missing: lease.missing.is_some(),
            })
            .collect();
        let next = settle::next(self.reservation.state, self.reservation.gang, &standings);
        let now = self.now();
        match next {
            Next::Wait => {
                let waits =
                    |lease: &Lease| lease.state == LeaseState::Passed && lease.missing.is_some();
                if self.leases.iter().any(waits) {
                    self.look_in(LOOK_AT_MISSING);
                }
                return Ok(false);
            }
            Next::Fall { dismissed } => {
                self.leave(&dismissed).await;
                let reservation = self.step(ReservationEvent::LeaseFell)?;
                let mut change = Change {
                    reservation,
                    ..Change::default()
                };
                self.dismiss(&dismissed, &mut change)?;
                self.save(change).await?;
                self.look_at_all(&dismissed).await?;
            }
            Next::Replace { fallen } => return replace::replace(self, &fallen).await,
            Next::HandOver { passed } => {
                // Machines that are ready early wait for the start, at our cost.
                if let Some(starts_at) = self.reservation.starts_at.filter(|start| *start > now) {
                    self.look_in((starts_at - now).min(LOOK_AGAIN));
                    return Ok(false);
                }
                self.hand_over(&passed).await?;
            }
            Next::Repaired { passed } => {
                let mut change = Change {
                    reservation: self.step(ReservationEvent::Repaired)?,
                    ..Change::default()
                };
                self.deliver(&passed, &mut change)?;
                self.save(change).await?;
            }
            Next::GiveUp => {
                let mut change = Change {
                    reservation: self.step(ReservationEvent::RepairImpossible)?,
                    ..Change::default()
                };
                self.end_all(&mut change, now).await?;
                self.save(change).await?;
                self.look_at_every().await?;
            }
            Next::Close => {
                let reservation = self.step(ReservationEvent::AllLeasesGone)?;
                self.save(Change {
                    reservation,
                    holds_released: true,
                    ..Change::default()
                })
                .await?;
                info!(reservation.id = %self.reservation.id, "Closed {}", self.reservation.id);
            }
        }
        Ok(true)
    }

    /// Releases the standing leases of a gang together with those that failed.
    fn dismiss(&self, ids: &[LeaseId], change: &mut Change) -> Result<(), FulfilError> {
        let note = self.fell_with();
        for lease in self.leases.iter().filter(|lease| ids.contains(&lease.id)) {
            change.lease_updates.push(LeaseUpdate {
                id: lease.id,
                from: lease.state,
                to: lease.state.next(LeaseEvent::Unwanted)?,
                facts: LeaseFacts {
                    fall_reason: Some(LeaseEvent::Unwanted),
                    fall_note: Some(note.clone()),
                    ..LeaseFacts::default()
                },
            });
        }
        Ok(())
    }

    /// The failed leases that end a gang, in words; each of them records its own reason.
    fn fell_with(&self) -> String {
        let fell = |lease: &&Lease| !lease.state.is_standing() && lease.replaced_by.is_none();
        let fallen = self.leases.iter().filter(fell);
        let fallen: Vec<String> = fallen.map(|lease| lease.id.to_string()).collect();
        match &fallen[..] {
            [one] => format!("its gang failed with lease {one}"),
            several => format!("its gang failed with leases {}", several.join(", ")),
        }
    }

    /// The lease rows are saved, with the step to `provisioning`, before anyone is called.
    async fn request_leases(&mut self) -> Result<bool, FulfilError> {
        let mut new_leases = Vec::new();
        let mut node_base = 0;
        for line in &self.reservation.lines {
            for nodes in reserve::lease_sizes(self.broker, &line.offer, line.nodes) {
                new_leases.push(NewLease {
                    id: LeaseId::from_uuid(self.broker.new_uuid()),
                    line: line.line,
                    offer: line.offer.clone(),
                    nodes,
                    node_base,
                    replaces: None,
                });
                node_base += nodes;
            }
        }
        let reservation = self.step(ReservationEvent::LeasesRequested)?;
        self.save(Change {
            reservation,
            new_leases,
            holds_released: true,
            ..Change::default()
        })
        .await?;
        self.look_at_every().await?;
        Ok(true)
    }

    /// Two steps in two transactions: everything passed, then access is delivered.
    ///
    /// If the window ended since the round began, the reservation ends and waits no longer.
    async fn hand_over(&mut self, passed: &[LeaseId]) -> Result<(), FulfilError> {
        if self.window_has_ended() {
            return self.take_up_wishes().await;
        }
        if self.reservation.state == ReservationState::Provisioning {
            let reservation = self.step(ReservationEvent::AllPassed)?;
            return self
                .save(Change {
                    reservation,
                    ..Change::default()
                })
                .await;
        }
        let reservation = self.step(ReservationEvent::HandedOff)?;
        let mut change = Change {
            reservation,
            window_end: self.end_of_window(),
            ..Change::default()
        };
        self.deliver(passed, &mut change)?;
        self.save(change).await?;
        metrics::handed_off(&self.reservation, self.now());
        info!(reservation.id = %self.reservation.id, "Handed off {}", self.reservation.id);
        Ok(())
    }

    /// A duration counts from the hand-off, and the limit on the wait for it no longer applies.
    fn end_of_window(&self) -> WindowEnd {
        let Some(window) = self.reservation.demand.shared().window else {
            return WindowEnd::AsIs;
        };
        window
            .end_from(self.now())
            .map_or(WindowEnd::Open, WindowEnd::At)
    }

    /// From here on the tenant has the nodes, and is charged for them.
    fn deliver(&self, passed: &[LeaseId], change: &mut Change) -> Result<(), FulfilError> {
        let now = self.now();
        for lease in self
            .leases
            .iter()
            .filter(|lease| passed.contains(&lease.id))
        {
            change.lease_updates.push(LeaseUpdate {
                id: lease.id,
                from: lease.state,
                to: lease.state.next(LeaseEvent::HandedOff)?,
                facts: LeaseFacts {
                    handed_off_at: Some(now),
                    metered_to: Some(now),
                    ..LeaseFacts::default()
                },
            });
        }
        Ok(())
    }

    /// Gives up on replacements: a fleet continues with its standing leases, anything else ends.
    ///
    /// A fleet that waits for other replacements takes its step when those are through.
    pub(super) async fn exhausted(&mut self) -> Result<(), FulfilError> {
        let repairing = self.reservation.state == ReservationState::Repairing;
        let standing = || self.leases.iter().filter(|lease| lease.state.is_standing());
        let mut change = Change::default();
        if repairing && standing().next().is_some() {
            if standing().all(|lease| lease.state == LeaseState::HandedOff) {
                change.reservation = self.step(ReservationEvent::RepairGivenUp)?;
            }
            let fallen = self
                .leases
                .iter()
                .filter(|l| !l.state.is_standing() && l.replaced_by.is_none());
            change.lease_updates.extend(fallen.map(|lease| LeaseUpdate {
                id: lease.id,
                from: lease.state,
                to: lease.state,
                facts: LeaseFacts {
                    given_up: true,
                    ..LeaseFacts::default()
                },
            }));
        } else {
            change.reservation = self.step(match repairing {
                true => ReservationEvent::RepairImpossible,
                false => ReservationEvent::CandidatesExhausted,
            })?;
            self.end_all(&mut change, self.now()).await?;
        }
        self.save(change).await?;
        self.look_at_every().await
    }
}
