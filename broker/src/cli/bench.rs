//! `broker bench`: the speed of this machine, compared with lower bounds.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use adapters::pricesheet;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};

use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::aside::tell;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::price_lists::read_sheets;
use crate::terminal::table::table;
use crate::terminal::text::{print_line, print_text};
use crate::tools::bench::{self, Effort, Figures, RouteFigures, Scene};

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    Http(HttpArgs),
    Match(MatchArgs),
    Neighbours(NeighboursArgs),
}

/// Measures searches among N offers, against a scan and PostgreSQL.
///
/// The market is random, with a fixed seed. Before any timing, each result is compared with a check
/// of every single offer. PostgreSQL is measured if TEST_DATABASE_URL names a server, in a temporary
/// table. All runs on one core, in this process. Docs: docs/performance.md.
#[derive(Debug, Args)]
pub(super) struct MatchArgs {
    /// How many offers are on sale; several sizes are measured one after the other.
    #[arg(long, required = true, value_delimiter = ',', value_name = "N", value_parser = number::<NonZeroUsize>)]
    offers: Vec<NonZeroUsize>,
    /// Price lists to draw the market from, instead of a market like that of eleven sellers.
    #[arg(long, num_args = 1.., value_name = "FILE.csv")]
    pricesheets: Vec<PathBuf>,
    /// Measures searches while another thread reprices every offer, instead.
    #[arg(long)]
    reprice: bool,
    /// Seconds of timed searches with --reprice, once idle and once busy.
    #[arg(long, default_value = "5", value_name = "N", value_parser = number::<NonZeroU32>)]
    seconds: NonZeroU32,
    /// Prints one JSON object for each size, each on one line.
    #[arg(long)]
    json: bool,
}

/// Measures offers and repeated plans over HTTP, against a bare server with the same replies.
///
/// Service and bare server have one worker each and are measured alternately, in this process, on a
/// temporary database. Docs: docs/performance.md.
#[derive(Debug, Args)]
pub(super) struct HttpArgs {
    /// Seconds of measurement for each route, and the same for its bare server.
    #[arg(long, default_value = "10", value_name = "N", value_parser = number::<NonZeroU32>)]
    seconds: NonZeroU32,
    /// Concurrent connections.
    #[arg(long, default_value = "16", value_name = "N", value_parser = number::<NonZeroUsize>)]
    connections: NonZeroUsize,
    /// How many synthetic offers are on sale.
    #[arg(long, default_value = "1000", value_name = "N", value_parser = number::<NonZeroUsize>)]
    offers: NonZeroUsize,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Measures a tenant's plans while another tenant plans as often as it may.
///
/// The service has one worker for each core and its usual limits, on a temporary database; all in this
/// process. No two plans have the same demand. Docs: docs/performance.md.
#[derive(Debug, Args)]
pub(super) struct NeighboursArgs {
    /// Seconds of measured plans, once without the other tenant and once with it.
    #[arg(long, default_value = "60", value_name = "N", value_parser = number::<NonZeroU32>)]
    seconds: NonZeroU32,
    /// How many synthetic offers are on sale.
    #[arg(long, default_value = "1000", value_name = "N", value_parser = number::<NonZeroUsize>)]
    offers: NonZeroUsize,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses a count of at least one.
fn number<N: FromStr>(text: &str) -> Result<N, String> {
    let refuse = |_| "must be a whole number from 1".to_owned();
    text.parse().map_err(refuse)
}

pub(super) fn run(command: BenchCommand) -> Result<(), Ending> {
    crate::platform::logging::to_stderr();
    match command {
        BenchCommand::Http(args) => run_http(&args),
        BenchCommand::Match(args) => run_match(&args),
        BenchCommand::Neighbours(args) => run_neighbours(&args),
    }
}

fn run_match(args: &MatchArgs) -> Result<(), Ending> {
    let now = SystemClock.now();
    let sheets = read_sheets(&args.pricesheets)?;
    let list = pricesheet::read_price_sheets(&sheets, now).offers;
    if !args.pricesheets.is_empty() && list.is_empty() {
        let why = "the price lists hold no offer; `broker match` says why each row is none";
        return Err(Ending::wrong_input(why));
    }
    let postgres = std::env::var("TEST_DATABASE_URL").ok();
    for size in args.offers.iter().map(|size| size.get()) {
        let list = list.clone();
        if args.reprice {
            let each = Duration::from_secs(u64::from(args.seconds.get()));
            show(&bench::measure_reprice(size, list, each)?, args.json)?;
            continue;
        }
        let measured =
            block_on(async { Ok(bench::measure_match(size, list, postgres.as_deref()).await?) })?;
        show(&measured, args.json)?;
        for note in &measured.notes {
            tell(note);
        }
    }
    Ok(())
}

fn show(figures: &impl Serialize, json: bool) -> Result<(), Ending> {
    let line = serde_json::to_string(figures)?;
    if json {
        return Ok(print_line(&line)?);
    }
    let figures: Value = serde_json::from_str(&line)?;
    Ok(print_line(&as_list(&figures))?)
}

/// One figure a line, with its unit in its name.
fn as_list(figures: &Value) -> String {
    let figures = figures.as_object().into_iter().flatten();
    let rows = figures.map(|(name, value)| {
        let value = match value.as_f64() {
            Some(number) if !value.is_u64() => format!("{number:.2}"),
            Some(number) => number.to_string(),
            None => "-".to_owned(),
        };
        vec![name.clone(), value]
    });
    table(&["figure", "measured"], rows)
}

fn run_neighbours(args: &NeighboursArgs) -> Result<(), Ending> {
    let each = Duration::from_secs(u64::from(args.seconds.get()));
    let measured = block_on(async {
        let scene = Scene::as_served(args.offers).await?;
        let measured = bench::measure_neighbours(&scene, each).await;
        scene.close().await;
        Ok(measured?)
    })?;
    show(&measured, args.json)
}

fn run_http(args: &HttpArgs) -> Result<(), Ending> {
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
        Ok(print_text(&format!(
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

/// The machine that was measured.
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
