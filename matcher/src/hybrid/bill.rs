//! The total cost of a training candidate and a serving candidate, and the end of each.

use chrono::{DateTime, TimeDelta, Utc};
use market::capacity::Covered;
use market::demand::{
    HybridDemand, Model, Policy, Precision, ServeHalf, Shared, TrainDemand, Window,
};
use market::ids::ProviderId;
use market::money::{Currency, Money, Rate};
use market::offer::MachineOperator;
use pricing::rate::per_gpu_hour;

use super::HybridBill;
use super::halves::taken;
use super::staging::{self, legs, slowest_seconds};
use crate::MatchError;
use crate::models::ModelFigures;
use crate::perf::memory::{bytes_per_weight, weight_bytes};
use crate::plan::{Candidate, CandidateLine};
use crate::snapshot::Snapshot;

/// The span of a fleet whose end the demand leaves open: a month. Units: seconds.
const OPEN_SPAN_SECONDS: i64 = 730 * 3_600;

/// The most by which rounding changes a pair's cost: a ten-thousandth of a cent.
const ROUNDING_UNITS: i64 = 100;

/// The inputs that all pairs share.
pub(super) struct Reckoning<'a> {
    /// The facts on record about the providers.
    snapshot: &'a Snapshot,
    /// The policies of both halves.
    train_policy: Policy,
    serve_policy: Policy,
    weights_bytes: u64,
    /// When the run starts.
    starts_at: DateTime<Utc>,
    /// The fleet's window.
    window: Window,
    span: Span,
    /// Before this no fleet begins.
    serves_after: DateTime<Utc>,
}

/// A provider, and who runs the machines that it sells.
pub(super) type Seller<'a> = (&'a ProviderId, &'a MachineOperator);

/// The time for which a pair pays its fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Span {
    /// A number of seconds, which is assumed where the demand leaves the end open.
    Fleet { seconds: i64, assumed: bool },
    /// As long as each fleet takes for the batch, and the deadline of the batch.
    Pile { until: Option<DateTime<Utc>> },
}

/// A pair with its bill.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Priced {
    /// The place of the training candidate among those of its half.
    pub(super) run: usize,
    /// The place of the serving candidate among those of its half.
    pub(super) fleet: usize,
    pub(super) bill: HybridBill,
}

/// The training half, to be done early enough that the weights reach the fleet in time.
pub(super) fn train_in_time(demand: &HybridDemand) -> TrainDemand {
    let mut train = demand.train_half();
    let serve = demand.serve_half();
    let window = serve.shared().window;
    let Some(latest) = window.and_then(|window| window.start_latest) else {
        return train;
    };
    let weights = weights_bytes_of(demand).unwrap_or(0);
    let by = latest
        .checked_sub_signed(TimeDelta::seconds(slowest_seconds(weights)))
        .unwrap_or(latest);
    train.deadline = Some(train.deadline.map_or(by, |own| own.min(by)));
    train
}

/// When the run starts: at once, or at the later start that its half asks for.
pub(super) fn run_starts_at(demand: &HybridDemand, now: DateTime<Utc>) -> DateTime<Utc> {
    let train = demand.train_half();
    let window = train.shared().window;
    let later = window.and_then(|window| window.starts_after(now));
    later.unwrap_or(now)
}

/// The bytes of the weights as they are served.
///
/// Errors: [`MatchError::UnknownModel`].
pub(super) fn weights_bytes_of(demand: &HybridDemand) -> Result<u64, MatchError> {
    let (model, precision): (&Model, Precision) = match &demand.serve {
        ServeHalf::ServeRealtime(serve) => (&serve.model, serve.weights),
        ServeHalf::ServeBatch(serve) => (&serve.model, serve.weights),
    };
    // The bounds of a model's shape keep it under 1e15.
    let model = ModelFigures::of(model)?;
    Ok(weight_bytes(&model, bytes_per_weight(precision)).ceil() as u64)
}

