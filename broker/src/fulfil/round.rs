//! What one claim of a reservation does: wishes and windows first, then each lease, then what
//! follows for the whole (in `follow`).

use chrono::{DateTime, TimeDelta, Utc};
use market::ids::{LeaseId, VerificationId};
use market::lease::{LeaseEvent, LeaseState};
use market::order::{LeaseOrder, ProviderLeaseId};
use market::reservation::{ReservationEvent, ReservationState};
use store::change::{Change, LeaseFacts, LeaseUpdate, NewAttempt, ReservationMove};
use store::leases::Lease;
use store::reservations::Reservation;
use store::verifications::VerificationState;
use store::work::{Claim, Claimed};
use tracing::{info, warn};

use super::learned::Learned;
use super::{CLAIM_SECONDS, FulfilError, order, stated, unreachable, watch};
use crate::app::{Broker, ProviderLink};
use crate::verify::{self, Enrolment};
use crate::{meter, metrics, reserve};

/// When to look again at a reservation whose leases say nothing sooner.
const LOOK_AGAIN: TimeDelta = TimeDelta::minutes(5);
/// Never sooner than this, so that a round that achieves nothing is not repeated at once.
const SOONEST: TimeDelta = TimeDelta::seconds(1);
/// Orders of one round at most: with the spacing that providers ask for, they end well before the
/// claim does.
const ORDERS_OF_A_ROUND: usize = 16;
/// Steps of one round at most: a state machine that runs in circles ends here, not never.
const MOST_STEPS: usize = 64;

/// A reservation in the hands of this worker, as last saved.
pub(super) struct Round<'a> {
    pub(super) broker: &'a Broker,
    pub(super) reservation: Reservation,
    pub(super) leases: Vec<Lease>,
    claim: Claim,
    /// Before this the reservation was read: what stands in it stood then.
    read_at: DateTime<Utc>,
    /// The soonest time at which something wants to be looked at again.
    due_at: Option<DateTime<Utc>>,
    /// What went wrong last, for the person who looks.
    trouble: Option<String>,
    /// Orders sent in this round.
    orders_sent: usize,
}

/// Does everything for a claimed reservation that can be done now, and gives the claim back.
///
/// `read_at` is a time before it was claimed.
/// Errors: [`FulfilError`]; what was saved before stays, and the claim is the caller's to give back.
pub(super) async fn work_on(
    broker: &Broker,
    claimed: Claimed,
    read_at: DateTime<Utc>,
) -> Result<(), FulfilError> {
    let Claimed {
        reservation,
        leases,
        claim,
    } = claimed;
    let mut round = Round {
        broker,
        reservation,
        leases,
        claim,
        read_at,
        due_at: None,
        trouble: None,
        orders_sent: 0,
    };
    round.take_up_wishes().await?;
    round.look_at_every().await?;
    for _ in 0..MOST_STEPS {
        if round.has_new_wish() || !round.follow().await? {
            break;
        }
    }
    round.give_back().await
}

