//! The nodes of a round that get their agent over SSH: it is brought to them, and everything of ours
//! is taken off them before they are handed over or given back.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::{StreamExt as _, stream};
use market::ids::LeaseId;
use market::lease::{LeaseEvent, LeaseState};
use store::leases::Lease;
use tokio::time::{Instant, sleep};
use tracing::info;

use super::Round;
use crate::flow::fulfil::FulfilError;
use crate::flow::fulfil::learned::Learned;
use crate::flow::fulfil::watch::{is_out_of_time, out_of_time, unread};
use crate::flow::verify::push::{Push, PushError, is_pushed};
use crate::flow::verify::{LeaseVerdict, verdict_of};
use crate::platform::app::Broker;

/// Leases that are handled in parallel.
const AT_ONCE: usize = 16;
/// How long all of a round may take, in real time: well within the claim. The next look does the rest.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long all that a round sends away may take to be left, in real time: these machines are paid for.
pub(super) const PARTING: Duration = Duration::from_secs(20);
/// When to retry a node that did not carry out its command.
const COME_AGAIN: TimeDelta = TimeDelta::seconds(15);

impl Round<'_> {
    /// Handles every lease that proves itself by an agent that is pushed, except these; returns which.
    pub(super) async fn push_agents(
        &mut self,
        but: &BTreeSet<LeaseId>,
    ) -> Result<BTreeSet<LeaseId>, FulfilError> {
        let broker = self.broker;
        let mut due = self.leases.clone();
        due.retain(|lease| {
            let link = broker.provider(&lease.offer.provider);
            lease.state == LeaseState::Verifying
                && !but.contains(&lease.id)
                && link.is_some_and(|link| is_pushed(link.adapter, &lease.offer))
        });
        let seen_to = due.iter().map(|lease| lease.id).collect();
        self.turn_round(&mut due);
        let visits = due
            .iter()
            .map(|lease| async move { (lease.id, see_to(broker, lease).await) });
        let visits: Vec<_> = visits.collect();
        let learned: Vec<_> = stream::iter(visits)
            .buffer_unordered(AT_ONCE)
            .take_until(sleep(PATIENCE))
            .collect()
            .await;
        for (id, learned) in learned {
            if self.learn(id, learned).await? {
                self.look_at(id).await?;
            }
        }
        Ok(seen_to)
    }

    /// Takes everything of ours off the nodes of these leases before they are given back, as far as that can be
    /// done soon: those that were pushed to and have not been left yet.
    pub(in crate::flow::fulfil) async fn leave(&mut self, ids: &[LeaseId]) {
        let broker = self.broker;
        let pushed = |lease: &&Lease| {
            let link = broker.provider(&lease.offer.provider);
            lease.state == LeaseState::Verifying
                && ids.contains(&lease.id)
                && link.is_some_and(|link| is_pushed(link.adapter, &lease.offer))
        };
        let due: Vec<Lease> = self.leases.iter().filter(pushed).cloned().collect();
        if due.is_empty() || self.parting.is_zero() {
            return;
        }
        let began = Instant::now();
        let partings = due.iter().map(|lease| part_from(broker, lease));
        let partings: Vec<_> = partings.collect();
        stream::iter(partings)
            .buffer_unordered(AT_ONCE)
            .take_until(sleep(self.parting))
            .collect::<()>()
            .await;
        self.parting = self.parting.saturating_sub(began.elapsed());
    }
}

/// Removes everything of ours from the nodes of a lease; a failed removal is not tried again, because the
/// machines end.
async fn part_from(broker: &Broker, lease: &Lease) {
    let left = match Push::of(broker, lease).await {
        Ok(Some(push)) => push.clear().await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = left {
        info!(
            lease.id = %lease.id, error = %crate::chain(&error),
            "The nodes of lease {} were given back as they were", lease.id
        );
    }
}

/// Does the due work for a lease's nodes over SSH.
async fn see_to(broker: &Broker, lease: &Lease) -> Learned {
    let verdict = match verdict_of(broker, lease).await {
        Ok(verdict) => verdict,
        Err(error) => return unread(&error),
    };
    let error = match attend(broker, lease, &verdict).await {
        Ok(true) => return Learned::event(LeaseEvent::Passed),
        Ok(false) => return Learned::nothing(COME_AGAIN),
        // The machine that answers there is not the one we gave the agent to.
        Err(error) if error.is_other_key() => {
            return Learned::because(LeaseEvent::Failed, error.to_string());
        }
        Err(error) => error,
    };
    match is_out_of_time(broker, lease, &verdict).await {
        Ok(true) => out_of_time(broker, lease, error.to_string()).await,
        Ok(false) => Learned {
            note: Some(error.to_string()),
            ..Learned::nothing(COME_AGAIN)
        },
        Err(error) => unread(&error),
    }
}

/// Returns whether the lease has passed and holds nothing of ours any more.
async fn attend(broker: &Broker, lease: &Lease, verdict: &LeaseVerdict) -> Result<bool, PushError> {
    let Some(push) = Push::of(broker, lease).await? else {
        // Ordered by a release that pushed nothing: there is nothing to take away.
        return Ok(*verdict == LeaseVerdict::Passed);
    };
    match verdict {
        LeaseVerdict::Open { .. } => push.start().await.map(|()| false),
        LeaseVerdict::Passed => push.clear().await.map(|()| true),
        LeaseVerdict::Failed(_) | LeaseVerdict::Inconclusive(_) => Ok(false),
    }
}
