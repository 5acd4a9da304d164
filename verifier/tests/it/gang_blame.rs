//! Which nodes are to blame for a gang's results, and that no node can speak for another one.

use std::cell::RefCell;
use std::collections::BTreeSet;

use market::attestation::{FindingCode, Outcome, Verdict};
use market::verification::{Digest, GangAnswer, Measure, Shown};

use crate::gang::found;
use crate::gang_players::{Played, well};

/// The sum's outcome in the document of each node.
fn sums(played: &Played) -> Vec<Outcome> {
    let of = |node: usize| {
        let findings = played.gang.findings_of(node).into_iter();
        let mut sums = findings.filter(|found| found.code == FindingCode::NetworkAllReduce);
        sums.next().expect("a finding").outcome
    };
    (0..played.calls.len()).map(of).collect()
}

fn ring(wrong_words: u64) -> Shown {
    Shown::Ring {
        repeats_us: vec![20_000; 20],
        wrong_words,
    }
}

fn broken() -> Shown {
    Shown::Failed {
        why: "the time was over".to_owned(),
    }
}

/// A gang of this many nodes, each with this result of the sum.
fn summed(shown: &[Shown]) -> (Verdict, Played) {
    let mut played = Played::new(shown.len() as u8);
    let verdict = played.play(|node, measure| match measure {
        Measure::Ring { .. } => shown[node as usize].clone(),
        measure => well(measure),
    });
    (verdict, played)
}

#[test]
fn what_one_node_brings_wrongly_is_not_blamed_on_those_that_see_it() {
    use Outcome::{Failed, Noted};
    // The node that contributed it may hide it.
    for shown in [
        [ring(0), ring(7), ring(7), ring(7)],
        [ring(7), ring(7), ring(0), ring(0)],
        [ring(7), ring(7), ring(7), ring(7)],
    ] {
        let (verdict, played) = summed(&shown);
        assert_eq!((verdict, sums(&played)), (Verdict::Fail, vec![Failed; 4]));
    }
    // An error that one node alone saw came over the link from the node before.
    let (verdict, played) = summed(&[ring(7), ring(0), ring(0), ring(0)]);
    assert_eq!(verdict, Verdict::Fail);
    assert_eq!(sums(&played), [Failed, Noted, Noted, Failed]);
    // With two nodes, each is the one before.
    let (_, played) = summed(&[ring(7), ring(0)]);
    assert_eq!(sums(&played), [Failed, Failed]);
}

#[test]
fn nodes_that_wait_in_vain_for_one_that_is_gone_are_not_to_blame() {
    use Outcome::{Failed, Met, NotRun, Noted};
    let (verdict, played) = summed(&[broken(), broken(), ring(0), ring(0)]);
    assert_eq!((verdict, sums(&played)), (Verdict::Fail, vec![Failed; 4]));
    // One alone waits at the end, for data that the node before it held back, or reports so: no other node
    // was involved.
    let (_, played) = summed(&[ring(0), broken(), ring(0), ring(0)]);
    assert_eq!(sums(&played), [Failed, Failed, Noted, Noted]);
    let note = found(&played.gang, FindingCode::NetworkAllReduce).note;
    let said = "What it waits for comes from node 0 (10.0.0.1).";
    assert!(note.ends_with(said), "{note}");
    let (_, played) = summed(&[ring(0), broken()]);
    assert_eq!(sums(&played), [Failed, Failed]);

    // One never reports its result, and the others report that they waited for it.
    let mut played = Played::new(4);
    for _ in 0..50 {
        for node in 0..4 {
            let answer = played.gang.on_call(&played.calls[node]).expect("an answer");
            let GangAnswer::Measure { round } = answer else {
                continue;
            };
            let is_sum = matches!(round.measure, Measure::Ring { .. });
            if is_sum && node == 2 {
                continue;
            }
            played.calls[node].done = Some(market::verification::RoundDone {
                round: round.number,
                shown: if is_sum {
                    broken()
                } else {
                    well(&round.measure)
                },
            });
        }
    }
    assert_eq!(played.gang.give_up(), Verdict::Fail);
    assert_eq!(sums(&played), vec![NotRun; 4]);
    let late = |node: usize| {
        let findings = played.gang.findings_of(node).into_iter();
        let mut late = findings.filter(|found| found.code == FindingCode::StepTimedOut);
        late.next().expect("a finding").outcome
    };
    assert_eq!([0, 1, 2, 3].map(late), [Noted, Noted, Failed, Noted]);
    let (verdict, played) = summed(&[ring(0), ring(0)]);
    assert_eq!((verdict, sums(&played)), (Verdict::Pass, vec![Met; 2]));
}

#[test]
fn who_repeats_less_than_it_was_asked_to_has_not_summed() {
    let fewer = Shown::Ring {
        repeats_us: vec![20_000; 19],
        wrong_words: 0,
    };
    use Outcome::{Failed, Noted};
    let (verdict, played) = summed(&[ring(0), fewer.clone(), ring(0)]);
    assert_eq!(verdict, Verdict::Fail);
    assert_eq!(sums(&played), [Noted, Failed, Noted]);
    // A node that does not sum beside it may have waited for it.
    let (_, played) = summed(&[broken(), fewer, ring(0)]);
    assert_eq!(sums(&played), [Noted, Failed, Noted]);
    let note = found(&played.gang, FindingCode::NetworkAllReduce).note;
    let said = "node 1 (10.0.0.2) and 1 more could not sum: it reports 19 of 20 sums.";
    assert_eq!(note, said);
}

#[test]
fn only_the_two_ends_of_a_connection_know_how_it_begins() {
    let mut played = Played::new(5);
    // Which node knows which secret of connections: the node, and the two ends of the connection.
    let known = RefCell::new(Vec::<(u32, (u32, u32), Digest)>::new());
    for _ in 0..100 {
        for node in 0..5 {
            let answer = played.gang.on_call(&played.calls[node]).expect("an answer");
            let GangAnswer::Measure { round } = answer else {
                continue;
            };
            let own = round.node;
            match &round.measure {
                Measure::Pair { sibling, .. } => {
                    let ends = (own.min(sibling.node), own.max(sibling.node));
                    known.borrow_mut().push((own, ends, round.secret));
                }
                Measure::Ring {
                    to_next,
                    from_before,
                    ..
                } => {
                    let (before, next) = ((own + 4) % 5, (own + 1) % 5);
                    let mut known = known.borrow_mut();
                    // Separate from those of pairs: they belong to another round.
                    known.push((own, (100 + own, 100 + next), *to_next));
                    known.push((own, (100 + before, 100 + own), *from_before));
                }
                _ => {}
            }
            played.calls[node].done = Some(market::verification::RoundDone {
                round: round.number,
                shown: well(&round.measure),
            });
        }
    }
    let known = known.into_inner();
    let secrets: BTreeSet<[u8; 32]> = known.iter().map(|(_, _, secret)| secret.0).collect();
    assert_eq!(secrets.len(), 10 + 5, "one for each two");
    for secret in secrets {
        let of = known.iter().filter(|(_, _, one)| one.0 == secret);
        let ends: BTreeSet<(u32, u32)> = of.clone().map(|(_, ends, _)| *ends).collect();
        let nodes: BTreeSet<u32> = of.map(|(node, _, _)| *node).collect();
        assert_eq!((ends.len(), nodes.len()), (1, 2), "{ends:?} {nodes:?}");
    }
}
