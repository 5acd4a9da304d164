//! Lambda Cloud, over recordings and against a scripted server.

use std::collections::BTreeMap;

use adapters::providers::lambda::Lambda;
use adapters::{Adapter, AdapterError, Disposition, Http};
use market::catalog::{CatalogReading, SkipReason, Unread};
use market::offer::{AvailabilityLevel, Offer};
use market::order::ProviderLeaseState as State;
use serde_json::{Value, json};

use crate::recorded::{SSH_KEY, assert_golden, fixtures, lease, made_up, now, order, recorded};
use crate::server::{Server, Turn};

async fn read(http: &Http) -> CatalogReading {
    Lambda.read_catalog(http, now()).await.expect("a reading")
}

fn types(types: Value) -> Http {
    made_up(&[("GET", "/instance-types", 200, json!({ "data": types }))])
}

fn kind(regions: &[&str]) -> Value {
    let regions: Vec<Value> = regions
        .iter()
        .map(|name| json!({"name": name, "description": ""}))
        .collect();
    json!({
        "instance_type": {"name": "gpu_1x_a10", "description": "1x A10 (24 GB PCIe)", "gpu_description": "A10 (24 GB PCIe)",
            "price_cents_per_hour": 75, "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": 1}},
        "regions_with_capacity_available": regions,
    })
}

async fn an_offer(sku: &str) -> Offer {
    let offers = read(&recorded("lambda", "catalog")).await.offers;
    let to_be_had = |offer: &&Offer| offer.sku == sku && !offer.availability.is_sold_out();
    offers.iter().find(to_be_had).expect("an offer").clone()
}

#[tokio::test]
async fn the_recorded_catalogue_gives_the_golden_offers() {
    let reading = read(&recorded("lambda", "catalog")).await;
    assert!(reading.is_whole());
    assert_golden("lambda", &reading);
}

#[tokio::test]
async fn every_type_stands_in_every_region_and_is_to_be_had_where_named() {
    let reading = read(&recorded("lambda", "catalog")).await;
    let mut by_sku: BTreeMap<&str, Vec<&Offer>> = BTreeMap::new();
    for offer in &reading.offers {
        by_sku.entry(&offer.sku).or_default().push(offer);
    }
    // Five regions of the account and one that only the price answer has.
    assert!(by_sku.values().all(|offers| offers.len() == 6));
    let to_be_had = |sku: &str| {
        by_sku[sku]
            .iter()
            .filter(|o| o.availability.level == AvailabilityLevel::Present)
            .count()
    };
    assert_eq!(to_be_had("gpu_8x_h100_sxm5"), 2);
    assert_eq!(to_be_had("gpu_8x_a100"), 0);
    assert_eq!(reading.skipped.len(), 6);
}

#[tokio::test]
async fn an_offer_keeps_its_id_when_it_sells_out() {
    let regions = (
        "GET",
        "/regions",
        200,
        json!({"data": [{"name": "us-east-1", "description": ""}]}),
    );
    let ids = |to_be_had: &[&str]| {
        let listed = json!({"data": {"gpu_1x_a10": kind(to_be_had)}});
        let http = made_up(&[("GET", "/instance-types", 200, listed), regions.clone()]);
        async move {
            let reading = read(&http).await;
            assert!(reading.is_whole());
            reading
                .offers
                .iter()
                .map(|offer| (offer.offer_id, offer.availability.is_sold_out()))
                .collect::<Vec<_>>()
        }
    };
    let (stocked, sold_out) = (ids(&["us-east-1"]).await, ids(&[]).await);
    assert_eq!(
        (stocked[0].0, stocked[0].1, sold_out[0].1),
        (sold_out[0].0, false, true)
    );
}

#[tokio::test]
async fn the_price_answer_alone_is_enough_to_show_offers() {
    let file = fixtures("lambda").join("catalog/01-get-instance-types.json");
    let reading = read(&Http::replay(file).expect("a recording")).await;
    assert!(
        reading
            .offers
            .iter()
            .any(|offer| offer.sku == "gpu_8x_h100_sxm5")
    );
}

