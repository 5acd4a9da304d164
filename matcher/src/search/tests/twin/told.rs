//! The reader of lines for training runs and fleets. It computes memory, layouts, rates and costs again from
//! the offer, the demand, published figures and the candidate's facts. A line that it cannot read is as wrong
//! as one that is not true.

mod fleets;
mod refused;
mod runs;

use market::gpu::{Gpu, GpuSpec};
use market::math::pow;

use super::super::*;
use super::explained::{Reader, one_class, tells_its_tie};

/// The figure between two pieces of text.
#[track_caller]
fn figure<'a>(line: &'a str, before: &str, after: &str) -> &'a str {
    let rest = line.split_once(before).map(|(_, rest)| rest);
    let found = rest.and_then(|rest| rest.split_once(after));
    found.unwrap_or_else(|| panic!("no figure: {line}")).0
}

#[track_caller]
fn number(line: &str, before: &str, after: &str) -> f64 {
    let text = figure(line, before, after);
    text.parse()
        .unwrap_or_else(|_| panic!("no number `{text}`: {line}"))
}

/// Whether the figure between two pieces of text is this one, rounded to the places that are shown;
/// half a place goes either way.
#[track_caller]
fn shows(line: &str, before: &str, after: &str, value: Option<f64>) -> bool {
    let text = figure(line, before, after);
    let places = text.split_once('.').map_or(0, |(_, part)| part.len());
    let half = 0.5 / pow(10.0, places as f64);
    value.is_some_and(|value| (number(line, before, after) - value).abs() <= half * 1.000_001)
}

/// Whether a line names the 80 % interval of a rate, which is known to within this factor.
#[track_caller]
fn is_interval(line: &str, rate: f64, within: Option<f64>) -> bool {
    let low = within.map(|factor| rate / factor);
    let high = within.map(|factor| rate * factor);
    shows(line, "(80 % interval ", " to ", low)
        && shows(line, " to ", ")", high)
        && within.is_some_and(|factor| factor > 1.0)
}

fn near(a: f64, b: f64, within: f64) -> bool {
    (a / b - 1.0).abs() <= within
}

fn spec(offer: &Offer) -> &'static GpuSpec {
    // Where the form is open, the least H100 is the one of the PCIe form.
    let least = || Gpu::parse("H100-PCIe").expect("a GPU");
    offer.gpu.known().unwrap_or_else(least).spec()
}

fn gpus(offer: &Offer) -> u32 {
    offer.gpus.as_whole().expect("whole")
}

fn dollars(money: Option<Money>) -> Option<f64> {
    money.map(|money| money.units() as f64 / 1e8)
}

fn told(fields: &Value, kind: &str, market: &(Snapshot, Held)) -> Plan {
    told_simulated(fields, kind, market, 0)
}

fn told_simulated(fields: &Value, kind: &str, market: &(Snapshot, Held), simulated: usize) -> Plan {
    let options = SearchOptions {
        limit: 100,
        simulated,
        ..SearchOptions::default()
    };
    let (snapshot, held) = market;
    search(
        snapshot,
        &demand(kind, fields.clone()),
        held,
        now(),
        &options,
    )
    .expect("a plan")
}
