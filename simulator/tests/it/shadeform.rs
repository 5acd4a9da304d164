//! Clusters of Shadeform, beside its machines: what the suite for all adapters does not look at.

use adapters::providers::shadeform::Shadeform;
use adapters::{Adapter, NodesPerLease, registry};
use market::ids::{LeaseId, ProviderId};
use market::machine::MachineRequest;
use market::offer::Offer;
use market::order::{ClientToken, LeaseOrder, LeaseRef, ProviderLeaseState as State};
use serde_json::{Value, json};
use simulator::Provider;

use crate::bench::Bench;
use crate::stage::KEY;

async fn bench() -> Bench {
    let id = ProviderId::parse(Provider::SHADEFORM.as_str()).unwrap();
    Bench::of(Provider::SHADEFORM, registry::by_id(&id).unwrap()).await
}

fn order(offer: &Offer, nodes: u32) -> LeaseOrder {
    let client_token = ClientToken::of(LeaseId::from_uuid(uuid::Uuid::from_u128(9)));
    let own = format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBBB {client_token}");
    LeaseOrder {
        offer: offer.clone(),
        nodes,
        machine: MachineRequest::default(),
        ssh_public_keys: vec![KEY.to_owned(), own],
        startup_script: String::new(),
        client_token,
    }
}

#[tokio::test]
async fn a_gang_of_each_gpu_is_one_cluster_and_its_key_goes_after_it() {
    let bench = bench().await;
    let offers = bench.read_catalog().await.offers;
    let holds_two = |offer: &&Offer| {
        let several = Shadeform.nodes_per_lease(offer) == NodesPerLease::Rental { max: 2 };
        several && offer.availability.may_hold(2)
    };
    let clusters: Vec<&Offer> = offers.iter().filter(holds_two).collect();
    let gpus: Vec<String> = clusters.iter().map(|one| one.gpu.to_string()).collect();
    assert_eq!(gpus, ["H100-SXM", "H200-SXM", "B200-SXM"]);
    for offer in clusters {
        let order = order(offer, 2);
        let made = Shadeform.request_lease(&bench.http, &order).await.unwrap();
        assert!(made.id.0.starts_with("cluster/"), "{}", made.id);
        bench.boot();
        let found = Shadeform.find_lease(&bench.http, &order.client_token).await;
        let found = found.unwrap().unwrap();
        assert_eq!((&found.id, found.state), (&made.id, State::Running));
        assert_eq!((found.node_count, found.nodes.len()), (Some(2), 2));
        assert_eq!(found.sku.as_deref(), Some(&*offer.sku));
        assert_eq!(found.price_per_node_hour, Some(offer.price_per_node_hour));
        let lease = LeaseRef {
            id: made.id,
            client_token: order.client_token.clone(),
            region: None,
        };
        Shadeform.release_lease(&bench.http, &lease).await.unwrap();
        bench.clock.turn(3_600);
        let gone = Shadeform.read_lease(&bench.http, &lease).await.unwrap();
        assert_eq!(gone, None);
        let beside = Shadeform.list_attachments(&bench.http).await.unwrap();
        assert_eq!(beside.len(), 1);
        let removed = Shadeform.remove_attachment(&bench.http, &beside[0]).await;
        removed.unwrap();
        assert_eq!(bench.simulator.things(bench.provider), []);
    }
    assert_eq!(bench.simulator.running_machines(), []);
}

#[tokio::test]
async fn a_cluster_is_no_machine_and_a_machine_no_cluster() {
    let bench = bench().await;
    let lease = bench.order().await;
    let url = bench.simulator.url(bench.provider);
    let key = bench.simulator.credential(bench.provider);
    let get = async |path: String| {
        let request = reqwest::Client::new().get(format!("{url}{path}"));
        let answer = request.header("x-api-key", &key).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.unwrap())
    };
    let (status, body) = get(format!("/instances/{}/info", lease.id)).await;
    assert_eq!((status, &body["status"]), (200, &json!("pending")));
    assert_eq!(body["ip"], json!(""));
    let (status, body) = get(format!("/clusters/{}/info", lease.id)).await;
    assert_eq!((status, body["error"].is_string()), (404, true));
    assert_eq!(get("/clusters".to_owned()).await.1, json!({"clusters": []}));
}
