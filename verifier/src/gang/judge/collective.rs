//! The judgement of the sum by NCCL over the GPUs of all nodes.
//!
//! A wrong word fails the gang. All else is tried out. Two things must be learnt first: the rate of a good
//! fabric over any path the library takes, and the reasons for which good nodes fail to join.

use market::attestation::{Finding, FindingCode, Outcome, Unit, Weight};

use super::summed::Summed;
use super::{Judged, must, name, undone};
use crate::gang::nccl::Library;
use crate::gang::{Gang, version_words};
use crate::rules::{finding, number};

const CODE: FindingCode = FindingCode::NetworkCollective;
/// The most reasons in a finding.
const MOST_REASONS: usize = 3;

/// Whether all nodes summed by NCCL.
pub(super) fn is_summed(gang: &Gang) -> bool {
    Summed::of_all(gang).rate().is_some()
}

/// None where no node has NCCL.
pub(super) fn collective(gang: &Gang) -> Option<Judged> {
    let apart = |note: String| Some(finding(CODE, Outcome::NotRun, note).into());
    let version = match gang.nccl() {
        Library::Nowhere => return None,
        Library::Missing(node) => {
            let note = format!(
                "{} has no NCCL that others of the gang have: nothing was summed by it.",
                name(gang, node)
            );
            return apart(note);
        }
        Library::Unlike(node) => {
            let versions = [0, node].map(|node| {
                let version = gang.seen[node].nccl.map_or(0, |part| part.version);
                format!("{} has NCCL {}", name(gang, node), version_words(version))
            });
            let note = format!(
                "{}, {}, and versions that differ do not join: nothing was summed by it.",
                versions[0], versions[1]
            );
            return apart(note);
        }
        Library::Unsold(node) => {
            let brings = gang.seen[node].nccl.map_or(0, |part| part.gpus);
            let sold = gang.gpus_sold.unwrap_or(0);
            let note = format!(
                "{} brings {brings} GPUs to a sum by NCCL, and {sold} were sold with each node: nothing was summed \
                 by it.",
                name(gang, node)
            );
            return apart(note);
        }
        Library::Everywhere(version) => version,
    };
    let rounds = gang.rounds();
    if gang.failed_before(rounds.first_of_nccl()) {
        return apart("An earlier measurement failed: nothing was summed by NCCL.".to_owned());
    }
    if gang.failed_before(rounds.of_nccl_sum() - 1) {
        let note = "Nodes that did not sum by NCCL in pairs (net.collective_pairs) were not asked to do so with \
                    all others.";
        return apart(note.to_owned());
    }
    let summed = Summed::of_all(gang);
    if gang.would_mislead(&summed.meeting) {
        let note = format!(
            "The NCCL id of {} does not lead to one of its own addresses: nothing was summed by NCCL.",
            name(gang, 0)
        );
        return apart(note);
    }
    if let Some(wrong) = wrong(gang, &summed) {
        return Some(wrong);
    }
    let found = failure(gang, &summed).or_else(|| rate(gang, &summed, version));
    let found = found.unwrap_or_else(|| undone(CODE));
    let tried_out = Finding {
        weight: Weight::Shadow,
        ..found
    };
    Some(tried_out.into())
}

/// Wrong words. All nodes have one GPU's wrong contribution in their sums, and the node that made it may
/// report a right sum. So nobody in particular is to blame, unless all but one of three or more nodes have
/// the right sum, which is impossible with a wrong contribution.
fn wrong(gang: &Gang, summed: &Summed) -> Option<Judged> {
    let all = summed.wrong_words().into_iter();
    let (right, wrong): (Vec<_>, Vec<_>) = all.partition(|(_, words)| *words == 0);
    let (first, words) = *wrong.first()?;
    let others = gang.members.len() - 1;
    let alone = others >= 2 && right.len() == others;
    let where_else = match (alone, wrong.len()) {
        (true, _) => ", and at no other node: it receives or keeps them wrongly".to_owned(),
        (false, 1) => ": whose GPU or which way made them so is not shown".to_owned(),
        (false, nodes) => format!(
            ", and such at {} more: whose GPU or which way made them so is not shown",
            nodes - 1
        ),
    };
    let note = format!(
        "{words} words of NCCL's sum of {} were wrong at {}{where_else}.",
        summed.payload(),
        name(gang, first)
    );
    Some(Judged {
        finding: must(finding(CODE, Outcome::Failed, note)),
        to_blame: if alone { vec![first] } else { Vec::new() },
    })
}

/// The reasons why nodes did not sum.
fn failure(gang: &Gang, summed: &Summed) -> Option<Finding> {
    let reasons = summed.reasons();
    let told = reasons.iter().take(MOST_REASONS).map(|(why, nodes)| {
        let more = match nodes.len() {
            1 => String::new(),
            nodes => format!(" and {} more", nodes - 1),
        };
        format!("{}{more}: {why}", name(gang, nodes[0]))
    });
    let told: Vec<String> = told.collect();
    let note = format!(
        "NCCL did not sum {} at {}.",
        summed.payload(),
        told.join("; ")
    );
    (!told.is_empty()).then(|| finding(CODE, Outcome::Failed, note))
}

/// The rate of their sum; none while nodes have not summed.
fn rate(gang: &Gang, summed: &Summed, version: u32) -> Option<Finding> {
    let rate = summed.rate()?;
    let said = format!(
        "By NCCL {}, over its own choice of path, {} GPUs of {} nodes sum up {} rightly at a bus rate of {} MB/s: \
         at least {} MB/s between nodes for each GPU",
        version_words(version),
        summed.ranks(),
        gang.members.len(),
        summed.payload(),
        rate.bus,
        rate.carried
    );
    let floor = rate.floor();
    let found = match (floor, gang.sold_as.gbps_per_gpu()) {
        (Some(floor), Some(gbps)) if rate.carried < floor => {
            let note = format!("{said}, where adapters of {gbps} Gb/s for each were sold.");
            finding(CODE, Outcome::Failed, note)
        }
        _ => finding(CODE, Outcome::Met, format!("{said}.")),
    };
    Some(Finding {
        unit: Some(Unit::MbPerS),
        measured: Some(number(rate.carried)),
        floor: floor.map(number),
        expected: rate.expected.map(number),
        samples: rate.repeats_us.into_iter().map(number).collect(),
        ..found
    })
}
