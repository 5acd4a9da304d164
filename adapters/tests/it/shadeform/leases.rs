//! Machines and clusters at Shadeform.

use adapters::{Http, Release};
use market::order::{EndReason, ProviderLease, ProviderLeaseState as State};

use super::orders::{CLUSTER_SKU, an_order, an_order_of_a_cluster};
use super::*;
use crate::recorded::lease;

async fn read_as(id: &str, path: &str, body: Value) -> ProviderLease {
    let http = made_up(&[("GET", path, 200, body)]);
    let read = Shadeform
        .read_lease(&http, &lease(id))
        .await
        .expect("an answer");
    read.expect("a lease")
}

#[tokio::test]
async fn a_recorded_machine_lives_from_order_to_gone() {
    let http = recorded("shadeform", "lease");
    let order = an_order().await;
    let asked = Shadeform
        .request_lease(&http, &order)
        .await
        .expect("a machine");
    assert_eq!(
        (asked.state, asked.client_token()),
        (State::Pending, Some(order.client_token.clone()))
    );
    let all = Shadeform.list_leases(&http).await.expect("a list");
    let states: Vec<_> = all.iter().map(|lease| lease.state).collect();
    assert_eq!(states, [State::Running, State::Pending, State::Pending]);
    assert_eq!(all[0].nodes[0].user, "ubuntu");
    assert!(all[0].created_at.is_some_and(|at| at < now()));
    let found = Shadeform
        .find_lease(&http, &order.client_token)
        .await
        .expect("a list");
    assert_eq!(found.expect("the machine").id, asked.id);

    let lease = lease(&asked.id.0);
    let pending = Shadeform
        .read_lease(&http, &lease)
        .await
        .expect("an answer")
        .expect("the machine");
    assert!(pending.nodes.is_empty());
    let running = Shadeform
        .read_lease(&http, &lease)
        .await
        .expect("an answer")
        .expect("the machine");
    assert_eq!(
        (running.state, running.node_count, running.gpus_per_node),
        (State::Running, Some(1), Some(8))
    );
    assert_eq!(
        (running.sku, running.region),
        (
            Some(order.offer.sku.clone()),
            order.offer.place.region.clone()
        )
    );
    assert_eq!(
        (running.created_at, running.price_per_node_hour),
        (Some(now()), Some(order.offer.price_per_node_hour))
    );
    let node = &running.nodes[0];
    assert_eq!(
        (node.host.as_str(), node.port, node.user.as_str()),
        ("198.51.100.21", 2222, "shadeform")
    );
    for expected in [Release::Accepted, Release::NotShown] {
        assert_eq!(
            Shadeform
                .release_lease(&http, &lease)
                .await
                .expect("an answer"),
            expected
        );
    }
    assert_eq!(
        Shadeform
            .read_lease(&http, &lease)
            .await
            .expect("an answer"),
        None
    );
}

fn node(id: &str, status: &str, ip: &str) -> Value {
    json!({"id": id, "cloud": "denvr", "shade_instance_type": "H100_sxm5x8", "status": status, "ip": ip, "ssh_user": "shadeform",
        "ssh_port": 22, "hourly_price": 1400, "configuration": {"num_gpus": 8}})
}

fn of_two(status: &str, nodes: [Value; 2]) -> Value {
    json!({"id": "c-1", "cloud": "denvr", "name": "gpb-00000000000000000000000000000007", "status": status, "hourly_price": 2800,
        "region_info": {"region": "houston-usa-1", "display_name": "US, Houston, TX"}, "instances": nodes,
        "created_at": "2026-11-21 10:00:00+00:00"})
}

