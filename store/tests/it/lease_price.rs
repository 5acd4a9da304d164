//! The price that a provider reports, stored beside the quoted one.

use market::lease::LeaseState;
use market::money::Money;
use market::offer::Availability;
use store::change::{Change, LeaseFacts, LeaseUpdate};
use store::fixture::for_each_database;

use crate::support::{at, claim, offer, provisioning, sell, tenant};

#[tokio::test]
async fn the_price_that_a_provider_states_is_kept_beside_the_quoted_one() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let leases = store.leases().across_tenants();
        let before = leases.find(lease).await.expect("reads").expect("the lease");
        assert_eq!(before.price_per_node_hour, None);
        assert_eq!(leases.with_stated_price().await.expect("reads"), []);

        let stated = Money::usd_units(2_568_000_000);
        let claimed = claim(store, reservation.id, at(5)).await;
        let facts = |price| LeaseUpdate {
            id: lease,
            from: LeaseState::Requested,
            to: LeaseState::Requested,
            facts: LeaseFacts {
                attempts: Some(1),
                price_per_node_hour: price,
                ..LeaseFacts::default()
            },
        };
        // A missing new price leaves the old one.
        for price in [Some(stated), None] {
            let change = Change {
                lease_updates: vec![facts(price)],
                keep_claim: true,
                ..Change::default()
            };
            let work = store.work();
            work.apply(&claimed.claim, &change, at(6))
                .await
                .expect("kept");
            let after = leases.find(lease).await.expect("reads").expect("the lease");
            assert_eq!(after.price_per_node_hour, Some(stated));
            assert_eq!(after.offer.price_per_node_hour, offer.price_per_node_hour);
            assert_eq!(leases.with_stated_price().await.expect("reads"), [after]);
        }
    })
    .await;
}
