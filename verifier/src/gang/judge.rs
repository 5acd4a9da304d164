//! The judgement of a gang's rounds. The results of pairs are in `pairs`, those of all nodes' GPUs by NCCL in
//! `collective`, and those of pairs by NCCL in `collective_pairs`.

mod collective;
mod collective_pairs;
mod fabric;
mod pairs;
mod summed;

use std::collections::BTreeSet;
use std::iter;

use market::attestation::{Finding, FindingCode, Outcome, Unit, Weight};
use market::verification::Shown;

use super::{Gang, Seen};
use crate::median;
use crate::order::Mode;
use crate::plain::plain;
use crate::rules::{finding, number, share};
use pairs::{Link, adapter_words, links, pairs};

/// The least share of the slowest link's rate that the sum of all nodes reaches, on real networks. Units:
/// thousandths. House rule: a node sums up each rail on one core, one connection and one piece after the
/// other; good nodes are many times as fast.
const SUM_PERMILLE: u64 = 5;
/// How much longer than usual a sum may occasionally take. Units: thousandths.
const JITTER_PERMILLE: u64 = 3_000;

/// A finding on a gang, and the nodes to blame.
pub(super) struct Judged {
    pub(super) finding: Finding,
    /// The nodes to blame for a failure; empty when it is nobody's fault in particular.
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

/// The findings on a gang, in a fixed order.
pub(super) fn judged(gang: &Gang) -> Vec<Judged> {
    let mut all = vec![pairs(gang), all_reduce(gang)];
    all.extend(collective::collective(gang));
    all.extend(collective_pairs::collective_pairs(gang));
    all.push(jitter(gang).into());
    all.extend(fabric::fabric(gang).map(Judged::from));
    all.extend(in_time(gang));
    all
}

/// The nodes to blame for bad pairs: of the two ends the one that has more of them, or both.
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

/// A node's name in a sentence.
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

fn must(finding: Finding) -> Finding {
    Finding {
        weight: Weight::Must,
        ..finding
    }
}

/// The rate of the slowest link between two nodes; none while pairs have not been measured.
pub(super) fn slowest_mb_per_s(gang: &Gang) -> Option<u64> {
    let rates = links(gang)?.measured.into_iter().map(|link| link.mb_per_s);
    rates.min()
}

/// How long each repeat of a round's sum took the slowest of these nodes, microseconds; none where one of
/// them has no result.
fn repeats(gang: &Gang, nodes: impl Iterator<Item = usize>, round: u32) -> Option<Vec<u64>> {
    let of_node = |node: usize| match shown(&gang.seen[node], round as usize) {
        Some(Shown::Ring { repeats_us, .. } | Shown::NcclSum { repeats_us, .. }) => {
            Some(repeats_us.clone())
        }
        _ => None,
    };
    let all: Option<Vec<Vec<u64>>> = nodes.map(of_node).collect();
    let all = all?;
    let count = all.iter().map(Vec::len).min().filter(|count| *count > 0)?;
    let slowest = |repeat: usize| all.iter().map(|of_node| of_node[repeat]).max();
    (0..count).map(slowest).collect()
}

/// The node whose sums took more than twice as long as those of each other one, by their medians, and the
/// time of the slowest other node, microseconds; none for two nodes, since either may be it.
///
/// All nodes wait for each other round the ring, so all take about as long. A node that reports otherwise
/// invents its times, or reads its clock late, unless all others do together.
fn alone_slow(gang: &Gang) -> Option<(usize, u64)> {
    let ring = gang.rounds().ring();
    let median = |node: usize| median::upper(&repeats(gang, iter::once(node), ring)?);
    let medians: Option<Vec<u64>> = (0..gang.seen.len()).map(median).collect();
    let medians = medians.filter(|medians| medians.len() > 2)?;
    let (node, slowest) = medians.iter().enumerate().max_by_key(|(_, us)| **us)?;
    let others = medians
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != node);
    let next = others.map(|(_, us)| *us).max()?;
    (*slowest > next.saturating_mul(2)).then_some((node, next))
}

/// As [`repeats`], of the sum of all round a ring.
fn ring_repeats(gang: &Gang) -> Option<Vec<u64>> {
    repeats(gang, 0..gang.seen.len(), gang.rounds().ring())
}