/// How long a candidate's run is predicted to take. Units: seconds, rounded up.
pub(super) fn run_seconds(candidate: &Candidate) -> Option<i64> {
    let hours = candidate.facts.run_hours?;
    // The cast stops at the largest integer.
    Some((hours * 3_600.0).ceil() as i64)
}

impl<'a> Reckoning<'a> {
    pub(super) fn new(
        demand: &HybridDemand,
        snapshot: &'a Snapshot,
        now: DateTime<Utc>,
        runs: &[Candidate],
    ) -> Result<Self, MatchError> {
        let serve = demand.serve_half();
        let policy = |shared: Shared<'_>| shared.policy.cloned().unwrap_or_default();
        let window = serve.shared().window.cloned().unwrap_or_default();
        let train = demand.train_half();
        let starts_at = run_starts_at(demand, now);
        let earliest = (runs.iter())
            .filter_map(run_seconds)
            .filter_map(|seconds| starts_at.checked_add_signed(TimeDelta::try_seconds(seconds)?))
            .min();
        let earliest = earliest
            .unwrap_or(starts_at)
            .max(window.start_earliest.unwrap_or(DateTime::<Utc>::MIN_UTC));
        let span = match &serve {
            ServeHalf::ServeBatch(pile) => Span::Pile {
                until: window.end.into_iter().chain(pile.deadline).min(),
            },
            ServeHalf::ServeRealtime(_) => {
                let hours = window.duration_hours.map(|hours| hours.get());
                let by_hours = hours.map(|hours| i64::from(hours) * 3_600);
                let by_end = window.end.map(|end| (end - earliest).num_seconds().max(0));
                Span::Fleet {
                    seconds: by_hours.or(by_end).unwrap_or(OPEN_SPAN_SECONDS),
                    assumed: by_hours.or(by_end).is_none(),
                }
            }
        };
        Ok(Self {
            snapshot,
            train_policy: policy(train.shared()),
            serve_policy: policy(serve.shared()),
            weights_bytes: weights_bytes_of(demand)?,
            starts_at,
            window,
            span,
            serves_after: earliest,
        })
    }

    /// No fleet that is paid over a span ends before this; `None` for batches.
    pub(super) fn fleets_end_after(&self) -> Option<DateTime<Utc>> {
        self.serve_ends_at(self.serves_after, self.span_seconds()?)
    }

    /// The earliest ends of fleets after later runs, where fewer providers have evidence for that long. One
    /// end for each set of providers.
    pub(super) fn fleets_end_later(&self, runs: &[Candidate]) -> Vec<DateTime<Utc>> {
        let Some(first) = self.fleets_end_after() else {
            return Vec::new();
        };
        let sellers = self.snapshot.operators();
        let on_record = |until: &DateTime<Utc>| {
            let sellers = sellers.iter();
            sellers
                .filter(|seller| self.is_on_record(&self.serve_policy, **seller, *until))
                .count()
        };
        let later = runs.iter().filter_map(|run| self.fleet_ends_after(run));
        let mut ends: Vec<_> = later.chain([first]).collect();
        ends.sort_unstable();
        // The providers with evidence until a later time are a subset of those until an earlier one, so their
        // number identifies the set.
        ends.dedup_by_key(|end| on_record(end));
        ends.retain(|end| on_record(end) > 0 && *end > first);
        ends
    }

    /// When a fleet that begins then ends, or a batch that begins then is done.
    fn serve_ends_at(&self, serves_from: DateTime<Utc>, seconds: i64) -> Option<DateTime<Utc>> {
        let by_span = later(serves_from, seconds)?;
        Some(self.window.end.map_or(by_span, |end| end.min(by_span)))
    }

