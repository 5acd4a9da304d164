use std::collections::BTreeSet;

use market::ids::{ProjectId, TenantId};
use market::offer::Availability;
use market::tags::{AttributionField, RequiredTags};
use store::StoreError;
use store::commands::Command;
use store::fixture::{count_rows, for_each_database};
use store::reservations::{Labels, RequestedAction, ReservationFilter};
use store::tenants::DEFAULT_PROJECT;
use uuid::Uuid;

use crate::support::{at, hold, offer, provisioning, sell, tenant};

#[tokio::test]
async fn a_tenant_is_made_once_with_its_first_project() {
    for_each_database(async |store| {
        let (first, project) = tenant(store, "acme").await;
        let (again, same) = tenant(store, "acme").await;
        assert_eq!((first, project), (again, same));
        assert_eq!(count_rows(store, "tenants").await, 1);
        let projects = store.tenants().projects(first).await.expect("reads");
        assert_eq!(projects[0].name, DEFAULT_PROJECT);
        let id = ProjectId::from_uuid(Uuid::now_v7());
        let made = store
            .tenants()
            .add_project(first, "llm", id, at(1), None)
            .await
            .expect("made");
        assert_eq!((made.id, made.tenant_id), (id, first));
        let other = TenantId::from_uuid(Uuid::now_v7());
        assert_eq!(store.tenants().find(other).await.expect("reads"), None);
        assert_eq!(store.tenants().list().await.expect("reads").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_tenant_sees_and_touches_only_its_own() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let owner = tenant(store, "owner").await;
        let (other, _) = tenant(store, "other").await;
        let (reservation, lease) = provisioning(store, owner, &offer).await;
        let id = reservation.id;
        let foreign = store.reservations().of(other);
        assert_eq!(foreign.find(id).await.expect("reads"), None);
        let all = ReservationFilter::default();
        assert_eq!(foreign.list(&all, None, 50).await.expect("reads"), []);
        let named = Labels {
            name: Some("mine".to_owned()),
            tags: None,
        };
        let no = foreign.update_labels(id, named, None).await;
        assert!(matches!(no, Err(StoreError::NotFound { .. })), "{no:?}");
        let wish = Command::RequestedAction(RequestedAction::Cancel);
        let no = foreign
            .command(id, reservation.version, wish, at(9), None)
            .await;
        assert!(matches!(no, Err(StoreError::NotFound { .. })), "{no:?}");
        assert_eq!(
            store
                .leases()
                .of(other)
                .of_reservation(id)
                .await
                .expect("reads"),
            []
        );
        assert_eq!(
            store.leases().of(other).find(lease).await.expect("reads"),
            None
        );
        let plans = store.plans();
        assert_eq!(
            plans
                .of(other)
                .find(reservation.plan_id)
                .await
                .expect("reads"),
            None
        );
        let quotes = store.quotes();
        assert_eq!(
            quotes
                .of(other)
                .find(reservation.quote_id)
                .await
                .expect("reads"),
            None
        );
        let same = store
            .reservations()
            .of(owner.0)
            .find(id)
            .await
            .expect("reads");
        assert_eq!(same, Some(reservation), "untouched");
        let plan = plans
            .of(owner.0)
            .find(same.expect("it").plan_id)
            .await
            .expect("reads");
        assert_eq!(
            plan.expect("kept").candidates,
            serde_json::json!([{"score": 0.1}])
        );
    })
    .await;
}

#[tokio::test]
async fn lists_are_filtered_and_paged_from_the_newest() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let mut placed = Vec::new();
        for _ in 0..5 {
            placed.push(
                hold(store, whose, &offer, 1, at(1))
                    .await
                    .expect("a hold")
                    .id,
            );
        }
        placed.sort();
        placed.reverse();
        let reservations = store.reservations().of(whose.0);
        let all = ReservationFilter::default();
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = reservations.list(&all, after, 2).await.expect("reads");
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            seen.extend(page.iter().map(|reservation| reservation.id));
        }
        assert_eq!(seen, placed);
        let held = ReservationFilter {
            state: Some("held".to_owned()),
            ..all.clone()
        };
        assert_eq!(
            reservations
                .list(&held, None, 50)
                .await
                .expect("reads")
                .len(),
            5
        );
        let active = ReservationFilter {
            state: Some("active".to_owned()),
            ..all.clone()
        };
        assert_eq!(
            reservations.list(&active, None, 50).await.expect("reads"),
            []
        );
        let elsewhere = ProjectId::from_uuid(Uuid::now_v7());
        let elsewhere = ReservationFilter {
            project: Some(elsewhere),
            ..all.clone()
        };
        assert_eq!(
            reservations
                .list(&elsewhere, None, 50)
                .await
                .expect("reads"),
            []
        );
        let open = ReservationFilter {
            open_only: true,
            ..all
        };
        let everyone = store.reservations().across_tenants();
        assert_eq!(
            everyone.list(&open, None, 50).await.expect("reads").len(),
            5
        );
    })
    .await;
}

