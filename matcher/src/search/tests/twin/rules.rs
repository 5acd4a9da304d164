//! The rules of each kind of demand, written down once more: loops in place of closed forms.

use market::demand::{LatencyObjective, Model, Precision, TrainMethod};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::offer::{AvailabilityLevel, Tenancy};

use super::super::scan::sureness;
use super::super::*;
use crate::models::ModelFigures;
use crate::perf::chip::Chip;
use crate::perf::constants::Constants;
use crate::perf::memory::{TRAINING_FRACTION, TrainingMemory};
use crate::perf::replica::{CacheFormat, CannotServe, WeightFormat};
use crate::perf::run::{RunNodes, RunWork};
use crate::perf::serving::ServingWork;
use crate::samples::usd;
use crate::snapshot::OfferRef;

/// The rules that do not depend on the kind of demand, read from the demand's JSON.
pub struct Twin<'a> {
    pub shared: Value,
    pub snapshot: &'a Snapshot,
    pub held: &'a Held,
    pub orderable_only: bool,
}

impl Twin<'_> {
    pub fn words(&self, group: &str, field: &str) -> Vec<String> {
        let list = self.shared[group][field]
            .as_array()
            .cloned()
            .unwrap_or_default();
        list.iter()
            .map(|word| word.as_str().expect("a word").to_owned())
            .collect()
    }

    pub fn shared_reason(&self, offer: &Offer) -> Option<ReasonCode> {
        let (deny, allow) = (
            self.words("policy", "deny_providers"),
            self.words("policy", "allow_providers"),
        );
        let (countries, regions) = (
            self.words("places", "countries"),
            self.words("places", "regions"),
        );
        let seller = offer.provider.to_string();
        let country = offer.place.country.map(|country| country.to_string());
        let region = offer
            .place
            .region
            .as_ref()
            .map(|region| region.to_lowercase());
        let within = |named: &[String], place: &Option<String>| {
            place.as_ref().is_some_and(|place| {
                named
                    .iter()
                    .any(|name| name.to_lowercase() == place.to_lowercase())
            })
        };
        let tenancies = self.shared["tenancy"].as_array().cloned();
        let limit = self
            .snapshot
            .provider(&offer.provider)
            .and_then(|view| Some(view.freshness_limit_seconds? as i64));
        let age = (now() - offer.observed_at).num_seconds();
        let view = self.snapshot.provider(&offer.provider);
        let quarantine = view.and_then(|view| view.quarantine.as_ref());
        let quarantined = quarantine.is_some_and(|quarantine| quarantine.until > now());
        let rules = [
            (
                self.orderable_only && !offer.orderable,
                ReasonCode::NotOrderable,
            ),
            (
                deny.contains(&seller) || !(allow.is_empty() || allow.contains(&seller)),
                ReasonCode::ProviderPolicy,
            ),
            (quarantined, ReasonCode::Quarantined),
            (
                !countries.is_empty() && country.is_none(),
                ReasonCode::PlaceUnknown,
            ),
            (
                !countries.is_empty() && !within(&countries, &country),
                ReasonCode::Place,
            ),
            (
                !regions.is_empty() && region.is_none(),
                ReasonCode::PlaceUnknown,
            ),
            (
                !regions.is_empty() && !within(&regions, &region),
                ReasonCode::Place,
            ),
            (
                tenancies.is_some_and(|all| !all.contains(&json!(offer.tenancy))),
                ReasonCode::Tenancy,
            ),
            (
                view.is_none() || limit.map_or(offer.orderable, |limit| limit < age),
                ReasonCode::Stale,
            ),
            (
                offer.availability.level == AvailabilityLevel::None,
                ReasonCode::SoldOut,
            ),
        ];
        rules
            .into_iter()
            .find(|(applies, _)| *applies)
            .map(|(_, code)| code)
    }

    pub fn stock_and_cost_reason(&self, offer: &Offer, nodes: u32) -> Option<ReasonCode> {
        let held = self.held[&offer.offer_id];
        let stock = &offer.availability;
        let rate = offer.rate().expect("it fits");
        let gpus = i64::from(offer.gpus.as_whole()? * nodes);
        let dear = |field: &str, sum: i64| {
            self.shared["ceiling"][field]
                .as_str()
                .is_some_and(|limit| sum > usd(limit).units())
        };
        let per_gpu = rate.money_per_gpu_hour().units();
        let short = |wanted: u32| !stock.at_least && stock.nodes.is_some_and(|free| free < wanted);
        let rules = [
            (short(nodes), ReasonCode::NotEnoughNodes),
            (
                held > 0 && (stock.nodes.is_none() || short(nodes + held)),
                ReasonCode::Held,
            ),
            (
                dear("usd_per_gpu_hour", per_gpu) || dear("usd_per_hour", per_gpu * gpus),
                ReasonCode::Ceiling,
            ),
        ];
        rules
            .into_iter()
            .find(|(applies, _)| *applies)
            .map(|(_, code)| code)
    }

    /// Compares a plan with what the rules say of each offer: a rank key and nodes, or a reason.
    pub fn check<K: Costs>(
        &self,
        plan: &Plan,
        of: impl Fn(&Offer) -> Result<(K, u32), ReasonCode>,
    ) {
        self.check_beside(None, plan, of);
    }

    /// The same of a plan whose cheapest candidate is a fleet of several offers.
    fn check_beside<K: Costs>(
        &self,
        of_several: Option<&Candidate>,
        plan: &Plan,
        of: impl Fn(&Offer) -> Result<(K, u32), ReasonCode>,
    ) {
        let mut good = Vec::new();
        let mut counts: BTreeMap<ReasonCode, usize> = BTreeMap::new();
        for offer in self.snapshot.offers().map(OfferRef::to_offer) {
            match of(&offer) {
                Ok((key, nodes)) => {
                    let place = offer.place.clone();
                    let names = (
                        offer.provider.to_string(),
                        offer.sku.clone(),
                        place,
                        offer.offer_id,
                    );
                    good.push(((key, names), nodes, sureness(&offer)));
                }
                Err(code) => *counts.entry(code).or_default() += 1,
            }
        }
        good.sort();
        assert_eq!(plan.eligible, good.len());
        assert_eq!(plan.rejected.by_reason, counts);
        assert_eq!(plan.eligible + plan.rejected.total, self.snapshot.len());
        let of_several = of_several.map(|fleet| {
            let sure = fleet.lines.iter().map(|line| sureness(&line.offer)).max();
            let cost = i128::from(fleet.cost_per_hour.units());
            ((0, cost), sure.expect("a line"), taken(fleet))
        });
        let of_one = good.into_iter().map(|((key, names), nodes, sure)| {
            let taken = vec![(names.3, nodes)];
            (key.rank(), sure, taken)
        });
        let mut all: Vec<_> = of_several.into_iter().chain(of_one).collect();
        // Whatever costs a tenth more than the cheapest at most goes by how sure it is.
        if let Some((tier, least)) = all.first().map(|(rank, ..)| *rank) {
            let ties = |(own, cost): (u8, i128)| own == tier && cost * 10 <= least * 11;
            all.sort_by_key(|(rank, sure, _)| (!ties(*rank), ties(*rank).then_some(*sure)));
        }
        let best: Vec<_> = all.into_iter().take(10).map(|(.., taken)| taken).collect();
        let found: Vec<_> = plan.candidates.iter().map(taken).collect();
        assert_eq!(found, best);
    }

    /// As [`Twin::check`], with a fleet of several offers beside those of one where it is cheaper.
    pub fn check_fleets(
        &self,
        plan: &Plan,
        of: impl Fn(&Offer) -> Result<((i128, u64), u32), ReasonCode>,
    ) {
        let mut of_several = plan.candidates.iter().filter(|one| one.lines.len() > 1);
        let Some(mix) = of_several.next() else {
            return self.check(plan, of);
        };
        assert!(of_several.next().is_none(), "one is the cheapest");
        let of_one = self
            .snapshot
            .offers()
            .filter_map(|offer| of(&offer.to_offer()).ok());
        let cheapest = of_one.map(|((cost, _), _)| cost).min();
        assert!(cheapest.is_none_or(|cost| i128::from(mix.cost_per_hour.units()) < cost));
        let mut rest = plan.clone();
        // An offer that carries a part alone is refused for what it lacks.
        for line in &mix.lines {
            if let Err(code) = of(&line.offer) {
                rest.eligible -= 1;
                rest.rejected.total += 1;
                *rest.rejected.by_reason.entry(code).or_default() += 1;
            }
            let free = line.offer.availability;
            let held = self.held[&line.offer.offer_id];
            assert!(free.may_hold(line.nodes + held) && (held == 0 || free.nodes.is_some()));
            assert_eq!(self.shared_reason(&line.offer), None);
        }
        self.check_beside(Some(mix), &rest, of);
    }
}

