//! A long run of mixed reads and reservations against the real binary: first at full speed, to measure the
//! rate, then for minutes at four fifths of that rate.
//!
//! No answer may be an error, and the service's memory may not grow beyond a ceiling that is set beforehand.
//! `visit` defines the mix.

mod service;
mod visit;

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::json;

use service::Service;
use visit::{Tally, Visitor};

/// The share of the measured rate for the long run.
const PART: f64 = 0.8;
/// The part of the asked rate that must have been reached: less, and the run shows nothing.
const REACHED: f64 = 0.95;

/// A long run of mixed reads and reservations, without an error and under a memory ceiling.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The length of the run, after the measurement of the rate.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The seconds for which the rate is measured first.
    #[arg(long, default_value_t = 30)]
    measure_seconds: u64,
    /// Visitors that call at once, each a tenant of its own.
    #[arg(long, default_value_t = 8)]
    visitors: u32,
    /// The ceiling on the service's resident memory. Units: MiB.
    #[arg(long, default_value_t = 256.0)]
    ceiling_mib: f64,
    /// The binary to run, in place of a release build of this tree.
    #[arg(long, value_name = "FILE")]
    broker: Option<PathBuf>,
}

/// Runs, prints one JSON object and fails when the run was not good.
pub(crate) fn load(args: &LoadArgs) -> Result<()> {
    let broker = match &args.broker {
        Some(broker) => broker.clone(),
        None => {
            crate::cargo(&["build", "--release", "--locked", "-p", "broker"], &[])?;
            PathBuf::from("target/release/broker")
        }
    };
    // The service runs in a directory of its own.
    let service = Service::start(std::path::absolute(broker)?)?;
    let mut visitors = (0..args.visitors)
        .map(|number| Visitor::enter(&service, number))
        .collect::<Result<Vec<_>>>()?;

    eprintln!("measuring the rate for {} s", args.measure_seconds);
    let measured = run(
        &mut visitors,
        &service,
        Duration::from_secs(args.measure_seconds),
        None,
    );
    let rate = measured.rate();
    let asked = rate * PART;
    eprintln!(
        "{rate:.0} calls/s; {} min at {asked:.0} calls/s",
        args.minutes
    );
    let long = Duration::from_secs_f64(args.minutes * 60.0);
    let ran = run(&mut visitors, &service, long, Some(asked));

    let (database, hot_state) = (service.database(), service.hot_state());
    let most_resident_mib = service.most_resident_mib()?;
    let books = service.stop_and_check_books();
    let reached = ran.rate();
    let whole = json!({
        "database": database,
        "hot_state": hot_state,
        "visitors": args.visitors,
        "minutes": args.minutes,
        "measured_per_second": rate.round(),
        "asked_per_second": asked.round(),
        "reached_per_second": reached.round(),
        "calls": ran.tally.micros.len(),
        "reservations": ran.tally.reservations,
        "handed_off": ran.tally.handed_off,
        "errors": ran.tally.errors + measured.tally.errors,
        "first_errors": measured.tally.said.iter().chain(&ran.tally.said).take(5).collect::<Vec<_>>(),
        "p50_micros": ran.percentile(50),
        "p99_micros": ran.percentile(99),
        "max_micros": ran.percentile(100),
        "slowest_routes": ran.by_route(),
        "resident_mib": {
            "before": measured.resident_mib.first(),
            "at_begin": ran.resident_mib.first(),
            "at_end": ran.resident_mib.last(),
            "most": most_resident_mib,
            "ceiling": args.ceiling_mib,
        },
        "books_balance": books.is_ok(),
    });
    println!("{whole}");
    let errors = ran.tally.errors + measured.tally.errors;
    ensure!(errors == 0, "{errors} calls were answered with an error");
    ensure!(
        ran.tally.handed_off > 0,
        "no machine was handed off; let it run for longer"
    );
    ensure!(
        most_resident_mib <= args.ceiling_mib,
        "the service passed its ceiling of {} MiB",
        args.ceiling_mib
    );
    ensure!(
        reached >= asked * REACHED,
        "only {reached:.0} of {asked:.0} calls/s were reached"
    );
    books
}

/// The result of a run.
struct Ran {
    tally: Tally,
    took: Duration,
    /// Each second, the first at the beginning.
    resident_mib: Vec<f64>,
}

impl Ran {
    fn rate(&self) -> f64 {
        self.tally.micros.len() as f64 / self.took.as_secs_f64()
    }

    /// The time at this percentile of the calls. Units: microseconds.
    fn percentile(&self, percent: usize) -> u32 {
        percentile(self.tally.micros.iter().map(|(_, took)| *took), percent)
    }

    /// The 99th percentile of each route, the slowest first. Units: microseconds.
    fn by_route(&self) -> Vec<(&'static str, u32)> {
        let mut routes: Vec<_> = self.tally.micros.iter().map(|(route, _)| *route).collect();
        routes.sort_unstable();
        routes.dedup();
        let of = |route: &'static str| {
            let calls = self.tally.micros.iter().filter(|(of, _)| *of == route);
            (route, percentile(calls.map(|(_, took)| *took), 99))
        };
        let mut slow: Vec<_> = routes.into_iter().map(of).collect();
        slow.sort_unstable_by_key(|(_, took)| std::cmp::Reverse(*took));
        slow
    }
}

fn percentile(micros: impl Iterator<Item = u32>, percent: usize) -> u32 {
    let mut micros: Vec<u32> = micros.collect();
    micros.sort_unstable();
    let at = (micros.len() * percent / 100).min(micros.len().saturating_sub(1));
    micros.get(at).copied().unwrap_or_default()
}

/// Lets every visitor call for so long, all together at a rate or as fast as they can.
fn run(visitors: &mut [Visitor], service: &Service, long: Duration, rate: Option<f64>) -> Ran {
    let began = Instant::now();
    let apart = rate.map(|rate| Duration::from_secs_f64(visitors.len() as f64 / rate));
    let (done, over) = mpsc::channel::<()>();
    let (tally, resident_mib) = thread::scope(|scope| {
        let sampled = scope.spawn(move || {
            let mut resident_mib: Vec<_> = service.resident_mib().ok().into_iter().collect();
            while over.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout)
            {
                resident_mib.extend(service.resident_mib().ok());
            }
            resident_mib
        });
        let calling: Vec<_> = visitors
            .iter_mut()
            .map(|visitor| scope.spawn(move || visitor.call(began, long, apart)))
            .collect();
        let mut tally = Tally::default();
        for caller in calling {
            tally.add(caller.join().expect("a visitor does not panic"));
        }
        drop(done);
        (tally, sampled.join().expect("sampling does not panic"))
    });
    Ran {
        tally,
        took: began.elapsed(),
        resident_mib,
    }
}
