//! `broker bench`: what this machine serves, beside the least that it could cost.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use super::table::{print_line, table};
use super::{Ending, block_on};
use crate::bench::{self, Effort, Figures, RouteFigures, Scene};

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// Measures offers and repeated plans over HTTP, beside a bare server with the same answers.
    Http(HttpArgs),
}

/// Measures offers and repeated plans over HTTP, beside a bare server with the same answers.
///
/// Service and floor have one worker each and are measured in turns, in this process, over a
/// database in a directory that goes away. Docs: docs/performance.md.
#[derive(Debug, Args)]
pub(super) struct HttpArgs {
    /// For how many seconds each route is measured, and as long its floor.
    #[arg(long, default_value = "10", value_name = "N")]
    seconds: NonZeroU32,
    /// Connections that call at once.
    #[arg(long, default_value = "16", value_name = "N")]
    connections: NonZeroUsize,
    /// How many synthetic offers are sold.
    #[arg(long, default_value = "1000", value_name = "N")]
    offers: NonZeroUsize,
    /// One JSON object on one line instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: BenchCommand) -> Result<(), Ending> {
    let BenchCommand::Http(args) = command;
    crate::logging::to_stderr();
    let effort = Effort {
        each: Duration::from_secs(u64::from(args.seconds.get())),
        connections: args.connections,
    };
    block_on(async {
        let scene = Scene::open(args.offers).await?;
        let measured = bench::measure_http(&scene, effort).await;
        let offers = scene.offers();
        scene.close().await;
        let machine = Machine::this();
        if args.json {
            let whole = json!({
                "cores": machine.cores, "cpu": machine.cpu, "database": "sqlite",
                "offers": offers, "connections": args.connections, "seconds": args.seconds,
                "optimised": !cfg!(debug_assertions), "routes": measured?,
            });
            return Ok(print_line(&whole.to_string())?);
        }
        print_line(&as_table(&measured?))?;
        let kind = if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        };
        Ok(print_line(&format!(
            "{} cores, {}; SQLite, {offers} offers, {} connections, one worker, {kind} build",
            machine.cores, machine.cpu, args.connections
        ))?)
    })
}

fn as_table(measured: &[RouteFigures]) -> String {
    let headings = [
        "route",
        "bytes",
        "per second",
        "p50 us",
        "p99 us",
        "rate/floor",
        "p99/floor",
    ];
    let row = |name: String, bytes: usize, figures: &Figures, ratios: [String; 2]| {
        let [rate, p99] = ratios;
        vec![
            name,
            bytes.to_string(),
            format!("{:.0}", figures.requests_per_second),
            figures.p50_micros.to_string(),
            figures.p99_micros.to_string(),
            rate,
            p99,
        ]
    };
    let rows = measured.iter().flat_map(|route| {
        let ratio = |of: f64| format!("{of:.2}");
        let ratios = [ratio(route.rate_to_floor), ratio(route.p99_to_floor)];
        let none = ["-".to_owned(), "-".to_owned()];
        [
            row(
                route.route.to_owned(),
                route.body_bytes,
                &route.measured,
                ratios,
            ),
            row(
                "  its floor".to_owned(),
                route.body_bytes,
                &route.floor,
                none,
            ),
        ]
    });
    table(&headings, rows)
}

/// What it was measured on.
struct Machine {
    cores: usize,
    cpu: String,
}

impl Machine {
    fn this() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.trim() == "model name");
        Self {
            cores: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            cpu: model.map_or_else(|| "unknown CPU".into(), |(_, cpu)| cpu.trim().to_owned()),
        }
    }
}
