//! The judgement of simulated nodes of a gang, without a socket.

use market::attestation::{FindingCode, Outcome, Verdict, Weight};
use market::fabric::Internode;
use market::verification::{GangAnswer, Level, Measure, Rail, Shown};
use verifier::gang::{CallRefused, Gang};
use verifier::jws::Signer;
use verifier::order::Mode;

use crate::gang::found;
use crate::gang_players::*;
use crate::stage::opening;

#[test]
fn gangs_of_every_size_are_led_to_the_end() {
    for nodes in 2..=9 {
        let mut played = Played::new(nodes);
        assert_eq!(
            played.play(|_, measure| well(measure)),
            Verdict::Pass,
            "{nodes}"
        );
        let links = found(&played.gang, FindingCode::NetworkPairs).samples.len();
        assert_eq!(links, usize::from(nodes) * usize::from(nodes - 1));
    }
}

#[test]
fn either_end_of_a_slow_direction_tells() {
    let slow = |node: u32, measure: &Measure| match measure {
        // Node 2 reports that it sends to node 0 at full speed, and node 0 receives slowly.
        Measure::Pair { sibling, .. } if (node, sibling.node) == (0, 2) => Shown::Pair {
            sent_mb_per_s: vec![10_000],
            received_mb_per_s: vec![4_900],
        },
        measure => well(measure),
    };
    let mut played = Played::new(3);
    assert_eq!(played.play(slow), Verdict::Fail);
    let note = found(&played.gang, FindingCode::NetworkPairs).note;
    let said = "node 2 (10.0.0.3) sends to node 0 (10.0.0.1) over mlx5_0 at 4900 MB/s";
    assert!(note.contains(said), "{note}");
}

#[test]
fn a_wrong_sum_and_a_pair_without_a_way_fail() {
    let wrong = |node, measure: &Measure| match measure {
        Measure::Ring { .. } if node == 1 => Shown::Ring {
            repeats_us: vec![20_000; 20],
            wrong_words: 3,
        },
        measure => well(measure),
    };
    let mut played = Played::new(3);
    assert_eq!(played.play(wrong), Verdict::Fail);
    let sum = found(&played.gang, FindingCode::NetworkAllReduce);
    assert_eq!(sum.outcome, Outcome::Failed);
    assert!(sum.note.contains("node 1 (10.0.0.2)"), "{}", sum.note);

    let cut = |node, measure: &Measure| match measure {
        Measure::Pair { sibling, .. } if node + sibling.node == 1 => Shown::Failed {
            why: "connection refused".to_owned(),
        },
        measure => well(measure),
    };
    let mut played = Played::new(3);
    assert_eq!(played.play(cut), Verdict::Fail);
    let note = found(&played.gang, FindingCode::NetworkPairs).note;
    let said = "node 0 (10.0.0.1) and node 1 (10.0.0.2) did not get through to each other: connection refused";
    assert!(note.contains(said), "{note}");
}

#[test]
fn strangers_and_addresses_of_nobody_are_refused() {
    let mut played = Played::new(2);
    let mut stranger = played.calls[0].clone();
    let key = Signer::from_seed(&[77; 32]).public_key();
    stranger.agent_key = key.to_agent_key().expect("a key");
    assert_eq!(played.gang.on_call(&stranger), Err(CallRefused::Stranger));
    for address in [
        "127.0.0.1:40000",
        "0.0.0.0:40000",
        "10.0.0.1:22",
        "example.org:40000",
    ] {
        let mut call = played.calls[0].clone();
        call.rails[0].address = address.to_owned();
        let refused = played.gang.on_call(&call);
        assert!(
            matches!(refused, Err(CallRefused::Malformed(_))),
            "{address}"
        );
    }
}

