//! Explains why one offer is no candidate, in words with its figures.

use chrono::{SecondsFormat, TimeDelta};
use market::counted::counted;
use market::demand::check::LONGEST_HOURS;
use market::fabric::FabricWanted;
use market::money::Money;
use market::offer::{MachineOperator, Offer, Terms};
use market::provider_facts::ProviderFacts;

use super::gb;
use crate::filter::Filter;
use crate::fleet_search::NoFleet;
use crate::gpus::NearestCounts;
use crate::perf::chip::Chip;
use crate::perf::memory::TRAINING_FRACTION;
use crate::perf::run::Run;
use crate::perf::serving::{doublings, usable_bytes};
use crate::reason::ReasonCode;
use crate::search::{MAX_NODES, Query, known_node, most_nodes, node_price_units};
use crate::serve::{Load, ServeQuery};
use crate::snapshot::{Row, Snapshot};
use crate::train::TrainQuery;

/// The reason with the figures of this offer; the general sentence where there are none.
pub(crate) fn why_not(
    reason: ReasonCode,
    query: &Query<'_>,
    filter: &Filter<'_>,
    row: &Row,
    none: Option<&NoFleet>,
) -> String {
    figures(reason, query, filter, row, none).unwrap_or_else(|| reason.meaning().to_owned())
}

fn figures(
    reason: ReasonCode,
    query: &Query<'_>,
    filter: &Filter<'_>,
    row: &Row,
    none: Option<&NoFleet>,
) -> Option<String> {
    let offer = &row.offer;
    match reason {
        ReasonCode::NoPrice => Some(format!(
            "{} USD per hour is not a plausible price",
            offer.price_per_node_hour
        )),
        ReasonCode::Gpu | ReasonCode::GpusPerNode => of_another_shape(query, filter, row),
        ReasonCode::GpuMemory => Some(format!(
            "Each {} has {} GB; the demand asks for at least {} GB",
            offer.gpu, row.spec?.memory_gb, filter.shared.gpu_memory_gib?
        )),
        ReasonCode::Host => Some(of_host(filter, row)),
        ReasonCode::GpuFormUnknown => Some(format!(
            "`{}` does not say which GPU of the family {} it is, and not all satisfy the demand",
            offer.raw_gpu_name,
            offer.gpu.family()
        )),
        ReasonCode::Slice => Some(format!("It is {} of a GPU", offer.gpus)),
        ReasonCode::Terms => Some(format!(
            "It is sold as {}; the demand asks for {}",
            offer.terms,
            wanted_terms(query)
        )),
        ReasonCode::ProviderPolicy => Some(format!("The policy excludes {}", seller(offer))),
        ReasonCode::Operator | ReasonCode::Certification => {
            match filter.check_facts(facts(filter, offer)) {
                Err(lack) => Some(format!("Of {}: {lack}", seller(offer))),
                Ok(()) => of_evidence(query, filter, row),
            }
        }
        ReasonCode::Quarantined => {
            let quarantine = filter.snapshot.quarantine(&offer.provider, filter.now)?;
            Some(format!(
                "{} is suspended until {}: {}",
                offer.provider,
                quarantine.until.to_rfc3339_opts(SecondsFormat::Secs, true),
                quarantine.reason
            ))
        }
        ReasonCode::Place => {
            let country = offer
                .place
                .country
                .map_or("an unknown country".into(), |c| c.to_string());
            let region = offer.place.region.as_deref().unwrap_or("an unknown region");
            Some(format!("It is in {region}, {country}"))
        }
        ReasonCode::Tenancy => Some(format!("It is a {}", offer.tenancy)),
        ReasonCode::Stale => Some(of_age(filter, row)),
        ReasonCode::Precision => of_precision(query, row),
        ReasonCode::Memory => of_memory(query, row),
        ReasonCode::HeadsDoNotDivide => of_heads(query, row),
        ReasonCode::GpusDoNotDivide => {
            let (Query::Train(query), Ok((_, per_node))) = (query, known_node(row)) else {
                return None;
            };
            Some(format!(
                "{} {} not a whole number of nodes of {per_node}",
                counted(query.demand.gpus?, "GPU"),
                if query.demand.gpus? == 1 { "is" } else { "are" }
            ))
        }
        ReasonCode::GangTenancy => Some(format!(
            "Nodes of tenancy `{}` cannot be used in a multi-node job",
            offer.tenancy
        )),
        ReasonCode::GangNode => Some(format!(
            "Nodes of {} x {} cannot be used in a multi-node job",
            offer.gpus, offer.gpu
        )),
        ReasonCode::Fabric => Some(of_fabric(query, row)),
        ReasonCode::Deadline => of_deadline(query, row),
        ReasonCode::Latency => of_latency(query, row),
        ReasonCode::Spread => Some(format!(
            "Without {}, or one of its zones, the others cannot carry the load, or it cannot carry it \
             without one of the others",
            offer.provider
        )),
        ReasonCode::NotEnoughNodes | ReasonCode::Held => of_stock(query, filter, row),
        ReasonCode::CoolingDown => {
            let until = filter.options.cooling.get(&offer.offer_id)?;
            Some(format!(
                "It failed several times recently and is in cool-down until {}",
                until.to_rfc3339_opts(SecondsFormat::Secs, true)
            ))
        }
        ReasonCode::Ceiling => of_ceiling(query, filter, row, none),
        ReasonCode::CeilingUnproved => of_all_fleets(none?),
        ReasonCode::PlaceUnknown => {
            let region = offer.place.region.as_ref();
            region.map(|region| format!("The country of `{region}` is unknown"))
        }
        ReasonCode::NotOrderable | ReasonCode::SoldOut => None,
    }
}