#[tokio::test]
async fn what_a_write_gives_back_is_what_is_read_later_to_the_microsecond() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let odd = at(1) + chrono::TimeDelta::nanoseconds(123_456_789);
        let held = hold(store, whose, &offer, 1, odd).await.expect("a hold");
        assert_eq!(
            held.created_at,
            at(1) + chrono::TimeDelta::microseconds(123_456)
        );
        let read = store
            .reservations()
            .of(whose.0)
            .find(held.id)
            .await
            .expect("reads");
        assert_eq!(read, Some(held));
    })
    .await;
}

#[tokio::test]
async fn new_labels_leave_everything_else() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let held = hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        let reservations = store.reservations().of(whose.0);
        let labels = Labels {
            name: Some("run-8".to_owned()),
            tags: None,
        };
        let named = reservations
            .update_labels(held.id, labels, None)
            .await
            .expect("named");
        let mut expected = held.clone();
        expected.name = "run-8".to_owned();
        expected.version = 2;
        assert_eq!(named, expected);
        let labels = Labels {
            name: None,
            tags: Some(std::collections::BTreeMap::new()),
        };
        reservations
            .update_labels(held.id, labels, None)
            .await
            .expect("tagged");
        let read = reservations
            .find(held.id)
            .await
            .expect("reads")
            .expect("there");
        assert!(read.tags.is_empty());
        assert_eq!((read.name.as_str(), read.version), ("run-8", 3));
    })
    .await;
}

#[tokio::test]
async fn what_a_tenant_requires_is_its_own_and_changes_in_parts() {
    for_each_database(async |store| {
        let (acme, _) = tenant(store, "acme").await;
        let (other, _) = tenant(store, "other").await;
        let tenants = store.tenants();
        let none = RequiredTags::default();
        assert_eq!(tenants.required_tags(acme).await.expect("reads"), none);
        let tags = BTreeSet::from(["team".to_owned()]);
        let fields = BTreeSet::from([AttributionField::CostCentre]);
        let first = tenants.require_tags(acme, Some(tags.clone()), None, None);
        first.await.expect("required");
        let both = tenants.require_tags(acme, None, Some(fields.clone()), None);
        let wanted = RequiredTags { tags, fields };
        assert_eq!(both.await.expect("required"), wanted);
        assert_eq!(tenants.required_tags(acme).await.expect("reads"), wanted);
        assert_eq!(tenants.required_tags(other).await.expect("reads"), none);
        let unknown = TenantId::from_uuid(Uuid::now_v7());
        for refused in [
            tenants.required_tags(unknown).await,
            tenants.require_tags(unknown, None, None, None).await,
        ] {
            assert!(
                matches!(refused, Err(StoreError::NotFound { .. })),
                "{refused:?}"
            );
        }
    })
    .await;
}
