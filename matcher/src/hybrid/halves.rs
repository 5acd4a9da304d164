//! A half of a hybrid demand, searched with all of the tenant's commitments and with fewer of them.
//!
//! Only one half can use a commitment. The half that saves more with it is known once pairs are priced as a
//! whole. So each half is searched with every subset of the commitments that it would use: unused ones make
//! no difference.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use market::capacity::{OpenCommitment, OwnCapacity};
use market::demand::Demand;
use market::ids::CommitmentId;

use crate::MatchError;
use crate::plan::{Candidate, Plan};
use crate::search::SearchOptions;

/// How often a half is searched at most: with every choice of three commitments.
const MOST_SEARCHES: usize = 8;

/// The result for a half.
pub(super) struct Found {
    /// With all commitments, but for the candidates.
    pub(super) plan: Plan,
    /// Those of the plan, best first, and after them those found with fewer commitments.
    pub(super) candidates: Vec<Candidate>,
    /// How many are the plan's.
    pub(super) of_plan: usize,
}

/// Finds a half.
///
/// Errors: [`MatchError`], for a half that no market can satisfy.
pub(super) fn search_half(
    demand: &Demand,
    options: &SearchOptions,
    find: impl Fn(&Demand, &SearchOptions) -> Result<Plan, MatchError>,
) -> Result<Found, MatchError> {
    let mut plan = find(demand, options)?;
    let candidates = std::mem::take(&mut plan.candidates);
    let of_plan = candidates.len();
    let taken = taken_by(&candidates);
    let mut half = Found {
        plan,
        candidates,
        of_plan,
    };
    let without = |more: &BTreeSet<CommitmentId>, taken: &BTreeSet<CommitmentId>| {
        let one_more = taken.iter().map(|id| {
            let mut without = more.clone();
            without.insert(*id);
            without
        });
        one_more.collect::<Vec<_>>()
    };
    // Without any of them first: that search always happens.
    let mut open = VecDeque::from_iter([taken.clone()]);
    open.extend(without(&BTreeSet::new(), &taken));
    let mut seen = BTreeSet::from([BTreeSet::new()]);
    while let Some(left_out) = open.pop_front() {
        if seen.len() == MOST_SEARCHES {
            break;
        }
        if !seen.insert(left_out.clone()) {
            continue;
        }
        let found = find(demand, &leaving_out(options, &left_out))?.candidates;
        open.extend(without(&left_out, &taken_by(&found)));
        half.take_in(found);
    }
    Ok(half)
}

impl Found {
    /// Appends the candidates that are not in the list yet.
    pub(super) fn take_in(&mut self, found: Vec<Candidate>) {
        for candidate in found {
            let mut known = self.candidates.iter();
            if known.all(|known| known.lines != candidate.lines) {
                self.candidates.push(candidate);
            }
        }
    }
}

/// The commitments that pay for nodes of a candidate.
pub(super) fn taken(candidate: &Candidate) -> impl Iterator<Item = CommitmentId> {
    let covered = candidate.lines.iter().filter_map(|line| line.covered);
    covered.map(|covered| covered.commitment_id)
}

fn taken_by(candidates: &[Candidate]) -> BTreeSet<CommitmentId> {
    candidates.iter().flat_map(taken).collect()
}

/// The same options without some commitments.
fn leaving_out(options: &SearchOptions, left_out: &BTreeSet<CommitmentId>) -> SearchOptions {
    let commitments = options.own.commitments.iter().map(|one| {
        let kept = !left_out.contains(&one.commitment.id);
        OpenCommitment {
            nodes_left: if kept { one.nodes_left } else { 0 },
            ..one.clone()
        }
    });
    SearchOptions {
        own: Arc::new(OwnCapacity {
            commitments: commitments.collect(),
            accounts: options.own.accounts.clone(),
        }),
        ..options.clone()
    }
}
