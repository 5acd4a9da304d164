//! The search as a scan: every offer in full, each tested by itself, and a full sort at the end. The columns
//! must agree with it, word for word.

use std::cmp::Ordering;

use ::market::demand::Ceiling;
use ::market::ids::ProviderId;
use ::market::provider_facts::FactsLack;

use super::twin::facts_of;
use super::*;
use crate::filter::Among;
use crate::filter::check_stock;
use crate::plan::AlsoAt;
use crate::ties::Standing;

/// The demand of one offer a candidate, made ready.
pub fn query(demand: &Demand) -> Query<'_> {
    match Wanted::new(demand, now()).expect("a demand") {
        Wanted::Query(query) => *query,
        Wanted::Hybrid(_) => panic!("its halves are searched apart"),
    }
}

/// An eligible offer: its fit, and its position.
type Taken = (Fit, Row, RowId);

/// The result of a scan of the offers, for a demand with one offer per candidate.
pub fn scan(snapshot: &Snapshot, demand: &Demand, held: &Held, options: &SearchOptions) -> Plan {
    let query = query(demand);
    let filter = Filter {
        shared: demand.shared(),
        snapshot,
        among: Among::All,
        held,
        now: now(),
        ends_by: demand.ends_by(now()),
        options,
        kind: demand.kind(),
        budget: &Budget::default(),
    };
    let mut eligible = Vec::new();
    let mut tally = Tally::new(&filter);
    for offer in snapshot.offers() {
        let at = snapshot.find(&offer.offer_id()).expect("where it stands");
        let row = snapshot.row(at);
        match test(&query, &filter, &row) {
            Ok(fit) => eligible.push((fit, row, at)),
            Err(code) => tally.count(code, at),
        }
    }
    eligible.sort_by(|(a, row, _), (b, other, _)| {
        a.key
            .cmp(&b.key)
            .then_with(|| tie_order(&row.offer, &other.offer))
    });
    let cheapest = eligible
        .first()
        .map(|(fit, row, _)| (*fit, row.offer.clone()));
    // Among candidates within a tenth of the cheapest, surer prices and better machines come first.
    let place = |fit: &Fit, offer: &Offer| {
        let least = cheapest.as_ref().expect("one").0.key;
        let ties = 10 * (fit.key.cost - least.cost) <= least.cost;
        let (listed, age) = sureness(offer);
        (!ties, ties.then_some((listed, fit.class, age)))
    };
    eligible.sort_by_key(|(fit, row, _)| place(fit, &row.offer));
    // An offer that cannot be ordered is listed once for all its places.
    let mut grouped: Vec<(&Taken, Vec<AlsoAt>)> = Vec::new();
    for one in &eligible {
        let is_like = |(kept, _): &&mut (&Taken, Vec<AlsoAt>)| {
            let (kept, other) = (&kept.1.offer, &one.1.offer);
            !other.orderable
                && sureness(kept) == sureness(other)
                && *kept
                    == Offer {
                        offer_id: kept.offer_id,
                        place: kept.place.clone(),
                        observed_at: kept.observed_at,
                        availability: kept.availability,
                        ..other.clone()
                    }
        };
        match grouped.iter_mut().find(is_like) {
            Some((_, also_at)) => also_at.push(AlsoAt {
                offer_id: one.1.offer.offer_id,
                place: one.1.offer.place.clone(),
            }),
            None => grouped.push((one, Vec::new())),
        }
    }
    let best = grouped.into_iter().take(options.limit);
    // Only offers that the walk allows can become candidates.
    let mut allowed = HashMap::new();
    let held_rows = HeldRows::of(&filter);
    walk(
        &query,
        &filter,
        &held_rows,
        &mut Tally::new(&filter),
        |group, _| {
            let rows = group
                .group
                .rows()
                .filter_map(|row| group.test(&filter, row).ok());
            allowed.extend(rows.map(|one| (one.at(), one)));
        },
    );
    Plan {
        generation: snapshot.generation(),
        kind: demand.kind(),
        eligible: eligible.len(),
        candidates: (1..)
            .zip(best)
            .map(|(rank, ((fit, _, at), also_at)): (usize, _)| {
                let best = Eligible::at(&filter, allowed[at], *fit).expect("a price");
                let candidate = best.into_candidate(rank, &query, &filter);
                let mut candidate = candidate.expect("a cost");
                let (least, offer) = cheapest.as_ref().expect("one");
                if rank == 1 && candidate.lines[0].offer.offer_id != offer.offer_id {
                    let of = |fit: &Fit, offer: &Offer| {
                        let read = offer.observed_at;
                        Standing {
                            cost: fit.key.cost,
                            precedence: filter.precedence(
                                offer.orderable,
                                fit.class,
                                read,
                                filter.reliability(&offer.provider, &offer.particulars.operator),
                            ),
                        }
                    };
                    let name = format!("{} {}", offer.provider, offer.sku);
                    let own = of(fit, &candidate.lines[0].offer);
                    let told = own.before(&of(least, offer), &name);
                    candidate.reasons.insert(0, told);
                }
                candidate.also_at = also_at;
                candidate
            })
            .collect(),
        rejected: tally.rejections(),
        refused: tally.refused(&query, &filter, None),
        alternatives: Vec::new(),
        hybrid: None,
    }
}

/// How sure the price of an offer is, the surest first.
pub fn sureness(offer: &Offer) -> (bool, usize) {
    let age = (now() - offer.observed_at).num_seconds();
    let limits = [1, 24, 7 * 24, 30 * 24];
    let past = limits.iter().filter(|hours| age > **hours * 3_600).count();
    (!offer.orderable, past)
}