#[test]
fn of_a_slow_pair_both_nodes_fail_and_of_a_slow_node_that_one() {
    let code = FindingCode::NetworkPairs;
    let outcomes = |slow: fn(u32, u32) -> bool| {
        let show = |node: u32, measure: &Measure| match measure {
            Measure::Pair { sibling, .. } if slow(node, sibling.node) => Shown::Pair {
                sent_mb_per_s: vec![900],
                received_mb_per_s: vec![10_000],
            },
            measure => well(measure),
        };
        let mut played = Played::new(5);
        assert_eq!(played.play(show), Verdict::Fail);
        (0..5)
            .map(|node| of_node(&played.gang, node, code))
            .collect::<Vec<_>>()
    };
    let (bad, fine) = (Outcome::Failed, Outcome::Noted);
    let pair = outcomes(|node, other| (node, other) == (3, 1));
    assert_eq!(pair, [fine, bad, fine, bad, fine]);
    let node = outcomes(|node, _| node == 3);
    assert_eq!(node, [fine, fine, fine, bad, fine]);
}

#[test]
fn a_link_that_is_far_below_the_fabric_that_was_sold_fails_though_all_are_alike() {
    let played = |sold: Internode, mb_per_s: u64| {
        let mut played = Played::new(3);
        played.gang = played.gang.clone().sold_as(sold);
        let verdict = played.play(|_, measure| match measure {
            Measure::Pair { connections, .. } if *connections < 16 => Shown::Failed {
                why: "too few connections for a comparison".to_owned(),
            },
            Measure::Pair { .. } => Shown::Pair {
                sent_mb_per_s: vec![mb_per_s],
                received_mb_per_s: vec![mb_per_s],
            },
            measure => well(measure),
        });
        (
            verdict,
            found(&played.gang, FindingCode::NetworkPairs).floor,
        )
    };
    // 5 % of 400 Gb/s are 2,500 MB/s.
    let ndr = Internode::InfinibandNdr400;
    assert_eq!(played(ndr, 2_499), (Verdict::Fail, Some(2_500)));
    assert_eq!(played(ndr, 2_500), (Verdict::Pass, Some(2_500)));
    // Plain Ethernet has no published rate; half of the others' rate is the limit.
    assert_eq!(played(Internode::Ethernet, 100), (Verdict::Pass, Some(50)));
}

/// Three good nodes that were sold with a fabric, of which this many have no address on their adapters.
fn without_addresses(sold: Internode, nodes: usize) -> (Verdict, Gang) {
    let mut played = Played::new(3);
    played.gang = played.gang.clone().sold_as(sold);
    for call in &mut played.calls[..nodes] {
        call.rails[0].name = "host".to_owned();
    }
    (played.play(|_, measure| well(measure)), played.gang)
}

#[test]
fn a_fabric_whose_adapters_have_no_address_was_not_measured_and_the_document_says_so() {
    let not_proved = |gang: &Gang| {
        let order = opening(2, Level::Standard, Mode::Real).order;
        let all = verifier::rules::not_proved(&order, &gang.findings(), false);
        all.into_iter()
            .find(|it| it.contains("between nodes"))
            .expect("said")
    };
    let code = FindingCode::NetworkFabric;
    let (verdict, gang) = without_addresses(Internode::InfinibandNdr400, 0);
    assert_eq!(
        (verdict, found(&gang, code).outcome),
        (Verdict::Pass, Outcome::Met)
    );
    let said = not_proved(&gang);
    assert!(
        said.contains("(net.fabric)") && said.contains("over adapters that the nodes name"),
        "{said}"
    );
    for (nodes, named) in [(1, "node 0 (10.0.0.1)"), (3, "node 1 (10.0.0.2)")] {
        let (verdict, gang) = without_addresses(Internode::InfinibandNdr400, nodes);
        assert_eq!(verdict, Verdict::PassWithWarnings);
        let fabric = found(&gang, code);
        assert_eq!(
            (fabric.outcome, fabric.weight),
            (Outcome::NotRun, Weight::May)
        );
        assert!(fabric.note.contains(named), "{}", fabric.note);
        assert_eq!(
            found(&gang, FindingCode::NetworkPairs).outcome,
            Outcome::Warned
        );
        let said = not_proved(&gang);
        assert!(
            said.contains("only the hosts' usual network was measured"),
            "{said}"
        );
    }
    let (verdict, gang) = without_addresses(Internode::Ethernet, 3);
    assert_eq!(verdict, Verdict::Pass);
    assert!(gang.findings().iter().all(|found| found.code != code));
    let said = not_proved(&gang);
    assert!(
        said.starts_with("That the network between nodes carries"),
        "{said}"
    );
}