    /// A provider with each of those who run the machines that it sells.
    pub(super) fn sellers_of(&self, provider: &ProviderId) -> Vec<Seller<'_>> {
        let all = self.snapshot.operators().into_iter();
        all.filter(|(seller, _)| *seller == provider).collect()
    }

    /// Whether the evidence of one of these sellers may last until the end of its fleet, which begins at the
    /// earliest when this run is done.
    pub(super) fn may_outlast(&self, run: &Candidate, sellers: &[Seller<'_>]) -> bool {
        let lasts = |end| {
            let mut sellers = sellers.iter();
            sellers.any(|seller| self.is_on_record(&self.serve_policy, *seller, end))
        };
        self.fleet_ends_after(run).is_some_and(lasts)
    }

    /// No fleet that begins when this run is done ends before this.
    fn fleet_ends_after(&self, run: &Candidate) -> Option<DateTime<Utc>> {
        let trained_at = later(self.starts_at, run_seconds(run)?)?;
        let wanted = self.window.start_earliest;
        let from = wanted.map_or(trained_at, |wanted| wanted.max(trained_at));
        self.serve_ends_at(from, self.span_seconds().unwrap_or(0))
    }

    /// Whether the facts on record of an operator satisfy a policy until a given time.
    fn is_on_record(&self, policy: &Policy, seller: Seller<'_>, until: DateTime<Utc>) -> bool {
        let (provider, operator) = seller;
        let facts = self.snapshot.facts(provider, operator);
        policy.check_facts(facts, until).is_ok()
    }

    pub(super) const fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }

    pub(super) const fn span_seconds(&self) -> Option<i64> {
        match self.span {
            Span::Fleet { seconds, .. } => Some(seconds),
            Span::Pile { .. } => None,
        }
    }

    pub(super) const fn span_assumed(&self) -> bool {
        matches!(self.span, Span::Fleet { assumed: true, .. })
    }

    /// The cost of the cheapest of these fleets without RDMA, without commitments.
    pub(super) fn cheapest_plain(&self, fleets: &[Candidate]) -> Option<Money> {
        (fleets.iter())
            .filter(|fleet| !stands_on_rdma(fleet))
            .filter_map(|fleet| listed(&fleet.lines, self.serve_seconds(fleet)?))
            .min()
    }

    /// All pairs that are in time and whose halves share no commitment, best first; equal pairs go by their
    /// ranks.
    pub(super) fn pairs(
        &self,
        runs: &[Candidate],
        fleets: &[Candidate],
        plain: Option<Money>,
    ) -> Vec<Priced> {
        let mut pairs = Vec::with_capacity(runs.len() * fleets.len());
        for (run, training) in runs.iter().enumerate() {
            for (fleet, serving) in fleets.iter().enumerate() {
                if taken(training).any(|id| taken(serving).any(|other| other == id)) {
                    continue;
                }
                if let Some(bill) = self.bill(training, serving, plain) {
                    pairs.push(Priced { run, fleet, bill });
                }
            }
        }
        pairs.sort_by_key(|pair| (pair.bill.total_usd, pair.run, pair.fleet));
        pairs
    }

    /// The bill of both halves, given the cost of the cheapest fleet without RDMA. `None` where the fleet
    /// would start too late, where evidence that a policy asks for ends before the nodes are released or
    /// before the fleet ends, or where a sum overflows.
    pub(super) fn bill(
        &self,
        run: &Candidate,
        fleet: &Candidate,
        plain: Option<Money>,
    ) -> Option<HybridBill> {
        let line = run.lines.first()?;
        let (train_gpu_seconds, train_usd) = trained(run, self.starts_at)?;
        let trained_at = later(self.starts_at, run_seconds(run)?)?;

        let staging = legs(self.weights_bytes, &line.offer, &fleet.lines)?;
        let staging_seconds: i64 = staging.iter().map(|leg| leg.seconds).sum();
        let staging_hold_usd = cost(&run.lines, trained_at, staging_seconds)?;
        let egress_usd = sum(staging.iter().map(|leg| leg.usd))?;
        let released_at = later(trained_at, staging_seconds)?;

        let wanted = self.window.start_earliest;
        let serves_from = wanted.map_or(released_at, |wanted| wanted.max(released_at));
        let serve_seconds = self.serve_seconds(fleet)?;
        if !self.in_time(serves_from, serve_seconds) {
            return None;
        }
        let serve_ends_at = self.serve_ends_at(serves_from, serve_seconds)?;
        let of_both = [
            (&self.train_policy, run, released_at),
            (&self.serve_policy, fleet, serve_ends_at),
        ];
        for (policy, nodes, until) in of_both {
            let mut sellers = nodes.lines.iter().map(|line| {
                let offer = &line.offer;
                (&offer.provider, &offer.particulars.operator)
            });
            if !sellers.all(|seller| self.is_on_record(policy, seller, until)) {
                return None;
            }
        }
        let serve_usd = cost(&fleet.lines, serves_from, serve_seconds)?;
        let premium = |plain: Money| {
            let more = (serve_usd.units() - plain.units()).max(0);
            Money::from_units(more, Currency::Usd)
        };
        let interconnect_premium_usd = if stands_on_rdma(fleet) {
            plain.map(premium)
        } else {
            Some(Money::zero(Currency::Usd))
        };
        let total_usd = sum([train_usd, staging_hold_usd, egress_usd, serve_usd])?;
        let own_capacity_saves_usd = if taken(run).chain(taken(fleet)).next().is_some() {
            let rate = own_rate(line)?;
            let own = sum([
                rate.cost_of(train_gpu_seconds).ok()?,
                listed(&run.lines, staging_seconds)?,
                egress_usd,
                listed(&fleet.lines, serve_seconds)?,
            ])?;
            let saves = own.units() - total_usd.units();
            Some(Money::from_units(saves, Currency::Usd))
        } else {
            None
        };
        Some(HybridBill {
            train_gpu_seconds,
            train_usd,
            trained_at,
            staging,
            released_at,
            staging_hold_usd,
            egress_usd,
            serves_from,
            serve_seconds,
            serve_usd,
            interconnect_premium_usd,
            total_usd,
            own_capacity_saves_usd,
        })
    }

    /// The least cost of a pair whose run costs no less than this one and whose fleet costs no less than this
    /// one, without the transfer of weights and without commitments.
    ///
    /// Runs and fleets are ordered by costs that are not rounded to whole seconds yet.
    pub(super) fn floor(&self, run: &Candidate, fleet: &Candidate) -> Option<Money> {
        let (_, train_usd) = trained(run, self.starts_at)?;
        let seconds = self.serve_seconds(fleet)? - 1;
        let least = sum([train_usd, listed(&fleet.lines, seconds.max(0))?])?;
        Some(Money::from_units(
            least.units() - ROUNDING_UNITS,
            Currency::Usd,
        ))
    }

    /// The same for fleets in all of these regions of the run's provider.
    pub(super) fn floor_in(
        &self,
        run: &Candidate,
        fleet: &Candidate,
        regions: &[Option<&str>],
    ) -> Option<Money> {
        let least = self.floor(run, fleet)?;
        let from = &run.lines.first()?.offer;
        let (waits, pays) = staging::least(self.weights_bytes, from, regions)?;
        sum([least, listed(&run.lines, waits)?, pays])
    }

    /// The total cost of a fleet with this cost per hour, or of a batch with this cost. Units: 1e-8 US
    /// dollars.
    pub(super) fn serve_cost_units(&self, ranked: i128) -> i128 {
        match self.span {
            Span::Fleet { seconds, .. } => ranked * i128::from(seconds) / 3_600,
            Span::Pile { .. } => ranked,
        }
    }

    fn serve_seconds(&self, fleet: &Candidate) -> Option<i64> {
        match self.span {
            Span::Fleet { seconds, .. } => Some(seconds),
            Span::Pile { .. } => run_seconds(fleet),
        }
    }

    fn in_time(&self, serves_from: DateTime<Utc>, seconds: i64) -> bool {
        let starts = (self.window.start_latest).is_none_or(|latest| serves_from <= latest);
        let ends = match self.span {
            Span::Fleet { .. } => self.window.end.is_none_or(|end| serves_from < end),
            Span::Pile { until: None } => true,
            Span::Pile { until: Some(until) } => {
                later(serves_from, seconds).is_some_and(|done| done <= until)
            }
        };
        starts && ends
    }
}

