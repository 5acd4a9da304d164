//! Finds the next candidate for failed leases: the same hardware elsewhere, under the ceiling set beforehand.
//! We pay any extra cost; the tenant's rate is frozen.

use std::collections::{BTreeSet, HashMap};
use std::iter;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::{Ceiling, Counts, Demand, GpusDemand, Policy, Window};
use market::fabric::FabricWanted;
use market::gpu::GpuWanted;
use market::ids::{LeaseId, OfferId, ProviderId};
use market::lease::LeaseEvent;
use market::money::{Money, Rate};
use market::offer::{Offer, Terms};
use market::quote::QuoteLine;
use market::reservation::{ReservationEvent, ReservationState};
use matcher::{Held, SearchOptions};
use store::change::{Change, NewLease, ReservationMove};
use store::leases::Lease;
use store::reservations::Reservation;
use store::{Conflict, StoreError};
use tracing::info;

use super::FulfilError;
use super::round::Round;
use crate::flow::cooldown::cooling_offers;
use crate::flow::{absence, reserve, verify};
use crate::platform::app::Broker;
use crate::platform::metrics;

/// Without a ceiling, a replacement may cost us so much more than the tenant pays. Units: percent.
const DEARER_BY_PERCENT: i64 = 50;
/// How often one offer may fail one fleet before it is left alone. A gang leaves it at once.
const FALLS_OF_A_FLEET: usize = 2;
/// When to look again for a candidate while a provider has not been read.
const LOOK_FOR_NEWS: TimeDelta = TimeDelta::minutes(1);
/// Further candidates to try in order when one is taken or withdrawn meanwhile.
const CANDIDATES: usize = 50;

/// Takes the next candidate to replace the failed leases, waits for news of the market, or gives up. Returns
/// whether it did anything.
///
/// A gang is replaced as a whole, in one offer; a fleet lease by lease.
pub(super) async fn replace(
    round: &mut Round<'_>,
    fallen: &[LeaseId],
) -> Result<bool, FulfilError> {
    let fallen: Vec<Lease> = round
        .leases
        .iter()
        .filter(|lease| fallen.contains(&lease.id))
        .cloned()
        .collect();
    let groups: Vec<Vec<Lease>> = if round.reservation.gang {
        vec![fallen]
    } else {
        fallen.into_iter().map(|lease| vec![lease]).collect()
    };
    let last = groups.len();
    let troubled = absence::troubled(round.broker).await?;
    for (number, group) in (1..).zip(&groups) {
        // The reservation takes its step with the last group: only then nothing is missing.
        let step = (number == last).then_some(ReservationEvent::NextTaken);
        if replace_group(round, group, step, &troubled).await? {
            continue;
        }
        if may_hear_more(round, group, &troubled) {
            round.look_in(LOOK_FOR_NEWS);
            return Ok(false);
        }
        round.exhausted().await?;
        return Ok(true);
    }
    round.look_at_every().await?;
    Ok(true)
}

/// Whether a provider has not been read for longer than its offers are good for, or is in trouble: then an
/// empty search does not prove a lack of supply. The broker waits only so long after the failure.
fn may_hear_more(round: &Round<'_>, group: &[Lease], troubled: &BTreeSet<ProviderId>) -> bool {
    let (broker, now) = (round.broker, round.now());
    let cooldown = TimeDelta::seconds(broker.config().sales.cooldown_seconds.into());
    // A provider that is out of reach never reports that its lease is gone: the failure counts.
    let fell_lately = group.iter().all(|lease| {
        lease
            .fell_at
            .or(lease.gone_at)
            .is_some_and(|at| now - at < cooldown)
    });
    let snapshot = broker.snapshot();
    fell_lately
        && snapshot
            .offers()
            .filter(|offer| offer.orderable())
            .any(|offer| offer.is_stale(now) || troubled.contains(offer.provider()))
}