fn wanted_terms(query: &Query<'_>) -> String {
    let all = [Terms::OnDemand, Terms::Spot];
    let wanted = all.into_iter().filter(|terms| query.takes(*terms));
    let words: Vec<String> = wanted.map(|terms| terms.to_string()).collect();
    words.join(" or ")
}

fn of_another_shape(query: &Query<'_>, filter: &Filter<'_>, row: &Row) -> Option<String> {
    let (gpus, gpu) = (row.offer.gpus, &row.offer.gpu);
    let Query::Gpus(query) = query else {
        let wanted = filter.shared.gpu?;
        return Some(format!("It has {gpu}; the demand asks for {wanted}"));
    };
    let wanted = query.demand();
    let (count, wanted_gpu) = (wanted.count, &wanted.gpu);
    let nearest = NearestCounts::to(wanted, filter.snapshot).map_or(String::new(), |nearest| {
        format!(", which no provider sells; the nearest sizes sold: {nearest}")
    });
    Some(format!(
        "It has {gpus} x {gpu} a node; the demand asks for {count} x {wanted_gpu}{nearest}"
    ))
}

fn of_fabric(query: &Query<'_>, row: &Row) -> String {
    let wanted = match query {
        Query::Gpus(query) => Some(query.demand().joined_by()),
        Query::Train(query) => Some(query.demand.joined_by()),
        Query::Serve(_) => None,
    };
    let wanted = match wanted {
        // Of a run: without a known fabric between its nodes it cannot use several.
        Some(FabricWanted::Any) => "; the demand asks for RDMA or Ethernet".to_owned(),
        Some(fabric) => format!("; the demand asks for `{fabric}`"),
        None => String::new(),
    };
    let joined_by = row.offer.internode;
    format!("The fabric between its nodes is `{joined_by}`, and several nodes are needed{wanted}")
}