/// The nodes that a candidate takes, by offer.
fn taken(candidate: &Candidate) -> Vec<(OfferId, u32)> {
    let lines = candidate.lines.iter();
    lines
        .map(|line| (line.offer.offer_id, line.nodes))
        .collect()
}

/// A rank key of which it is known what in it is a cost.
pub trait Costs: Ord + Clone {
    /// The class of machine, and the cost. Units: 1e-8 US dollars.
    fn rank(&self) -> (u8, i128);
}

impl Costs for i64 {
    fn rank(&self) -> (u8, i128) {
        (0, i128::from(*self))
    }
}

impl Costs for (u8, i128) {
    fn rank(&self) -> (u8, i128) {
        *self
    }
}

impl Costs for (i128, u64) {
    fn rank(&self) -> (u8, i128) {
        (0, self.0)
    }
}

pub fn gpus_rules(
    twin: &Twin<'_>,
    wanted: &str,
    count: u32,
    nodes: u32,
    spot: bool,
    offer: &Offer,
) -> Result<(i64, u32), ReasonCode> {
    let name = offer.gpu.to_string();
    let open = offer.gpu.known().is_none();
    let right = match wanted {
        "any" => !open,
        "H100" => name.starts_with("H100"),
        exact => name == exact,
    };
    if !offer.price_per_node_hour.is_positive() {
        return Err(ReasonCode::NoPrice);
    }
    if !right {
        let same = wanted == "any" || wanted.starts_with(offer.gpu.family());
        return Err(if same && open {
            ReasonCode::GpuFormUnknown
        } else {
            ReasonCode::Gpu
        });
    }
    if offer.gpus.as_whole().is_none() {
        return Err(ReasonCode::Slice);
    }
    if offer.gpus.thousandths() != count * 1_000 {
        return Err(ReasonCode::GpusPerNode);
    }
    if (offer.terms == Terms::Spot) != spot || offer.terms == Terms::Floor {
        return Err(ReasonCode::Terms);
    }
    let reason = twin
        .shared_reason(offer)
        .or_else(|| twin.stock_and_cost_reason(offer, nodes));
    reason.map_or(Ok((offer.price_per_node_hour.units(), nodes)), Err)
}

