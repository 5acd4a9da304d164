//! The rules of each kind of demand, written down once more: loops in place of closed forms.

use std::cell::RefCell;

use market::demand::{LatencyObjective, Model, Precision, TrainMethod};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::ids::ProviderId;
use market::offer::{AvailabilityLevel, Tenancy};

use super::super::scan::sureness;
use super::super::*;
use crate::models::ModelFigures;
use crate::perf::chip::Chip;
use crate::perf::constants::Constants;
use crate::perf::memory::{TRAINING_FRACTION, TrainingMemory};
use crate::perf::replica::{CacheFormat, CannotServe, WeightFormat};
use crate::perf::run::tests::naive;
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

    /// Whether the operator is under none of the named laws, and whether a certification is lacking
    /// on the last day for which it may be wanted.
    fn lacks(&self, seller: &ProviderId) -> (bool, bool) {
        let facts = self.snapshot.provider(seller).map(|view| &view.facts);
        let laws = self.words("policy", "operator_countries");
        let operator = facts.and_then(|facts| facts.operator.as_ref());
        let law = operator.map(|operator| operator.country.to_string());
        let wanted = self.shared["window"]["duration_hours"].as_i64();
        // The hand-off is waited for a day.
        let wanted = wanted.map_or(0, |hours| hours + 24);
        let day = (now() + chrono::TimeDelta::hours(wanted)).date_naive();
        let has = |name: &String| {
            let mut known = facts.into_iter().flat_map(|facts| &facts.certifications);
            known.any(|one| one.name.as_str() == name && day <= one.valid_until)
        };
        (
            !laws.is_empty() && !law.is_some_and(|law| laws.contains(&law)),
            !self.words("policy", "certifications").iter().all(has),
        )
    }

    /// The hours from now to the midnight at which the first of the wanted certificates has ended.
    fn evidence_hours(&self, seller: &ProviderId) -> Option<f64> {
        let facts = &self.snapshot.provider(seller)?.facts;
        let ends = self
            .words("policy", "certifications")
            .into_iter()
            .map(|name| {
                let known = facts.certifications.iter();
                let last = known.filter(|one| one.name.as_str() == name);
                last.map(|one| one.valid_until).max().expect("it has all")
            });
        let midnight = ends
            .min()?
            .succ_opt()?
            .and_time(chrono::NaiveTime::MIN)
            .and_utc();
        // What ends with the last second before has ended in time.
        Some(((midnight - now()).num_seconds() - 1) as f64 / 3_600.0)
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
        let (lacks_operator, lacks_certification) = self.lacks(&offer.provider);
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
            (lacks_operator, ReasonCode::Operator),
            (lacks_certification, ReasonCode::Certification),
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
                    let (listed, past) = sureness(&offer);
                    let first = (listed, key.class(), past);
                    good.push(((key.rank(), names), nodes, first));
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
            let (listed, past) = sure.expect("a line");
            (cost, (listed, 0, past), taken(fleet))
        });
        let of_one = good.into_iter().map(|(((cost, _), names), nodes, first)| {
            let taken = vec![(names.3, nodes)];
            (cost, first, taken)
        });
        let mut all: Vec<_> = of_several.into_iter().chain(of_one).collect();
        // Whatever costs a tenth more than the cheapest at most goes by what can be ordered, what it
        // stands on, and how old its price is.
        if let Some(least) = all.first().map(|(cost, ..)| *cost) {
            let ties = |cost: i128| cost * 10 <= least * 11;
            all.sort_by_key(|(cost, first, _)| (!ties(*cost), ties(*cost).then_some(*first)));
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

/// What is known of where an offer ranks.
pub trait Costs {
    /// What it costs (1e-8 US dollars), and what decides among equals.
    fn rank(&self) -> (i128, u64);

    /// The class of machine, which decides within a tie.
    fn class(&self) -> u8 {
        0
    }
}

impl Costs for i64 {
    fn rank(&self) -> (i128, u64) {
        (i128::from(*self), 0)
    }
}

/// What a run costs, and what it stands on.
impl Costs for (i128, u8) {
    fn rank(&self) -> (i128, u64) {
        (self.0, 0)
    }

    fn class(&self) -> u8 {
        self.1
    }
}

impl Costs for (i128, u64) {
    fn rank(&self) -> (i128, u64) {
        *self
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
) -> Result<((i128, u8), u32), ReasonCode> {
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
        checkpoint_bytes: None,
    };
    let kind = RunNodes::new(spec, per_node, offer.internode).expect("published");
    let on = |nodes: u32| predicted(&work, &kind, offer.internode, nodes);
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
    let fewest = match gpus {
        Some(gpus) if gpus % per_node != 0 => return Err(ReasonCode::GpusDoNotDivide),
        Some(gpus) if !fits(gpus / per_node) => return Err(ReasonCode::Memory),
        Some(gpus) => gpus / per_node,
        None => (1..=MAX_NODES)
            .find(|nodes| fits(*nodes))
            .ok_or(ReasonCode::Memory)?,
    };
    if fewest > 1
        && let Some(code) = gang()
    {
        return Err(code);
    }
    let most = match gpus {
        Some(_) => fewest,
        None if gang().is_some() => 1,
        // More are above the ceiling at any price of the market.
        None => MOST_NODES,
    };
    // Where nothing says when it must be done, that is before the evidence of its seller ends.
    let (hours, late_code) = match twin
        .evidence_hours(&offer.provider)
        .filter(|_| hours.is_none())
    {
        Some(lasts) => (Some(lasts), ReasonCode::Certification),
        None => (hours, ReasonCode::Deadline),
    };
    let rate = offer.rate().expect("it fits").money_per_gpu_hour().units();
    // Each number of nodes by itself: what it costs, and why it will not do.
    let mut refusal = None;
    let mut best: Option<(i128, u32)> = None;
    for nodes in fewest..=most {
        let Some((gpu_hours, run_hours)) = on(nodes) else {
            continue;
        };
        let late = hours.is_some_and(|hours| run_hours > hours);
        if late {
            continue;
        }
        if let Some(code) = twin.stock_and_cost_reason(offer, nodes) {
            // With more nodes no other offer has enough of them, or is below the ceiling.
            refusal.get_or_insert(code);
            break;
        }
        let seconds = (gpu_hours * 3_600.0).ceil() as i64;
        let cost = i128::from(rate) * i128::from(seconds) / 3_600;
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, nodes));
        }
    }
    let Some((cost, nodes)) = best else {
        let late = || match gpus {
            None => gang().unwrap_or(late_code),
            Some(_) => late_code,
        };
        return Err(refusal.unwrap_or_else(late));
    };
    let machine = match offer.tenancy {
        Tenancy::BareMetal => 0,
        Tenancy::Vm => 1,
        _ => 2,
    };
    // Over Ethernet no kind of machine but bare metal is told from another.
    let over_ethernet = nodes > 1 && !rdma;
    let machine = if over_ethernet {
        3 + machine.min(1)
    } else {
        machine
    };
    let small = u8::from(!(board && per_node == 8 && spec.memory_gb >= 80.0));
    Ok(((cost, machine * 2 + small), nodes))
}