/// The GPU-seconds of a run that starts then, and their cost. The nodes that are paid for come first.
fn trained(run: &Candidate, starts_at: DateTime<Utc>) -> Option<(i64, Money)> {
    let gpus = f64::from(run.gpus());
    // As the run's own cost is computed: whole GPU-seconds, rounded up.
    let gpu_seconds = (run.facts.run_hours? * gpus * 3_600.0).ceil() as i64;
    let seconds = run_seconds(run)?;
    let mut left = gpu_seconds;
    let mut parts = Vec::with_capacity(run.lines.len());
    for line in &run.lines {
        if let Some(covered) = &line.covered {
            // All nodes are done a little before the second in which the run is.
            let paid = gpus_of(line)?.checked_mul(paid_seconds(covered, starts_at, seconds))?;
            let paid = paid.min(left);
            left -= paid;
            parts.push(covered.rate_usd_gpu_hour.cost_of(paid).ok());
        }
    }
    parts.push(own_rate(run.lines.first()?)?.cost_of(left).ok());
    Some((gpu_seconds, sum_of(parts)?))
}

/// Whether a fleet pays for RDMA between nodes.
fn stands_on_rdma(fleet: &Candidate) -> bool {
    (fleet.lines.iter()).any(|line| line.offer.internode.is_rdma())
}

