//! The nodes of one lease, which begin at one time: when the last of them enrols.

use market::attestation::Verdict;
use store::fixture::for_each_database;
use store::verifications::Interruption;

use crate::support::at;
use crate::verifications::{node, opened, step};

#[tokio::test]
async fn no_node_of_a_lease_begins_before_the_last_one_enrols_and_all_are_timed_from_then_on() {
    for_each_database(async |store| {
        let id = opened(store).await.verification;
        let all = store.verifications().across_tenants();
        let first = all.enrol(id, &node(0, "one"), at(10)).await;
        let first = first.expect("enrols");
        assert!(first.fresh && first.begun.is_empty() && !first.node.has_begun);
        let again = all.enrol(id, &node(0, "one"), at(11)).await;
        assert!(!again.expect("it has enrolled").node.has_begun);
        let since = async |agent| all.since_answer(id, agent).await.expect("reads");
        assert_eq!(since("one").await, None, "nothing was asked of it yet");

        let last = all.enrol(id, &node(1, "two"), at(12)).await;
        let last = last.expect("enrols");
        assert!(last.node.has_begun);
        assert_eq!(last.begun, ["one", "two"]);
        let rows = all.nodes(id).await.expect("reads");
        assert!(rows.iter().all(|row| row.has_begun), "{rows:?}");
        let again = all.enrol(id, &node(1, "two"), at(13)).await;
        assert_eq!(again.expect("it has enrolled").begun, [""; 0], "they have");
        let (one, two) = (since("one").await, since("two").await);
        assert!(two >= one && one.is_some(), "{one:?} {two:?}");
    })
    .await;
}

#[tokio::test]
async fn of_the_last_nodes_that_enrol_at_once_one_lets_all_begin() {
    for_each_database(async |store| {
        let id = opened(store).await.verification;
        let all = store.verifications().across_tenants();
        for round in 0..4 {
            let keys = [0, 1].map(|index| format!("{round} of {index}"));
            let (one, two) = (node(0, &keys[0]), node(1, &keys[1]));
            let (one, two) =
                tokio::join!(all.enrol(id, &one, at(10)), all.enrol(id, &two, at(10)),);
            let mut begun = [one.expect("enrols").begun, two.expect("enrols").begun];
            begun.sort_by_key(Vec::len);
            begun[1].sort();
            assert_eq!(begun, [Vec::new(), keys.to_vec()]);
            let rows = all.nodes(id).await.expect("reads");
            assert!(rows.iter().all(|row| row.has_begun), "{rows:?}");
            let cut = all.interrupt(id, &keys[0], 1, at(11)).await;
            assert_eq!(cut.expect("an answer"), Interruption::Ended);
        }
    })
    .await;
}

#[tokio::test]
async fn an_interruption_ends_the_conversations_of_all_nodes_of_a_lease() {
    for_each_database(async |store| {
        let id = opened(store).await.verification;
        let all = store.verifications().across_tenants();
        for (index, agent) in [(0, "one"), (1, "two")] {
            let enrolled = all.enrol(id, &node(index, agent), at(10)).await;
            enrolled.expect("enrols");
        }
        let (cut, other) = tokio::join!(
            all.interrupt(id, "two", 1, at(11)),
            all.interrupt(id, "one", 1, at(11)),
        );
        let mut cut = [cut.expect("an answer"), other.expect("an answer")];
        cut.sort_by_key(|cut| *cut == Interruption::HasMoved);
        assert_eq!(cut, [Interruption::Ended, Interruption::HasMoved]);
        assert_eq!(all.nodes(id).await.expect("reads"), []);
        let traces = all.cut_off(id).await.expect("reads");
        let traces: Vec<_> = traces
            .iter()
            .map(|one| (one.node_index, one.agent_key.as_str()))
            .collect();
        assert_eq!(traces, [(0, "one"), (1, "two")]);
        let anew = all.enrol(id, &node(1, "three"), at(12)).await;
        assert!(!anew.expect("enrols").node.has_begun, "it waits again");
    })
    .await;
}

#[tokio::test]
async fn no_node_begins_anew_once_another_one_of_its_lease_has_gone_on() {
    for_each_database(async |store| {
        let id = opened(store).await.verification;
        let all = store.verifications().across_tenants();
        for (index, agent) in [(0, "one"), (1, "two")] {
            let enrolled = all.enrol(id, &node(index, agent), at(10)).await;
            enrolled.expect("enrols");
        }
        for (at_step, verdict) in [(1, None), (2, Some(Verdict::Pass))] {
            let next = step("one", at_step, at_step + 1, verdict);
            all.advance(id, 0, &next, at(11)).await.expect("kept");
            let cut = all.interrupt(id, "two", 1, at(12)).await;
            assert_eq!(cut.expect("an answer"), Interruption::Stays);
        }
        assert_eq!(all.nodes(id).await.expect("reads").len(), 2);
        assert_eq!(all.cut_off(id).await.expect("reads"), []);
    })
    .await;
}