/// How one offer would be taken, or the first reason why it is not eligible.
pub fn test(query: &Query<'_>, filter: &Filter<'_>, row: &Row) -> Result<Fit, ReasonCode> {
    let rate = row.rate.ok_or(ReasonCode::NoPrice)?;
    let key = PartitionKey {
        priced: true,
        gpu: row.offer.gpu.clone(),
        open_memory_mib: row.offer.gpu_memory_mib,
        gpus: row.offer.gpus,
        terms: row.offer.terms,
    };
    check_gpu(&key, filter.shared)?;
    match query {
        Query::Gpus(query) => query.check_count(&key)?,
        Query::Train(_) | Query::Serve(_) => drop(known_node(row)?),
    }
    if !query.takes(row.offer.terms) {
        return Err(ReasonCode::Terms);
    }
    check_offer(filter, row)?;
    let facts = facts_of(filter.snapshot, &row.offer);
    let mut fit = query.fit(row, filter.evidence_hours(facts))?;
    let held = filter.held.get(&row.offer.offer_id).copied().unwrap_or(0);
    let may_have = |nodes: u32| {
        check_stock(&row.offer.availability, held, nodes)?;
        let rests_until = filter.options.cooling.get(&row.offer.offer_id);
        if rests_until.is_some_and(|until| filter.now < *until) {
            return Err(ReasonCode::CoolingDown);
        }
        check_cost(filter, row, rate, nodes)
    };
    may_have(fit.nodes)?;
    // More nodes where the work costs less on them.
    while let Some(larger) = query.larger(&fit)
        && may_have(larger.nodes).is_ok()
    {
        fit = larger;
    }
    fit.key = query.key(&fit, &key, row.offer.price_per_node_hour);
    Ok(fit)
}

fn check_offer(filter: &Filter<'_>, row: &Row) -> Result<(), ReasonCode> {
    let offer = &row.offer;
    if filter.options.orderable_only && !offer.orderable {
        return Err(ReasonCode::NotOrderable);
    }
    if let Some(policy) = filter.shared.policy {
        let allowed = &policy.allow_providers;
        let operator = offer.particulars.operator.to_string();
        let denied = |one: &ProviderId| *one == offer.provider || one.as_str() == operator;
        if policy.deny_providers.iter().any(denied)
            || !(allowed.is_empty() || allowed.contains(&offer.provider))
        {
            return Err(ReasonCode::ProviderPolicy);
        }
    }
    let snapshot = filter.snapshot;
    match filter.check_facts(facts_of(snapshot, offer)) {
        Ok(()) => {}
        Err(FactsLack::OperatorUnknown | FactsLack::OperatorElsewhere(_)) => {
            return Err(ReasonCode::Operator);
        }
        Err(FactsLack::NoEvidence(_) | FactsLack::EvidenceEnds { .. }) => {
            return Err(ReasonCode::Certification);
        }
    }
    if snapshot.quarantine(&offer.provider, filter.now).is_some() {
        return Err(ReasonCode::Quarantined);
    }
    if let Some(places) = filter.shared.places {
        if !places.countries.is_empty() {
            let country = offer.place.country.ok_or(ReasonCode::PlaceUnknown)?;
            if !places.countries.contains(&country) {
                return Err(ReasonCode::Place);
            }
        }
        if !places.regions.is_empty() {
            let region = offer
                .place
                .region
                .as_ref()
                .ok_or(ReasonCode::PlaceUnknown)?;
            let mut allowed = places.regions.iter();
            if !allowed.any(|allowed| allowed.eq_ignore_ascii_case(region)) {
                return Err(ReasonCode::Place);
            }
        }
    }
    let allowed = filter.shared.tenancy;
    if allowed.is_some_and(|allowed| !allowed.contains(&offer.tenancy)) {
        return Err(ReasonCode::Tenancy);
    }
    let enough =
        |has: Option<u32>, least: Option<u32>| least.is_none_or(|least| has >= Some(least));
    if !enough(offer.vcpus, filter.shared.vcpus)
        || !enough(offer.memory_gib, filter.shared.host_memory_gib)
    {
        return Err(ReasonCode::Host);
    }
    if snapshot.is_stale(offer, filter.now) {
        return Err(ReasonCode::Stale);
    }
    if offer.availability.is_sold_out() {
        return Err(ReasonCode::SoldOut);
    }
    Ok(())
}

fn check_cost(filter: &Filter<'_>, row: &Row, rate: Rate, nodes: u32) -> Result<(), ReasonCode> {
    let gpus = row.offer.gpus.as_whole().ok_or(ReasonCode::Slice)?;
    let each = rate.money_per_gpu_hour().units();
    let units = i128::from(each) * i128::from(gpus) * i128::from(nodes);
    let cost = Money::usd_units(i64::try_from(units).map_err(|_| ReasonCode::Ceiling)?);
    let none = Ceiling::default();
    let ceiling = filter.shared.ceiling.unwrap_or(&none);
    let above = ceiling.usd_per_gpu_hour.is_some_and(|limit| rate > limit)
        || ceiling.usd_per_hour.is_some_and(|limit| cost > limit);
    if above {
        Err(ReasonCode::Ceiling)
    } else {
        Ok(())
    }
}

fn tie_order(a: &Offer, b: &Offer) -> Ordering {
    let key = |offer: &Offer| {
        (
            offer.provider.clone(),
            offer.sku.clone(),
            offer.place.clone(),
            offer.offer_id,
        )
    };
    key(a).cmp(&key(b))
}