/// Saves new leases for a group of failed ones; returns whether it found a candidate.
async fn replace_group(
    round: &mut Round<'_>,
    group: &[Lease],
    step: Option<ReservationEvent>,
    troubled: &BTreeSet<ProviderId>,
) -> Result<bool, FulfilError> {
    let Some(line) = group.first().and_then(|lease| {
        round
            .reservation
            .lines
            .iter()
            .find(|line| line.line == lease.line)
            .cloned()
    }) else {
        return Ok(false);
    };
    let nodes: u32 = group.iter().map(|lease| lease.nodes).sum();
    for offer in next_offers(round, &line, group).await? {
        // Nothing could be ordered there, or nothing should.
        let provider = &offer.provider;
        if round.broker.provider(provider).is_none() || troubled.contains(provider) {
            continue;
        }
        let new_leases = stand_ins(round.broker, group, &offer);
        let from = round.reservation.state;
        let reservation = match (from, step) {
            // A repair keeps its state until the new lease has passed.
            (ReservationState::Repairing, _) | (_, None) => None,
            (_, Some(event)) => Some(ReservationMove {
                from,
                to: from.next(event)?,
            }),
        };
        let change = Change {
            reservation,
            new_leases,
            ..Change::default()
        };
        match round.save(change).await {
            Ok(()) => {
                metrics::leases_replaced(group);
                info!(
                    reservation.id = %round.reservation.id, offer.id = %offer.offer_id,
                    provider.id = %offer.provider, nodes,
                    "Took the next candidate: {} at {}", offer.sku, offer.provider
                );
                return Ok(true);
            }
            // Its capacity was taken, or its provider closed, since the market was read.
            Err(FulfilError::Store(
                StoreError::OutOfStock { .. }
                | StoreError::Conflict(
                    Conflict::ProviderDisabled { .. } | Conflict::ProviderQuarantined { .. },
                ),
            )) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// New leases for failed ones. Where the next provider sells nodes one by one, several leases replace one
/// failed lease, and the first is recorded as its replacement.
fn stand_ins(broker: &Broker, group: &[Lease], offer: &Offer) -> Vec<NewLease> {
    let mut new_leases = Vec::new();
    for fallen in group {
        let mut node_base = fallen.node_base;
        for nodes in reserve::lease_sizes(broker, offer, fallen.nodes) {
            new_leases.push(NewLease {
                id: LeaseId::from_uuid(broker.new_uuid()),
                line: fallen.line,
                offer: offer.clone(),
                nodes,
                node_base,
                replaces: (node_base == fallen.node_base).then_some(fallen.id),
            });
            node_base += nodes;
        }
    }
    new_leases
}

/// Offers of the same hardware that may replace a line, best first.
async fn next_offers(
    round: &Round<'_>,
    line: &QuoteLine,
    group: &[Lease],
) -> Result<Vec<Offer>, FulfilError> {
    let nodes = group.iter().map(|lease| lease.nodes).sum();
    let (Some(gpu), Some(count)) = (line.offer.gpu.known(), line.offer.gpus.as_whole()) else {
        return Ok(Vec::new());
    };
    let shared = round.reservation.demand.shared();
    let gang = round.reservation.gang;
    let demand = Demand::Gpus(GpusDemand {
        gpu: GpuWanted::Exactly(gpu).into(),
        count: Counts::exactly(count),
        nodes,
        // The replacement of a gang is joined as the gang was: see `serves_a_gang`.
        fabric: (gang && line.offer.internode.is_rdma()).then_some(FabricWanted::Rdma),
        spot: line.offer.terms == Terms::Spot,
        gpu_memory_gib: shared.gpu_memory_gib,
        host_memory_gib: shared.host_memory_gib,
        vcpus: shared.vcpus,
        window: Some(Window {
            end: wanted_until(&round.reservation),
            ..Window::default()
        }),
        ceiling: Some(ceiling(round, line, group)),
        places: shared.places.cloned(),
        tenancy: shared.tenancy.map(<[_]>::to_vec),
        policy: shared.policy.map(|policy| Policy {
            allow_ethernet: None,
            ..policy.clone()
        }),
        verification: None,
        tags: std::collections::BTreeMap::new(),
    });
    let level = round.reservation.verification;
    let unproven = round.broker.config().verifier.unproven_level;
    let options = SearchOptions {
        // The cheapest may all be from sellers that need a deeper verification.
        limit: match unproven.is_some_and(|least| least > level) {
            true => usize::MAX,
            false => CANDIDATES,
        },
        orderable_only: true,
        cooling: Arc::new(cooling_offers(round.broker, round.reservation.tenant_id).await?),
        ..SearchOptions::default()
    };
    let (broker, now) = (round.broker, round.broker.now());
    // Our own other leases must not be in the way, so the store alone judges the remaining capacity.
    let held = Held::new();
    let Ok(plan) = matcher::search(&broker.snapshot(), &demand, &held, now, &options) else {
        return Ok(Vec::new());
    };
    let failed = failed_here(round);
    let offers = plan
        .candidates
        .into_iter()
        .flat_map(|candidate| candidate.lines);
    let offers = offers
        .map(|candidate| candidate.offer.clone())
        .filter(|offer| !failed.contains(&offer.offer_id))
        .filter(|offer| !gang || serves_a_gang(broker, offer, &line.offer, group))
        .filter(|offer| lasts_long_enough(round, offer));
    let mut proved = Vec::new();
    for offer in offers {
        // Its nodes prove themselves as deeply as was settled for the reservation, and no deeper.
        if verify::level_at(broker, level, iter::once(&offer)).await? <= level {
            proved.push(offer);
        }
    }
    proved.truncate(CANDIDATES);
    Ok(proved)
}

/// Whether a provider meets the policy until the demand's own deadline, where its window is open; else until
/// the reservation ends or the wait for the hand-off does.
fn lasts_long_enough(round: &Round<'_>, offer: &Offer) -> bool {
    let demand = &round.reservation.demand;
    let policy = demand.shared().policy;
    let until = demand.deadline().or(round.reservation.window_end);
    let (Some(policy), Some(until)) = (policy, until) else {
        return true;
    };
    let until = until.max(round.now());
    let facts = round.broker.config().facts_of_operator(offer);
    policy.check_facts(facts.as_ref(), until).is_ok()
}

/// The latest end of a failed lease's replacement: until then its provider must meet the policy. Before the
/// hand-off the reservation's window is the time allowed for the hand-off.
fn wanted_until(reservation: &Reservation) -> Option<DateTime<Utc>> {
    let given_up_or_ends = reservation.window_end?;
    match reservation.state {
        ReservationState::Repairing => Some(given_up_or_ends),
        _ => (reservation.demand.shared().window)
            .and_then(|window| window.end_from(given_up_or_ends)),
    }
}

/// Whether an offer joins its nodes as the failed one did, in no more rentals than failed.
fn serves_a_gang(broker: &Broker, offer: &Offer, sold: &Offer, group: &[Lease]) -> bool {
    let nodes: u32 = group.iter().map(|lease| lease.nodes).sum();
    let as_joined = nodes == 1 || offer.internode == sold.internode;
    let as_few = stand_ins(broker, group, offer).len() <= group.len();
    as_joined && as_few && offer.tenancy == sold.tenancy
}

/// The most that a replacement may cost us: every limb of the tenant's ceiling, and a bound of our own per
/// GPU-hour where the tenant gave none. The tenant pays the quoted rate in any case.
fn ceiling(round: &Round<'_>, line: &QuoteLine, group: &[Lease]) -> Ceiling {
    let quoted = line.rate.money_per_gpu_hour();
    let ours = quoted.units() / 100 * (100 + DEARER_BY_PERCENT);
    let ours = Rate::per_gpu_hour(Money::from_units(ours, quoted.currency()));
    let given = round.reservation.ceiling.clone().unwrap_or_default();
    let lines = &round.reservation.lines;
    Ceiling {
        usd_per_gpu_hour: Some(given.usd_per_gpu_hour.unwrap_or(ours)),
        usd_per_hour: given
            .usd_per_hour
            .map(|limit| left_of(limit, &round.leases, group, lines)),
    }
}

/// The rest of a ceiling on everything, for the replacement of a group: the limit less the hourly cost of the
/// other leases.
///
/// Standing leases count at the rates of their own offers; those still to be replaced count at the quoted
/// one, so that the first replacement leaves enough for the next.
fn left_of(limit: Money, leases: &[Lease], group: &[Lease], lines: &[QuoteLine]) -> Money {
    let quoted = |lease: &Lease| {
        let line = lines.iter().find(|line| line.line == lease.line);
        line.map(|line| line.rate)
    };
    let rate = |lease: &Lease| match (lease.state.is_standing(), lease.replaced_by, lease.given_up)
    {
        (true, ..) => lease.offer.rate().ok(),
        (false, None, false) => quoted(lease),
        _ => None,
    };
    let others = leases
        .iter()
        .filter(|lease| !group.iter().any(|fallen| fallen.id == lease.id));
    let taken: i128 = others
        .filter_map(|lease| {
            let gpus = lease.offer.gpus.as_whole()? * lease.nodes;
            Some(i128::from(rate(lease)?.money_per_gpu_hour().units()) * i128::from(gpus))
        })
        .sum();
    // Between nothing and the limit, so it is a sum of money.
    let left = (i128::from(limit.units()) - taken).max(0) as i64;
    Money::from_units(left, limit.currency())
}

/// Offers that failed this reservation too often. Plans leave out offers in cool-down already.
fn failed_here(round: &Round<'_>) -> Vec<OfferId> {
    let mut here: HashMap<OfferId, usize> = HashMap::new();
    // An order that created nothing is no evidence against the offer: the failure may be ours.
    let never_was = |lease: &&Lease| {
        lease.fall_reason == Some(LeaseEvent::NotFound) && lease.started_at.is_none()
    };
    let fell = round
        .leases
        .iter()
        .filter(|lease| lease.fall_reason.is_some());
    for lease in fell.filter(|lease| !never_was(lease)) {
        *here.entry(lease.offer.offer_id).or_default() += 1;
    }
    let most = if round.reservation.gang {
        1
    } else {
        FALLS_OF_A_FLEET
    };
    let here = here.into_iter().filter(|(_, falls)| *falls >= most);
    here.map(|(offer, _)| offer).collect()
}