fn of_host(filter: &Filter<'_>, row: &Row) -> String {
    let size = |has: Option<u32>, least: Option<u32>, what: &str| {
        let least = least.filter(|least| has < Some(*least))?;
        let has = has.map_or("not stated".to_owned(), |has| has.to_string());
        Some(format!(
            "{what}: {has}; the demand asks for at least {least}"
        ))
    };
    let (offer, shared) = (&row.offer, &filter.shared);
    let sizes = [
        size(offer.vcpus, shared.vcpus, "Virtual CPUs of a node"),
        size(
            offer.memory_gib,
            shared.host_memory_gib,
            "GiB of main memory of a node",
        ),
    ];
    let sizes: Vec<_> = sizes.into_iter().flatten().collect();
    sizes.join(". ")
}

fn of_age(filter: &Filter<'_>, row: &Row) -> String {
    let age = row.offer.age_seconds(filter.now);
    let view = filter.snapshot.provider(&row.offer.provider);
    match view.and_then(|view| view.freshness_limit_seconds) {
        Some(limit) => format!("It was last read {age} s ago; the limit is {limit} s"),
        None => format!(
            "No freshness limit is known for offers of {}",
            row.offer.provider
        ),
    }
}

fn of_precision(query: &Query<'_>, row: &Row) -> Option<String> {
    let precision = match query {
        Query::Gpus(_) => return None,
        Query::Train(query) => query.demand.precision,
        Query::Serve(query) => query.weights,
    };
    Some(format!(
        "{} has no published rate in {}",
        row.offer.gpu,
        precision.as_str()
    ))
}

fn of_memory(query: &Query<'_>, row: &Row) -> Option<String> {
    let (spec, per_node) = known_node(row).ok()?;
    match query {
        Query::Gpus(_) => None,
        Query::Train(query) => {
            let memory = query.memory(spec, per_node);
            let gpus = query.demand.gpus.unwrap_or(per_node);
            Some(format!(
                "{} needs {:.0} GB of state and {:.1} GB on each GPU; {gpus} x {} GB may fill {:.0} GB",
                query.work.model.name,
                gb(memory.state_bytes),
                gb(memory.bytes_per_gpu),
                spec.memory_gb,
                spec.memory_gb * TRAINING_FRACTION * f64::from(gpus),
            ))
        }
        Query::Serve(query) => {
            let chip = Chip::of_spec(spec)?;
            Some(format!(
                "{} with one sequence needs {:.1} GB; {per_node} x {} GB may fill {:.1} GB",
                query.work.model.name,
                gb(query.work.needed_bytes(query.constants, &chip, per_node)),
                spec.memory_gb,
                gb(usable_bytes(query.constants, &chip, per_node)),
            ))
        }
    }
}

fn of_heads(query: &Query<'_>, row: &Row) -> Option<String> {
    let Query::Serve(query) = query else {
        return None;
    };
    let (spec, per_node) = known_node(row).ok()?;
    let chip = Chip::of_spec(spec)?;
    let lacks_heads = |gpus: &u32| query.work.lacks_heads_alone(query.constants, &chip, *gpus);
    let gpus = doublings(per_node).find(lacks_heads)?;
    let model = &query.work.model;
    Some(format!(
        "{gpus} x {} would hold {}; its {} cannot be split evenly over them",
        row.offer.gpu,
        model.name,
        counted(model.heads, "head"),
    ))
}

fn of_deadline(query: &Query<'_>, row: &Row) -> Option<String> {
    let longest = f64::from(LONGEST_HOURS);
    let query = match query {
        Query::Gpus(_) => return None,
        Query::Serve(serve) => {
            return match serve.asked {
                Load::Pile(_, None) => of_long_pile(serve, row, longest),
                _ => Some("Its deadline has passed".to_owned()),
            };
        }
        Query::Train(query) => query,
    };
    let (nodes, run) = on_fewest(query, row)?;
    let limit = match query.hours_available.filter(|hours| *hours <= longest) {
        Some(hours) => format!("{hours:.1} hours are left"),
        None => sold_for(longest),
    };
    Some(format!(
        "On {} the run takes about {:.0} hours; {limit}{}",
        counted(nodes, "node"),
        run.hours,
        no_number(query),
    ))
}