/// The cost of these nodes for so many seconds from a given time: at the commitment's rate while it pays for
/// them, then at the offer's own rate, each rounded half to even once for each line.
fn cost(lines: &[CandidateLine], from: DateTime<Utc>, seconds: i64) -> Option<Money> {
    sum_of(lines.iter().flat_map(|line| {
        let paid = |covered| paid_seconds(covered, from, seconds);
        let paid = line.covered.as_ref().map_or(0, paid);
        let by = line
            .covered
            .map(|covered| part(line, covered.rate_usd_gpu_hour, paid));
        let own = own_rate(line).and_then(|rate| part(line, rate, seconds - paid));
        by.into_iter().chain([own])
    }))
}

/// Their cost at the offers' own prices, each line rounded half to even once.
fn listed(lines: &[CandidateLine], seconds: i64) -> Option<Money> {
    let lines = lines.iter();
    sum_of(lines.map(|line| part(line, own_rate(line)?, seconds)))
}

fn part(line: &CandidateLine, rate: Rate, seconds: i64) -> Option<Money> {
    rate.cost_of(gpus_of(line)?.checked_mul(seconds)?).ok()
}

/// The rate of a GPU of a line without commitments.
fn own_rate(line: &CandidateLine) -> Option<Rate> {
    per_gpu_hour(line.offer.price_per_node_hour, 3_600, line.offer.gpus).ok()
}

/// GPUs of all nodes of a line.
fn gpus_of(line: &CandidateLine) -> Option<i64> {
    Some(i64::from(line.offer.gpus.as_whole()?) * i64::from(line.nodes))
}

/// The number of seconds, of so many from a given time, for which a commitment pays.
fn paid_seconds(covered: &Covered, from: DateTime<Utc>, seconds: i64) -> i64 {
    (covered.until - from).num_seconds().clamp(0, seconds)
}

fn sum(amounts: impl IntoIterator<Item = Money>) -> Option<Money> {
    sum_of(amounts.into_iter().map(Some))
}

fn sum_of(amounts: impl IntoIterator<Item = Option<Money>>) -> Option<Money> {
    let mut total = Money::zero(Currency::Usd);
    for amount in amounts {
        total = total.checked_add(amount?).ok()?;
    }
    Some(total)
}

/// A time plus so many seconds; `None` where it overflows.
pub(super) fn later(time: DateTime<Utc>, seconds: i64) -> Option<DateTime<Utc>> {
    time.checked_add_signed(TimeDelta::try_seconds(seconds)?)
}
