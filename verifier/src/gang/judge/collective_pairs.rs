//! The judgement of the sums by NCCL over the GPUs of every two nodes. It names a pair that is slow beside
//! the others, over the fabric's own path where the library takes that.
//!
//! A wrong word fails both nodes of a pair, or the one with wrong words in several pairs. All else is tried
//! out.

use std::collections::BTreeSet;

use market::attestation::{Finding, FindingCode, Outcome, Unit, Weight};

use super::summed::{Rate, Summed};
use super::{Judged, must, name, to_blame, undone};
use crate::gang::nccl::Library;
use crate::gang::{Gang, version_words};
use crate::median;
use crate::rules::{finding, number, share};

const CODE: FindingCode = FindingCode::NetworkCollectivePairs;
/// Share of the median below which a pair is slow. Units: percent. House rule: as for copies over TCP, until
/// there are figures of good gangs.
const SLOW_PERCENT: u64 = 50;

/// None where NCCL sums nothing, which `net.collective` reports, and for two nodes, which are one pair.
pub(super) fn collective_pairs(gang: &Gang) -> Option<Judged> {
    let Library::Everywhere(version) = gang.nccl() else {
        return None;
    };
    let pairs = Summed::of_pairs(gang);
    if pairs.is_empty() {
        return None;
    }
    if gang.failed_before(gang.rounds().first_of_nccl()) {
        let note = "An earlier measurement failed: no pair summed by NCCL.";
        return Some(finding(CODE, Outcome::NotRun, note).into());
    }
    if let Some(wrong) = wrong(gang, &pairs) {
        return Some(wrong);
    }
    let found = broken(gang, &pairs).or_else(|| rates(gang, &pairs, version));
    let found = found.unwrap_or_else(|| undone(CODE).into());
    Some(Judged {
        finding: Finding {
            weight: Weight::Shadow,
            ..found.finding
        },
        ..found
    })
}

/// The two nodes of a pair, named in a sentence.
fn both(gang: &Gang, (a, b): (usize, usize)) -> String {
    format!("{} and {}", name(gang, a), name(gang, b))
}

/// A failure of these pairs, of which there is one at least.
fn failed(note: String, pairs: &[(usize, usize)]) -> Judged {
    let pairs: BTreeSet<(usize, usize)> = pairs.iter().copied().collect();
    Judged {
        finding: finding(CODE, Outcome::Failed, note),
        to_blame: to_blame(&pairs),
    }
}

/// Pairs in which a node has wrong words.
fn wrong(gang: &Gang, pairs: &[Summed]) -> Option<Judged> {
    let words = |pair: &Summed| {
        let of_nodes = pair.wrong_words().into_iter();
        of_nodes.map(|(_, words)| words).max().unwrap_or(0)
    };
    let wrong: Vec<&Summed> = pairs.iter().filter(|pair| words(pair) > 0).collect();
    let first = wrong.first()?;
    let more = match wrong.len() {
        1 => String::new(),
        pairs => format!("; {pairs} pairs have such"),
    };
    let note = format!(
        "{} words of NCCL's sum of {} of {} were wrong{more}.",
        words(first),
        first.payload(),
        both(gang, first.pair())
    );
    let ends: Vec<(usize, usize)> = wrong.iter().map(|pair| pair.pair()).collect();
    let Judged { finding, to_blame } = failed(note, &ends);
    Some(Judged {
        finding: must(finding),
        to_blame,
    })
}

/// Why a pair did not sum; none where it did, or did not get the request.
fn why(gang: &Gang, pair: &Summed) -> Option<String> {
    if gang.would_mislead(&pair.meeting) {
        let why = "the first node's NCCL id does not lead to one of its own addresses";
        return Some(why.to_owned());
    }
    pair.reasons().into_keys().next()
}

/// Pairs that did not sum. Later rounds are then not requested.
fn broken(gang: &Gang, pairs: &[Summed]) -> Option<Judged> {
    let without = |pair: &Summed| Some((pair.pair(), why(gang, pair)?));
    let broken: Vec<_> = pairs.iter().filter_map(without).collect();
    let (first, why) = broken.first()?;
    let more = match broken.len() {
        1 => String::new(),
        pairs => format!("; {pairs} pairs did not"),
    };
    let note = format!(
        "{} did not sum {} by NCCL: {why}{more}.",
        both(gang, *first),
        pairs[0].payload()
    );
    let ends: Vec<(usize, usize)> = broken.iter().map(|(pair, _)| *pair).collect();
    Some(failed(note, &ends))
}

/// The rates of the pairs' sums; none while some have not summed.
fn rates(gang: &Gang, pairs: &[Summed], version: u32) -> Option<Judged> {
    let rate = |pair: &Summed| Some((pair.pair(), pair.rate()?));
    let rates: Option<Vec<((usize, usize), Rate)>> = pairs.iter().map(rate).collect();
    let rates = rates?;
    let carried: Vec<u64> = rates.iter().map(|(_, rate)| rate.carried).collect();
    let median = median::upper(&carried).unwrap_or(0);
    let of_median = share(median, SLOW_PERCENT, 100);
    let floor = |rate: &Rate| of_median.max(rate.floor().unwrap_or(0));
    let is_slow = |rate: &Rate| rate.carried < floor(rate);
    // The pair to report: the slowest of the slow ones, else of all.
    let slowest_of = |slow: bool| {
        let those = rates.iter().filter(|(_, rate)| is_slow(rate) || !slow);
        those.min_by_key(|(_, rate)| rate.carried)
    };
    let (ends, slowest) = slowest_of(true).or_else(|| slowest_of(false))?;
    let slow = rates.iter().filter(|(_, rate)| is_slow(rate));
    let slow: Vec<(usize, usize)> = slow.map(|(ends, _)| *ends).collect();
    let floor = floor(slowest);
    let by_what_was_sold = floor > of_median;
    let payload = pairs[0].payload();
    let carries = format!(
        "at least {} MB/s between them for each GPU",
        slowest.carried
    );
    let found = if slow.is_empty() {
        let note = format!(
            "{} pairs of nodes sum up {payload} rightly by NCCL {}, over its own choice of path; the slowest are {}: \
             {carries}.",
            pairs.len(),
            version_words(version),
            both(gang, *ends)
        );
        finding(CODE, Outcome::Met, note).into()
    } else {
        let against = match gang.sold_as.gbps_per_gpu().filter(|_| by_what_was_sold) {
            Some(gbps) => format!("where adapters of {gbps} Gb/s for each were sold"),
            None => format!("where the median of all pairs is {median} MB/s"),
        };
        let more = match slow.len() {
            1 => String::new(),
            pairs => format!("; {pairs} pairs are slow"),
        };
        let note = format!(
            "By NCCL {}, over its own choice of path, {} sum up {payload} slowly: {carries}, {against}{more}.",
            version_words(version),
            both(gang, *ends)
        );
        failed(note, &slow)
    };
    let expected = slowest.expected.filter(|_| by_what_was_sold);
    let samples = rates.iter().map(|(_, rate)| number(rate.carried));
    Some(Judged {
        finding: Finding {
            unit: Some(Unit::MbPerS),
            measured: Some(number(slowest.carried)),
            floor: Some(number(floor)),
            expected: Some(number(expected.unwrap_or(median))),
            samples: samples.collect(),
            ..found.finding
        },
        ..found
    })
}