/// The rules of full training in bf16, each offer by itself.
pub fn train_rules(
    twin: &Twin<'_>,
    gpus: Option<u32>,
    hours: Option<f64>,
    offer: &Offer,
) -> Result<((u8, i128), u32), ReasonCode> {
    let model = ModelFigures::of(&Model::Named("Llama 3 70B".into())).expect("known");
    if !offer.price_per_node_hour.is_positive() {
        return Err(ReasonCode::NoPrice);
    }
    let GpuIdentity::Known(gpu) = offer.gpu else {
        return Err(ReasonCode::GpuFormUnknown);
    };
    let per_node = offer.gpus.as_whole().ok_or(ReasonCode::Slice)?;
    if offer.terms != Terms::OnDemand {
        return Err(ReasonCode::Terms);
    }
    if let Some(code) = twin.shared_reason(offer) {
        return Err(code);
    }
    let spec = gpu.spec();
    let board = spec.node_form.contains("HGX") || spec.node_form.contains("OAM");
    let memory = TrainingMemory::of(
        &model,
        TrainMethod::Full,
        4_096,
        if board { per_node } else { 1 },
    );
    let fits = |nodes: u32| {
        let room = spec.memory_gb * 1e9 * TRAINING_FRACTION - memory.bytes_per_gpu;
        memory.state_bytes <= room * f64::from(nodes * per_node)
    };
    let ethernet = twin.shared["policy"]["allow_ethernet"] == json!(true);
    let rdma = matches!(
        offer.internode,
        Internode::InfinibandNdr400 | Internode::Roce400
    );
    let work = RunWork {
        model: model.clone(),
        method: TrainMethod::Full,
        precision: Precision::Bf16,
        sequence_length: 4_096,
        step_sequences: None,
        tokens: 10_000_000_000,
        checkpoint_interval_seconds: None,
    };
    // Each offer is predicted anew: no shape is remembered.
    let kind = RunNodes::new(spec, per_node, offer.internode).expect("published");
    let run_on = |nodes: u32| work.best_on(Constants::product(), &kind, nodes);
    let run_hours = |nodes: u32| run_on(nodes).map_or(f64::INFINITY, |run| run.hours);
    let in_time = |nodes: u32| hours.is_none_or(|hours| run_hours(nodes) <= hours);
    let gang = || match () {
        () if offer.tenancy == Tenancy::Container || offer.tenancy == Tenancy::Managed => {
            Some(ReasonCode::GangTenancy)
        }
        () if per_node < 4 || !board => Some(ReasonCode::GangNode),
        () if !(rdma || (ethernet && offer.internode == Internode::Ethernet)) => {
            Some(ReasonCode::Fabric)
        }
        () => None,
    };
    let nodes = if let Some(gpus) = gpus {
        if gpus % per_node != 0 {
            return Err(ReasonCode::GpusDoNotDivide);
        }
        if !fits(gpus / per_node) {
            return Err(ReasonCode::Memory);
        }
        gpus / per_node
    } else {
        let for_memory = (1..=MAX_NODES)
            .find(|nodes| fits(*nodes))
            .ok_or(ReasonCode::Memory)?;
        if for_memory > 1
            && let Some(code) = gang()
        {
            return Err(code);
        }
        // One node may be in time where two over Ethernet are not.
        hours.map_or(for_memory, |hours| {
            RunWork::fewest_in_time(run_on, for_memory, MAX_NODES, hours).unwrap_or(MAX_NODES)
        })
    };
    if nodes > 1
        && let Some(code) = gang()
    {
        return Err(code);
    }
    if !in_time(nodes) {
        return Err(ReasonCode::Deadline);
    }
    if let Some(code) = twin.stock_and_cost_reason(offer, nodes) {
        return Err(code);
    }
    let machine = match offer.tenancy {
        Tenancy::BareMetal => 0,
        Tenancy::Vm => 1,
        _ => 2,
    } + if nodes > 1 && !rdma { 3 } else { 0 };
    let small = u8::from(!(board && per_node == 8 && spec.memory_gb >= 80.0));
    let seconds = (run_on(nodes).expect("it fits").gpu_hours() * 3_600.0).ceil() as i64;
    let rate = offer.rate().expect("it fits").money_per_gpu_hour().units();
    Ok((
        (
            machine * 2 + small,
            i128::from(rate) * i128::from(seconds) / 3_600,
        ),
        nodes,
    ))
}