/// The most nodes that the twin's demands may take of the cheapest node of its markets.
const MOST_NODES: u32 = 115;

/// GPU-hours and hours of the run on so many nodes, by plain loops over every layout, remembered
/// from one random market to the next.
fn predicted(
    work: &RunWork,
    kind: &RunNodes,
    internode: Internode,
    nodes: u32,
) -> Option<(f64, f64)> {
    type Shape = (String, u32, Internode, u32);
    thread_local! {
        static KNOWN: RefCell<HashMap<Shape, Option<(f64, f64)>>> = RefCell::default();
    }
    let shape = (kind.chip.name.clone(), kind.gpus_per_node, internode, nodes);
    KNOWN.with_borrow_mut(|known| {
        *known.entry(shape).or_insert_with(|| {
            let gpus = f64::from(nodes * kind.gpus_per_node);
            let rate = naive(work, kind, nodes)?;
            let hours = work.tokens as f64 / (rate * useful_share(work, gpus)) / 3_600.0;
            Some((hours * gpus, hours))
        })
    })
}

/// What failures and checkpoints leave of the time. Source: Daly 2006.
fn useful_share(work: &RunWork, gpus: f64) -> f64 {
    let between = 51_000.0 * 3_600.0 / gpus;
    let written = work.model.params_total * 14.0 / 10e9;
    let ratio = written / (2.0 * between);
    let first = (2.0 * written * between).sqrt();
    let interval = first * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - written;
    1.0 - (written / interval + (interval / 2.0 + 600.0) / between)
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
