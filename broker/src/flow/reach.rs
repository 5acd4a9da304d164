//! The prober, which tests whether nodes in the tenants' hands can be reached, and the known host keys of
//! nodes.
//!
//! `login` is for nodes that still prove themselves and get their agent over SSH; nodes in use are
//! never logged in to.
//!
//! A probe connects to the node's SSH port and does the key exchange, by which the node proves that it has
//! its host key; nobody logs in. One replica probes at a time. Two that probe at once write the same rows,
//! guarded by the store, so nothing is reported twice. If nodes of several providers do not answer, the
//! broker itself is cut off, and the probe counts against none of them.

mod known;
mod login;
mod probe;

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::StreamExt as _;
use futures_util::stream;
use market::event::EventType;
use rand::Rng as _;
use russh::keys::PublicKey;
use store::StoreError;
use store::leases::Lease;
use store::reach::Probe;
use store::settings::DatabaseMode;
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::platform::app::Broker;
use crate::platform::leader::keep_turns;
use crate::platform::stop::Stop;

pub(crate) use known::{KnownNode, fingerprint, known_nodes};
pub(crate) use login::{LoginFailure, Session};

/// How many nodes are probed in parallel.
const AT_ONCE: usize = 32;

/// The result of a round of probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Nodes that answered with a key of their own.
    pub reached: usize,
    /// Nodes that did not.
    pub failed: usize,
}

/// A node to look at.
struct Target {
    lease: Lease,
    index: u32,
    known: KnownNode,
}

/// Probes every node in use once and keeps the findings.
///
/// Errors: the database's.
pub async fn probe_all(broker: &Broker) -> Result<Round, StoreError> {
    probe_within(broker, Duration::ZERO).await
}

/// Probes until stopped, while no other replica does.
pub async fn keep_probing(broker: Broker, stop: Stop) {
    let every = Duration::from_secs(broker.config().reach.probe_seconds.max(1).into());
    let turn = || async {
        if let Err(failure) = probe_within(&broker, every / 2).await {
            error!(error = %crate::chain(&failure), "The nodes in use could not be probed");
        }
        sleep(every / 2).await;
    };
    keep_turns(&broker, "reach", &stop, turn).await;
}

/// Looks at every node in use, each at a moment of its own within this time, so that neither they
/// nor we see all looks at once.
async fn probe_within(broker: &Broker, spread: Duration) -> Result<Round, StoreError> {
    let mut targets = Vec::new();
    for lease in broker
        .store()
        .leases()
        .across_tenants()
        .handed_off()
        .await?
    {
        let known = known_nodes(broker, &lease).await?;
        targets.extend((0..).zip(known).map(|(index, known)| Target {
            lease: lease.clone(),
            index,
            known,
        }));
    }
    let mut after: Vec<_> = targets
        .into_iter()
        .map(|target| (spread.mul_f64(rand::rng().random()), target))
        .collect();
    after.sort_by_key(|(after, _)| *after);
    let began = tokio::time::Instant::now();
    let looks = after.into_iter().map(|(after, target)| async move {
        tokio::time::sleep_until(began + after).await;
        let probe = look(broker, &target).await;
        (target, probe)
    });
    let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
    let (mut round, mut silent) = (Round::default(), Vec::new());
    let mut somebody_answered = false;
    while let Some((target, probe)) = looks.next().await {
        match probe {
            Some(Probe::Failed(why)) => silent.push((target, Probe::Failed(why))),
            Some(answer) => {
                somebody_answered = true;
                match answer {
                    Probe::Reached { .. } => round.reached += 1,
                    _ => round.failed += 1,
                }
                note(broker, &target, &answer).await?;
            }
            None => round.failed += 1,
        }
    }
    round.failed += silent.len();
    let providers: BTreeSet<_> = silent
        .iter()
        .map(|(target, _)| &target.lease.offer.provider)
        .collect();
    if !somebody_answered && providers.len() > 1 {
        warn!(
            nodes = silent.len(),
            providers = providers.len(),
            "No node of any provider answered: the broker itself is cut off, so no node counts as silent"
        );
        return Ok(round);
    }
    for (target, probe) in silent {
        note(broker, &target, &probe).await?;
    }
    Ok(round)
}

