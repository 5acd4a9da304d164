//! Whether nodes in use can be reached: probed, reported, and repaired where the tenant wants it.

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};

use crate::access::{access, fleet, probe, reserve, until_active};
use crate::lifecycle::scene::training;
use crate::service::{Key, Service, ssh_key};

/// A service with one machine in use; gives the reservation and the provider's id of the machine.
async fn one_machine(demand: &Value) -> (Service, Key, String, String) {
    let service = Service::start_with_nodes().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let path = reserve(&service, &key, demand).await;
    let machine = service.world.simulator().running_machines().remove(0).id;
    (service, key, path, machine)
}

/// The kinds of events about nodes so far, the oldest first.
async fn told(service: &Service, key: &Key) -> Vec<String> {
    let kinds = "node.unreachable,node.reachable,node.host_key_changed";
    let list = format!("/v1/events?types={kinds}");
    let events = service.with(key).get(&list).await.expect(200);
    let events = events["items"].as_array().expect("items");
    let kind = |event: &Value| event["type"].as_str().expect("a kind").to_owned();
    events.iter().map(kind).collect()
}

fn pass(service: &Service, minutes: i64) {
    service.world.clock().advance(TimeDelta::minutes(minutes));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_drops_off_the_network_is_told_once_and_again_when_it_is_back() {
    let (service, key, path, machine) = one_machine(&fleet(1)).await;
    assert_eq!(probe(&service).await, (1, 0));
    let seen = access(&service, &key, &path).await["nodes"][0]["last_reachable_at"].clone();
    let simulator = service.world.simulator();
    simulator.drop_off_network(&machine).expect("it runs");
    pass(&service, 1);
    assert_eq!(probe(&service).await, (0, 1));
    let since = service.world.broker().now();
    pass(&service, 9);
    probe(&service).await;
    assert!(
        told(&service, &key).await.is_empty(),
        "it may come back yet"
    );
    pass(&service, 1);
    probe(&service).await;
    pass(&service, 1);
    probe(&service).await;
    assert_eq!(told(&service, &key).await, ["node.unreachable"]);
    let node = access(&service, &key, &path).await["nodes"][0].clone();
    assert_eq!(node["last_reachable_at"], seen);
    assert_eq!(node["unreachable_since"], json!(since));

    let turned = service.world.turn(TimeDelta::minutes(5)).await;
    turned.expect("the clock turns");
    let now = service.with(&key).get(&path).await.expect(200);
    assert_eq!(now["state"], "active", "by default it is only told");

    simulator.return_to_network(&machine).expect("it runs");
    assert_eq!(probe(&service).await, (1, 0));
    assert_eq!(
        told(&service, &key).await,
        ["node.unreachable", "node.reachable"]
    );
    let node = access(&service, &key, &path).await["nodes"][0].clone();
    assert_eq!(node["unreachable_since"], Value::Null);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_answers_with_another_host_key_is_not_the_node() {
    let (service, key, path, machine) = one_machine(&fleet(1)).await;
    probe(&service).await;
    let before = access(&service, &key, &path).await;
    let simulator = service.world.simulator();
    simulator.change_host_keys(&machine).expect("it runs");
    pass(&service, 1);
    assert_eq!(probe(&service).await, (0, 1));
    assert_eq!(probe(&service).await, (0, 1));
    assert_eq!(told(&service, &key).await, ["node.host_key_changed"]);
    let after = access(&service, &key, &path).await;
    assert_eq!(after["known_hosts"], before["known_hosts"]);
    assert_eq!(
        after["nodes"][0]["last_reachable_at"],
        before["nodes"][0]["last_reachable_at"]
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_machine_counts_as_lost_where_the_demand_says_so_and_is_replaced() {
    let mut demand = fleet(1);
    demand["policy"]["on_unreachable"] = json!("repair");
    let (service, key, path, machine) = one_machine(&demand).await;
    let first = access(&service, &key, &path).await["nodes"][0]["lease_id"].clone();
    let simulator = service.world.simulator();
    simulator.drop_off_network(&machine).expect("it runs");
    for minutes in [1, 10] {
        pass(&service, minutes);
        assert_eq!(probe(&service).await, (0, 1));
    }
    let turned = service.world.turn(TimeDelta::zero()).await;
    turned.expect("the clock turns");
    let now = service.with(&key).get(&path).await.expect(200);
    assert_eq!(now["state"], "repairing");
    until_active(&service, &key, &path).await;
    let second = access(&service, &key, &path).await["nodes"][0]["lease_id"].clone();
    assert_ne!(first, second);
    let machines = service.world.simulator().running_machines();
    assert!(
        machines.iter().all(|one| one.id != machine),
        "it is left running"
    );
    let lost = "/v1/events?types=lease.lost";
    let lost = service.with(&key).get(lost).await.expect(200);
    assert_eq!(lost["items"][0]["data"]["lease_id"], first);
    assert_eq!(probe(&service).await, (1, 0));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_at_any_provider_answers_it_is_we_who_are_cut_off() {
    let mut demand = fleet(1);
    demand["policy"]["on_unreachable"] = json!("repair");
    let (service, key, path, machine) = one_machine(&demand).await;
    let mut other = training(8);
    other["policy"] = json!({ "on_unreachable": "repair" });
    reserve(&service, &key, &other).await;
    assert_eq!(probe(&service).await, (2, 0));
    let simulator = service.world.simulator();
    let machines = simulator.running_machines();
    assert_eq!(machines.len(), 2);
    for one in &machines {
        simulator.drop_off_network(&one.id).expect("it runs");
    }
    for minutes in [1, 10, 10] {
        pass(&service, minutes);
        assert_eq!(probe(&service).await, (0, 2));
    }
    let turned = service.world.turn(TimeDelta::zero()).await;
    turned.expect("the clock turns");
    assert!(told(&service, &key).await.is_empty());
    let now = service.with(&key).get(&path).await.expect(200);
    assert_eq!(now["state"], "active");

    // One is back, so the other is silent of its own.
    let back = machines.iter().find(|one| one.id != machine);
    simulator
        .return_to_network(&back.expect("the other").id)
        .expect("it runs");
    for minutes in [1, 11] {
        pass(&service, minutes);
        assert_eq!(probe(&service).await, (1, 1));
    }
    assert_eq!(told(&service, &key).await, ["node.unreachable"]);
    service.stop().await;
}
