//! Orders and machines.

use adapters::providers::digitalocean::DigitalOcean;
use adapters::{Adapter, AdapterError, Disposition, Release};
use market::machine::{ImageChoice, MachineRequest};
use market::order::{LeaseOrder, ProviderLeaseState as State};
use serde_json::{Value, json};

use super::{an_offer, page};
use crate::recorded::{SSH_KEY, lease, made_up, order, recorded};
use crate::server::{Server, Turn};

const DROPLETS: &str = "/droplets?type=gpus&per_page=200&page=1";

#[tokio::test]
async fn a_recorded_lease_lives_from_launch_to_gone() {
    let http = recorded("digitalocean", "lease");
    let order = order(&an_offer("gpu-h100x8-640gb").await, 1);
    let asked = DigitalOcean
        .request_lease(&http, &order)
        .await
        .expect("a launch");
    let token = Some(order.client_token.clone());
    assert_eq!((asked.state, asked.client_token()), (State::Pending, token));
    // Renamed in the console; the tag still identifies it.
    let found = DigitalOcean.find_lease(&http, &order.client_token).await;
    assert_eq!(found.expect("a list").expect("the lease").id, asked.id);
    let all = DigitalOcean.list_leases(&http).await.expect("a list");
    let states: Vec<_> = all.iter().map(|lease| lease.state).collect();
    assert_eq!(
        states,
        [
            State::Running,
            State::Running,
            State::Failed,
            State::Pending
        ]
    );

    let of_lease = lease(&asked.id.0);
    let read = async || {
        DigitalOcean
            .read_lease(&http, &of_lease)
            .await
            .expect("an answer")
    };
    assert!(read().await.expect("the lease").nodes.is_empty());
    let active = read().await.expect("the lease");
    assert_eq!(active.state, State::Running);
    assert_eq!(active.sku.as_deref(), Some("gpu-h100x8-640gb"));
    assert_eq!(active.region.as_deref(), Some("nyc2"));
    assert_eq!(
        (active.node_count, active.gpus_per_node),
        (Some(1), Some(8))
    );
    assert_eq!(
        active.price_per_node_hour,
        Some(order.offer.price_per_node_hour)
    );
    let created_at = active.created_at.expect("a time").to_rfc3339();
    assert_eq!(created_at, "2026-11-21T09:58:30+00:00");
    let node = &active.nodes[0];
    assert_eq!(
        (node.host.as_str(), node.user.as_str(), node.port),
        ("203.0.113.7", "root", 22)
    );
    assert_eq!(node.private_address.as_deref(), Some("10.108.0.4"));

    for expected in [Release::NotYet, Release::Accepted, Release::NotShown] {
        let released = DigitalOcean.release_lease(&http, &of_lease).await;
        assert_eq!(released.expect("an answer"), expected);
    }
    assert_eq!(read().await, None);
    let tags = DigitalOcean
        .list_attachments(&http)
        .await
        .expect("the tags");
    let [tag] = tags.as_slice() else {
        panic!("{tags:?}");
    };
    assert_eq!(tag.client_token, order.client_token);
    for _ in 0..2 {
        let removed = DigitalOcean.remove_attachment(&http, tag).await;
        removed.expect("removed, then absent");
    }
}

#[tokio::test]
async fn a_launch_sends_the_mark_the_image_and_user_data_and_nothing_else() {
    let launched = || Turn::Answer(202, "", json!({"droplet": {"id": 7}}).to_string());
    let server = Server::start(vec![launched(), launched(), launched(), launched()]).await;
    let body = |request: &str| -> Value {
        assert!(request.starts_with("POST /api/v1/droplets "), "{request}");
        serde_json::from_str(request.split_once("\r\n\r\n").expect("a body").1).expect("JSON")
    };
    let eight = order(&an_offer("gpu-h100x8-640gb").await, 1);
    let single = order(&an_offer("gpu-h100x1-80gb").await, 1);
    let amd = order(&an_offer("gpu-mi325x1-256gb").await, 1);
    let asking = |image: ImageChoice| {
        let machine = MachineRequest {
            image: Some(image),
            disk_gib: Some(2_046),
            ports: vec![443],
        };
        let order = eight.clone();
        LeaseOrder { machine, ..order }
    };
    let word = asking(ImageChoice::Catalogue("ubuntu-22.04-cuda-12".into()));
    let own = asking(ImageChoice::Provider("191509034".into()));
    for order in [&single, &amd, &word, &own] {
        let lease = DigitalOcean.request_lease(&server.http(), order).await;
        assert_eq!(lease.expect("a launch").id.0, "7");
    }
    let bodies: Vec<_> = server
        .requests()
        .iter()
        .map(|request| body(request))
        .collect();
    let images: Vec<_> = bodies.iter().map(|body| body["image"].clone()).collect();
    let expected = [
        json!("gpu-h100x1-base"),
        json!("gpu-amd-base"),
        json!("gpu-h100x8-base"),
        json!(191_509_034),
    ];
    assert_eq!(images, expected);

    let mut launch = bodies[2].clone();
    let user_data = launch["user_data"].take();
    let token = eight.client_token.as_str();
    let expected = json!({"name": token, "region": "nyc2", "size": "gpu-h100x8-640gb", "image": "gpu-h100x8-base",
        "tags": [token], "user_data": null});
    assert_eq!(launch, expected);
    let user_data = user_data.as_str().expect("a text");
    let configuration = format!(
        "#cloud-config\nssh_authorized_keys:\n  - \"{SSH_KEY}\"\nssh_pwauth: false\nchpasswd:\n  expire: false\n  \
         list: |\n    root:RANDOM\n"
    );
    assert!(user_data.contains(&configuration), "{user_data}");
    assert!(user_data.contains(&eight.startup_script), "{user_data}");
}