/// Whether a node of a lease shows its host key now. A node without a known key proves nothing: anybody may
/// answer there.
///
/// Errors: the database's.
pub(crate) async fn answers(broker: &Broker, lease: &Lease) -> Result<bool, StoreError> {
    let known = known_nodes(broker, lease).await?;
    let nodes = (0..).zip(known).filter(|(_, node)| !node.keys.is_empty());
    let looks = nodes.map(|(index, known)| async move {
        let lease = lease.clone();
        let target = Target {
            lease,
            index,
            known,
        };
        let probe = look(broker, &target).await;
        (target, probe)
    });
    let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
    let mut answers = false;
    while let Some((target, probe)) = looks.next().await {
        let Some(probe) = probe else { continue };
        note(broker, &target, &probe).await?;
        answers |= matches!(probe, Probe::Reached { .. });
    }
    Ok(answers)
}

/// When a node of a lease last showed its host key, as the prober saw it.
///
/// Errors: the database's.
pub(crate) async fn last_seen(
    broker: &Broker,
    lease: &Lease,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let nodes = broker.store().reach().across_tenants();
    let nodes = nodes.of_lease(lease.id).await?;
    Ok(nodes.iter().filter_map(|node| node.last_reachable_at).max())
}

/// Up to when every node of a lease has shown its host key; `None` where one never did.
///
/// Errors: the database's.
pub(crate) async fn seen_until(
    broker: &Broker,
    lease: &Lease,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let nodes = broker.store().reach().across_tenants();
    let nodes = nodes.of_lease(lease.id).await?;
    if nodes.len() < lease.provider_nodes.len() {
        return Ok(None);
    }
    let mut seen = nodes.iter().map(|node| node.last_reachable_at);
    Ok(seen
        .try_fold(DateTime::<Utc>::MAX_UTC, |all, one| Some(all.min(one?)))
        .filter(|_| !nodes.is_empty()))
}

/// Looks at one node; `None` where the provider names none.
async fn look(broker: &Broker, target: &Target) -> Option<Probe> {
    let node = target.lease.provider_nodes.get(target.index as usize)?;
    let known = &target.known.keys;
    let config = &broker.config().reach;
    let patience = Duration::from_secs(config.timeout_seconds.max(1).into());
    let simulation = broker.mode() == DatabaseMode::Simulation;
    let shown = probe::host_key(&node.host, node.port, known, simulation, patience).await;
    Some(match shown {
        Ok(key) => probe::compare(known, &key),
        Err(failure) => Probe::Failed(failure),
    })
}

/// Keeps the findings about a node, and reports news.
async fn note(broker: &Broker, target: &Target, probe: &Probe) -> Result<(), StoreError> {
    let Target { lease, index, .. } = target;
    let limit = TimeDelta::seconds(broker.config().reach.unreachable_seconds.into());
    let all = broker.store().reach().across_tenants();
    let told = all
        .record(lease.id, *index, probe, limit, broker.now())
        .await?;
    for kind in &told {
        tell(broker, lease, *index, *kind);
    }
    Ok(())
}

fn tell(broker: &Broker, lease: &Lease, index: u32, kind: EventType) {
    let (id, node) = (lease.id, lease.node_base + index);
    match kind {
        EventType::NodeReachable => {
            info!(lease.id = %id, node, "Node {node} of lease {id} answers again");
        }
        EventType::NodeHostKeyChanged => warn!(
            lease.id = %id, node,
            "Node {node} of lease {id} shows another host key than it had; a person should look"
        ),
        _ => warn!(lease.id = %id, node, "Node {node} of lease {id} cannot be reached"),
    }
    broker
        .hot()
        .publish(crate::platform::coordination::Topic::Events);
    broker.nudge();
}

/// The public key as a kind and its key, without a comment.
pub(crate) fn line_of(key: &PublicKey) -> String {
    let line = key.to_openssh().unwrap_or_default();
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
