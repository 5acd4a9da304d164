//! The nodes of one lease begin together: when the last of them enrols.

use market::attestation::Verdict;
use store::fixture::{count_rows, for_each_database};
use store::verifications::{Enrolment, Interruption};
use store::{Conflict, StoreError};

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
        for (agent, was_cut_off) in [("one", true), ("two", true), ("three", false)] {
            let read = all.was_cut_off(id, agent).await;
            assert_eq!(read.expect("reads"), was_cut_off, "{agent}");
        }
        let anew = all.enrol(id, &node(1, "three"), at(12)).await;
        assert!(!anew.expect("enrols").node.has_begun, "it waits again");
    })
    .await;
}

/// Whether a node was refused because another agent of it has begun.
fn has_begun(enrolled: &Result<Enrolment, StoreError>) -> bool {
    matches!(enrolled, Err(StoreError::Conflict(Conflict::Exists { .. })))
}

#[tokio::test]
async fn another_agent_takes_the_place_of_one_that_waits_and_lets_nobody_begin_by_that() {
    for_each_database(async |store| {
        let id = opened(store).await.verification;
        let all = store.verifications().across_tenants();
        let died = all.enrol(id, &node(0, "died"), at(10)).await;
        assert!(!died.expect("enrols").node.has_begun);
        let anew = all.enrol(id, &node(0, "again"), at(11)).await;
        let anew = anew.expect("enrols");
        assert!(anew.fresh && anew.begun.is_empty() && !anew.node.has_begun);
        assert_eq!(all.nodes(id).await.expect("reads"), [anew.node]);
        assert_eq!(all.node_by_key(id, "died").await.expect("reads"), None);
        let traces = all.cut_off(id).await.expect("reads");
        assert_eq!((traces[0].node_index, &*traces[0].agent_key), (0, "died"));
        assert_eq!(count_rows(store, "agent_keys").await, 2);
        let back = all.enrol(id, &node(0, "died"), at(12)).await;
        let committed = matches!(back, Err(StoreError::Conflict(Conflict::AgentKeyCommitted)));
        assert!(committed, "it does not come back: {back:?}");

        let last = all.enrol(id, &node(1, "two"), at(13)).await;
        assert_eq!(last.expect("enrols").begun, ["again", "two"]);
        for index in [0, 1] {
            let late = all.enrol(id, &node(index, "late"), at(14)).await;
            assert!(has_begun(&late), "{late:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_agent_that_comes_as_the_last_node_enrols_takes_a_place_before_all_begin_or_none() {
    for_each_database(async |store| {
        let id = opened(store).await.verification;
        let all = store.verifications().across_tenants();
        // A node may restart in two rounds at most.
        for round in 0..2 {
            let [waits, anew, last] =
                ["waits", "again", "last"].map(|key| format!("{key} {round}"));
            let waiting = all.enrol(id, &node(0, &waits), at(10)).await;
            waiting.expect("enrols");
            let (other, sibling) = (node(0, &anew), node(1, &last));
            let (other, sibling) = tokio::join!(
                all.enrol(id, &other, at(11)),
                all.enrol(id, &sibling, at(11))
            );
            let stands = match &other {
                Ok(taken) => {
                    assert!(taken.begun.is_empty(), "{taken:?}");
                    &anew
                }
                Err(_) => {
                    assert!(has_begun(&other), "{other:?}");
                    &waits
                }
            };
            assert_eq!(
                sibling.expect("enrols").begun,
                [stands.clone(), last.clone()]
            );
            let rows = all.nodes(id).await.expect("reads");
            let keys: Vec<&String> = rows.iter().map(|row| &row.agent_key).collect();
            assert_eq!(keys, [stands, &last]);
            assert!(rows.iter().all(|row| row.has_begun), "{rows:?}");
            let cut = all.interrupt(id, &last, 1, at(12)).await;
            assert_eq!(cut.expect("an answer"), Interruption::Ended);
        }
    })
    .await;
}

#[tokio::test]
async fn of_agents_that_take_each_others_place_again_and_again_the_fourth_stays() {
    for_each_database(async |store| {
        let id = opened(store).await.verification;
        let all = store.verifications().across_tenants();
        for agent in ["one", "two", "three", "four"] {
            let enrolled = all.enrol(id, &node(0, agent), at(10)).await;
            enrolled.expect("enrols");
        }
        let fifth = all.enrol(id, &node(0, "five"), at(11)).await;
        let too_often = Conflict::InterruptedTooOften { times: 4 };
        assert!(
            matches!(&fifth, Err(StoreError::Conflict(conflict)) if *conflict == too_often),
            "{fifth:?}"
        );
        let last = all.enrol(id, &node(1, "last"), at(12)).await;
        assert_eq!(last.expect("enrols").begun, ["four", "last"]);
    })
    .await;
}

#[tokio::test]
async fn no_node_begins_anew_once_another_one_of_its_lease_has_its_result_though_it_answered_nothing()
 {
    for_each_database(async |store| {
        let id = opened(store).await.verification;
        let all = store.verifications().across_tenants();
        for (index, agent) in [(0, "one"), (1, "two")] {
            let enrolled = all.enrol(id, &node(index, agent), at(10)).await;
            enrolled.expect("enrols");
        }
        let silent = step("one", 1, 1, Some(Verdict::Fail));
        all.advance(id, 0, &silent, at(11)).await.expect("kept");
        let cut = all.interrupt(id, "two", 1, at(12)).await;
        assert_eq!(cut.expect("an answer"), Interruption::Stays);
        assert_eq!(all.cut_off(id).await.expect("reads"), []);
    })
    .await;
}

#[tokio::test]
async fn no_node_begins_anew_once_another_one_of_its_lease_has_answered_step_2() {
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
