//! Limits: how much a tenant and its projects may have in use at once.

use market::ids::{LeaseId, ProjectId, TenantId};
use market::lease::LeaseState;
use market::money::Money;
use market::offer::{Availability, Offer};
use market::reservation::{CloseReason, ReservationState};
use market::spending::SpendingLimits;
use store::change::{Change, LeaseFacts, LeaseUpdate, NewLease, ReservationMove};
use store::commands::Command;
use store::fixture::{count_rows, execute_raw, for_each_database};
use store::limits::{LimitsChange, ScopeLimits};
use store::{Store, StoreError};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::support::{at, claim, hold, offer, sell, tenant};

/// An offer with enough capacity for every test here.
pub async fn plenty(store: &Store) -> Offer {
    let offer = offer("plenty", Availability::exactly(1_000));
    sell(store, std::slice::from_ref(&offer), at(0)).await;
    offer
}

/// Another project of the tenant.
pub async fn second_project(store: &Store, tenant: TenantId) -> ProjectId {
    let id = ProjectId::from_uuid(Uuid::now_v7());
    let tenants = store.tenants();
    let made = tenants.add_project(tenant, "second", id, at(0), None).await;
    made.expect("a project").id
}

async fn limit(
    store: &Store,
    tenant: TenantId,
    project: Option<ProjectId>,
    change: LimitsChange,
) -> ScopeLimits {
    let limits = store.limits().of(tenant);
    limits
        .change(project, change, at(0), None)
        .await
        .expect("changed")
}

#[track_caller]
fn refused_by<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> &'static str {
    match outcome {
        Err(StoreError::LimitExceeded(refusal)) => refusal.limit,
        other => panic!("no limit refused it: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_holds_never_pass_a_limit() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let gpus = LimitsChange {
            gpus: Some(Some(8 * 7)),
            ..LimitsChange::default()
        };
        limit(store, whose.0, None, gpus).await;
        let mut tasks = JoinSet::new();
        for _ in 0..16 {
            let (store, offer) = (store.clone(), offer.clone());
            tasks.spawn(async move { hold(&store, whose, &offer, 2, at(1)).await });
        }
        let (held, refused): (Vec<_>, Vec<_>) =
            tasks.join_all().await.into_iter().partition(Result::is_ok);
        assert_eq!((held.len(), refused.len()), (3, 13));
        for refusal in refused {
            assert_eq!(refused_by(refusal), "gpus");
        }
        assert_eq!(count_rows(store, "holds").await, 3);
    })
    .await;
}

#[tokio::test]
async fn each_limit_refuses_what_passes_it_and_an_end_makes_room() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let other = tenant(store, "other").await;
        let change = |limit: &str| {
            let mut change = LimitsChange::default();
            match limit {
                "gpus" => change.gpus = Some(Some(8)),
                "usd_per_hour" => change.usd_per_hour = Some(Some(Money::usd_units(2_392_000_000))),
                "open_holds" => change.open_holds = Some(Some(1)),
                "held_nodes" => change.held_nodes = Some(Some(1)),
                _ => change.reservations = Some(Some(1)),
            }
            change
        };
        let none = LimitsChange {
            gpus: Some(None),
            usd_per_hour: Some(None),
            open_holds: Some(None),
            held_nodes: Some(None),
            reservations: Some(None),
            cancelled_orders: Some(None),
        };
        for (round, word) in (0..).zip([
            "gpus",
            "usd_per_hour",
            "open_holds",
            "held_nodes",
            "reservations",
        ]) {
            let now = at(10 * round + 1);
            limit(store, whose.0, None, none).await;
            limit(store, whose.0, None, change(word)).await;
            let held = hold(store, whose, &offer, 1, now).await.expect("it fits");
            assert_eq!(refused_by(hold(store, whose, &offer, 1, now).await), word);
            hold(store, other, &offer, 1, now)
                .await
                .expect("another tenant has limits of its own");
            let cancel = Command::Move(ReservationState::Closed(CloseReason::Cancelled));
            let mine = store.reservations().of(whose.0);
            mine.command(held.id, held.version, cancel, now, None)
                .await
                .expect("cancelled");
            let again = hold(store, whose, &offer, 1, now)
                .await
                .expect("room again");
            mine.command(again.id, again.version, cancel, now, None)
                .await
                .expect("cancelled");
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_in_use_is_summed_up_without_reading_what_is_open() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let gpus = LimitsChange {
            gpus: Some(Some(8 * 4)),
            ..LimitsChange::default()
        };
        limit(store, whose.0, None, gpus).await;
        for _ in 0..3 {
            hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        }
        // A query that reads one of these rows fails.
        execute_raw(store, "UPDATE reservations SET lines = 'no JSON'")
            .await
            .expect("written");
        hold(store, whose, &offer, 1, at(2))
            .await
            .expect("the last one");
        assert_eq!(
            refused_by(hold(store, whose, &offer, 1, at(2)).await),
            "gpus"
        );
    })
    .await;
}

#[tokio::test]
async fn a_row_that_does_not_say_what_it_has_in_use_is_counted_by_its_lines() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        hold(store, whose, &offer, 2, at(1)).await.expect("a hold");
        let spending = store.spending().of(whose.0);
        let before = spending.in_use(None, at(2)).await.expect("sums");
        assert_eq!((before.gpus, before.reservations), (24, 2));
        let forget = "UPDATE reservations SET gpus = NULL, units_per_hour = NULL WHERE gpus = 8";
        execute_raw(store, forget).await.expect("written");
        assert_eq!(spending.in_use(None, at(2)).await.expect("reads"), before);
    })
    .await;
}

