//! Machines that were given up because nothing showed them, and run again.

use broker::flow::reconcile::sweep;
use chrono::TimeDelta;
use market::identity::Role;
use serde_json::Value;
use simulator::{Front, Provider};

use crate::access::reserve;
use crate::lifecycle::scene::anything_at;
use crate::service::{Key, Service, ssh_key};

async fn pass_minutes(service: &Service, minutes: u32) {
    for _ in 0..minutes {
        let turned = service.world.turn(TimeDelta::minutes(1)).await;
        turned.expect("the clock turns");
    }
}

// S120
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_missed_and_returns_is_named_to_those_whom_it_concerns() {
    let service = Service::start_with_nodes().await;
    let member = service.key("acme", Role::Member).await;
    let admin = service.key("acme", Role::Admin).await;
    ssh_key(&service, &member).await;
    let path = reserve(&service, &member, &anything_at(Provider::RUNPOD)).await;
    let lease = async || service.with(&member).get(&path).await.expect(200)["leases"][0].clone();
    let simulator = service.world.simulator();
    let machine = simulator.running_machines().remove(0).id;
    simulator.put_front(Provider::RUNPOD, Some(Front::EmptyList));
    simulator.drop_off_network(&machine).expect("it runs");
    pass_minutes(&service, 8).await;
    let missed = lease().await;
    assert_eq!(missed["state"], "handed_off");
    assert!(missed["missing_since"].is_string(), "{missed}");
    pass_minutes(&service, 12).await;
    let gone = lease().await;
    assert_eq!(gone["fall_reason"], "vanished", "{gone}");
    assert_eq!(gone["missing_since"], Value::Null);

    simulator.put_front(Provider::RUNPOD, None);
    let swept = sweep(service.world.broker()).await.expect("an answer");
    assert_eq!((swept.returned, swept.ended), (1, 0));
    let returned = async |key: &Key| {
        let shown = service.with(key).get("/v1/providers/runpod").await;
        shown.expect(200)["returned"].clone()
    };
    assert_eq!(returned(&admin).await[0]["lease_id"], gone["id"]);
    assert_eq!(returned(&member).await, Value::Null);
    service.stop().await;
}
