use market::lease::LeaseState;
use market::offer::Availability;
use store::fixture::{execute_raw, for_each_database};
use store::leases::ReturnedList;

use crate::support::{at, offer, provider, provisioning, sell, tenant};

#[tokio::test]
async fn a_machine_that_returned_is_gone_again_after_two_good_lists_a_lag_apart_that_lack_it() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (_, lease) = provisioning(store, whose, &offer).await;
        let gone = format!("UPDATE leases SET state = '{}'", LeaseState::Gone);
        execute_raw(store, &gone).await.expect("gone");
        let all = store.leases().across_tenants();
        // Columns: the second; whether the list shows it; whether it is doubtful; whether that is news;
        // whether it is running then.
        for (second, shown, doubtful, news, runs) in [
            (0, true, false, true, true),
            (60, true, false, false, true),
            (120, false, false, false, true),
            (180, true, false, false, true),
            (240, false, true, false, true),
            (400, false, true, false, true),
            (410, false, false, false, false),
            (420, false, false, false, false),
            (480, true, false, true, true),
            (500, false, false, false, true),
            (560, false, false, false, true),
            (620, false, false, false, false),
        ] {
            let list = ReturnedList {
                shown: if shown { &[lease] } else { &[] },
                asked_at: at(second),
                doubtful,
                lag: chrono::TimeDelta::seconds(120),
            };
            let told = all.note_returned(&provider(), &list).await;
            assert_eq!(told.expect("noted") == [lease], news, "{second}");
            let known = all.returned().await.expect("reads");
            assert_eq!(known.len() == 1, runs, "{second}");
        }
    })
    .await;
}