#[tokio::test]
async fn a_listing_that_is_empty_broken_or_partly_unreadable_is_not_complete() {
    assert!(
        read(&types(json!({"gpu_1x_a10": kind(&["us-east-1"])})))
            .await
            .is_whole()
    );
    assert!(!read(&types(json!({}))).await.is_whole());
    // No region is known.
    let nowhere = read(&types(json!({"gpu_1x_a10": kind(&[])}))).await;
    assert!(
        !nowhere.is_whole() && nowhere.offers.len() == 1 && nowhere.offers[0].place.is_unknown()
    );
    let unreadable =
        json!({"gpu_1x_a10": kind(&["us-east-1"]), "gpu_8x_odd": {"instance_type": "gpu_8x_odd"}});
    let reading = read(&types(unreadable)).await;
    assert!(!reading.is_whole());
    let odd = Unread::Skus(["gpu_8x_odd".to_owned()].into());
    assert_eq!((reading.offers.len(), &reading.unread), (1, &odd));
    assert_eq!(reading.skipped[0].reason, SkipReason::Unreadable);
    assert_eq!(reading.skipped[0].sku.as_deref(), Some("gpu_8x_odd"));
    let no_regions = made_up(&[
        (
            "GET",
            "/instance-types",
            200,
            json!({"data": {"gpu_1x_a10": kind(&["us-east-1"])}}),
        ),
        ("GET", "/regions", 500, json!({})),
    ]);
    let reading = read(&no_regions).await;
    assert_eq!((reading.offers.len(), &reading.unread), (1, &Unread::Rest));
    assert!(reading.skipped[0].why.contains("the list of regions"));
    let cut_short = made_up(&[(
        "GET",
        "/instance-types",
        200,
        json!(r#"{"data": {"gpu_1x_a10": {"ins"#),
    )]);
    assert!(matches!(
        Lambda.read_catalog(&cut_short, now()).await,
        Err(AdapterError::Unreadable { .. })
    ));
}

#[tokio::test]
async fn a_recorded_lease_lives_from_launch_to_gone() {
    let http = recorded("lambda", "lease");
    let order = order(&an_offer("gpu_8x_h100_sxm5").await, 1);
    let asked = Lambda.request_lease(&http, &order).await.expect("a launch");
    assert_eq!(
        (asked.state, asked.client_token()),
        (State::Pending, Some(order.client_token.clone()))
    );
    // Renamed in the console; the tag still identifies it.
    let found = Lambda
        .find_lease(&http, &order.client_token)
        .await
        .expect("a list")
        .expect("the lease");
    assert_eq!(found.id, asked.id);
    let all = Lambda.list_leases(&http).await.expect("a list");
    assert_eq!(
        all.iter().map(|lease| lease.state).collect::<Vec<_>>(),
        [State::Running, State::Pending, State::Pending]
    );
    assert!(all[2].nodes.is_empty() && all[0].client_token().is_none());

    let booting = Lambda
        .read_lease(&http, &lease(&asked.id.0))
        .await
        .expect("an answer")
        .expect("the lease");
    assert!(booting.nodes.is_empty());
    let active = Lambda
        .read_lease(&http, &lease(&asked.id.0))
        .await
        .expect("an answer")
        .expect("the lease");
    assert_eq!(active.state, State::Running);
    assert_eq!(
        (active.sku.as_deref(), active.region.as_deref()),
        (Some("gpu_8x_h100_sxm5"), Some("us-east-1"))
    );
    assert_eq!(
        (active.node_count, active.gpus_per_node),
        (Some(1), Some(8))
    );
    assert_eq!(
        (active.nodes[0].host.as_str(), active.nodes[0].user.as_str()),
        ("198.51.100.2", "ubuntu")
    );
    for _ in 0..2 {
        Lambda
            .release_lease(&http, &lease(&asked.id.0))
            .await
            .expect("released, then absent");
    }
    assert_eq!(
        Lambda
            .read_lease(&http, &lease(&asked.id.0))
            .await
            .expect("an answer"),
        None
    );
}

#[tokio::test]
async fn a_launch_sends_the_mark_the_script_and_one_key_that_it_registered() {
    let launched = || {
        Turn::Answer(
            200,
            "",
            json!({"data": {"instance_ids": ["i-1"]}}).to_string(),
        )
    };
    let known = json!({"data": [{"id": "k", "name": "theirs", "public_key": SSH_KEY.replace("somebody", "else")}]});
    let no_keys = || Turn::Answer(200, "", json!({"data": []}).to_string());
    let added = || Turn::Answer(200, "", json!({"data": {}}).to_string());
    let order = order(&an_offer("gpu_8x_h100_sxm5").await, 1);
    let body = |request: &str| -> Value {
        serde_json::from_str(request.split_once("\r\n\r\n").expect("a body").1).expect("JSON")
    };

    let fresh = Server::start(vec![no_keys(), added(), launched()]).await;
    Lambda
        .request_lease(&fresh.http(), &order)
        .await
        .expect("a launch");
    let requests = fresh.requests();
    let key = body(&requests[1]);
    let launch = body(&requests[2]);
    assert!(requests[2].starts_with("POST /api/v1/instance-operations/launch "));
    assert_eq!(launch["ssh_key_names"], json!([key["name"]]));
    assert_eq!(key["public_key"], SSH_KEY);
    assert_eq!(
        (&launch["region_name"], &launch["instance_type_name"]),
        (&json!("us-east-1"), &json!("gpu_8x_h100_sxm5"))
    );
    assert_eq!(
        (&launch["name"], &launch["user_data"]),
        (
            &json!(order.client_token.as_str()),
            &json!(order.startup_script)
        )
    );
    assert_eq!(launch["tags"][0]["value"], order.client_token.as_str());

    let registered =
        Server::start(vec![Turn::Answer(200, "", known.to_string()), launched()]).await;
    Lambda
        .request_lease(&registered.http(), &order)
        .await
        .expect("a launch");
    assert_eq!(
        body(&registered.requests()[1])["ssh_key_names"],
        json!(["theirs"])
    );
}

#[tokio::test]
async fn what_the_launch_answers_decides_what_may_be_done_next() {
    let keys = (
        "GET",
        "/ssh-keys",
        200,
        json!({"data": [{"id": "k", "name": "k", "public_key": SSH_KEY}]}),
    );
    let order = order(&an_offer("gpu_8x_h100_sxm5").await, 1);
    let answered = async |status: u16, body: Value| {
        let http = made_up(&[
            keys.clone(),
            ("POST", "/instance-operations/launch", status, body),
        ]);
        Lambda
            .request_lease(&http, &order)
            .await
            .expect_err("no launch")
    };
    let code = |code: &str| json!({"error": {"code": code, "message": "no"}});
    for (status, refusal, next) in [
        (
            400,
            "instance-operations/launch/insufficient-capacity",
            Disposition::TryNextCandidate,
        ),
        (400, "global/quota-exceeded", Disposition::TryNextCandidate),
        (400, "global/invalid-parameters", Disposition::Fault),
        (404, "global/object-does-not-exist", Disposition::Fault),
        (401, "global/invalid-api-key", Disposition::GiveUp),
        (403, "global/account-inactive", Disposition::GiveUp),
    ] {
        let error = answered(status, code(refusal)).await;
        assert!(
            error.is_refusal() && !error.is_outcome_unknown(),
            "{refusal}: {error}"
        );
        assert_eq!(error.disposition(), next, "{refusal}");
        assert!(error.to_string().contains(refusal), "{error}");
    }
    for (status, body) in [
        (500, code("global/internal-error")),
        (400, code("provider/internal-unavailable")),
        (409, code("global/internal-error")),
        (200, json!({"data": {"instance_ids": []}})),
        (200, json!("{\"data\": {\"inst")),
        (200, json!([])),
    ] {
        let error = answered(status, body.clone()).await;
        assert!(error.is_outcome_unknown(), "{body}: {error}");
    }
}

#[tokio::test]
async fn trouble_with_keys_leaves_no_open_order() {
    let order = order(&an_offer("gpu_8x_h100_sxm5").await, 1);
    let no_keys = || Turn::Answer(200, "", json!({"data": []}).to_string());
    let server = Server::start(vec![no_keys(), Turn::Close]).await;
    let error = Lambda
        .request_lease(&server.http(), &order)
        .await
        .expect_err("the key was not registered");
    assert!(!error.is_outcome_unknown(), "{error}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn an_order_that_cannot_be_right_is_never_sent() {
    let nobody = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let offer = an_offer("gpu_8x_h100_sxm5").await;
    let mut no_region = order(&offer, 1);
    no_region.offer.place.region = None;
    let mut no_key = order(&offer, 1);
    no_key.ssh_public_keys.clear();
    let mut smuggled = order(&offer, 1);
    smuggled.ssh_public_keys[0].push_str("\nssh-rsa AAAA another");
    let mut large = order(&offer, 1);
    large.startup_script = "#".repeat(1_000_001);
    for order in [order(&offer, 2), no_region, no_key, smuggled, large] {
        let error = Lambda
            .request_lease(&nobody, &order)
            .await
            .expect_err("an impossible order");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_read_is_no_list() {
    let http = made_up(&[("GET", "/instances", 200, json!({"data": [{"id": "i-1"}]}))]);
    assert!(Lambda.list_leases(&http).await.is_err());
    let refused = made_up(&[(
        "POST",
        "/instance-operations/terminate",
        403,
        json!({"error": {"code": "global/account-inactive"}}),
    )]);
    assert!(Lambda.release_lease(&refused, &lease("i-1")).await.is_err());
}

#[tokio::test]
async fn a_small_answer_cannot_multiply_into_more_offers_than_are_believed() {
    let names = |count: usize| (0..count).map(|at| format!("r-{at}")).collect::<Vec<_>>();
    let listed = |count: usize, regions: &[String]| {
        let regions: Vec<&str> = regions.iter().map(String::as_str).collect();
        let mut all: BTreeMap<String, Value> = (1..count)
            .map(|at| (format!("gpu_1x_a10_{at}"), kind(&[])))
            .collect();
        all.insert("gpu_1x_a10".to_owned(), kind(&regions));
        types(json!(all))
    };
    for (why, types, regions) in [
        ("types", 2_001, names(1)),
        ("regions", 1, names(201)),
        ("offers", 251, names(200)),
    ] {
        let read = Lambda.read_catalog(&listed(types, &regions), now()).await;
        let error = read.expect_err(why);
        assert!(matches!(error, AdapterError::Unreadable { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let most = read(&listed(250, &names(200))).await;
    assert_eq!((most.offers.len(), most.is_whole()), (50_000, true));
}

#[tokio::test]
async fn a_name_that_is_too_long_to_be_one_is_not_repeated_in_every_region() {
    let long = "x".repeat(201);
    let mut labelled = kind(&["us-east-1"]);
    labelled["instance_type"]["gpu_description"] = json!(format!("A10 {long}"));
    let listed = types(json!({
        "gpu_1x_a10": kind(&["us-east-1"]), format!("gpu_1x_a10_{long}"): kind(&[]), "gpu_1x_odd": labelled,
    }));
    let reading = read(&listed).await;
    assert_eq!((reading.offers.len(), reading.is_whole()), (1, false));
    assert!(
        reading
            .skipped
            .iter()
            .all(|skip| skip.reason == SkipReason::Unreadable && skip.why.contains("200"))
    );
    let nowhere = types(json!({"gpu_1x_a10": kind(&[&long])}));
    let error = Lambda
        .read_catalog(&nowhere, now())
        .await
        .expect_err("no region");
    assert!(matches!(error, AdapterError::Unreadable { .. }), "{error}");
}

#[tokio::test]
async fn a_thing_without_a_proper_id_is_neither_listed_nor_ended() {
    let order = order(&an_offer("gpu_8x_h100_sxm5").await, 1);
    for id in ["", "..", &"i".repeat(201)] {
        let listed = json!({"data": [{"id": id, "status": "active"}]});
        let http = made_up(&[
            ("GET", "/instances", 200, listed),
            (
                "GET",
                "/ssh-keys",
                200,
                json!({"data": [{"name": "k", "public_key": SSH_KEY}]}),
            ),
            (
                "POST",
                "/instance-operations/launch",
                200,
                json!({"data": {"instance_ids": [id]}}),
            ),
        ]);
        assert!(Lambda.list_leases(&http).await.is_err());
        let error = Lambda
            .request_lease(&http, &order)
            .await
            .expect_err("no id");
        assert!(error.is_outcome_unknown(), "{error}");
        let error = Lambda.read_lease(&http, &lease(id)).await;
        assert!(matches!(error, Err(AdapterError::BadId(_))), "{error:?}");
    }
}

#[tokio::test]
async fn the_debug_form_of_an_order_hides_its_script() {
    let order = order(&an_offer("gpu_8x_h100_sxm5").await, 1);
    assert!(order.startup_script.contains("once-only"));
    let shown = format!("{order:?}");
    assert!(
        !shown.contains("once-only") && shown.contains("***"),
        "{shown}"
    );
}
