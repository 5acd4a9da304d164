//! What the rounds of a gang amount to.

use std::collections::BTreeSet;

use market::attestation::{Finding, FindingCode, Outcome, Unit, Weight};
use market::verification::Shown;

use super::addresses::HOST;
use super::rounds::pairs_of_round;
use super::{Gang, Seen};
use crate::order::Mode;
use crate::rules::{finding, number, plain, share};

/// Share of the median below which a link is slow. Units: percent. House rule: good links of one
/// fabric lie within some per cent of each other, also over TCP.
const SLOW_PERCENT: u64 = 50;
/// As [`SLOW_PERCENT`] where one machine plays all nodes, whose processes wait for each other.
const SLOW_PERCENT_SIMULATED: u64 = 2;
/// Share of the median below which a link is worth watching. Units: percent.
const ODD_PERCENT: u64 = 70;
/// Share of an adapter's wire rate that one connection over TCP carries at least. Units: percent.
/// House rule: one core moves that much, and no network of another class does.
const FABRIC_PERCENT: u64 = 2;
/// Share of the slowest link's rate that the sum of all nodes reaches at least, on real networks. Units:
/// percent. House rule: a node sums up on one core and one piece after the other, which good ones do many
/// times as fast.
const SUM_PERCENT: u64 = 2;
/// The most rates of links that a finding shows.
const MOST_SAMPLES: usize = 1_000;
/// How much longer than usual a sum may take now and then. Units: thousandths.
const JITTER_PERMILLE: u64 = 3_000;

/// One direction of one rail between two nodes.
struct Link {
    from: usize,
    to: usize,
    rail: usize,
    mb_per_s: u64,
}

/// A finding about a gang, and whose fault it is.
pub(super) struct Judged {
    pub(super) finding: Finding,
    /// The nodes to blame for a failure; nobody in particular when empty.
    to_blame: Vec<usize>,
}

impl Judged {
    /// The finding as it stands in the document of one node.
    pub(super) fn for_node(self, node: usize) -> Finding {
        let Self { finding, to_blame } = self;
        let mine = to_blame.is_empty() || to_blame.contains(&node);
        if mine || finding.outcome != Outcome::Failed {
            return finding;
        }
        Finding {
            outcome: Outcome::Noted,
            remedy: None,
            note: format!("Elsewhere in the gang: {}", finding.note),
            ..finding
        }
    }
}

impl From<Finding> for Judged {
    fn from(finding: Finding) -> Self {
        Self {
            finding,
            to_blame: Vec::new(),
        }
    }
}

/// What was found about a gang, in a fixed order.
pub(super) fn judged(gang: &Gang) -> Vec<Judged> {
    let mut all = vec![pairs(gang), all_reduce(gang), jitter(gang).into()];
    all.extend(in_time(gang));
    all
}

/// Whose fault bad pairs are: of the two ends the one that has more of them, or both.
fn to_blame(pairs: &BTreeSet<(usize, usize)>) -> Vec<usize> {
    let bad_of = |node: usize| {
        let of_node = |(a, b): &&(usize, usize)| *a == node || *b == node;
        pairs.iter().filter(of_node).count()
    };
    let ends = pairs.iter().flat_map(|(a, b)| {
        let (of_a, of_b) = (bad_of(*a), bad_of(*b));
        [(*a, of_a >= of_b), (*b, of_b >= of_a)]
    });
    let blamed: BTreeSet<usize> = ends
        .filter(|(_, blamed)| *blamed)
        .map(|(node, _)| node)
        .collect();
    blamed.into_iter().collect()
}

fn in_time(gang: &Gang) -> Option<Judged> {
    let first = *gang.late.first()?;
    let more = match gang.late.len() {
        1 => String::new(),
        nodes => format!(" and {} more", nodes - 1),
    };
    let note = format!(
        "{}{more} kept the others of the gang waiting for too long.",
        name(gang, first)
    );
    let finding = finding(FindingCode::StepTimedOut, Outcome::Failed, note);
    Some(Judged {
        finding: Finding {
            weight: Weight::Must,
            ..finding
        },
        to_blame: gang.late.clone(),
    })
}

