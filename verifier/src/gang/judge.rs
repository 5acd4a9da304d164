//! What the rounds of a gang amount to.

use market::attestation::{Finding, FindingCode, Outcome, Unit, Weight};
use market::verification::Shown;

use super::rounds::pairs_of_round;
use super::{Gang, Seen};
use crate::order::Mode;
use crate::rules::{finding, number, plain, share};

/// Share of the median below which a link is slow. Units: percent. House rule: good links of one
/// fabric lie within some per cent of each other, also over TCP.
const SLOW_PERCENT: u64 = 50;
/// As [`SLOW_PERCENT`] where one machine plays all nodes, whose processes wait for each other.
const SLOW_PERCENT_SIMULATED: u64 = 10;
/// Share of the median below which a link is worth watching. Units: percent.
const ODD_PERCENT: u64 = 70;
/// How much longer than usual a sum may take now and then. Units: thousandths.
const JITTER_PERMILLE: u64 = 3_000;

/// One direction of one rail between two nodes.
struct Link {
    from: usize,
    to: usize,
    rail: usize,
    mb_per_s: u64,
}

/// What was found about a gang, in a fixed order.
pub(super) fn findings(gang: &Gang) -> Vec<Finding> {
    vec![pairs(gang), all_reduce(gang), jitter(gang)]
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

/// Every link that was measured, or the sentence on a pair that could not be.
fn links(gang: &Gang) -> Option<Result<Vec<Link>, String>> {
    let mut links = Vec::new();
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
                return Some(Err(format!(
                    "{} and {} did not get through to each other: {}.",
                    name(gang, a),
                    name(gang, b),
                    why.unwrap_or_else(|| "they do not tell why".to_owned())
                )));
            };
            for (rail, (there, back)) in rates.into_iter().enumerate() {
                links.push(Link {
                    from: a,
                    to: b,
                    rail,
                    mb_per_s: there,
                });
                links.push(Link {
                    from: b,
                    to: a,
                    rail,
                    mb_per_s: back,
                });
            }
        }
    }
    Some(Ok(links))
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

fn pairs(gang: &Gang) -> Finding {
    let code = FindingCode::NetworkPairs;
    let links = match links(gang) {
        None => return undone(code),
        Some(Err(broken)) => {
            return Finding {
                weight: Weight::Must,
                ..finding(code, Outcome::Failed, broken)
            };
        }
        Some(Ok(links)) => links,
    };
    let mut sorted: Vec<u64> = links.iter().map(|link| link.mb_per_s).collect();
    sorted.sort_unstable();
    let Some(slowest) = links.iter().min_by_key(|link| link.mb_per_s) else {
        return undone(code);
    };
    // The upper one of two, so that one slow direction of a single pair is seen.
    let median = sorted[sorted.len() / 2];
    let percent = match gang.mode {
        Mode::Simulation => SLOW_PERCENT_SIMULATED,
        Mode::Real => SLOW_PERCENT,
    };
    let floor = share(median, percent, 100);
    let rails = &gang.seen[slowest.from].rails;
    let rail = rails.get(slowest.rail).map_or("host", |rail| &rail.name);
    let said = format!(
        "{} sends to {} over {} at {} MB/s where the median of all links is {median} MB/s",
        name(gang, slowest.from),
        name(gang, slowest.to),
        plain(rail),
        slowest.mb_per_s,
    );
    let slow = links.iter().filter(|link| link.mb_per_s < floor).count();
    let found = if slow > 0 {
        let more = match slow {
            1 => String::new(),
            slow => format!("; {slow} links are slow"),
        };
        finding(code, Outcome::Failed, format!("The slowest: {said}{more}."))
    } else if gang.mode == Mode::Real && slowest.mb_per_s < share(median, ODD_PERCENT, 100) {
        finding(code, Outcome::Warned, format!("The slowest: {said}."))
    } else {
        finding(
            code,
            Outcome::Met,
            "Every pair of nodes is as fast as the others.",
        )
    };
    Finding {
        weight: Weight::Must,
        unit: Some(Unit::MbPerS),
        measured: Some(number(slowest.mb_per_s)),
        floor: Some(number(floor)),
        expected: Some(number(median)),
        samples: links.iter().map(|link| number(link.mb_per_s)).collect(),
        ..found
    }
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

fn all_reduce(gang: &Gang) -> Finding {
    let code = FindingCode::NetworkAllReduce;
    let last = gang.rounds() as usize - 1;
    let must = |found: Finding| Finding {
        weight: Weight::Must,
        ..found
    };
    for (node, seen) in gang.seen.iter().enumerate() {
        match shown(seen, last) {
            Some(Shown::Ring { wrong_words, .. }) if *wrong_words > 0 => {
                let said = format!("{wrong_words} words of the sum were wrong at ");
                let note = format!("{said}{}.", name(gang, node));
                return must(finding(code, Outcome::Failed, note));
            }
            Some(Shown::Failed { why }) => {
                let why = plain(why);
                let note = format!("{} could not sum: {why}.", name(gang, node));
                return must(finding(code, Outcome::Failed, note));
            }
            Some(Shown::Pair { .. }) => {
                let note = format!("{} answered another question.", name(gang, node));
                return must(finding(code, Outcome::Failed, note));
            }
            _ => {}
        }
    }
    let Some(mut repeats) = repeats(gang) else {
        return undone(code);
    };
    repeats.sort_unstable();
    let median_us = repeats[repeats.len() / 2].max(1);
    let nodes = gang.members.len() as u64;
    let rails = gang.seen.iter().map(|seen| seen.rails.len()).min();
    let bytes = gang.work.ring_bytes * rails.unwrap_or(0) as u64;
    // Bytes per microsecond are 1e6 bytes per second.
    let bus = share(bytes, 2 * (nodes - 1), nodes * median_us);
    Finding {
        unit: Some(Unit::MbPerS),
        measured: Some(number(bus)),
        ..must(finding(
            code,
            Outcome::Met,
            "All nodes sum up together, and rightly (own ring over TCP).",
        ))
    }
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
