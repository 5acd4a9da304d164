//! Explains a training run: its figures, and why it has its rank.

use market::counted::counted;
use market::demand::TrainMethod;
use market::gpu::GpuSpec;
use market::math::exp;
use market::money::Money;
use market::offer::Tenancy;

use super::{gb, interval, rounded};
use crate::hardware::link_floor;
use crate::perf::calibration::Calibration;
use crate::perf::chip::{Basis, Chip};
use crate::perf::constants::{Constants, TrainingGround};
use crate::perf::goodput::{REPLACEMENT_SECONDS, Spares};
use crate::perf::memory::TRAINING_FRACTION;
use crate::perf::run::{RESTART_SECONDS, Run, STORAGE_BYTES_PER_SECOND};
use crate::perf::step_time::{Recompute, Strategy};
use crate::plan::{Facts, RunLayout, RunStrategy};
use crate::snapshot::Row;
use crate::train::{TrainFit, TrainQuery, run_cost_units};

/// The figures of a run for its candidate.
pub(super) fn facts(query: &TrainQuery<'_>, row: &Row, run: &Run) -> Facts {
    let hours_of_a_billion = run.hours_of(1e9) * f64::from(run.gpus);
    Facts {
        run_hours: Some(run.hours),
        run_cost_usd: cost(row, run.gpu_hours()),
        usd_per_billion_tokens: cost(row, hours_of_a_billion),
        calibration_factor: query.calibration.as_ref().map(Calibration::factor),
        within_factor: Some(within_factor(query, row, run)),
        layout: Some(layout(run)),
        tokens_per_second: Some(run.tokens_per_second),
        flop_utilisation: Some(run.utilisation()),
        exposed_communication: Some(run.step.exposed_share()),
        goodput: Some(run.goodput),
        checkpoint_interval_minutes: Some(run.checkpoint_interval_seconds / 60.0),
        checkpoint_seconds: Some(run.interruptions().checkpoint_seconds),
        usd_per_percent_efficiency: of_a_percent(row, run),
        spare_nodes: spares(row, run).map(|spares| spares.nodes),
        ..Facts::default()
    }
}

/// Why a run has its rank, most important first.
pub(super) fn reasons(
    query: &TrainQuery<'_>,
    row: &Row,
    nodes: u32,
    fit: &TrainFit,
) -> Vec<String> {
    let demand = query.demand;
    let method = match demand.method {
        TrainMethod::Full => "Full training",
        TrainMethod::Lora => "Training of adapters",
        TrainMethod::Qlora => "Training of adapters over 4-bit weights",
    };
    let mut reasons = vec![
        joined(row, nodes),
        format!(
            "{method} of {} at {} tokens a sequence needs {:.0} GB over {}, which may fill \
             {:.0} GB ({:.0} %)",
            query.work.model.name,
            demand.sequence_length,
            gb(fit.needed_bytes()),
            counted(fit.run.gpus, "GPU"),
            gb(fit.available_bytes()),
            TRAINING_FRACTION * 100.0,
        ),
        why_nodes(query, nodes, fit),
        duration(query, row, fit),
    ];
    reasons.extend(measured(query, row, &fit.run));
    reasons.extend([laid_out(&fit.run), failures(&fit.run)]);
    reasons.extend(of_a_percent(row, &fit.run).map(|saved| {
        let saved = rounded(saved, 2);
        format!("One per cent more efficiency would save {saved} USD on this run")
    }));
    reasons.extend(spares(row, &fit.run).map(|spares| spares_in_words(spares, nodes)));
    reasons.extend(slow_links(row));
    reasons.extend(basis(row));
    reasons
}

fn joined(row: &Row, nodes: u32) -> String {
    let offer = &row.offer;
    let machine = match offer.tenancy {
        Tenancy::BareMetal => "Bare metal",
        Tenancy::Vm => "Virtual machines",
        Tenancy::Container => "Containers",
        Tenancy::Managed => "A managed cluster",
    };
    let joined = if nodes == 1 {
        "one node, so no fabric is crossed".to_owned()
    } else if offer.internode.is_rdma() {
        format!("its nodes are connected by {} (RDMA)", offer.internode)
    } else {
        format!(
            "its nodes are connected by {}, which the demand allows",
            offer.internode
        )
    };
    format!("{machine}: {joined}")
}