/// For a batch that takes longer than `hours` on as many nodes as a fleet may have.
fn of_long_pile(serve: &ServeQuery, row: &Row, hours: f64) -> Option<String> {
    Some(format!(
        "{}; {}",
        most_for_pile(serve, row)?,
        sold_for(hours)
    ))
}

fn most_for_pile(serve: &ServeQuery, row: &Row) -> Option<String> {
    let (spec, per_node) = known_node(row).ok()?;
    let node = serve.node(&row.offer, spec, per_node).ok()?;
    let hours = serve.pile_hours(&node, MAX_NODES)?;
    Some(format!(
        "On {} the batch takes about {hours:.0} hours",
        counted(MAX_NODES, "node")
    ))
}

fn sold_for(hours: f64) -> String {
    format!("nothing is sold for more than {hours:.0} hours")
}

/// For work that lasts longer than the evidence that its provider is certified.
fn of_evidence(query: &Query<'_>, filter: &Filter<'_>, row: &Row) -> Option<String> {
    let query = match query {
        Query::Gpus(_) => return None,
        Query::Serve(serve) => {
            let facts = facts(filter, &row.offer);
            return Some(format!(
                "{}; the certification of {} is valid for {:.0} hours",
                most_for_pile(serve, row)?,
                seller(&row.offer),
                filter.evidence_hours(facts)?,
            ));
        }
        Query::Train(query) => query,
    };
    let (nodes, run) = on_fewest(query, row)?;
    // The cast stops at the largest integer.
    let seconds = (run.hours * 3_600.0).ceil() as i64;
    let end = filter
        .starts_by()
        .checked_add_signed(TimeDelta::try_seconds(seconds)?)?;
    let facts = facts(filter, &row.offer);
    let lack = filter.check_facts_until(facts, end).err()?;
    Some(format!(
        "Of {}: {lack}, when the run is predicted to be done on {}{}",
        seller(&row.offer),
        counted(nodes, "node"),
        no_number(query),
    ))
}

/// The facts on record about the operator.
fn facts<'f>(filter: &Filter<'f>, offer: &Offer) -> Option<&'f ProviderFacts> {
    let snapshot: &'f Snapshot = filter.snapshot;
    snapshot.facts(&offer.provider, &offer.particulars.operator)
}

/// The seller, and who runs the machine where that is somebody else.
fn seller(offer: &Offer) -> String {
    match &offer.particulars.operator {
        MachineOperator::Seller => offer.provider.to_string(),
        MachineOperator::Cloud(id) => format!("{id}, sold by {}", offer.provider),
        MachineOperator::Peer(_) => format!("a machine of its owner's at {}", offer.provider),
    }
}

/// The run on as many nodes as the tenant asked for, else on the fewest that hold it.
fn on_fewest(query: &TrainQuery<'_>, row: &Row) -> Option<(u32, Run)> {
    let (spec, per_node) = known_node(row).ok()?;
    let fewest = query.memory(spec, per_node).fewest_gpus(spec.memory_gb)?;
    let fewest = most_nodes(fewest / f64::from(per_node))?;
    let nodes = query.demand.gpus.map_or(fewest, |gpus| gpus / per_node);
    let run = query.run_on(spec, per_node, row.offer.internode, nodes)?;
    Some((nodes, run))
}