/// The rules of a fleet of one offer for so many requests in flight, with the nodes found by
/// counting up.
pub fn serve_rules(
    twin: &Twin<'_>,
    concurrency: u32,
    offer: &Offer,
) -> Result<((i128, u64), u32), ReasonCode> {
    let work = ServingWork {
        model: ModelFigures::of(&Model::Named("Llama 3 70B".into())).expect("known"),
        weights: WeightFormat::Bf16,
        cache: CacheFormat::Bf16,
        input_tokens: 512.0,
        output_tokens: 256.0,
        latency: LatencyObjective {
            per_token_ms: Some(60.0),
            ..LatencyObjective::default()
        },
    };
    if !offer.price_per_node_hour.is_positive() {
        return Err(ReasonCode::NoPrice);
    }
    let GpuIdentity::Known(gpu) = offer.gpu else {
        return Err(ReasonCode::GpuFormUnknown);
    };
    let per_node = offer.gpus.as_whole().ok_or(ReasonCode::Slice)?;
    if offer.terms != Terms::OnDemand {
        return Err(ReasonCode::Terms);
    }
    if let Some(code) = twin.shared_reason(offer) {
        return Err(code);
    }
    // Each offer is predicted anew: no shape is remembered.
    let chip = Chip::of_spec(gpu.spec()).expect("published");
    let copies = |width: u32| work.replica(&Constants::product().inference, &chip, width, 0.0);
    let widths: Vec<u32> = [1, 2, 4, 8]
        .into_iter()
        .filter(|width| *width <= per_node)
        .collect();
    let places = |width: &u32| {
        copies(*width).map_or(0, |copy| copy.batch.floor() as u32 * (per_node / width))
    };
    let most = widths.iter().map(places).max().unwrap_or(0);
    let slow = widths
        .iter()
        .any(|width| copies(*width) == Err(CannotServe::TooSlow));
    if most == 0 {
        return Err(if slow {
            ReasonCode::Latency
        } else {
            ReasonCode::Memory
        });
    }
    let nodes = (1..=MAX_NODES)
        .find(|nodes| most * nodes >= concurrency)
        .ok_or(ReasonCode::NotEnoughNodes)?;
    if let Some(code) = twin.stock_and_cost_reason(offer, nodes) {
        return Err(code);
    }
    let rate = offer.rate().expect("it fits").money_per_gpu_hour().units();
    let cost = i128::from(rate) * i128::from(per_node * nodes);
    // Of two at one price the roomier comes first.
    Ok(((cost, u64::MAX - u64::from(most * nodes)), nodes))
}