/// A node as a sentence names it.
fn name(gang: &Gang, node: usize) -> String {
    format!("node {node} ({})", gang.members[node].host)
}

fn undone(code: FindingCode) -> Finding {
    Finding {
        weight: Weight::Must,
        ..finding(
            code,
            Outcome::NotRun,
            "Not all nodes of the gang were measured together.",
        )
    }
}

fn shown(seen: &Seen, round: usize) -> Option<&Shown> {
    seen.shown.get(round)?.as_ref()
}

/// What all pairs showed.
#[derive(Default)]
struct Links {
    measured: Vec<Link>,
    /// Pairs that could not be measured, and why.
    broken: Vec<(usize, usize, String)>,
}

/// Every link; none while a pair has not been measured.
fn links(gang: &Gang) -> Option<Links> {
    let mut links = Links::default();
    for round in 0..gang.rounds() - 1 {
        for (a, b) in pairs_of_round(gang.members.len(), round) {
            let both = [a, b].map(|node| shown(&gang.seen[node], round as usize));
            let [Some(of_a), Some(of_b)] = both else {
                return None;
            };
            let Some(rates) = rates(of_a, of_b) else {
                let why = [of_a, of_b].into_iter().find_map(|shown| match shown {
                    Shown::Failed { why } => Some(plain(why)),
                    _ => None,
                });
                let why = why.unwrap_or_else(|| "they do not tell why".to_owned());
                links.broken.push((a, b, why));
                continue;
            };
            for (rail, (there, back)) in rates.into_iter().enumerate() {
                for (from, to, mb_per_s) in [(a, b, there), (b, a, back)] {
                    links.measured.push(Link {
                        from,
                        to,
                        rail,
                        mb_per_s,
                    });
                }
            }
        }
    }
    Some(links)
}

/// Per rail, the rates from the one to the other and back: the lesser of what both ends saw.
fn rates(one: &Shown, other: &Shown) -> Option<Vec<(u64, u64)>> {
    let (
        Shown::Pair {
            sent_mb_per_s: sent,
            received_mb_per_s: received,
        },
        Shown::Pair {
            sent_mb_per_s: sent_back,
            received_mb_per_s: arrived,
        },
    ) = (one, other)
    else {
        return None;
    };
    let there = sent.iter().zip(arrived).map(|(a, b)| *a.min(b));
    let back = sent_back.iter().zip(received).map(|(a, b)| *a.min(b));
    let rates: Vec<_> = there.zip(back).collect();
    (!rates.is_empty()).then_some(rates)
}

fn must(finding: Finding) -> Finding {
    Finding {
        weight: Weight::Must,
        ..finding
    }
}

/// The adapter over which a node sends on a rail; none where that is the host's usual address.
fn adapter(gang: &Gang, node: usize, rail: usize) -> Option<&str> {
    let rail = gang.seen[node].rails.get(rail)?;
    (rail.name != HOST).then_some(rail.name.as_str())
}

/// What a link must carry at least, whatever the others do. Units: 1e6 bytes per second.
fn floor_of_fabric(gang: &Gang, link: &Link) -> u64 {
    let on_fabric = [link.from, link.to].map(|node| adapter(gang, node, link.rail).is_some());
    match gang.sold_as.gbps_per_gpu() {
        // 1 Gb/s is 125 MB/s.
        Some(gbps) if gang.mode == Mode::Real && on_fabric == [true, true] => {
            share(u64::from(gbps) * 125, FABRIC_PERCENT, 100)
        }
        _ => 0,
    }
}

fn broken(gang: &Gang, pairs: &[(usize, usize, String)]) -> Option<Judged> {
    let (a, b, why) = pairs.first()?;
    let (one, other) = (name(gang, *a), name(gang, *b));
    let more = match pairs.len() {
        1 => String::new(),
        pairs => format!("; {pairs} pairs did not"),
    };
    let said = format!("{one} and {other} did not get through to each other: {why}{more}.");
    Some(Judged {
        finding: must(finding(FindingCode::NetworkPairs, Outcome::Failed, said)),
        to_blame: to_blame(&pairs.iter().map(|(a, b, _)| (*a, *b)).collect()),
    })
}

