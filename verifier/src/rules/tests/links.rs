//! Real layouts of ports to other nodes, pairs of GPUs of unknown rate, and the agent's own sum.

use market::verification::{CollectiveAlgorithm, CollectiveOperation, CollectiveRate, PortFacts};

use super::changes::port;
use super::*;

/// Eight GPUs at 400 Gb/s each, over real layouts of ports: the count of each rate.
#[test]
fn ports_may_be_fewer_faster_or_double_and_those_for_storage_stand_in_for_none() {
    let outcome = |rates: &[(u32, usize)], down: Option<usize>| {
        let (findings, _) = judged(|e| {
            let one = port(e).clone();
            let of = |gbps| PortFacts {
                rate_gbps: Some(gbps),
                ..one.clone()
            };
            let ports = rates
                .iter()
                .flat_map(|(gbps, count)| vec![of(*gbps); *count]);
            let mut ports: Vec<_> = ports.collect();
            if let Some(down) = down {
                ports[down].active = false;
            }
            facts(e).host.ports = Some(ports);
        });
        let found = findings
            .iter()
            .find(|found| found.code == FindingCode::NetworkPorts);
        let found = found.expect("judged");
        (found.outcome, found.measured, found.floor)
    };
    use Outcome::{Failed, Met, Warned};
    for (rates, up, wanted) in [
        (&[(400, 8), (200, 2)][..], 8, 8),
        (&[(400, 8), (100, 1)], 8, 8),
        (&[(400, 10)], 10, 8),
        (&[(800, 4)], 4, 4),
        (&[(800, 4), (400, 2)], 4, 4),
        (&[(200, 16)], 16, 16),
        (&[(200, 16), (400, 2)], 16, 16),
        (&[(100, 32)], 32, 32),
    ] {
        assert_eq!(
            outcome(rates, None),
            (Met, Some(up), Some(wanted)),
            "{rates:?}"
        );
    }
    for rates in [
        &[(400, 8), (200, 2)][..],
        &[(400, 8), (200, 4)],
        &[(800, 4), (400, 2)],
        &[(200, 16), (400, 2)],
    ] {
        assert_eq!(outcome(rates, Some(0)).0, Failed, "{rates:?}");
    }
    // Which of ten equal ones are for storage is unknown.
    assert_eq!(outcome(&[(400, 10)], Some(0)).0, Warned);
    assert_eq!(outcome(&[(0, 8)], None).0, Failed);
}

#[test]
fn a_pair_far_below_its_siblings_shows_where_nobody_knows_the_rate_of_any() {
    let of = |gpu: &str, gpus: u32, share: f64| {
        let gpu = Gpu::parse(gpu).expect("known");
        let mut order = order();
        order.expected = expected_node(gpu, gpus);
        let kind = Kind {
            gpu,
            gpus,
            internode: Internode::None,
            ..kind()
        };
        let mut evidence = good();
        report(&mut evidence).facts =
            Some(Box::new(pretend::node(&kind, &mut SeededRng::new(b"few"))));
        let pairs = facts(&mut evidence).pairs.as_mut().expect("pairs");
        pairs[1].mb_per_s = (pairs[1].mb_per_s as f64 * share) as u64;
        let findings = findings(&evidence, &order, false);
        let found = findings
            .iter()
            .find(|found| found.code == FindingCode::PairRates);
        found.expect("judged").outcome
    };
    use Outcome::{Failed, Met, Noted, Warned};
    // Four of a board of eight, and boards of four: all pairs are joined alike.
    for gpu in ["H100-SXM", "A100-SXM-80"] {
        for gpus in [2, 4] {
            assert_eq!(of(gpu, gpus, 1.0), Met, "{gpus} {gpu}");
            assert_eq!(of(gpu, gpus, 0.55), Met, "{gpus} {gpu}");
            assert_eq!(of(gpu, gpus, 0.45), Failed, "{gpus} {gpu}");
        }
    }
    // Bridges, meshes and sockets make pairs differ.
    for (gpu, gpus) in [
        ("H100-NVL", 4),
        ("V100-SXM2-32", 8),
        ("RTX-A6000", 2),
        ("L40S", 8),
    ] {
        assert_eq!(of(gpu, gpus, 0.3), Noted, "{gpus} {gpu}");
        assert_eq!(of(gpu, gpus, 0.1), Warned, "{gpus} {gpu}");
    }
}