/// Nodes whose sums are wrong or failed, and why; none where all are good.
///
/// All nodes see a wrong contribution of one, except nodes that hide it; and where one stops, the others wait
/// in vain. So several bad sums are nobody's fault in particular. An error that one node alone sees came last
/// to it, over the link from the node before.
fn bad_sums(gang: &Gang, code: FindingCode) -> Option<Judged> {
    let nodes = gang.members.len();
    let round = gang.rounds().ring() as usize;
    let of = |bad: fn(&Shown) -> Option<String>| {
        let seen = gang.seen.iter().enumerate();
        let bad = seen.filter_map(|(node, seen)| Some((node, bad(shown(seen, round)?)?)));
        bad.collect::<Vec<(usize, String)>>()
    };
    let failed = |note: String, to_blame: Vec<usize>| Judged {
        finding: must(finding(code, Outcome::Failed, note)),
        to_blame,
    };
    let others = of(|shown| match shown {
        Shown::Pair { .. } | Shown::NcclId { .. } | Shown::NcclSum { .. } => Some(String::new()),
        Shown::Ring { .. } | Shown::Failed { .. } => None,
    });
    if let Some((node, _)) = others.first() {
        let note = format!("{} answered another question.", name(gang, *node));
        return Some(failed(note, vec![*node]));
    }
    let wrong = of(|shown| match shown {
        Shown::Ring { wrong_words, .. } if *wrong_words > 0 => Some(wrong_words.to_string()),
        _ => None,
    });
    if let Some((node, words)) = wrong.first() {
        let said = format!(
            "{words} words of the sum were wrong at {}",
            name(gang, *node)
        );
        let before = (node + nodes - 1) % nodes;
        return Some(match wrong.len() {
            1 if nodes > 2 => {
                let note = format!(
                    "{said} alone, to which they came from {}.",
                    name(gang, before)
                );
                failed(note, vec![*node, before])
            }
            1 => failed(format!("{said}."), Vec::new()),
            more => failed(format!("{said} and {} more.", more - 1), Vec::new()),
        });
    }
    // The nodes that kept others waiting are named for it: that the others waited in vain adds nothing.
    if !gang.late.is_empty() {
        return None;
    }
    let broken = of(|shown| match shown {
        Shown::Failed { why } => Some(plain(why)),
        _ => None,
    });
    let is_untrue = |node: usize| gang.seen[node].untrue.contains(&gang.rounds().ring());
    let named = broken.iter().find(|(node, _)| is_untrue(*node));
    let (node, why) = named.or(broken.first())?;
    let untrue = broken.iter().map(|(node, _)| *node);
    let untrue: Vec<usize> = untrue.filter(|node| is_untrue(*node)).collect();
    let said = name(gang, *node);
    let before = (node + nodes - 1) % nodes;
    Some(match broken.len() {
        1 if !untrue.is_empty() => failed(format!("{said} could not sum: {why}."), untrue),
        1 if nodes > 2 => {
            let note = format!(
                "{said} alone could not sum: {why}. What it waits for comes from {}.",
                name(gang, before)
            );
            failed(note, vec![*node, before])
        }
        1 => failed(format!("{said} could not sum: {why}."), Vec::new()),
        more => {
            let note = format!("{said} and {} more could not sum: {why}.", more - 1);
            failed(note, untrue)
        }
    })
}

fn all_reduce(gang: &Gang) -> Judged {
    let code = FindingCode::NetworkAllReduce;
    if let Some(bad) = bad_sums(gang, code) {
        return bad;
    }
    let repeats = ring_repeats(gang).unwrap_or_default();
    let Some(median_us) = median::upper(&repeats) else {
        return undone(code).into();
    };
    let nodes = gang.members.len() as u64;
    let rails = gang.seen.iter().map(|seen| seen.rails.len()).min();
    let bytes = gang.work.ring_bytes * rails.unwrap_or(0) as u64;
    // Bytes per microsecond are 1e6 bytes per second.
    let bus_in = |us: u64| share(bytes, 2 * (nodes - 1), nodes * us.max(1));
    let bus = bus_in(median_us);
    let slowest = links(gang).and_then(|links| {
        let slowest = links.measured.into_iter();
        slowest.min_by_key(|link| link.mb_per_s)
    });
    let slowest = slowest.filter(|_| gang.mode == Mode::Real);
    let floor = slowest.as_ref().map(|link| {
        let rails = rails.unwrap_or(0) as u64;
        share(link.mb_per_s.saturating_mul(rails), SUM_PERMILLE, 1_000)
    });
    let (found, to_blame) = match (slowest, floor) {
        (Some(link), Some(floor)) if bus < floor => {
            // Where the others are too slow as well, one node is not the cause.
            let alone = alone_slow(gang).filter(|(_, next_us)| bus_in(*next_us) >= floor);
            let alone = alone.map(|(node, _)| node);
            let note = slow_sum(gang, alone, (bus, &link));
            let found = finding(code, Outcome::Failed, note);
            (found, alone.into_iter().collect())
        }
        _ => {
            let note = "All nodes sum up together, and rightly (own ring over TCP).";
            (finding(code, Outcome::Met, note), Vec::new())
        }
    };
    let measured = Finding {
        unit: Some(Unit::MbPerS),
        measured: Some(number(bus)),
        floor: floor.map(number),
        ..must(found)
    };
    Judged {
        finding: measured,
        to_blame,
    }
}

/// The text for a sum at this many MB/s, though the slowest link carries more: by one node's report, or by
/// all.
fn slow_sum(gang: &Gang, alone: Option<usize>, (bus, link): (u64, &Link)) -> String {
    let by_whom = alone
        .map(|node| format!(", by what {} alone tells of its sums", name(gang, node)))
        .unwrap_or_default();
    format!(
        "The sum of all nodes goes at {bus} MB/s{by_whom}, though the slowest link, from {} to {} over {}, carries {} \
         MB/s.",
        name(gang, link.from),
        name(gang, link.to),
        adapter_words(gang, link.from, link.rail),
        link.mb_per_s
    )
}

/// Tried out: how much the times of one repeat differ must first be learnt on real networks.
fn jitter(gang: &Gang) -> Finding {
    let code = FindingCode::NetworkJitter;
    let Some(mut repeats) = ring_repeats(gang) else {
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
            "The sum sometimes takes far longer than usual.",
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