fn pairs(gang: &Gang) -> Judged {
    let code = FindingCode::NetworkPairs;
    let Some(Links {
        measured: links,
        broken: without_a_way,
    }) = links(gang)
    else {
        return undone(code).into();
    };
    if let Some(broken) = broken(gang, &without_a_way) {
        return broken;
    }
    let mut sorted: Vec<u64> = links.iter().map(|link| link.mb_per_s).collect();
    sorted.sort_unstable();
    let Some(slowest) = links.iter().min_by_key(|link| link.mb_per_s) else {
        return undone(code).into();
    };
    // The upper one of two, so that one slow direction of a single pair is seen.
    let median = sorted[sorted.len() / 2];
    let percent = match gang.mode {
        Mode::Simulation => SLOW_PERCENT_SIMULATED,
        Mode::Real => SLOW_PERCENT,
    };
    let floor = |link: &Link| share(median, percent, 100).max(floor_of_fabric(gang, link));
    let slow: Vec<&Link> = links
        .iter()
        .filter(|link| link.mb_per_s < floor(link))
        .collect();
    let said = format!(
        "{} sends to {} over {} at {} MB/s where the median of all links is {median} MB/s",
        name(gang, slowest.from),
        name(gang, slowest.to),
        plain(adapter(gang, slowest.from, slowest.rail).unwrap_or(HOST)),
        slowest.mb_per_s,
    );
    let found = if slow.is_empty() {
        as_fast(gang, slowest, median, said)
    } else {
        let more = match slow.len() {
            1 => String::new(),
            slow => format!("; {slow} links are slow"),
        };
        finding(code, Outcome::Failed, format!("The slowest: {said}{more}."))
    };
    let slow_pairs = slow.iter().map(|link| {
        let (from, to) = (link.from, link.to);
        (from.min(to), from.max(to))
    });
    Judged {
        finding: Finding {
            weight: Weight::Must,
            unit: Some(Unit::MbPerS),
            measured: Some(number(slowest.mb_per_s)),
            floor: Some(number(floor(slowest))),
            expected: Some(number(median)),
            samples: samples(&links, sorted),
            ..found
        },
        to_blame: to_blame(&slow_pairs.collect()),
    }
}

/// The rates of all links; of very many only the lowest, so that the document stays readable.
fn samples(links: &[Link], sorted: Vec<u64>) -> Vec<i64> {
    if links.len() <= MOST_SAMPLES {
        return links.iter().map(|link| number(link.mb_per_s)).collect();
    }
    sorted.into_iter().take(MOST_SAMPLES).map(number).collect()
}

/// No link is slow; what is to be said all the same.
fn as_fast(gang: &Gang, slowest: &Link, median: u64, said: String) -> Finding {
    let code = FindingCode::NetworkPairs;
    if gang.mode == Mode::Real && slowest.mb_per_s < share(median, ODD_PERCENT, 100) {
        return finding(code, Outcome::Warned, format!("The slowest: {said}."));
    }
    let over_fabric = adapter(gang, slowest.from, slowest.rail).is_some();
    let but = match gang.sold_as.is_rdma() && !over_fabric {
        true => " The adapters of the fabric that was sold have no address: it was not measured.",
        false => "",
    };
    let note = format!("Every pair of nodes is as fast as the others.{but}");
    finding(code, Outcome::Met, note)
}

/// How long each repeat of the sum took the slowest node, microseconds; none where a node has not
/// done it.
fn repeats(gang: &Gang) -> Option<Vec<u64>> {
    let last = gang.rounds() as usize - 1;
    let of_node = |seen| match shown(seen, last) {
        Some(Shown::Ring { repeats_us, .. }) => Some(repeats_us.clone()),
        _ => None,
    };
    let all: Option<Vec<Vec<u64>>> = gang.seen.iter().map(of_node).collect();
    let all = all?;
    let count = all.iter().map(Vec::len).min().filter(|count| *count > 0)?;
    let slowest = |repeat: usize| all.iter().map(|of_node| of_node[repeat]).max();
    (0..count).map(slowest).collect()
}

