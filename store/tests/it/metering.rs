use market::demand::DemandKind;
use market::ids::{LeaseId, ProjectId, TenantId, UsageId};
use market::money::{Money, Rate};
use market::offer::Availability;
use market::tags::Attribution;
use market::usage::{Charge, UsageRecord};
use store::change::Change;
use store::charges::ChargedSoFar;
use store::fixture::{count_rows, for_each_database};
use store::reservations::Reservation;
use store::{Conflict, StoreError};
use uuid::Uuid;

use crate::support::{at, claim, offer, provisioning, sell, tenant};

pub(crate) fn charge(
    (tenant_id, project_id): (TenantId, ProjectId),
    reservation: &Reservation,
    lease_id: LeaseId,
    from: i64,
    amount_units: i64,
) -> Charge {
    Charge {
        usage: UsageRecord {
            id: UsageId::from_uuid(Uuid::now_v7()),
            reservation_id: reservation.id,
            lease_id,
            line: 0,
            gpus: 8,
            from: at(from),
            to: at(from + 60),
        },
        tenant_id,
        project_id,
        provider: crate::support::provider(),
        gpu: "H100-SXM".to_owned(),
        workload: DemandKind::Gpus,
        rate: Rate::per_gpu_hour(Money::usd_units(299_000_000)),
        amount: Money::usd_units(amount_units),
        tags: reservation.tags.clone(),
        attribution: Attribution::default(),
    }
}

#[tokio::test]
async fn charges_add_up_by_line_and_read_back_as_they_were_made() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (other, _) = tenant(store, "other").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let charges = vec![
            charge(whose, &reservation, lease, 100, 39_866_667),
            charge(whose, &reservation, lease, 160, 39_866_666),
        ];
        let held = claim(store, reservation.id, at(5)).await;
        let change = Change {
            charges: charges.clone(),
            keep_claim: true,
            ..Change::default()
        };
        store
            .work()
            .apply(&held.claim, &change, at(220))
            .await
            .expect("charged");
        let all = store.charges().across_tenants();
        let so_far = async |line, rate| {
            let so_far = all.charged_so_far(reservation.id, line, rate).await;
            so_far.expect("reads")
        };
        let rate = charges[0].rate;
        assert_eq!(
            so_far(0, rate).await,
            ChargedSoFar {
                gpu_seconds: 960,
                amount_units: 79_733_333
            }
        );
        assert_eq!(so_far(1, rate).await, ChargedSoFar::default());
        let sums = count_rows(store, "spent_rates").await;
        assert_eq!(sums, 1, "one, however many charges");
        // A line that is covered for a while is charged at two rates.
        let free = Rate::per_gpu_hour(Money::usd_units(0));
        assert_eq!(so_far(0, free).await, ChargedSoFar::default());
        let of = |tenant| store.charges().of(tenant);
        assert_eq!(
            of(whose.0).between(at(100), at(161)).await.expect("reads"),
            charges
        );
        assert_eq!(
            of(whose.0).between(at(101), at(160)).await.expect("reads"),
            []
        );
        assert_eq!(of(other).between(at(0), at(999)).await.expect("reads"), []);
        assert_eq!(all.between(at(0), at(999)).await.expect("reads"), charges);
        assert_eq!(
            all.of_reservation(reservation.id).await.expect("reads"),
            charges
        );
        // The same time of the same lease is not billed twice, under any id.
        let again = Change {
            charges: vec![charge(whose, &reservation, lease, 160, 1)],
            keep_claim: true,
            ..Change::default()
        };
        let refusal = store.work().apply(&held.claim, &again, at(230)).await;
        let expected = Conflict::Exists { what: "the charge" };
        assert!(
            matches!(&refusal, Err(StoreError::Conflict(conflict)) if *conflict == expected),
            "{refusal:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn charges_are_summed_up_by_day_but_those_over_a_midnight() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (other, _) = tenant(store, "other").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        // Each of a minute; the day of the first ends at 35200.
        let mut charges: Vec<_> = [100, 160, 220, 35_150, 35_190, 35_200, 35_260]
            .into_iter()
            .zip(1..)
            .map(|(from, amount)| charge(whose, &reservation, lease, from, amount))
            .collect();
        charges[1].tags.insert("team".into(), "speech".into());
        let held = claim(store, reservation.id, at(5)).await;
        let change = Change {
            charges: charges.clone(),
            keep_claim: true,
            ..Change::default()
        };
        let charged = store.work().apply(&held.claim, &change, at(220)).await;
        charged.expect("charged");
        let time = (at(100), at(35_260));
        let (own, all) = (
            store.charges().of(whose.0),
            store.charges().across_tenants(),
        );
        let mut days = own.by_day(time).await.expect("reads");
        days.sort_by_key(|day| day.amount.units());
        let told: Vec<_> = days
            .iter()
            .map(|day| (day.day.to_string(), day.amount.units(), day.gpu_seconds))
            .collect();
        let day = |day: &str, amount, gpu_seconds| (day.to_owned(), amount, gpu_seconds);
        assert_eq!(
            told,
            [
                day("2026-09-21", 2, 480),
                day("2026-09-21", 4, 960),
                day("2026-09-22", 6, 480),
            ],
            "two begin before midnight and end after it, and one begins too late"
        );
        let mut everyones = all.by_day(time).await.expect("reads");
        everyones.sort_by_key(|day| day.amount.units());
        assert_eq!(everyones, days);
        let page = async |after| {
            let own = own.over_midnight(time, after, 1).await.expect("reads");
            let everyones = all.over_midnight(time, after, 1).await.expect("reads");
            assert_eq!(everyones, own);
            own
        };
        assert_eq!(page(None).await, charges[3..4]);
        assert_eq!(page(Some(&charges[3])).await, charges[4..5]);
        assert_eq!(page(Some(&charges[4])).await, []);
        let others = store.charges().of(other);
        assert_eq!(others.by_day(time).await.expect("reads"), []);
        let none = others.over_midnight(time, None, 9).await;
        assert_eq!(none.expect("reads"), []);
    })
    .await;
}