/// Nobody has measured the agent's own ring on a good node: its sum must be right, its rate is tried out.
#[test]
fn the_rate_of_the_agents_own_sum_decides_nothing_and_its_words_do() {
    let with_own = |nccl_too: bool, change: fn(&mut CollectiveRate)| {
        let (findings, verdict) = judged(|e| {
            let runs = &mut facts(e).collectives;
            let mut own = CollectiveRate {
                algorithm: CollectiveAlgorithm::OwnRing,
                ..runs[0].clone()
            };
            change(&mut own);
            match nccl_too {
                true => runs.push(own),
                false => *runs = vec![own],
            }
        });
        let mut sums = findings.iter();
        let sum = sums.find(|found| found.code == FindingCode::AllReduce);
        let sum = sum.expect("judged");
        (sum.outcome, sum.weight, verdict)
    };
    let slow: fn(&mut CollectiveRate) = |own| own.bus_mb_per_s = 1_000;
    let alone = with_own(false, slow);
    assert_eq!(alone, (Outcome::Failed, Weight::Shadow, Verdict::Pass));
    let beside = with_own(true, slow);
    assert_eq!(beside, (Outcome::Met, Weight::May, Verdict::Pass));
    let wrong = with_own(false, |own| own.wrong_elements = 1);
    assert_eq!(wrong, (Outcome::Failed, Weight::May, Verdict::Fail));
    let unbelievable = with_own(false, |own| own.bus_mb_per_s = 1_000_000);
    let open = (Outcome::NotRun, Weight::Must, Verdict::Inconclusive);
    assert_eq!(unbelievable, open);
}

fn sum_of(change: impl FnOnce(&mut Evidence), level: Level) -> Finding {
    let mut evidence = good();
    change(&mut evidence);
    let findings = findings(&evidence, &order_at(level), false);
    let mut findings = findings.into_iter();
    let sum = findings.find(|found| found.code == FindingCode::AllReduce);
    sum.expect("judged")
}

#[test]
fn what_nccl_does_beside_its_sum_is_told_and_one_that_deep_misses_is_named() {
    let all = sum_of(|_| {}, Level::Deep);
    assert_eq!(all.outcome, Outcome::Met);
    for name in ["scattered sum", "gathering", "broadcast", "sum for one GPU"] {
        assert!(all.note.contains(&format!("{name} ")), "{}", all.note);
    }
    let without = |e: &mut Evidence| {
        let runs = &mut facts(e).collectives;
        runs.retain(|run| run.operation != CollectiveOperation::AllGather);
    };
    let missed = sum_of(without, Level::Deep);
    assert_eq!(missed.outcome, Outcome::NotRun);
    let said = missed
        .note
        .starts_with("NCCL did not do its gathering. The rate");
    assert!(said && missed.measured == all.measured, "{missed:?}");
    // A slow operation still fails.
    let and_slow = |e: &mut Evidence| {
        without(e);
        facts(e).collectives[0].bus_mb_per_s = 1_000;
    };
    assert_eq!(sum_of(and_slow, Level::Deep).outcome, Outcome::Failed);
    // A rate barely above the floor still warns, and one that decides nothing yet leaves the check open.
    let floor = all.floor.expect("a floor").unsigned_abs();
    let and_barely = |e: &mut Evidence| {
        without(e);
        facts(e).collectives[0].bus_mb_per_s = floor + 1;
    };
    let barely = |e: &mut Evidence| facts(e).collectives[0].bus_mb_per_s = floor + 1;
    assert_eq!(sum_of(barely, Level::Deep).outcome, Outcome::Warned);
    let found = sum_of(and_barely, Level::Deep);
    assert_eq!(found.outcome, Outcome::Warned, "{found:?}");
    assert!(
        found.note.starts_with("NCCL did not do its gathering. "),
        "{found:?}"
    );
    let open = (Outcome::NotRun, Weight::May);
    let and_own_slow = |e: &mut Evidence| {
        let own = &mut facts(e).collectives[0];
        own.algorithm = CollectiveAlgorithm::OwnRing;
        own.bus_mb_per_s = 1_000;
    };
    let found = sum_of(and_own_slow, Level::Deep);
    assert_eq!((found.outcome, found.weight), open, "{found:?}");
    assert!(
        found.note.starts_with("NCCL did not do its sum. "),
        "{found:?}"
    );
    // And an implausible rate is not believed.
    let and_too_fast = |e: &mut Evidence| {
        without(e);
        facts(e).collectives[0].bus_mb_per_s = 9_000_000;
    };
    let beyond = sum_of(and_too_fast, Level::Deep);
    let weight = (beyond.outcome, beyond.weight);
    assert_eq!(weight, (Outcome::NotRun, Weight::Must), "{beyond:?}");
    assert!(beyond.note.starts_with("NCCL did not do its gathering."));
    assert_eq!(sum_of(without, Level::Standard).outcome, Outcome::Met);
    // A node without NCCL is not asked for it.
    let by_own = |e: &mut Evidence| {
        let runs = &mut facts(e).collectives;
        runs.truncate(1);
        runs[0].algorithm = CollectiveAlgorithm::OwnRing;
    };
    assert_eq!(sum_of(by_own, Level::Deep).outcome, Outcome::Met);
    let wrong = |e: &mut Evidence| {
        let mut runs = facts(e).collectives.iter_mut();
        let run = runs.find(|run| run.operation == CollectiveOperation::Broadcast);
        run.expect("told").wrong_elements = 2;
    };
    let wrong = sum_of(wrong, Level::Deep);
    assert_eq!(wrong.note, "Elements of NCCL's broadcast are wrong: 2.");
}