#[tokio::test]
async fn what_the_launch_answers_decides_what_may_be_done_next() {
    let order = order(&an_offer("gpu-h100x8-640gb").await, 1);
    let answered = async |status: u16, body: Value| {
        let http = made_up(&[("POST", "/droplets", status, body)]);
        let launched = DigitalOcean.request_lease(&http, &order).await;
        launched.expect_err("no launch")
    };
    let says = |message: &str| json!({"id": "unprocessable_entity", "message": message});
    for (status, words, next) in [
        (
            422,
            "Size is not available in this region.",
            Disposition::TryNextCandidate,
        ),
        (
            422,
            "The size you selected is temporarily unavailable because of server capacity",
            Disposition::TryNextCandidate,
        ),
        (
            422,
            "creating this/these droplet(s) will exceed your droplet limit",
            Disposition::TryNextCandidate,
        ),
        (
            422,
            "The image you specified is not available in this region",
            Disposition::Fault,
        ),
        (
            422,
            "You specified an invalid size for Droplet creation.",
            Disposition::Fault,
        ),
        (
            403,
            "You are not authorized to perform this operation",
            Disposition::GiveUp,
        ),
        (401, "Unable to authenticate you", Disposition::GiveUp),
        (422, "A payment method is needed", Disposition::GiveUp),
    ] {
        let error = answered(status, says(words)).await;
        assert!(
            error.is_refusal() && !error.is_outcome_unknown(),
            "{words}: {error}"
        );
        assert_eq!(error.disposition(), next, "{words}");
    }
    let limited = answered(429, json!({"id": "too_many_requests"})).await;
    assert!(
        matches!(limited, AdapterError::RateLimited { .. }),
        "{limited}"
    );
    for (status, body) in [
        (500, says("server error")),
        (409, says("conflict")),
        (202, json!({"droplet": {}})),
        (202, json!({"droplets": []})),
        (202, json!("{\"droplet\": {\"id")),
    ] {
        let error = answered(status, body.clone()).await;
        assert!(error.is_outcome_unknown(), "{body}: {error}");
    }
}

#[tokio::test]
async fn an_order_that_cannot_be_right_is_never_sent() {
    let nobody = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let good = order(&an_offer("gpu-h100x8-640gb").await, 1);
    let mut no_region = good.clone();
    no_region.offer.place.region = None;
    let mut smuggled = good.clone();
    smuggled.ssh_public_keys[0].push_str("\nssh-rsa AAAA another");
    let mut large = good.clone();
    large.startup_script = "#".repeat(65_536);
    let mut disk = good.clone();
    disk.machine.disk_gib = Some(2_047);
    let mut container = good.clone();
    let digest = format!("registry.example.com/a@sha256:{}", "0f".repeat(32));
    container.machine.image = Some(ImageChoice::Container(digest));
    let mut word = good.clone();
    word.machine.image = Some(ImageChoice::Catalogue("ubuntu-18.04".into()));
    let mut cuda = order(&an_offer("gpu-mi325x1-256gb").await, 1);
    cuda.machine.image = Some(ImageChoice::Catalogue("ubuntu-22.04-cuda-12".into()));
    let two = order(&good.offer, 2);
    for order in [two, no_region, smuggled, large, disk, container, word, cuda] {
        let sent = DigitalOcean.request_lease(&nobody, &order).await;
        let error = sent.expect_err("an impossible order");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
}

#[tokio::test]
async fn half_a_list_is_no_list_and_a_refusal_is_no_end() {
    let one = json!({"id": 7, "status": "active"});
    for body in [
        page("droplets", std::slice::from_ref(&one), 2),
        page("droplets", &[json!({"status": "active"})], 1),
        json!({"droplets": [one]}),
    ] {
        let http = made_up(&[("GET", DROPLETS, 200, body)]);
        assert!(DigitalOcean.list_leases(&http).await.is_err());
    }
    let empty = made_up(&[("GET", DROPLETS, 200, page("droplets", &[], 0))]);
    let none = DigitalOcean.list_leases(&empty).await.expect("a list");
    assert!(none.is_empty());
    for (status, message) in [
        (403, "You are not authorized"),
        (422, "no"),
        (409, "pending event"),
    ] {
        let refused = made_up(&[("DELETE", "/droplets/7", status, json!({"message": message}))]);
        assert!(
            DigitalOcean
                .release_lease(&refused, &lease("7"))
                .await
                .is_err()
        );
    }
    let bad = DigitalOcean.read_lease(&empty, &lease("..")).await;
    assert!(matches!(bad, Err(AdapterError::BadId(_))), "{bad:?}");
}