#[tokio::test]
async fn a_part_of_a_fleet_that_was_given_up_is_in_use_no_more() {
    use ReservationState as S;
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let three = LimitsChange {
            gpus: Some(Some(8 * 3)),
            ..LimitsChange::default()
        };
        limit(store, whose.0, None, three).await;
        let fleet = hold(store, whose, &offer, 3, at(1)).await.expect("a hold");
        let confirm = Command::Move(S::Confirmed);
        let mine = store.reservations().of(whose.0);
        mine.command(fleet.id, fleet.version, confirm, at(2), None)
            .await
            .expect("confirmed");
        let lease = |node_base| NewLease {
            id: LeaseId::from_uuid(Uuid::now_v7()),
            line: 0,
            offer: offer.clone(),
            nodes: 1,
            node_base,
            replaces: None,
        };
        let leases = [lease(0), lease(1), lease(2)];
        let requested = Change {
            reservation: Some(ReservationMove {
                from: S::Confirmed,
                to: S::Provisioning,
            }),
            new_leases: leases.to_vec(),
            holds_released: true,
            ..Change::default()
        };
        let given_up = LeaseUpdate {
            id: leases[1].id,
            from: LeaseState::Requested,
            to: LeaseState::Gone,
            facts: LeaseFacts {
                given_up: true,
                ..LeaseFacts::default()
            },
        };
        let smaller = Change {
            lease_updates: vec![given_up],
            ..Change::default()
        };
        let spending = store.spending().of(whose.0);
        for (change, gpus, now) in [(requested, 24, at(3)), (smaller, 16, at(5))] {
            let claimed = claim(store, fleet.id, now).await;
            let applied = store.work().apply(&claimed.claim, &change, now).await;
            applied.expect("written");
            let read = spending.read(now).await.expect("reads").in_use(None, now);
            assert_eq!(read.gpus, gpus);
            assert_eq!(spending.in_use(None, now).await.expect("sums"), read);
        }
        let after = hold(store, whose, &offer, 1, at(6)).await;
        after.expect("what was given up makes room");
    })
    .await;
}

#[tokio::test]
async fn a_hold_that_lapsed_is_in_use_no_more() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let one = LimitsChange {
            open_holds: Some(Some(1)),
            ..LimitsChange::default()
        };
        limit(store, whose.0, None, one).await;
        hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        assert_eq!(
            refused_by(hold(store, whose, &offer, 1, at(299)).await),
            "open_holds"
        );
        hold(store, whose, &offer, 1, at(300))
            .await
            .expect("the first one has lapsed");
    })
    .await;
}

#[tokio::test]
async fn a_project_is_bound_by_its_own_limits_and_by_its_tenants() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let (acme, first) = tenant(store, "acme").await;
        let second = second_project(store, acme).await;
        let nodes = |nodes: u32| LimitsChange {
            gpus: Some(Some(8 * nodes)),
            ..LimitsChange::default()
        };
        limit(store, acme, None, nodes(3)).await;
        limit(store, acme, Some(first), nodes(1)).await;
        assert_eq!(
            refused_by(hold(store, (acme, first), &offer, 2, at(1)).await),
            "gpus"
        );
        hold(store, (acme, second), &offer, 2, at(1))
            .await
            .expect("the second project has no limit");
        hold(store, (acme, first), &offer, 1, at(1))
            .await
            .expect("to the last GPU");
        let over = hold(store, (acme, second), &offer, 1, at(1)).await;
        let Err(StoreError::LimitExceeded(refusal)) = over else {
            panic!("{over:?}")
        };
        assert_eq!(refusal.project, None, "the tenant's");
        let said = refusal.to_string();
        assert!(
            said.contains("is 24: 24 are in use and 8 more were asked for"),
            "{said}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_tenant_without_limits_has_those_of_the_configuration() {
    for_each_database(async |store| {
        let defaults = SpendingLimits {
            gpus: Some(8),
            ..SpendingLimits::default()
        };
        let store = store.clone().with_default_limits(defaults);
        let offer = plenty(&store).await;
        let (acme, first) = tenant(&store, "acme").await;
        let unset = ScopeLimits {
            project_id: None,
            limits: defaults,
            changed_at: None,
        };
        let limits = store.limits().of(acme);
        assert_eq!(limits.list().await.expect("reads"), [unset]);
        assert_eq!(
            refused_by(hold(&store, (acme, first), &offer, 2, at(1)).await),
            "gpus"
        );
        let change = LimitsChange {
            open_holds: Some(Some(5)),
            ..LimitsChange::default()
        };
        let set = limit(&store, acme, None, change).await;
        assert_eq!(
            (set.limits.gpus, set.limits.open_holds, set.changed_at),
            (Some(8), Some(5), Some(at(0))),
            "what is not named stays"
        );
        let own = limit(&store, acme, Some(first), change).await;
        assert_eq!(own.limits.gpus, None, "a project begins without");
        assert_eq!(limits.list().await.expect("reads"), [set, own]);
        let (other, _) = tenant(&store, "other").await;
        let foreign = store
            .limits()
            .of(other)
            .change(Some(first), change, at(0), None)
            .await;
        assert!(
            matches!(foreign, Err(StoreError::NotFound { what: "project" })),
            "{foreign:?}"
        );
    })
    .await;
}
