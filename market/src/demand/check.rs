//! Whether the numbers of a demand make sense. The bounds are those of the published schema.

use std::ops::RangeInclusive;

use chrono::{DateTime, Months, TimeDelta, Utc};

use super::{
    Demand, GpusDemand, Model, ModelShape, Policy, ServeBatchDemand, ServeCalibration, ServeHalf,
    ServeRealtimeDemand, Shared, TrainCalibration, TrainDemand, Window, counts,
};
use crate::fabric::FabricWanted;
use crate::offer::Tenancy;
use crate::tags::check_tags;

/// The longest that anything is sold for: ten years.
pub const LONGEST_HOURS: u32 = 87_600;

/// The width of all attention heads of a model together, at most, as a multiple of the residual stream's
/// width. Of the models known by name the widest has 3.2 times.
const WIDEST_HEADS: u64 = 4;

/// All parameters of a model, at most, as a multiple of those that it uses per token. Of the models known by
/// name the sparsest has 31 times.
const MOST_SPARSE: f64 = 200.0;

/// The most items of a list whose schema sets no lower limit.
pub(super) const MOST_ITEMS: usize = 250;

/// The latest end of a reservation requested at `now`: ten years later.
#[must_use]
pub fn latest_end(now: DateTime<Utc>) -> DateTime<Utc> {
    now.checked_add_signed(TimeDelta::hours(i64::from(LONGEST_HOURS)))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// How far ahead a start may lie.
const MONTHS_AHEAD: Months = Months::new(12);

/// By how much the clock of a caller who asks for a start at once may be behind ours.
const CLOCKS_APART: TimeDelta = TimeDelta::minutes(5);

/// The least time that a later start must leave for the hand-off.
const LEAST_WAIT: TimeDelta = TimeDelta::minutes(10);

/// The latest start that can be asked for.
#[must_use]
pub fn latest_start(now: DateTime<Utc>) -> DateTime<Utc> {
    now.checked_add_months(MONTHS_AHEAD)
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// One thing that is wrong with a demand.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub struct DemandFault {
    /// The field, as a JSON path such as `window.end`.
    pub field: String,
    /// The fault, and what to write instead.
    pub detail: String,
}

impl Demand {
    /// Finds every fault of the demand, checked at `now`.
    ///
    /// Errors: every fault found, in the order of the fields; never empty.
    pub fn check(&self, now: DateTime<Utc>) -> Result<(), Vec<DemandFault>> {
        let mut faults = Faults(Vec::new());
        faults.shared("", self.shared(), now);
        match self {
            Self::Gpus(demand) => faults.gpus(demand),
            Self::Train(demand) => faults.train("", demand, now),
            Self::ServeRealtime(demand) => faults.serve_realtime("", demand),
            Self::ServeBatch(demand) => faults.serve_batch("", demand, now),
            Self::Hybrid(demand) => {
                faults.shared("train.", demand.train.shared(), now);
                faults.train("train.", &demand.train, now);
                match &demand.serve {
                    ServeHalf::ServeRealtime(serve) => {
                        faults.shared("serve.", serve.shared(), now);
                        faults.serve_realtime("serve.", serve);
                    }
                    ServeHalf::ServeBatch(serve) => {
                        faults.shared("serve.", serve.shared(), now);
                        faults.serve_batch("serve.", serve, now);
                    }
                }
                faults.0.extend(demand.contradictions());
            }
        }
        if faults.0.is_empty() {
            Ok(())
        } else {
            Err(faults.0)
        }
    }
}

struct Faults(Vec<DemandFault>);

impl Faults {
    fn add(&mut self, prefix: &str, field: &str, detail: impl Into<String>) {
        self.0.push(DemandFault {
            field: format!("{prefix}{field}"),
            detail: detail.into(),
        });
    }

    fn within(&mut self, prefix: &str, field: &str, value: f64, range: RangeInclusive<f64>) {
        // A NaN is in no range, so it is refused too.
        if !range.contains(&value) {
            let (low, high) = (range.start(), range.end());
            self.add(
                prefix,
                field,
                format!("must be between {low} and {high}, not {value}"),
            );
        }
    }

    fn at_most(&mut self, prefix: &str, field: &str, items: usize, most: usize) {
        if items > most {
            let detail = format!("names {items}, and at most {most} are taken");
            self.add(prefix, field, detail);
        }
    }

    fn shared(&mut self, prefix: &str, shared: Shared<'_>, now: DateTime<Utc>) {
        for (field, least, most) in [
            ("gpu_memory_gib", shared.gpu_memory_gib, 10_000.0),
            ("host_memory_gib", shared.host_memory_gib, 1_000_000.0),
            ("vcpus", shared.vcpus, 100_000.0),
        ] {
            if let Some(least) = least {
                self.within(prefix, field, least.into(), 1.0..=most);
            }
        }
        if let Some(window) = shared.window {
            self.window(prefix, window, now);
        }
        if let Some(ceiling) = shared.ceiling {
            let rate = ceiling
                .usd_per_gpu_hour
                .map(|rate| rate.money_per_gpu_hour());
            for (field, money) in [
                ("ceiling.usd_per_gpu_hour", rate),
                ("ceiling.usd_per_hour", ceiling.usd_per_hour),
            ] {
                if money.is_some_and(|money| !money.is_positive()) {
                    self.add(prefix, field, "must be above zero");
                }
            }
        }
        if shared.tenancy.is_some_and(<[_]>::is_empty) {
            self.add(
                prefix,
                "tenancy",
                "names no kind of machine; leave it out to take any",
            );
        }
        if let Some(tenancy) = shared.tenancy {
            self.at_most(prefix, "tenancy", tenancy.len(), Tenancy::ALL.len());
        }
        if let Some(places) = shared.places {
            for (field, items) in [
                ("places.countries", places.countries.len()),
                ("places.regions", places.regions.len()),
            ] {
                self.at_most(prefix, field, items, MOST_ITEMS);
            }
        }
        if let Some(policy) = shared.policy {
            for (field, items) in [
                ("policy.deny_providers", policy.deny_providers.len()),
                ("policy.allow_providers", policy.allow_providers.len()),
                ("policy.operator_countries", policy.operator_countries.len()),
                ("policy.certifications", policy.certifications.len()),
            ] {
                self.at_most(prefix, field, items, MOST_ITEMS);
            }
        }
        if let Some(places) = shared.places
            && places.countries.is_empty()
            && places.regions.is_empty()
        {
            self.add(prefix, "places", "names no place; leave it out to take any");
        }
        if let Err(error) = check_tags(shared.tags) {
            self.add(prefix, "tags", error.to_string());
        }
    }

    fn window(&mut self, prefix: &str, window: &Window, now: DateTime<Utc>) {
        if window.end.is_some() && window.duration_hours.is_some() {
            self.add(
                prefix,
                "window.end",
                "give `end` or `duration_hours`, not both",
            );
        }
        if window
            .duration_hours
            .is_some_and(|hours| hours.get() > LONGEST_HOURS)
        {
            self.add(
                prefix,
                "window.duration_hours",
                "must be at most 87600 (ten years)",
            );
        }
        for (field, time) in [
            ("window.end", window.end),
            ("window.start_latest", window.start_latest),
        ] {
            if let Some(time) = time.filter(|time| *time <= now) {
                self.add(prefix, field, format!("{} is in the past", rfc3339(time)));
            }
        }
        for (field, time) in [
            ("window.end", window.end),
            ("window.start_latest", window.start_latest),
        ] {
            if time.is_some_and(|time| time > latest_end(now)) {
                self.add(prefix, field, "must be within ten years");
            }
        }
        if let Some(start) = window.start_earliest {
            if now - start > CLOCKS_APART {
                let detail = format!(
                    "{} is in the past; leave it out to start now",
                    rfc3339(start)
                );
                self.add(prefix, "window.start_earliest", detail);
            }
            if start > latest_start(now) {
                let detail = format!(
                    "{} is more than a year ahead; plan again when it is nearer",
                    rfc3339(start)
                );
                self.add(prefix, "window.start_earliest", detail);
            }
        }
        let later = window.starts_after(now);
        let start = later.unwrap_or(now);
        for (field, latest, from) in [
            ("window.start_latest", window.start_latest, start),
            ("window.end", window.end.filter(|end| *end > start), start),
        ] {
            let is_tight = |latest| latest >= from && latest - start < LEAST_WAIT;
            if later.is_some() && latest.is_some_and(is_tight) {
                let detail = "must be at least 10 minutes after `window.start_earliest`, so that machines can be \
                              handed over in between";
                self.add(prefix, field, detail);
            }
        }
        if window.start_latest.is_some_and(|latest| latest < start) {
            self.add(
                prefix,
                "window.start_latest",
                "must not be before the earliest start",
            );
        }
        if window.end.is_some_and(|end| end <= start) {
            self.add(prefix, "window.end", "must be after the start");
        }
    }

    fn gpus(&mut self, demand: &GpusDemand) {
        let (min, max) = (demand.count.min, demand.count.max);
        let most = f64::from(counts::MOST);
        if min == max {
            self.within("", "count", min.into(), 1.0..=most);
        } else {
            self.within("", "count.min", min.into(), 1.0..=most);
            self.within("", "count.max", max.into(), 1.0..=most);
        }
        if min > max {
            let detail = format!("must be at least `min`, {min}, not {max}");
            self.add("", "count.max", detail);
        }
        self.within("", "nodes", demand.nodes.into(), 1.0..=10_000.0);
        self.fabric("", demand.fabric, demand.policy.as_ref());
    }

    /// `fabric` and the older word for it.
    fn fabric(&mut self, prefix: &str, fabric: Option<FabricWanted>, policy: Option<&Policy>) {
        let older = policy.and_then(|policy| policy.allow_ethernet);
        if let (Some(fabric), Some(allows)) = (fabric, older)
            && (allows || fabric == FabricWanted::Any)
        {
            let same = if allows { "any" } else { "rdma" };
            let detail = format!(
                "is the older word for `fabric`: {allows} is `{same}`, and `fabric` is `{fabric}`; leave it out"
            );
            self.add(prefix, "policy.allow_ethernet", detail);
        }
    }

    fn train(&mut self, prefix: &str, demand: &TrainDemand, now: DateTime<Utc>) {
        self.model(prefix, &demand.model);
        #[expect(clippy::cast_precision_loss, reason = "a bound check, not a quantity")]
        self.within(prefix, "tokens", demand.tokens as f64, 1.0..=1e15);
        self.within(
            prefix,
            "sequence_length",
            demand.sequence_length.into(),
            1.0..=1e7,
        );
        if let Some(batch) = demand.global_batch_sequences {
            self.within(prefix, "global_batch_sequences", batch.into(), 1.0..=1e7);
        }
        if let Some(gpus) = demand.gpus {
            self.within(prefix, "gpus", gpus.into(), 1.0..=100_000.0);
        }
        self.fabric(prefix, demand.fabric, demand.policy.as_ref());
        if let Some(checkpointing) = &demand.checkpointing {
            if let Some(minutes) = checkpointing.interval_minutes {
                self.within(
                    prefix,
                    "checkpointing.interval_minutes",
                    minutes.into(),
                    1.0..=1e5,
                );
            }
            if let Some(size) = checkpointing.size_gb {
                self.within(prefix, "checkpointing.size_gb", size, 0.001..=1e6);
            }
        }
        self.deadline(prefix, demand.deadline, now);
        if let Some(step) = &demand.calibration {
            self.step(prefix, step);
        }
    }

    fn step(&mut self, prefix: &str, step: &TrainCalibration) {
        let per_node = step.gpus_per_node.into();
        self.within(prefix, "calibration.gpus_per_node", per_node, 1.0..=1_024.0);
        self.within(prefix, "calibration.nodes", step.nodes.into(), 1.0..=1e4);
        match (step.tokens_per_second, step.seconds_per_step) {
            (Some(rate), None) => {
                self.within(prefix, "calibration.tokens_per_second", rate, 0.001..=1e12);
            }
            (None, Some(seconds)) => {
                self.within(prefix, "calibration.seconds_per_step", seconds, 1e-6..=1e6);
            }
            _ => self.add(
                prefix,
                "calibration.tokens_per_second",
                "give the measurement once: `tokens_per_second` or `seconds_per_step`",
            ),
        }
    }

    fn copy(&mut self, prefix: &str, copy: Option<&ServeCalibration>) {
        let Some(copy) = copy else { return };
        self.within(prefix, "calibration.gpus", copy.gpus.into(), 1.0..=1_024.0);
        let in_flight = copy.concurrency.into();
        self.within(prefix, "calibration.concurrency", in_flight, 1.0..=1e6);
        let rate = copy.tokens_per_second;
        self.within(prefix, "calibration.tokens_per_second", rate, 0.001..=1e9);
    }

    fn serve_realtime(&mut self, prefix: &str, demand: &ServeRealtimeDemand) {
        self.model(prefix, &demand.model);
        self.request_shape(prefix, demand.input_tokens, demand.output_tokens);
        match (demand.requests_per_second, demand.concurrency) {
            (Some(rate), None) => self.within(prefix, "requests_per_second", rate, 0.001..=1e6),
            (None, Some(count)) => self.within(prefix, "concurrency", count.into(), 1.0..=1e7),
            _ => self.add(
                prefix,
                "requests_per_second",
                "give the load once: `requests_per_second` or `concurrency`",
            ),
        }
        if let Some(latency) = &demand.latency {
            if let Some(first) = latency.first_token_ms {
                self.within(prefix, "latency.first_token_ms", first, 1.0..=3.6e6);
            }
            if let Some(per_token) = latency.per_token_ms {
                self.within(prefix, "latency.per_token_ms", per_token, 0.1..=3.6e6);
            }
            if let Some(percentile) = latency.percentile {
                self.within(prefix, "latency.percentile", percentile, 1.0..=99.999);
            }
        }
        if let Some(growth) = demand.growth {
            self.within(prefix, "growth", growth, 1.0..=1_000.0);
        }
        self.at_most(prefix, "users", demand.users.len(), MOST_ITEMS);
        self.copy(prefix, demand.calibration.as_ref());
        for (index, user) in demand.users.iter().enumerate() {
            self.within(
                prefix,
                &format!("users[{index}].share"),
                user.share,
                0.0..=1.0,
            );
        }
        let total: f64 = demand.users.iter().map(|user| user.share).sum();
        if !demand.users.is_empty() && (total - 1.0).abs() > 0.01 {
            self.add(
                prefix,
                "users",
                format!("the shares add up to {total:.2}, not to 1"),
            );
        }
    }

    fn serve_batch(&mut self, prefix: &str, demand: &ServeBatchDemand, now: DateTime<Utc>) {
        self.model(prefix, &demand.model);
        self.request_shape(prefix, demand.input_tokens, demand.output_tokens);
        #[expect(clippy::cast_precision_loss, reason = "a bound check, not a quantity")]
        self.within(prefix, "requests", demand.requests as f64, 1.0..=1e12);
        self.deadline(prefix, demand.deadline, now);
        self.copy(prefix, demand.calibration.as_ref());
    }

    fn request_shape(&mut self, prefix: &str, input_tokens: u32, output_tokens: u32) {
        self.within(prefix, "input_tokens", input_tokens.into(), 1.0..=1e7);
        self.within(prefix, "output_tokens", output_tokens.into(), 1.0..=1e7);
    }

    fn deadline(&mut self, prefix: &str, deadline: Option<DateTime<Utc>>, now: DateTime<Utc>) {
        if let Some(deadline) = deadline.filter(|deadline| *deadline <= now) {
            self.add(
                prefix,
                "deadline",
                format!("{} is in the past", rfc3339(deadline)),
            );
        }
    }

    fn heads(&mut self, prefix: &str, heads: u32, shape: &ModelShape) {
        self.within(prefix, "model.heads", heads.into(), 1.0..=1e4);
        if !heads.is_multiple_of(shape.kv_heads) {
            let detail = format!(
                "must be a multiple of `kv_heads`, {}, not {heads}",
                shape.kv_heads
            );
            self.add(prefix, "model.heads", detail);
        }
        let wide = u64::from(heads) * u64::from(shape.head_dim);
        let most = u64::from(shape.hidden) * WIDEST_HEADS;
        if wide > most {
            let detail = format!(
                "times `head_dim` must be at most {WIDEST_HEADS} times `hidden`, {most}, not {wide}"
            );
            self.add(prefix, "model.heads", detail);
        }
    }

    fn model(&mut self, prefix: &str, model: &Model) {
        match model {
            Model::Named(name) => {
                if name.trim().is_empty() || name.len() > 200 {
                    self.add(prefix, "model", "must be a name of 1 to 200 characters");
                }
            }
            Model::Shaped(shape) => {
                self.within(
                    prefix,
                    "model.params_total_b",
                    shape.params_total_b,
                    0.001..=1e5,
                );
                if let Some(active) = shape.params_active_b {
                    self.within(prefix, "model.params_active_b", active, 0.001..=1e5);
                    if active > shape.params_total_b {
                        self.add(prefix, "model.params_active_b", "must not exceed the total");
                    }
                    let least = shape.params_total_b / MOST_SPARSE;
                    if active < least {
                        let detail = format!(
                            "must be at least {least}, a two-hundredth of the total, not {active}"
                        );
                        self.add(prefix, "model.params_active_b", detail);
                    }
                }
                self.within(prefix, "model.layers", shape.layers.into(), 1.0..=1_000.0);
                self.within(prefix, "model.hidden", shape.hidden.into(), 1.0..=1e6);
                self.within(prefix, "model.kv_heads", shape.kv_heads.into(), 1.0..=1e4);
                self.within(prefix, "model.head_dim", shape.head_dim.into(), 1.0..=1e4);
                let (hidden, width) = (u64::from(shape.hidden), u64::from(shape.head_dim));
                if width > hidden {
                    let detail = format!("must be at most `hidden`, {hidden}, not {width}");
                    self.add(prefix, "model.head_dim", detail);
                }
                if let Some(heads) = shape.heads {
                    self.heads(prefix, heads, shape);
                }
                let (kept, most) = (u64::from(shape.kv_heads) * width, hidden * WIDEST_HEADS);
                if kept > most {
                    let detail = format!(
                        "times `head_dim` must be at most {WIDEST_HEADS} times `hidden`, {most}, not {kept}"
                    );
                    self.add(prefix, "model.kv_heads", detail);
                }
            }
        }
    }
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests;
