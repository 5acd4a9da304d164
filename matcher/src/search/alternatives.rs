//! The cost of a fleet with weights in another precision: shown beside a plan, never chosen.

use market::demand::Precision;
use market::money::Money;

use super::{Query, SearchOptions, answer};
use crate::filter::Filter;
use crate::perf::serving::weight_format;
use crate::plan::{Alternative, Plan};

/// Adds the cost of the best fleet with weights of each other precision, where it is lower. These fleets are
/// planned at the same share of their replicas' capacity. A calibration was measured with the requested
/// weights, and its factor applies to the others too, since it reflects the tenant's own software.
pub(super) fn with_alternatives(mut plan: Plan, query: &Query<'_>, filter: &Filter<'_>) -> Plan {
    use Precision::{Bf16, Fp4, Fp8, Int4, Int8};
    let (Query::Serve(asked), Some(best)) = (query, plan.candidates.first()) else {
        return plan;
    };
    if asked.is_pile() {
        return plan;
    }
    let options = SearchOptions {
        limit: 1,
        alternatives: false,
        simulated: 0,
        asked: Vec::new(),
        ..filter.options.clone()
    };
    for weights in [Bf16, Fp8, Int8, Fp4, Int4] {
        if weight_format(weights) == weight_format(asked.weights) {
            continue;
        }
        let Some(other) = asked.with_weights(weights) else {
            continue;
        };
        let share = best.facts.planned_share.unwrap_or(other.planned_share);
        let query = Query::Serve(other.at_share(share));
        let found = answer(&query, &filter.with(&options));
        let Some(first) = found.candidates.into_iter().next() else {
            continue;
        };
        let saved = best.cost_per_hour.units() - first.cost_per_hour.units();
        if saved <= 0 {
            continue;
        }
        plan.alternatives.push(Alternative {
            weights,
            price_usd_hour: first.cost_per_hour,
            saves_usd_hour: Money::from_units(saved, best.cost_per_hour.currency()),
            usd_per_million_tokens: first.facts.usd_per_million_tokens,
            asked_usd_per_million_tokens: best.facts.usd_per_million_tokens,
        });
    }
    plan.alternatives.sort_by_key(|other| other.price_usd_hour);
    plan
}