/// A gang whose nodes have this many adapters. Adapter 2 of node 1 carries this rate to and from all others,
/// and the others carry 20,000 MB/s.
fn with_an_adapter(nodes: u8, rails: usize, mb_per_s: u64) -> (Verdict, Gang) {
    let mut played = Played::new(nodes);
    let rail = |number: usize| Rail {
        name: format!("mlx5_{number}"),
        address: format!("10.0.0.9:{}", 40_000 + number),
    };
    for call in &mut played.calls {
        call.rails = (0..rails).map(rail).collect();
    }
    let verdict = played.play(|node, measure| match measure {
        Measure::Pair { sibling, .. } => {
            let mut rates = vec![20_000; rails];
            if node == 1 || sibling.node == 1 {
                rates[2] = mb_per_s;
            }
            Shown::Pair {
                sent_mb_per_s: rates.clone(),
                received_mb_per_s: rates,
            }
        }
        measure => well(measure),
    });
    (verdict, played.gang)
}

#[test]
fn an_adapter_that_carries_less_than_its_siblings_fails_its_node_by_name() {
    let code = FindingCode::NetworkPairs;
    for (nodes, rails) in [(2, 4), (4, 8)] {
        // 65 % of the adapters of the same two nodes.
        let (verdict, gang) = with_an_adapter(nodes, rails, 13_000);
        assert!(verdict.is_pass(), "{:#?}", gang.findings());
        let (verdict, gang) = with_an_adapter(nodes, rails, 12_999);
        assert_eq!(verdict, Verdict::Fail);
        let pairs = found(&gang, code);
        let floor_and_expected = (pairs.floor, pairs.expected);
        assert_eq!(floor_and_expected, (Some(13_000), Some(20_000)));
        let said =
            "over mlx5_2 at 12999 MB/s where the median of the adapters of the two is 20000 MB/s";
        assert!(pairs.note.contains(said), "{}", pairs.note);
        assert_eq!(of_node(&gang, 1, code), Outcome::Failed);
        if nodes > 2 {
            let others = [0, 2, 3].map(|node| of_node(&gang, node, code));
            assert_eq!(others, [Outcome::Noted; 3]);
        }
    }
    // Of three adapters the slow one is too large a part of the median; half of all links' median counts.
    assert!(with_an_adapter(2, 3, 10_000).0.is_pass());
    assert_eq!(with_an_adapter(2, 3, 9_999).0, Verdict::Fail);
}

#[test]
fn a_pair_of_which_one_does_not_tell_of_each_adapter_was_not_measured() {
    let code = FindingCode::NetworkPairs;
    let with_rates = |told: usize| {
        let mut played = Played::new(6);
        let verdict = played.play(|node, measure| match measure {
            Measure::Pair { sibling, .. } if matches!((node, sibling.node), (1, 2) | (2, 1)) => {
                Shown::Pair {
                    sent_mb_per_s: vec![90_000; told],
                    received_mb_per_s: vec![90_000; told],
                }
            }
            measure => well(measure),
        });
        let pairs = found(&played.gang, code);
        let outcomes: Vec<_> = (0..6)
            .map(|node| of_node(&played.gang, node, code))
            .collect();
        (verdict, pairs.note, outcomes)
    };
    let (verdict, note, _) = with_rates(1);
    assert_eq!(verdict, Verdict::Pass, "{note}");
    // Two nodes that report sixteen rails each would set the median of all links, and all others would be
    // slow by it.
    for told in [0, 2, 16] {
        let (verdict, note, outcomes) = with_rates(told);
        assert_eq!(verdict, Verdict::Fail, "{note}");
        assert!(note.contains("they do not report each adapter"), "{note}");
        let (bad, good) = (Outcome::Failed, Outcome::Noted);
        assert_eq!(outcomes, [good, bad, bad, good, good, good], "{note}");
    }
}