#[tokio::test]
async fn a_cluster_is_found_read_and_ended_by_paths_of_its_own() {
    let order = an_order_of_a_cluster().await;
    let up = of_two(
        "active",
        [
            node("n-1", "active", "198.51.100.1"),
            node("n-2", "active", "198.51.100.2"),
        ],
    );
    let keys = json!({"ssh_keys": [{"id": "k-1", "name": order.client_token, "public_key": order.ssh_public_keys[1]}]});
    let http = made_up(&[
        ("GET", "/sshkeys", 200, keys),
        ("POST", "/clusters/create", 200, json!({"id": "c-1"})),
        (
            "GET",
            "/clusters",
            200,
            json!({"clusters": [of_two("pending", [node("n-1", "pending", ""), node("n-2", "pending", "")])]}),
        ),
        // Machines of a cluster are no leases of their own.
        (
            "GET",
            "/instances",
            200,
            json!({"instances": [node("n-1", "pending", ""), node("n-3", "active", "198.51.100.3")]}),
        ),
        ("GET", "/clusters/c-1/info", 200, up),
        (
            "GET",
            "/clusters/c-1/info",
            404,
            json!({"error": "not found"}),
        ),
        ("POST", "/clusters/c-1/delete", 200, json!({})),
        (
            "POST",
            "/clusters/c-1/delete",
            404,
            json!({"error": "not found"}),
        ),
        ("POST", "/sshkeys/k-1/delete", 200, json!({})),
        (
            "POST",
            "/sshkeys/k-1/delete",
            404,
            json!({"error": "not found"}),
        ),
    ]);
    let asked = Shadeform
        .request_lease(&http, &order)
        .await
        .expect("a cluster");
    assert_eq!(asked.id.0, "cluster/c-1");
    let all = Shadeform.list_leases(&http).await.expect("a list");
    let ids: Vec<_> = all.iter().map(|lease| lease.id.0.as_str()).collect();
    assert_eq!(ids, ["n-3", "cluster/c-1"]);
    let found = Shadeform
        .find_lease(&http, &order.client_token)
        .await
        .expect("a list")
        .expect("the cluster");
    assert_eq!(
        (found.id, found.state, found.node_count),
        (asked.id.clone(), State::Pending, None)
    );
    let lease = lease("cluster/c-1");
    let running = Shadeform
        .read_lease(&http, &lease)
        .await
        .expect("an answer")
        .expect("the cluster");
    assert_eq!(
        (running.state, running.node_count, running.gpus_per_node),
        (State::Running, Some(2), Some(8))
    );
    assert_eq!(
        (running.sku.as_deref(), running.region.as_deref()),
        (Some(CLUSTER_SKU), Some("houston-usa-1"))
    );
    assert_eq!(
        (running.price_per_node_hour, running.created_at),
        (Some(order.offer.price_per_node_hour), Some(now()))
    );
    assert_eq!(running.nodes.len(), 2);
    for expected in [Release::Accepted, Release::NotShown] {
        assert_eq!(
            Shadeform
                .release_lease(&http, &lease)
                .await
                .expect("an answer"),
            expected
        );
    }
    assert_eq!(
        Shadeform
            .read_lease(&http, &lease)
            .await
            .expect("an answer"),
        None
    );
    let beside = Shadeform.list_attachments(&http).await.expect("a list");
    assert_eq!(
        (beside.len(), &beside[0].client_token),
        (1, &order.client_token)
    );
    for _ in 0..2 {
        Shadeform
            .remove_attachment(&http, &beside[0])
            .await
            .expect("removed, then absent");
    }
}

#[tokio::test]
async fn a_cluster_runs_when_all_its_machines_do() {
    let (up, coming) = (
        node("n-1", "active", "198.51.100.1"),
        node("n-2", "pending", ""),
    );
    for (status, second, state, nodes) in [
        ("active", coming.clone(), State::Pending, None),
        (
            "active",
            node("n-2", "active", "198.51.100.2"),
            State::Running,
            Some(2),
        ),
        ("active", node("n-2", "error", ""), State::Failed, None),
        ("pending", up.clone(), State::Pending, None),
        ("deleting", coming, State::Ending, None),
        ("deleted", up.clone(), State::Gone, None),
        ("resizing", up.clone(), State::Pending, None),
    ] {
        let read = read_as(
            "cluster/c-1",
            "/clusters/c-1/info",
            of_two(status, [up.clone(), second]),
        )
        .await;
        assert_eq!((read.state, read.node_count), (state, nodes), "{status}");
    }
    let empty = json!({"id": "c-1", "status": "active"});
    assert_eq!(
        read_as("cluster/c-1", "/clusters/c-1/info", empty)
            .await
            .state,
        State::Pending
    );
}