fn why_nodes(query: &TrainQuery<'_>, nodes: u32, fit: &TrainFit) -> String {
    if query.demand.gpus.is_some() {
        format!(
            "{} {} fixed by the demand",
            counted(fit.run.gpus, "GPU"),
            if fit.run.gpus == 1 { "is" } else { "are" }
        )
    } else {
        let in_time = if query.hours_available.is_some() {
            format!(", {} would finish in time", fit.fewest_nodes)
        } else {
            String::new()
        };
        format!(
            "Of all possible node counts {nodes} costs least; {} would hold it{in_time}",
            fit.nodes_for_memory
        )
    }
}

fn duration(query: &TrainQuery<'_>, row: &Row, fit: &TrainFit) -> String {
    let run = &fit.run;
    let usd = |money: Option<Money>, after: &str| {
        money.map_or(String::new(), |money| {
            format!(" and {} USD{after}", rounded(money, 2))
        })
    };
    let facts = facts(query, row, run);
    format!(
        "The run takes about {:.1} hours{}{}: {:.0} tokens/s ({}) at {:.0} % of {:.0} TFLOPS ({})",
        run.hours,
        usd(facts.run_cost_usd, ""),
        usd(facts.usd_per_billion_tokens, " per 1e9 tokens"),
        run.tokens_per_second,
        interval(run.tokens_per_second, within_factor(query, row, run)),
        run.utilisation() * 100.0,
        fit.peak_tflops,
        query.demand.precision.as_str(),
    )
}

/// The factor to either end of the 80 % interval of the rate.
fn within_factor(query: &TrainQuery<'_>, row: &Row, run: &Run) -> f64 {
    let ground = TrainingGround {
        mixture: query.work.model.is_mixture(),
        several_domains: Some(run.gpus) > row.offer.gpus.as_whole(),
        basis: row.spec.map_or(Basis::Family, training_basis),
    };
    let widths = &Constants::product().interval_80_ln.training;
    let without = widths.half_width(ground);
    let calibrated = query.calibration.as_ref().zip(row.spec);
    let width = calibrated.map_or(without, |(calibration, spec)| {
        calibration.nearness(spec, run.gpus).of_run(without, widths)
    });
    exp(width)
}

/// The effect of a measured step, and how similar its hardware is.
fn measured(query: &TrainQuery<'_>, row: &Row, run: &Run) -> Option<String> {
    let calibration = query.calibration.as_ref()?;
    let nearness = calibration.nearness(row.spec?, run.gpus);
    Some(super::measured("step", calibration, nearness))
}

fn laid_out(run: &Run) -> String {
    let layout = layout(run);
    let strategy = match layout.strategy {
        RunStrategy::FullShard => "fully sharded (FSDP, ZeRO-3)",
        RunStrategy::OptimiserShard => "optimiser states sharded (ZeRO-1)",
        RunStrategy::Adapters => "frozen weights whole in each replica",
        RunStrategy::FrozenInNode => "frozen weights sharded within each node",
        RunStrategy::FrozenShard => {
            "frozen weights sharded over all GPUs, since no node holds them"
        }
    };
    let experts = match layout.expert_parallel {
        1 => String::new(),
        experts => format!(", EP {experts}"),
    };
    format!(
        "Best layout: TP {} x PP {} x DP {}{experts}, {strategy}, {} of {} a step and replica{}: {:.0} \
         GB a GPU; {:.0} % of a step waits for communication",
        layout.tensor_parallel,
        layout.pipeline_parallel,
        layout.data_parallel,
        if layout.micro_batches == 1 {
            "1 micro-batch".to_owned()
        } else {
            format!("{} micro-batches", layout.micro_batches)
        },
        counted(layout.micro_batch, "sequence"),
        if layout.recompute {
            ", with activation recomputation"
        } else {
            ""
        },
        gb(run.bytes_per_gpu),
        run.step.exposed_share() * 100.0,
    )
}