/// The checks that no level has for one node: each of them has a gang that makes it fire, and a good gang
/// that meets it.
#[test]
fn every_check_of_a_gang_fires_on_its_own_evidence_and_is_met_by_a_good_one() {
    type Show = fn(&Measure) -> Shown;
    let fires: [(FindingCode, Show); 5] = [
        (FindingCode::NetworkPairs, |measure| match measure {
            Measure::Pair { sibling, .. } if sibling.node == 2 => Shown::Pair {
                sent_mb_per_s: vec![900],
                received_mb_per_s: vec![10_000],
            },
            measure => well(measure),
        }),
        (FindingCode::NetworkAllReduce, |measure| match measure {
            Measure::Ring { .. } => Shown::Ring {
                repeats_us: vec![20_000; 20],
                wrong_words: 1,
            },
            measure => well(measure),
        }),
        (FindingCode::NetworkCollective, |measure| match measure {
            Measure::NcclSum(sum) if sum.ranks == 32 => wrongly(well(measure)),
            measure => well(measure),
        }),
        (
            FindingCode::NetworkCollectivePairs,
            |measure| match measure {
                Measure::NcclSum(sum) if sum.ranks == 16 => wrongly(well(measure)),
                measure => well(measure),
            },
        ),
        (FindingCode::NetworkJitter, |measure| match measure {
            Measure::Ring { .. } => Shown::Ring {
                repeats_us: [vec![20_000; 19], vec![90_000]].concat(),
                wrong_words: 0,
            },
            measure => well(measure),
        }),
    ];
    let of_no_level = |code: &&FindingCode| {
        let levels = [Level::Quick, Level::Standard, Level::Deep];
        let demands = levels.map(|level| verifier::rules::levels::demand(**code, level));
        demands.iter().all(|demand| demand.weight().is_none())
    };
    let of_gangs: Vec<FindingCode> = FindingCode::ALL
        .iter()
        .filter(of_no_level)
        // That one belongs to a node in use.
        .filter(|code| **code != FindingCode::InventoryPinned)
        .copied()
        .collect();
    // The last two depend on the offer and not on results: they have tests of their own.
    let by_what_was_sold = [FindingCode::NetworkFabric, FindingCode::NetworkTogether];
    let codes = fires.iter().map(|(code, _)| *code);
    assert_eq!(codes.chain(by_what_was_sold).collect::<Vec<_>>(), of_gangs);
    let unmet = |show: Show| {
        let mut played = Played::new(4).with_nccl(8);
        played.play(|_, measure| show(measure));
        let findings = played.gang.findings().into_iter();
        let unmet = findings.filter(|found| found.outcome != Outcome::Met);
        unmet.map(|found| found.code).collect::<Vec<_>>()
    };
    assert_eq!(unmet(well), []);
    for (code, show) in fires {
        assert_eq!(unmet(show), [code]);
    }
}

#[test]
fn a_node_that_is_waited_for_too_long_fails_by_name_and_never_passes() {
    let mut played = Played::new(3);
    for node in [0, 2] {
        let answer = played.gang.on_call(&played.calls[node]).expect("an answer");
        assert!(matches!(answer, GangAnswer::Wait { .. }), "{answer:?}");
    }
    assert_eq!((played.gang.stage(), played.gang.verdict()), (0, None));
    assert_eq!(played.gang.give_up(), Verdict::Fail);
    let late = found(&played.gang, FindingCode::StepTimedOut);
    assert!(
        late.note.starts_with("node 1 (10.0.0.2) kept"),
        "{}",
        late.note
    );
    let outcomes = [0, 1, 2].map(|node| of_node(&played.gang, node, FindingCode::StepTimedOut));
    assert_eq!(outcomes, [Outcome::Noted, Outcome::Failed, Outcome::Noted]);
    let over = GangAnswer::Over {
        verdict: Verdict::Fail,
    };
    assert_eq!(played.gang.on_call(&played.calls[1]), Ok(over));
}