#[tokio::test]
async fn what_a_machine_says_of_itself_is_believed_as_far_as_it_is_credible() {
    let read = async |body: Value| read_as("n-1", "/instances/n-1/info", body).await;
    for (status, details, state, why) in [
        ("creating", "", State::Pending, None),
        ("pending_provider", "", State::Pending, None),
        ("active", "", State::Running, None),
        ("error", "disk broke", State::Failed, None),
        (
            "error",
            "The cloud has no capacity",
            State::Failed,
            Some(EndReason::NoCapacity),
        ),
        (
            "deleting",
            "preempted",
            State::Ending,
            Some(EndReason::Preempted),
        ),
        (
            "deleted",
            "preempted",
            State::Gone,
            Some(EndReason::Preempted),
        ),
        ("deleting", "", State::Ending, None),
        ("shipping", "preempted", State::Pending, None),
    ] {
        let body = with(node("n-1", status, ""), "/status_details", json!(details));
        let lease = read(body).await;
        assert_eq!(
            (lease.state, lease.end_reason),
            (state, why),
            "{status} {details}"
        );
    }
    let up = || node("n-1", "active", "198.51.100.1");
    let price = |lease: ProviderLease| lease.price_per_node_hour.map(|price| price.to_string());
    assert_eq!(price(read(up()).await), Some("14.00".into()));
    let spot = with(
        up(),
        "/rental_terms",
        json!({"rental_type": "spot", "hourly_price": "9.10"}),
    );
    assert_eq!(price(read(spot).await), Some("9.10".into()));
    for odd in [
        json!(0),
        json!(-1),
        json!("14.00"),
        json!(99_999_999),
        Value::Null,
    ] {
        assert_eq!(
            price(read(with(up(), "/hourly_price", odd.clone())).await),
            None,
            "{odd}"
        );
    }
    for (user, shown) in [
        (json!("root"), "root"),
        (json!("-oProxyCommand=id"), "shadeform"),
        (json!("-F"), "shadeform"),
        (json!("a b"), "shadeform"),
        (Value::Null, "shadeform"),
    ] {
        assert_eq!(
            read(with(up(), "/ssh_user", user)).await.nodes[0].user,
            shown
        );
    }
    let never = with(up(), "/created_at", json!("0001-01-01T00:00:00Z"));
    assert_eq!(read(never).await.created_at, None);
}

#[tokio::test]
async fn half_a_list_is_no_list_and_a_machine_that_comes_up_is_ended_later() {
    let listed = |clusters: (u16, Value), instances: (u16, Value)| -> Http {
        made_up(&[
            ("GET", "/clusters", clusters.0, clusters.1),
            ("GET", "/instances", instances.0, instances.1),
        ])
    };
    let none = (200, json!({"clusters": []}));
    for http in [
        listed((404, json!({})), (200, json!({"instances": []}))),
        listed((500, json!({})), (200, json!({"instances": []}))),
        listed(none.clone(), (200, json!({}))),
        listed(none.clone(), (200, json!({"instances": [{"id": "x"}]}))),
        listed(
            none.clone(),
            (200, json!({"instances": [node("..", "active", "")]})),
        ),
        listed(
            (200, json!({"clusters": [{"id": "", "status": "active"}]})),
            (200, json!({"instances": []})),
        ),
    ] {
        assert!(Shadeform.list_leases(&http).await.is_err());
    }
    let empty = listed(none, (200, json!({"instances": []})));
    assert_eq!(Shadeform.list_leases(&empty).await.expect("a list"), []);
    let released = async |status: u16, words: &str| {
        let http = made_up(&[(
            "POST",
            "/instances/n-1/delete",
            status,
            json!({"error": words}),
        )]);
        Shadeform.release_lease(&http, &lease("n-1")).await
    };
    assert_eq!(
        released(400, "instance is creating")
            .await
            .expect("an answer"),
        Release::NotYet
    );
    assert!(released(400, "bad request").await.is_err());
    assert!(released(403, "creating is forbidden").await.is_err());
}