fn all_reduce(gang: &Gang) -> Judged {
    let code = FindingCode::NetworkAllReduce;
    let last = gang.rounds() as usize - 1;
    let fault_of = |node: usize, note: String| Judged {
        finding: must(finding(code, Outcome::Failed, note)),
        to_blame: vec![node],
    };
    for (node, seen) in gang.seen.iter().enumerate() {
        match shown(seen, last) {
            Some(Shown::Ring { wrong_words, .. }) if *wrong_words > 0 => {
                let said = format!("{wrong_words} words of the sum were wrong at ");
                let note = format!("{said}{}.", name(gang, node));
                return fault_of(node, note);
            }
            Some(Shown::Failed { why }) => {
                let why = plain(why);
                let note = format!("{} could not sum: {why}.", name(gang, node));
                return fault_of(node, note);
            }
            Some(Shown::Pair { .. }) => {
                let note = format!("{} answered another question.", name(gang, node));
                return fault_of(node, note);
            }
            _ => {}
        }
    }
    let Some(mut repeats) = repeats(gang) else {
        return undone(code).into();
    };
    repeats.sort_unstable();
    let median_us = repeats[repeats.len() / 2].max(1);
    let nodes = gang.members.len() as u64;
    let rails = gang.seen.iter().map(|seen| seen.rails.len()).min();
    let bytes = gang.work.ring_bytes * rails.unwrap_or(0) as u64;
    // Bytes per microsecond are 1e6 bytes per second.
    let bus = share(bytes, 2 * (nodes - 1), nodes * median_us);
    let slowest = links(gang).and_then(|links| {
        let slowest = links.measured.into_iter();
        slowest.min_by_key(|link| link.mb_per_s)
    });
    let slowest = slowest.filter(|_| gang.mode == Mode::Real);
    let floor = slowest.as_ref().map(|link| {
        let rails = rails.unwrap_or(0) as u64;
        share(link.mb_per_s.saturating_mul(rails), SUM_PERCENT, 100)
    });
    let found = match (slowest, floor) {
        (Some(link), Some(floor)) if bus < floor => {
            let note = format!(
                "The sum of all nodes goes at {bus} MB/s, though the slowest link, from {} to {} over {}, \
                 carries {} MB/s.",
                name(gang, link.from),
                name(gang, link.to),
                plain(adapter(gang, link.from, link.rail).unwrap_or(HOST)),
                link.mb_per_s
            );
            finding(code, Outcome::Failed, note)
        }
        _ => finding(
            code,
            Outcome::Met,
            "All nodes sum up together, and rightly (own ring over TCP).",
        ),
    };
    let measured = Finding {
        unit: Some(Unit::MbPerS),
        measured: Some(number(bus)),
        floor: floor.map(number),
        ..must(found)
    };
    measured.into()
}

/// Tried out: how much the times of one repeat differ is to be settled on real networks first.
fn jitter(gang: &Gang) -> Finding {
    let code = FindingCode::NetworkJitter;
    let Some(mut repeats) = repeats(gang) else {
        return Finding {
            weight: Weight::Shadow,
            ..undone(code)
        };
    };
    repeats.sort_unstable();
    let at = |percent: usize| repeats[(repeats.len() * percent).div_ceil(100).max(1) - 1];
    let permille = share(at(99), 1_000, at(50));
    let (outcome, note) = match permille > JITTER_PERMILLE {
        true => (
            Outcome::Warned,
            "Now and then the sum takes far longer than usual.",
        ),
        false => (Outcome::Met, "The sum takes about as long every time."),
    };
    Finding {
        weight: Weight::Shadow,
        unit: Some(Unit::Permille),
        measured: Some(number(permille)),
        floor: Some(number(JITTER_PERMILLE)),
        samples: repeats.into_iter().map(number).collect(),
        ..finding(code, outcome, note)
    }
}