fn no_number(query: &TrainQuery<'_>) -> &'static str {
    match query.demand.gpus {
        Some(_) => "",
        None => ", and no number of nodes is fast enough",
    }
}

fn of_latency(query: &Query<'_>, row: &Row) -> Option<String> {
    let Query::Serve(query) = query else {
        return None;
    };
    let (spec, per_node) = known_node(row).ok()?;
    let chip = Chip::of_spec(spec)?;
    let widest = doublings(per_node).last()?;
    let (first, per_token) = query.work.seconds_alone(query.constants, &chip, widest);
    let (first, per_token) = (first / query.speed(), per_token / query.speed());
    let network = query
        .network_ms(&row.offer)
        .map_or(String::new(), |ms| format!(", {ms:.0} ms for the network"));
    let objective = &query.work.latency;
    let allowed = [
        (objective.first_token_ms)
            .map(|ms| format!("{ms:.0} ms for the first token, network included")),
        (objective.per_token_ms).map(|ms| {
            let mean = ms * query.constants.objective_share;
            format!("{mean:.1} ms for each later token on average")
        }),
    ];
    let allowed: Vec<_> = allowed.into_iter().flatten().collect();
    Some(format!(
        "On {widest} x {} even a lone request waits {:.0} ms for its first token{network} and {:.1} ms \
         for each later token; the objective allows {}",
        row.offer.gpu,
        first * 1e3,
        per_token * 1e3,
        allowed.join(" and "),
    ))
}

fn of_stock(query: &Query<'_>, filter: &Filter<'_>, row: &Row) -> Option<String> {
    let hours = filter.evidence_hours(facts(filter, &row.offer));
    let fit = query.fit(row, hours).ok()?;
    let needed = counted(fit.nodes, "node");
    let held = filter.held.get(&row.offer.offer_id).copied().unwrap_or(0);
    Some(match row.offer.availability.nodes {
        Some(free) => {
            format!("{needed} are needed; the provider has {free}, of which {held} are held")
        }
        None => {
            format!("{needed} are needed; {held} are held, and the provider publishes no count")
        }
    })
}

fn of_ceiling(
    query: &Query<'_>,
    filter: &Filter<'_>,
    row: &Row,
    none: Option<&NoFleet>,
) -> Option<String> {
    let survives = matches!(query, Query::Serve(serve) if serve.survive.is_some());
    // A fleet that survives a loss could contain this offer, unless one node of it is too expensive.
    let nodes = if survives {
        1
    } else {
        let hours = filter.evidence_hours(facts(filter, &row.offer));
        query.fit(row, hours).ok()?.nodes
    };
    let each = node_price_units(row)?;
    let ceiling = filter.shared.ceiling.cloned().unwrap_or_default();
    let rate = row.rate?;
    if let Some(limit) = ceiling.usd_per_gpu_hour.filter(|limit| rate > *limit) {
        return Some(format!(
            "It costs {rate} USD per GPU-hour; the ceiling is {limit} USD per GPU-hour"
        ));
    }
    let Some(cost) = each.checked_mul(i64::from(nodes)).map(Money::usd_units) else {
        return Some(format!(
            "{} at {rate} USD per GPU-hour cost more than a sum of money can hold",
            counted(nodes, "node")
        ));
    };
    match ceiling.usd_per_hour.filter(|limit| cost > *limit) {
        Some(limit) => Some(format!(
            "{} at {rate} USD per GPU-hour {} {cost} USD per hour; the ceiling is {limit} USD per hour",
            counted(nodes, "node"),
            if nodes == 1 { "costs" } else { "cost" },
        )),
        None => of_all_fleets(none?),
    }
}

/// The cost of the cheapest of all fleets, and the proved bound.
fn of_all_fleets(none: &NoFleet) -> Option<String> {
    let NoFleet::Dear {
        cost_units,
        lower_bound_units,
        ceiling,
    } = none
    else {
        return None;
    };
    let usd = |units: i128| i64::try_from(units).ok().map(Money::usd_units);
    let (Some(cost), Some(least), Some(ceiling)) =
        (usd(*cost_units), usd(*lower_bound_units), ceiling)
    else {
        return Some("The cheapest fleet found costs more than a sum of money can hold".to_owned());
    };
    let proved = match none.code() {
        ReasonCode::Ceiling if cost == least => "and none less: proved".to_owned(),
        ReasonCode::Ceiling => format!("and none less than {least}: proved"),
        _ => format!("but one of {least} is not ruled out: the search was cut short"),
    };
    Some(format!(
        "The cheapest fleet found costs {cost} USD per hour, {proved}; the ceiling is {ceiling} USD \
         per hour"
    ))
}
