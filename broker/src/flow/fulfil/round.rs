//! One claim of a reservation: requested actions and windows first, then each lease (in `look`) and the nodes
//! that get their agent over SSH (in `push`), then the next step of the whole (in `follow`).

mod look;
mod push;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::BoxFuture;
use market::ids::{LeaseId, ProviderId};
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::{ReservationEvent, ReservationState};
use store::change::{Change, LeaseFacts, LeaseUpdate, ReservationMove};
use store::leases::Lease;
use store::reservations::Reservation;
use store::work::{Claim, Claimed};

use self::push::PARTING;
use super::{CLAIM_SECONDS, FulfilError, reminders};
use crate::flow::{meter, reach, reserve};
use crate::platform::app::Broker;
use crate::platform::coordination::Topic;

/// When to look again at a reservation whose leases need no earlier look.
pub(super) const LOOK_AGAIN: TimeDelta = TimeDelta::minutes(5);
/// Never sooner than this, so that a round that achieves nothing is not repeated at once.
const SOONEST: TimeDelta = TimeDelta::seconds(1);
/// Orders of one round at most: with the spacing that providers ask for, they end well before the
/// claim does.
const ORDERS_OF_A_ROUND: usize = 16;
/// So many looks that a provider leaves without an answer end the looks at its leases in this round:
/// each takes as long as all tries of a call, and the leases at other providers wait for it.
const SILENCES_OF_A_ROUND: u32 = 2;
/// Steps of one round at most: a state machine that runs in circles ends here, not never.
const MOST_STEPS: usize = 64;

/// A reservation in the hands of this worker, as last saved.
pub(super) struct Round<'a> {
    pub(super) broker: &'a Broker,
    pub(super) reservation: Reservation,
    pub(super) leases: Vec<Lease>,
    claim: Claim,
    /// The reservation was read after this time, so its row is at least as recent.
    read_at: DateTime<Utc>,
    /// The soonest time for the next look.
    due_at: Option<DateTime<Utc>>,
    /// The last error, for the person who looks.
    trouble: Option<String>,
    /// Orders sent in this round.
    orders_sent: usize,
    /// How long the nodes that this round sends away may still take to be left.
    parting: Duration,
    /// Looks of this round that a provider left without an answer.
    silences: HashMap<ProviderId, u32>,
}

/// Does everything for a claimed reservation that can be done now, and gives the claim back.
///
/// `read_at` is a time before it was claimed.
/// Errors: [`FulfilError`]; changes saved before stay, and the caller gives back the claim.
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
        parting: PARTING,
        silences: HashMap::new(),
    };
    round.take_up_wishes().await?;
    round.remind().await?;
    // Before the looks, so that a failed push is named when its time is over; after them, so that a node that
    // booted is handled at once.
    let seen_to = round.push_agents(&BTreeSet::new()).await?;
    round.look_at_every().await?;
    round.push_agents(&seen_to).await?;
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

    /// Saves a change, keeps the claim, and reads back the rows. It is boxed: every step saves, some several
    /// times.
    pub(super) fn save(&mut self, change: Change) -> BoxFuture<'_, Result<(), FulfilError>> {
        Box::pin(self.write(change))
    }

    async fn write(&mut self, change: Change) -> Result<(), FulfilError> {
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
        let mut updates = change.lease_updates.iter();
        if updates.any(|update| update.to == LeaseState::Gone) {
            self.broker.hot().publish(Topic::Returns);
        }
        if let Some(step) = change.reservation.filter(|step| step.to.is_closed()) {
            self.reservation.state = step.to;
            self.leases.clear();
            return Ok(());
        }
        self.read_again().await
    }

    /// Reads back the rows and extends the claim.
    pub(super) async fn read_again(&mut self) -> Result<(), FulfilError> {
        self.read_at = self.now();
        let work = self.broker.store().work();
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
        // The end of a window is an event of its own, as long as the state knows it; so is a reminder.
        let knows_end = end_of_window(self.reservation.state).is_some();
        let end = self.reservation.window_end.filter(|_| knows_end);
        let moments = [end, reminders::next(&self.reservation, self.now())];
        let ahead = moments.into_iter().flatten().filter(|at| *at > self.now());
        let due_at = ahead.fold(due_at, DateTime::min);
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

    /// Up to when a machine that was just seen to run counts as used: the tenant may have released it, or its
    /// window may have ended, since we read the reservation.
    fn proven_until(&self) -> DateTime<Utc> {
        let ends = [self.reservation.wish_at, self.reservation.window_end];
        ends.into_iter().flatten().fold(self.read_at, DateTime::min)
    }

    /// After an error last time, the round starts with another lease. So a lease whose provider never
    /// answers, or whose nodes take all the time, does not hold up the others.
    fn turn_round<T>(&self, all: &mut [T]) {
        if self.reservation.last_error.is_some() && !all.is_empty() {
            let turn = self.read_at.timestamp().unsigned_abs() as usize;
            all.rotate_left(turn % all.len());
        }
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
        end.is_some_and(|end| end <= self.now()) && end_of_window(state).is_some()
    }

    /// Keeps what went wrong, for the person who looks.
    pub(super) fn set_trouble(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// The right to change the reservation.
    pub(super) const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// A lapsed hold, a confirmation, the tenant's requested action, the end of the window.
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
            None if self.window_has_ended() => end_of_window(state),
            None => None,
        };
        let Some(event) = event else { return Ok(()) };
        // Use ends at the tenant's request, or with the window, not when this round handles it.
        let at = match wish {
            None => self.reservation.window_end,
            Some(_) => self.reservation.wish_at,
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
        &mut self,
        change: &mut Change,
        used_until: DateTime<Utc>,
    ) -> Result<(), FulfilError> {
        let standing = self.leases.iter().filter(|lease| lease.state.is_standing());
        let standing: Vec<LeaseId> = standing.map(|lease| lease.id).collect();
        self.leave(&standing).await;
        for lease in self.leases.iter().filter(|lease| lease.state.is_standing()) {
            let event = match lease.state {
                LeaseState::HandedOff => LeaseEvent::ReleaseRequested,
                _ => LeaseEvent::Unwanted,
            };
            let mut facts = LeaseFacts::default();
            // One that its provider does not show is charged for as long as its nodes were seen.
            let used_until = match &lease.missing {
                None => Some(used_until),
                Some(_) => {
                    let seen = reach::seen_until(self.broker, lease).await?;
                    seen.map(|seen| seen.min(used_until))
                }
            };
            if let (LeaseState::HandedOff, Some(until)) = (lease.state, used_until) {
                let (broker, sold) = (self.broker, &self.reservation);
                meter::charge(broker, sold, lease, until, change, &mut facts).await?;
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

    /// Whether the tenant requested something since the round began.
    fn has_new_wish(&self) -> bool {
        reserve::event_of_wish(self.reservation.state, self.reservation.wish).is_some()
    }
}

/// The event at the end of a window, where the state knows one: a later start that was not ordered by then is
/// missed.
fn end_of_window(state: ReservationState) -> Option<ReservationEvent> {
    let events = [ReservationEvent::WindowEnded, ReservationEvent::StartMissed];
    events.into_iter().find(|event| state.next(*event).is_ok())
}
