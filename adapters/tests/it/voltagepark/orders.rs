//! Orders and rentals of Voltage Park, against recorded and made-up answers.

use super::*;

#[tokio::test]
async fn a_recorded_rental_lives_from_order_to_gone() {
    let http = recorded("voltagepark", "lease");
    let order = order(&an_offer(Internode::InfinibandNdr400).await, 2);
    let asked = VoltagePark
        .request_lease(&http, &order)
        .await
        .expect("a rental");
    assert_eq!(
        (asked.state, asked.client_token()),
        (State::Pending, Some(order.client_token.clone()))
    );
    let all = VoltagePark.list_leases(&http).await.expect("a list");
    assert_eq!(
        all.iter().map(|lease| lease.state).collect::<Vec<_>>(),
        [State::Running, State::Pending, State::Pending]
    );
    let found = VoltagePark
        .find_lease(&http, &order.client_token)
        .await
        .expect("a list")
        .expect("the rental");
    assert_eq!(found.id, asked.id);

    let pending = VoltagePark
        .read_lease(&http, &lease(&asked.id.0))
        .await
        .expect("an answer")
        .expect("the rental");
    assert!(pending.nodes.is_empty());
    let running = VoltagePark
        .read_lease(&http, &lease(&asked.id.0))
        .await
        .expect("an answer")
        .expect("the rental");
    assert_eq!(
        (running.state, running.node_count, running.gpus_per_node),
        (State::Running, Some(2), Some(8))
    );
    assert_eq!(
        (running.sku, running.region),
        (
            Some(order.offer.sku.clone()),
            order.offer.place.region.clone()
        )
    );
    assert_eq!(running.created_at, Some(now()));
    let addresses: Vec<_> = running
        .nodes
        .iter()
        .map(|n| (n.host.as_str(), n.private_address.as_deref()))
        .collect();
    assert_eq!(
        addresses,
        [
            ("198.51.100.21", Some("10.15.0.21")),
            ("198.51.100.22", Some("10.15.0.22"))
        ]
    );
    for _ in 0..2 {
        VoltagePark
            .release_lease(&http, &lease(&asked.id.0))
            .await
            .expect("released, then absent");
    }
    assert_eq!(
        VoltagePark
            .read_lease(&http, &lease(&asked.id.0))
            .await
            .expect("an answer"),
        None
    );
}

#[tokio::test]
async fn an_order_names_its_network_all_gpus_and_the_mark() {
    for (internode, word) in [
        (Internode::Ethernet, "ethernet"),
        (Internode::InfinibandNdr400, "infiniband"),
    ] {
        let server = Server::start(vec![Turn::Answer(
            201,
            "",
            json!({"id": "r-1"}).to_string(),
        )])
        .await;
        let order = order(&an_offer(internode).await, 2);
        VoltagePark
            .request_lease(&server.http(), &order)
            .await
            .expect("a rental");
        let request = &server.requests()[0];
        assert!(
            request.starts_with("POST /api/v1/bare-metal/ "),
            "{request}"
        );
        let body: Value =
            serde_json::from_str(request.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
        let expected = json!({
            "location_id": order.offer.place.region, "gpu_count": 16, "name": order.client_token.as_str(),
            "network_type": word, "organization_ssh_keys": {"mode": "none"}, "ssh_keys": [SSH_KEY],
            "tags": [order.client_token.as_str()], "cloudinit_script": order.startup_script,
        });
        assert_eq!(body, expected);
    }
}

#[tokio::test]
async fn what_the_order_answers_decides_what_may_be_done_next() {
    let order = order(&an_offer(Internode::Ethernet).await, 1);
    let answered = async |status: u16, body: Value| {
        let http = made_up(&[("POST", "/bare-metal/", status, body)]);
        VoltagePark
            .request_lease(&http, &order)
            .await
            .expect_err("no rental")
    };
    for (status, detail, next) in [
        (
            400,
            json!("Not enough GPUs are available"),
            Disposition::TryNextCandidate,
        ),
        (
            400,
            json!("Organization quota exceeded"),
            Disposition::TryNextCandidate,
        ),
        (402, json!("Insufficient balance"), Disposition::GiveUp),
        (401, json!("Not authenticated"), Disposition::GiveUp),
        (
            422,
            json!([{"loc": ["body", "gpu_count"], "msg": "has to be a multiple of 8"}]),
            Disposition::Fault,
        ),
        (404, json!("Location not found"), Disposition::Fault),
    ] {
        let error = answered(status, json!({ "detail": detail })).await;
        assert!(error.is_refusal() && !error.is_outcome_unknown(), "{error}");
        assert_eq!(error.disposition(), next, "{error}");
    }
    for (status, body) in [
        (500, json!({})),
        (200, json!({"name": "x"})),
        (200, json!("{\"id\": \"7c9")),
        (307, json!("")),
    ] {
        assert!(
            answered(status, body.clone()).await.is_outcome_unknown(),
            "{status} {body}"
        );
    }
}

#[tokio::test]
async fn an_echo_of_the_order_does_not_show_its_script() {
    let order = order(&an_offer(Internode::Ethernet).await, 1);
    let echo = json!({"detail": [{"loc": ["body"], "msg": "no", "input": {"cloudinit_script": order.startup_script}}]});
    let plain = format!("cannot take {}", order.startup_script);
    for body in [echo.to_string(), plain] {
        let server = Server::start(vec![Turn::Answer(422, "", body)]).await;
        let error = VoltagePark
            .request_lease(&server.http(), &order)
            .await
            .expect_err("a refusal");
        assert!(
            !format!("{error} {error:?}").contains("once-only"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn an_order_that_cannot_be_right_is_never_sent() {
    let nobody = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let offer = an_offer(Internode::Ethernet).await;
    let mut nowhere = order(&offer, 1);
    nowhere.offer.place.region = None;
    let mut other_network = order(&offer, 1);
    other_network.offer.internode = Internode::Unknown;
    for order in [
        order(&offer, 0),
        order(&offer, 1_025),
        order(&offer, u32::MAX),
        nowhere,
        other_network,
    ] {
        let error = VoltagePark
            .request_lease(&nobody, &order)
            .await
            .expect_err("an impossible order");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
}

#[tokio::test]
async fn a_rental_whose_id_is_a_step_up_the_path_is_neither_listed_nor_ended() {
    let listed = page(&[json!({"id": "..", "status": "Running"})], 1, false);
    let http = made_up(&[("GET", "/bare-metal/?limit=50&offset=0", 200, listed)]);
    assert!(VoltagePark.list_leases(&http).await.is_err());
    let server = Server::start(vec![Turn::Answer(200, "", "{}".into())]).await;
    let lease = lease("..");
    let error = VoltagePark.release_lease(&server.http(), &lease).await;
    assert!(matches!(error, Err(AdapterError::BadId(_))), "{error:?}");
    assert!(server.requests().is_empty());
}