fn failures(run: &Run) -> String {
    format!(
        "Failures and checkpoints leave {:.1} % of the time, with a checkpoint every {:.0} minutes \
         ({:.1} GB in {:.1} s at {:.0} GB/s, {:.0} min to restart, assumed)",
        run.goodput * 100.0,
        run.checkpoint_interval_seconds / 60.0,
        gb(run.checkpoint_bytes),
        run.interruptions().checkpoint_seconds,
        gb(STORAGE_BYTES_PER_SECOND),
        RESTART_SECONDS / 60.0,
    )
}

/// The saving if the run did one per cent more in the same time.
fn of_a_percent(row: &Row, run: &Run) -> Option<Money> {
    let (now, then) = (
        cost(row, run.gpu_hours())?,
        cost(row, run.gpu_hours() / 1.01)?,
    );
    Some(Money::from_units(
        now.units() - then.units(),
        now.currency(),
    ))
}

fn spares(row: &Row, run: &Run) -> Option<Spares> {
    let nodes = run.gpus / row.offer.gpus.as_whole()?;
    let interval = run.checkpoint_interval_seconds;
    Some(Spares::of(&run.interruptions(), interval, nodes))
}

fn spares_in_words(spares: Spares, nodes: u32) -> String {
    let minutes = REPLACEMENT_SECONDS / 60.0;
    let without = spares.waited_without * 100.0;
    let cost = f64::from(spares.nodes.max(1)) / f64::from(nodes) * 100.0;
    if spares.nodes == 0 {
        format!(
            "No spare node is worth holding: one costs {cost:.1} % of the run, and waiting {minutes:.0} \
             min for another one at each failure (assumed) takes {without:.1} % of the time"
        )
    } else {
        format!(
            "{} worth holding, for {cost:.1} % of the run: waiting {minutes:.0} min for another one at \
             each failure (assumed) takes {without:.1} % of the time without, {:.1} % with",
            match spares.nodes {
                1 => "1 spare node is".to_owned(),
                several => format!("{several} spare nodes are"),
            },
            spares.waited_with * 100.0,
        )
    }
}

/// A warning where slower links connect the GPUs of a node than on boards of their generation. The step time
/// already includes the effect.
fn slow_links(row: &Row) -> Option<String> {
    let several = row.offer.gpus.as_whole()? > 1;
    let chip = Chip::of_spec(row.spec?).filter(|_| several)?;
    let floor = link_floor(chip.architecture)?;
    let link = 2.0 * chip.link_bytes_per_second / 1e9;
    (link < floor.gb_s_bidirectional).then(|| {
        format!(
            "Its GPUs are connected at {link:.0} GB/s, below the {:.0} GB/s of {} and other boards of its \
             generation: the rate accounts for that",
            floor.gb_s_bidirectional, floor.board,
        )
    })
}

fn basis(row: &Row) -> Option<String> {
    let chip = Chip::of_spec(row.spec?)?;
    (chip.training_basis == Basis::Family).then(|| {
        format!(
            "No training run on {} was measured: its rate is predicted from its family",
            chip.name
        )
    })
}

fn training_basis(spec: &GpuSpec) -> Basis {
    Chip::of_spec(spec).map_or(Basis::Family, |chip| chip.training_basis)
}

/// The layout in whole numbers; its parts are whole by construction.
fn layout(run: &Run) -> RunLayout {
    let layout = &run.layout;
    RunLayout {
        tensor_parallel: layout.tensor as u32,
        pipeline_parallel: layout.pipeline as u32,
        data_parallel: layout.copies(f64::from(run.gpus)) as u32,
        expert_parallel: layout.expert as u32,
        strategy: match layout.strategy {
            Strategy::OptimiserShard => RunStrategy::OptimiserShard,
            Strategy::Adapters => RunStrategy::Adapters,
            Strategy::FrozenInNode => RunStrategy::FrozenInNode,
            Strategy::FrozenShard => RunStrategy::FrozenShard,
            _ => RunStrategy::FullShard,
        },
        micro_batch: run.micro_batch as u32,
        micro_batches: layout.micro_batches as u32,
        recompute: run.recompute == Recompute::Full,
    }
}

fn cost(row: &Row, gpu_hours: f64) -> Option<Money> {
    let units = i64::try_from(run_cost_units(row.rate, gpu_hours)).ok()?;
    Some(Money::from_units(
        units,
        row.offer.price_per_node_hour.currency(),
    ))
}
