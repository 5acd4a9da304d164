//! Writes over HTTP while the connection to the database is cut: all that was answered is there, and
//! nothing else.

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};
use simulator::NodeRunner;
use store::Store;
use store::fixture::{Cut, TestDatabase, Wire};

use crate::service::{Answer, Key, Service, orderable_demand, ssh_key, usual_world};
use broker::tools::simulation::SimulatedMarketOptions;

/// How long a key that nobody completed blocks others, and a second.
const TAKE_OVER_SECONDS: i64 = store::idempotency::TAKE_OVER_SECONDS + 1;

/// The reservations of this name.
async fn named(service: &Service, key: &Key, name: &str) -> Vec<Value> {
    let listed = service.with(key).get("/v1/reservations?limit=200").await;
    let listed = listed.expect(200);
    let listed = listed["items"].as_array().expect("items").iter();
    listed.filter(|one| one["name"] == name).cloned().collect()
}

fn is_told_so(answer: &Answer) {
    assert!(answer.header("retry-after").is_some(), "{}", answer.text);
    answer.refused(503, "database_unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_whose_connection_is_cut_at_any_statement_is_placed_once() {
    let Some(test) = TestDatabase::postgres().await else {
        return;
    };
    let wire = Wire::to(&test.database);
    let store = Store::connect(wire.database()).await.expect("connects");
    let service = Service::start_as(SimulatedMarketOptions {
        nodes: NodeRunner::Off,
        store: Some(store),
        ..usual_world()
    })
    .await;
    let demand = orderable_demand(&service).await;
    let (mut cuts, mut looked_up, mut tenants) = (0, 0, 0);
    for (cut, auto_confirm) in [
        (Cut::Before, false),
        (Cut::After, false),
        (Cut::Before, true),
        (Cut::After, true),
    ] {
        let mut key = None;
        for trips in 0.. {
            // A tenant that cancels more holds within an hour gets only short ones.
            if trips % 5 == 0 {
                tenants += 1;
                let tenant = format!("tenant {tenants}");
                let tenant = service.key(&tenant, Role::Member).await;
                ssh_key(&service, &tenant).await;
                key = Some(tenant);
            }
            let key = key.as_ref().expect("a key");
            let name = format!("{cut:?} {auto_confirm} {trips}");
            let ask = json!({ "demand": demand, "name": name, "auto_confirm": auto_confirm });
            let place = || {
                let caller = service.with(key).once(&name);
                caller.post("/v1/reservations", &ask)
            };
            wire.cut_after(trips, cut);
            let first = place().await;
            let was_cut = !wire.mend();
            cuts += usize::from(was_cut);
            let found = named(&service, key, &name).await;
            if first.status == 201 {
                looked_up += usize::from(was_cut);
                assert_eq!(found.len(), 1, "{name}");
            } else {
                is_told_so(&first);
                assert_eq!(found, [] as [Value; 0], "{name}");
            }
            let mut again = place().await;
            if again.status == 409 {
                // The key could not be given back.
                again.refused(409, "idempotency_in_progress");
                let by = TimeDelta::seconds(TAKE_OVER_SECONDS);
                service.world.clock().advance(by);
                again = place().await;
            }
            let placed = again.expect(201);
            let state = if auto_confirm { "confirmed" } else { "held" };
            assert_eq!(placed["state"], state, "{name}");
            assert_eq!(named(&service, key, &name).await.len(), 1);
            let id = placed["id"].as_str().expect("an id");
            let cancel = format!("/v1/reservations/{id}/cancel");
            let cancelled = service.with(key).post(&cancel, &json!({})).await;
            cancelled.expect(200);
            if !was_cut {
                break;
            }
        }
    }
    eprintln!("cut {cuts} times; {looked_up} times it was done all the same");
    assert!(cuts > 40 && looked_up > 0);
    service.stop().await;
    test.remove().await;
}