impl Round<'_> {
    pub(super) fn now(&self) -> DateTime<Utc> {
        self.broker.now()
    }

    /// Saves a change, keeps the claim, and reads back what stands then.
    pub(super) async fn save(&mut self, change: Change) -> Result<(), FulfilError> {
        let work = self.broker.store().work();
        // Due at once: should this worker die, another takes it up when the claim has run out.
        let change = Change {
            keep_claim: true,
            due_at: Some(self.now()),
            last_error: self.trouble.clone(),
            ..change
        };
        work.apply(&self.claim, &change, self.now()).await?;
        self.broker.ring_events();
        if let Some(step) = change.reservation.filter(|step| step.to.is_closed()) {
            self.reservation.state = step.to;
            self.leases.clear();
            return Ok(());
        }
        self.read_at = self.now();
        let Claimed {
            reservation,
            leases,
            claim,
        } = work.renew(&self.claim, self.read_at, CLAIM_SECONDS).await?;
        (self.reservation, self.leases, self.claim) = (reservation, leases, claim);
        Ok(())
    }

    async fn give_back(self) -> Result<(), FulfilError> {
        if self.reservation.state.is_closed() {
            return Ok(());
        }
        let due_at = match self.reservation.state {
            _ if self.has_new_wish() => self.now(),
            ReservationState::Held => self.reservation.hold_expires_at,
            _ => self.due_at.unwrap_or(self.now() + LOOK_AGAIN),
        };
        // The end of a window is an event of its own, as long as the state knows it.
        let knows_end = self
            .reservation
            .state
            .next(ReservationEvent::WindowEnded)
            .is_ok();
        let ahead = |end: &DateTime<Utc>| knows_end && *end > self.now();
        let due_at = self
            .reservation
            .window_end
            .filter(ahead)
            .map_or(due_at, |end| due_at.min(end));
        let change = Change {
            due_at: Some(due_at),
            last_error: self.trouble.clone(),
            ..Change::default()
        };
        Ok(self
            .broker
            .store()
            .work()
            .apply(&self.claim, &change, self.now())
            .await?)
    }

    /// Up to when a machine that was just seen to run counts as used: the tenant may have given it
    /// back, or its window may have ended, since we read the reservation.
    fn proven_until(&self) -> DateTime<Utc> {
        let ends = [self.reservation.wish_at, self.reservation.window_end];
        ends.into_iter().flatten().fold(self.read_at, DateTime::min)
    }

    pub(super) fn look_in(&mut self, wait: TimeDelta) {
        let at = self.now() + wait.max(SOONEST);
        self.due_at = Some(self.due_at.map_or(at, |sooner| sooner.min(at)));
    }

    /// The reservation's step by an event.
    pub(super) fn step(
        &self,
        event: ReservationEvent,
    ) -> Result<Option<ReservationMove>, FulfilError> {
        let from = self.reservation.state;
        Ok(Some(ReservationMove {
            from,
            to: from.next(event)?,
        }))
    }

    /// Whether the window is over and the state still knows that event.
    pub(super) fn window_has_ended(&self) -> bool {
        let (end, state) = (self.reservation.window_end, self.reservation.state);
        end.is_some_and(|end| end <= self.now())
            && state.next(ReservationEvent::WindowEnded).is_ok()
    }

    /// A lapsed hold, a confirmation, what the tenant wishes, the end of the window.
    pub(super) async fn take_up_wishes(&mut self) -> Result<(), FulfilError> {
        let (state, now) = (self.reservation.state, self.now());
        if state == ReservationState::Held && now >= self.reservation.hold_expires_at {
            let reservation = self.step(ReservationEvent::HoldLapsed)?;
            return self
                .save(Change {
                    reservation,
                    holds_released: true,
                    ..Change::default()
                })
                .await;
        }
        let wish = reserve::event_of_wish(state, self.reservation.wish);
        let event = match wish {
            Some(event) => Some(event),
            None if self.window_has_ended() => Some(ReservationEvent::WindowEnded),
            None => None,
        };
        let Some(event) = event else { return Ok(()) };
        // Use ends when the tenant said so, or with the window: not when we come to it.
        let at = match event {
            ReservationEvent::WindowEnded => self.reservation.window_end,
            _ => self.reservation.wish_at,
        };
        let mut change = Change {
            reservation: self.step(event)?,
            holds_released: true,
            ..Change::default()
        };
        self.end_all(&mut change, at.unwrap_or(now)).await?;
        self.save(change).await
    }

    /// Ends every standing lease: those in use were asked back, the others are no longer wanted.
    pub(super) async fn end_all(
        &self,
        change: &mut Change,
        used_until: DateTime<Utc>,
    ) -> Result<(), FulfilError> {
        for lease in self.leases.iter().filter(|lease| lease.state.is_standing()) {
            let event = match lease.state {
                LeaseState::HandedOff => LeaseEvent::ReleaseRequested,
                _ => LeaseEvent::Unwanted,
            };
            let mut facts = LeaseFacts::default();
            if lease.state == LeaseState::HandedOff {
                meter::charge(
                    self.broker,
                    &self.reservation,
                    lease,
                    used_until,
                    change,
                    &mut facts,
                )
                .await?;
            }
            change.lease_updates.push(LeaseUpdate {
                id: lease.id,
                from: lease.state,
                to: lease.state.next(event)?,
                facts,
            });
        }
        Ok(())
    }

    /// Looks at one lease, saves what was learnt, and looks on while that leads further.
    async fn look_at(&mut self, id: LeaseId) -> Result<(), FulfilError> {
        for _ in 0..MOST_STEPS {
            let Some(lease) = self.leases.iter().find(|lease| lease.id == id).cloned() else {
                return Ok(());
            };
            if lease.state == LeaseState::Gone {
                return Ok(());
            }
            let broker = self.broker;
            let boot_time = TimeDelta::seconds(broker.config().verifier.boot_seconds.into());
            let is_late = self.now() - lease.requested_at >= boot_time;
            let learned = match broker.provider(&lease.offer.provider) {
                // It never went out: the provider takes no orders, or cannot be reached.
                _ if order::is_fresh(&lease) && is_late => {
                    Learned::because(LeaseEvent::Refused, "the order could not be sent in time")
                }
                None => {
                    self.miss_provider(&lease);
                    return Ok(());
                }
                Some(_) if order::is_fresh(&lease) && broker.is_disabled(&lease.offer.provider) => {
                    Learned::because(LeaseEvent::Refused, "the provider is disabled")
                }
                Some(_) if order::is_fresh(&lease) && self.orders_sent >= ORDERS_OF_A_ROUND => {
                    self.look_in(TimeDelta::zero());
                    return Ok(());
                }
                Some(link) if order::is_fresh(&lease) => {
                    self.orders_sent += 1;
                    self.send(&link, &lease).await?
                }
                Some(link) => match unreachable::given_up(broker, &self.reservation, &lease).await?
                {
                    Some(learned) => learned,
                    None => look(broker, &link, &lease).await,
                },
            };
            let went_on = self.learn(id, learned).await?;
            if !went_on {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A provider was taken out of the configuration, and machines may run there: a person must
    /// know, and nothing can be done until it is back.
    fn miss_provider(&mut self, lease: &Lease) {
        let (id, provider) = (lease.id, &lease.offer.provider);
        warn!(
            lease.id = %id, provider.id = %provider,
            "{provider} is not configured any more and lease {id} there is {}; put it back",
            lease.state
        );
        self.trouble = Some(format!("{provider} is not configured any more"));
        self.look_in(LOOK_AGAIN);
    }

    /// Saves the intent, then sends the order.
    async fn send(&mut self, link: &ProviderLink, lease: &Lease) -> Result<Learned, FulfilError> {
        let Enrolment {
            verification,
            script,
        } = match verify::enrol(self.broker, lease.id, lease.nodes) {
            Ok(enrolment) => enrolment,
            Err(error) => return Ok(Learned::because(LeaseEvent::Refused, error.to_string())),
        };
        let intent = LeaseUpdate {
            id: lease.id,
            from: lease.state,
            to: lease.state,
            facts: LeaseFacts {
                attempts: Some(lease.attempts + 1),
                ..LeaseFacts::default()
            },
        };
        self.save(Change {
            lease_updates: vec![intent],
            // A token that went out before is dead: only the one of this sending speaks.
            closed_verifications: self.open_verifications(lease.id, lease.state, None).await?,
            verifications: vec![verification],
            ..Change::default()
        })
        .await?;
        let order = LeaseOrder {
            client_token: lease.client_token.clone(),
            offer: lease.offer.clone(),
            nodes: lease.nodes,
            ssh_public_keys: self.reservation.ssh_public_keys.clone(),
            startup_script: script,
        };
        Ok(order::send(self.broker, link, &order).await)
    }

    /// Saves what one look taught; says whether the lease moved.
    async fn learn(&mut self, id: LeaseId, learned: Learned) -> Result<bool, FulfilError> {
        let Some(lease) = self.leases.iter().find(|lease| lease.id == id).cloned() else {
            return Ok(false);
        };
        if let (None | Some(LeaseEvent::Unknown), Some(note)) = (learned.event, &learned.note) {
            self.trouble = Some(note.clone());
        }
        let to = match learned.event {
            Some(event) => lease.state.next(event)?,
            None => lease.state,
        };
        let now = self.now();
        let mut change = Change::default();
        let mut facts = self.facts(&lease, to, &learned);
        if learned.alive && lease.state == LeaseState::HandedOff {
            let until = self.proven_until();
            meter::charge(
                self.broker,
                &self.reservation,
                &lease,
                until,
                &mut change,
                &mut facts,
            )
            .await?;
        }
        if to == LeaseState::Gone {
            change
                .transactions
                .extend(meter::provider_cost(self.broker, &lease, &facts)?);
        }
        if let Some(outcome) = learned.event.filter(|event| is_outcome_of_an_order(*event)) {
            change.attempts.push(NewAttempt {
                lease_id: id,
                outcome,
                note: learned
                    .note
                    .clone()
                    .or_else(|| stated::remark(&lease, &learned)),
                at: now,
            });
        }
        if to != lease.state && !may_still_verify(to) {
            change.closed_verifications = self.open_verifications(id, to, learned.event).await?;
        }
        let moved = to != lease.state;
        if moved || facts.price_per_node_hour.is_some() {
            stated::tell(&lease, &learned);
        }
        if moved || facts != LeaseFacts::default() || !change.attempts.is_empty() {
            change.lease_updates.push(LeaseUpdate {
                id,
                from: lease.state,
                to,
                facts,
            });
            self.save(change).await?;
        }
        if moved {
            metrics::lease_learned(&lease, learned.event, now);
            let from = lease.state;
            let why = learned
                .note
                .map(|note| format!(": {note}"))
                .unwrap_or_default();
            info!(
                lease.id = %id, provider.id = %lease.offer.provider, from = %from, to = %to,
                "Lease {id} at {} went from {from} to {to}{why}", lease.offer.provider
            );
        } else {
            self.look_in(learned.look_in);
        }
        Ok(moved && to != LeaseState::Passed)
    }

    /// The verifications of a lease whose token dies now, and how each ended.
    async fn open_verifications(
        &self,
        id: LeaseId,
        to: LeaseState,
        event: Option<LeaseEvent>,
    ) -> Result<Vec<(VerificationId, VerificationState)>, FulfilError> {
        let ended = match (to, event) {
            (LeaseState::Passed | LeaseState::HandedOff, _) => VerificationState::Passed,
            (_, Some(LeaseEvent::Failed | LeaseEvent::TimedOut)) => VerificationState::Failed,
            _ => VerificationState::Abandoned,
        };
        let all = self
            .broker
            .store()
            .verifications()
            .across_tenants()
            .of_lease(id)
            .await?;
        let open = all
            .iter()
            .filter(|one| one.state == VerificationState::Open);
        Ok(open.map(|one| (one.id, ended)).collect())
    }

    fn facts(&self, lease: &Lease, to: LeaseState, learned: &Learned) -> LeaseFacts {
        let now = self.now();
        let accepted = matches!(
            learned.event,
            Some(LeaseEvent::Accepted | LeaseEvent::Mismatched)
        );
        let nodes_up = learned.event == Some(LeaseEvent::NodesUp);
        let verify_seconds =
            TimeDelta::seconds(self.broker.config().verifier.verify_seconds.into());
        let fell = learned.event.filter(|event| event.is_fall());
        LeaseFacts {
            provider_lease_id: learned.provider_lease_id.clone(),
            provider_nodes: learned.provider_nodes.clone(),
            price_per_node_hour: stated::to_keep(lease, learned),
            attempts: learned.not_sent.then_some(lease.attempts.saturating_sub(1)),
            accepted_at: accepted.then_some(now),
            started_at: learned.started_at,
            up_at: nodes_up.then_some(now),
            verify_deadline: nodes_up.then_some(now + verify_seconds),
            release_accepted_at: learned.release_accepted_at,
            gone_at: (to == LeaseState::Gone).then_some(now),
            fall_reason: fell,
            fall_note: fell.and(learned.note.clone()),
            ..LeaseFacts::default()
        }
    }

    pub(super) async fn look_at_all(&mut self, ids: &[LeaseId]) -> Result<(), FulfilError> {
        for id in ids {
            // What the tenant wished meanwhile comes before any further order.
            if self.has_new_wish() {
                break;
            }
            self.look_at(*id).await?;
        }
        Ok(())
    }

    /// Whether the tenant wished for something since the round began.
    fn has_new_wish(&self) -> bool {
        reserve::event_of_wish(self.reservation.state, self.reservation.wish).is_some()
    }

    pub(super) async fn look_at_every(&mut self) -> Result<(), FulfilError> {
        let ids: Vec<_> = self.leases.iter().map(|lease| lease.id).collect();
        self.look_at_all(&ids).await
    }
}

/// One look at a lease whose order is out.
async fn look(broker: &Broker, link: &ProviderLink, lease: &Lease) -> Learned {
    let id: Option<&ProviderLeaseId> = lease.provider_lease_id.as_ref();
    match (lease.state, id) {
        (LeaseState::Requested | LeaseState::Withdrawn, _) => {
            order::find(broker, link, lease).await
        }
        (LeaseState::Booting, Some(id)) => watch::booting(broker, link, lease, id).await,
        (LeaseState::Verifying, Some(id)) => watch::verifying(broker, link, lease, id).await,
        (LeaseState::Passed | LeaseState::HandedOff, Some(id)) => watch::standing(link, id).await,
        (LeaseState::Releasing, Some(id)) => watch::releasing(broker, link, lease, id).await,
        // Every state after `requested` is entered with the provider's id in the same save.
        _ => Learned::nothing(LOOK_AGAIN),
    }
}

/// Whether a lease in this state has still to be verified.
const fn may_still_verify(state: LeaseState) -> bool {
    matches!(
        state,
        LeaseState::Requested | LeaseState::Withdrawn | LeaseState::Booting | LeaseState::Verifying
    )
}

/// Whether the event says how an order went: kept in the attempt log.
const fn is_outcome_of_an_order(event: LeaseEvent) -> bool {
    matches!(event, LeaseEvent::Accepted | LeaseEvent::Passed) || event.is_fall()
}
