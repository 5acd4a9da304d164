//! The suite itself: it passes over recordings, and it detects every promise that is broken on purpose.

mod account;

use std::time::Duration;

use adapters::conformance::{CheckResult, ConformanceWorld, Outcome, run};
use adapters::{Adapter, registry};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::order::{ClientToken, ProviderLease, ProviderLeaseState as State};

use self::account::{Account, Defect};
use crate::recorded::{made_up, now, recorded};

/// A recording: time stands still and nothing can be ordered.
struct Still;

#[async_trait]
impl ConformanceWorld for Still {
    fn now(&self) -> DateTime<Utc> {
        now()
    }

    fn takes_orders(&self) -> bool {
        false
    }

    async fn advance(&self, _by: Duration) {}
}

fn outcomes(results: &[CheckResult]) -> Vec<(&str, &Outcome)> {
    results
        .iter()
        .map(|result| (result.check, &result.outcome))
        .collect()
}

#[tokio::test]
async fn every_adapter_passes_over_its_recording() {
    for adapter in registry::all() {
        let http = recorded(adapter.profile().id, "catalog");
        let results = run(*adapter, &http, &Still).await;
        let failed: Vec<_> = results
            .iter()
            .filter(|r| matches!(r.outcome, Outcome::Failed(_)))
            .collect();
        assert!(failed.is_empty(), "{}: {failed:?}", adapter.profile().id);
        assert_eq!(
            results
                .iter()
                .filter(|r| r.outcome == Outcome::Passed)
                .count(),
            4
        );
    }
}
async fn failures(defect: Defect) -> Vec<&'static str> {
    let account = Account::new(defect);
    let http = made_up(&[("GET", "/nothing", 200, serde_json::json!(null))]);
    let results = run(&account, &http, &account).await;
    results
        .iter()
        .filter(|r| matches!(r.outcome, Outcome::Failed(_)))
        .map(|r| r.check)
        .collect()
}

#[tokio::test]
async fn an_account_without_a_defect_passes_every_check_and_is_left_empty() {
    let account = Account::new(Defect::None);
    let http = made_up(&[("GET", "/nothing", 200, serde_json::json!(null))]);
    let results = run(&account, &http, &account).await;
    assert!(
        results
            .iter()
            .all(|result| result.outcome == Outcome::Passed),
        "{:?}",
        outcomes(&results)
    );
    assert!(account.state.lock().expect("no panic").leases.is_empty());
}

#[tokio::test]
async fn every_broken_promise_is_seen_by_its_check() {
    for (defect, check) in [
        (Defect::CutShort, "the_catalogue_is_read_whole"),
        (Defect::SameIdTwice, "every_offer_is_sound"),
        (Defect::NewIds, "ids_are_the_same_in_a_second_reading"),
        (Defect::Spot, "offers_keep_to_what_the_profile_declares"),
        (
            Defect::CountsDespiteProfile,
            "offers_keep_to_what_the_profile_declares",
        ),
        (
            Defect::LeavesAScript,
            "nothing_made_beside_a_machine_is_left",
        ),
        (
            Defect::ListsNoScripts,
            "nothing_made_beside_a_machine_is_left",
        ),
        (
            Defect::MarksNoScript,
            "nothing_made_beside_a_machine_is_left",
        ),
        (
            Defect::ReleaseOfAbsentFails,
            "what_is_absent_is_not_found_and_can_be_released",
        ),
        (
            Defect::ReleaseOfAbsentIsAccepted,
            "what_is_absent_is_not_found_and_can_be_released",
        ),
        (
            Defect::BelievesFronts,
            "what_a_broken_front_says_of_a_lease_is_an_error",
        ),
        (Defect::NeverReleases, "an_order_lives_from_request_to_gone"),
        (
            Defect::ForgetsTheMark,
            "an_order_lives_from_request_to_gone",
        ),
        (Defect::OtherModel, "an_order_lives_from_request_to_gone"),
        (
            Defect::FewerNodes,
            "one_order_takes_several_nodes_where_declared",
        ),
        (
            Defect::TakesAnything,
            "a_hopeless_order_is_refused_and_makes_nothing",
        ),
        (
            Defect::RefusalIsUnknown,
            "a_hopeless_order_is_refused_and_makes_nothing",
        ),
        (
            Defect::TakesTooMany,
            "an_order_with_too_many_nodes_is_never_sent",
        ),
        (
            Defect::LostReplyIsRefusal,
            "a_lost_reply_is_unknown_and_found_by_its_mark",
        ),
        (
            Defect::UnknownStatusIsRunning,
            "an_unknown_status_means_pending",
        ),
    ] {
        let failed = failures(defect).await;
        assert!(failed.contains(&check), "{defect:?}: {failed:?}");
    }
}

#[test]
fn a_mark_is_found_on_what_lives_before_what_is_gone() {
    let token: ClientToken = "gpb-00000000000000000000000000000007"
        .parse()
        .expect("a mark");
    let account = Account::new(Defect::None);
    let lease = |id: &str, state| ProviderLease {
        name: Some(token.to_string()),
        ..ProviderLease::new(id, state, "")
    };
    account.state.lock().expect("no panic").leases = vec![
        (lease("old", State::Gone), Duration::ZERO),
        (lease("new", State::Running), Duration::ZERO),
    ];
    let http = made_up(&[("GET", "/nothing", 200, serde_json::json!(null))]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let found = runtime
        .block_on(account.find_lease(&http, &token))
        .expect("a list")
        .expect("the lease");
    assert_eq!(found.id.0, "new");
}
