//! The looks at the leases of a round: an order sent, an answer read, the findings saved.

use chrono::TimeDelta;
use market::ids::{LeaseId, ProviderId, VerificationId};
use market::lease::{LeaseEvent, LeaseState};
use market::machine::MachineRequest;
use market::order::{LeaseOrder, ProviderLeaseId};
use store::change::{Change, LeaseFacts, LeaseUpdate, NewAttempt};
use store::leases::{Lease, Missing};
use store::verifications::VerificationState;
use tracing::{error, info, warn};

use super::{LOOK_AGAIN, MOST_STEPS, ORDERS_OF_A_ROUND, Round, SILENCES_OF_A_ROUND};
use crate::flow::fulfil::learned::Learned;
use crate::flow::fulfil::order::LOOK_AFTER_SILENCE;
use crate::flow::fulfil::{FulfilError, order, reported, stated, unreachable, watch};
use crate::flow::verify::{self, Enrolment, Orders, gang_seconds};
use crate::flow::{absence, meter, providers};
use crate::platform::app::Broker;
use crate::platform::metrics;
use crate::platform::provider_set::ProviderLink;

impl Round<'_> {
    /// Looks at one lease, saves the findings, and looks again as long as that leads further.
    pub(super) async fn look_at(&mut self, id: LeaseId) -> Result<(), FulfilError> {
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
                Some(_) if self.is_silent(&lease.offer.provider) => {
                    self.look_in(LOOK_AFTER_SILENCE);
                    return Ok(());
                }
                Some(_) if order::is_fresh(&lease) && self.orders_sent >= ORDERS_OF_A_ROUND => {
                    self.look_in(TimeDelta::zero());
                    return Ok(());
                }
                Some(_)
                    if order::is_fresh(&lease)
                        && absence::troubled(broker)
                            .await?
                            .contains(&lease.offer.provider) =>
                {
                    let provider = &lease.offer.provider;
                    self.trouble = Some(format!(
                        "{provider} does not show machines that it should; nothing is ordered there"
                    ));
                    self.look_in(watch::LOOK_AT_MISSING);
                    return Ok(());
                }
                Some(_) if order::is_fresh(&lease) => {
                    match providers::open_link(broker, &lease.offer.provider).await? {
                        Ok(link) => {
                            self.orders_sent += 1;
                            self.send(&link, &lease).await?
                        }
                        Err(why) => Learned::because(LeaseEvent::Refused, why),
                    }
                }
                Some(link) => match self.given_up(&lease).await? {
                    Some(learned) => learned,
                    None => look(broker, &link, &lease).await,
                },
            };
            if learned.silent {
                let provider = lease.offer.provider.clone();
                *self.silences.entry(provider).or_default() += 1;
            }
            let went_on = self.learn(id, learned).await?;
            if !went_on {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the provider left too many looks of this round without an answer.
    fn is_silent(&self, provider: &ProviderId) -> bool {
        let silences = self.silences.get(provider);
        silences.is_some_and(|silences| *silences >= SILENCES_OF_A_ROUND)
    }

    /// The consequence when the broker no longer waits for a lease in use: it is silent, or was reported.
    async fn given_up(&self, lease: &Lease) -> Result<Option<Learned>, FulfilError> {
        match unreachable::given_up(self.broker, &self.reservation, lease).await? {
            None => reported::given_up(self.broker, lease).await,
            learned => Ok(learned),
        }
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
            ssh_public_key,
        } = match verify::enrol(
            self.broker,
            lease,
            self.reservation.verification,
            link.adapter,
        ) {
            Ok(enrolment) => enrolment,
            Err(error) => return Ok(Learned::because(LeaseEvent::Refused, error.to_string())),
        };
        let intent = LeaseUpdate {
            id: lease.id,
            from: lease.state,
            to: lease.state,
            facts: LeaseFacts {
                attempts: Some(lease.attempts + 1),
                seen_credential: Some(link.http.credential_mark()),
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
        let tenants = self.reservation.ssh_public_keys.iter().cloned();
        let keys = tenants.chain(ssh_public_key);
        let order = LeaseOrder {
            client_token: lease.client_token.clone(),
            offer: lease.offer.clone(),
            nodes: lease.nodes,
            machine: MachineRequest::default(),
            ssh_public_keys: keys.collect(),
            startup_script: script,
        };
        Ok(order::send(self.broker, link, &order).await)
    }

    /// Saves the findings of one look; returns whether the lease moved.
    pub(super) async fn learn(
        &mut self,
        id: LeaseId,
        learned: Learned,
    ) -> Result<bool, FulfilError> {
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
        use LeaseEvent::{Failed, TimedOut};
        if matches!(learned.event, Some(Failed | TimedOut)) {
            self.leave(&[id]).await;
        }
        let now = self.now();
        let mut change = Change::default();
        let mut facts = self.facts(&lease, to, &learned);
        let proven_until = match learned.alive {
            true => Some(self.proven_until()),
            false => learned.used_until.map(|at| at.min(self.proven_until())),
        };
        if let Some(until) = proven_until.filter(|_| lease.state == LeaseState::HandedOff) {
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
            change.transactions.extend(meter::provider_cost(
                self.broker,
                &self.reservation,
                &lease,
                &facts,
            )?);
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
        if let Some(missing) = facts.missing {
            tell_of_sighting(&lease, missing, learned.note.as_deref());
        }
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
        let alone = verify::verify_seconds(self.broker, self.reservation.verification);
        let orders = Orders::of(lease, self.reservation.gang, &self.leases);
        let seconds = i64::from(alone) + i64::from(gang_seconds(&orders));
        let verify_seconds = TimeDelta::seconds(seconds);
        // A lease that the tenant or the broker no longer wants counts as failed too, and records why.
        let is_over = |event: &LeaseEvent| event.is_fall() || *event == LeaseEvent::Unwanted;
        let fell = learned.event.filter(is_over);
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
            missing: match (learned.missing, &learned.shown_with) {
                (Some(missing), _) => {
                    Some(Some(missing)).filter(|_| lease.missing != Some(missing))
                }
                (None, Some(_)) => lease.missing.map(|_| None),
                (None, None) => None,
            },
            seen_credential: (learned.shown_with.clone())
                .filter(|mark| lease.seen_credential.as_ref() != Some(mark)),
            ..LeaseFacts::default()
        }
    }

    pub(in crate::flow::fulfil) async fn look_at_all(
        &mut self,
        ids: &[LeaseId],
    ) -> Result<(), FulfilError> {
        for id in ids {
            // The tenant's requests of the meantime come before any further order.
            if self.has_new_wish() {
                break;
            }
            self.look_at(*id).await?;
        }
        Ok(())
    }

    pub(in crate::flow::fulfil) async fn look_at_every(&mut self) -> Result<(), FulfilError> {
        let mut ids: Vec<_> = self.leases.iter().map(|lease| lease.id).collect();
        self.turn_round(&mut ids);
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
        (LeaseState::Passed | LeaseState::HandedOff, Some(id)) => {
            watch::standing(broker, link, lease, id).await
        }
        (LeaseState::Releasing, Some(id)) => watch::releasing(broker, link, lease, id).await,
        // Every state after `requested` is entered with the provider's id in the same save.
        _ => Learned::nothing(LOOK_AGAIN),
    }
}

/// Logs, once each time, that a machine which somebody counts on is missing, and that it is shown again.
fn tell_of_sighting(lease: &Lease, missing: Option<Missing>, words: Option<&str>) {
    let (id, provider) = (lease.id, &lease.offer.provider);
    match (lease.missing, missing) {
        _ if !lease.state.is_accepted() => {}
        (None, Some(_)) => error!(
            lease.id = %id, provider.id = %provider,
            "{provider} does not show the machine of lease {id}: {}; a person should look",
            words.unwrap_or("no reason is known")
        ),
        (Some(_), None) => info!(
            lease.id = %id, provider.id = %provider,
            "{provider} shows the machine of lease {id} again"
        ),
        _ => {}
    }
}

/// Whether a lease in this state has still to be verified.
const fn may_still_verify(state: LeaseState) -> bool {
    matches!(
        state,
        LeaseState::Requested | LeaseState::Withdrawn | LeaseState::Booting | LeaseState::Verifying
    )
}

/// Whether the event tells how an order went: kept in the attempt log.
const fn is_outcome_of_an_order(event: LeaseEvent) -> bool {
    matches!(event, LeaseEvent::Accepted | LeaseEvent::Passed) || event.is_fall()
}
