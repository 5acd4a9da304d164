//! Orders and machines at Hyperstack.

use std::path::Path;

use adapters::providers::hyperstack::Hyperstack;
use adapters::{Adapter, AdapterError, Disposition, Http, HttpConfig, Release};
use market::machine::ImageChoice;
use market::order::{Attachment, ProviderLeaseState as State};
use serde_json::{Value, json};

use super::{an_offer, answers, read};
use crate::recorded::{SSH_KEY, lease, made_up, now, order, recorded};
use crate::server::{Server, Turn};

const MACHINES: &str = "/core/virtual-machines";
const LISTED: &str = "/core/virtual-machines?pageSize=100&page=1";
const ENVIRONMENTS: &str = "/core/environments?pageSize=100&page=1";

fn page(field: &str, records: Value) -> Value {
    let count = records.as_array().map(Vec::len);
    json!({"status": true, "count": count, "page": 1, "page_size": 100, field: records})
}

fn ours() -> Value {
    page(
        "environments",
        json!([{"id": 41, "name": "gpb-CANADA-1", "region": "CANADA-1"}]),
    )
}

fn made() -> Value {
    json!({"status": true, "instances": [{"id": 675003, "status": "CREATING"}]})
}

/// An account in which everything is ready for a launch, which is answered like this.
fn ready(status: u16, body: Value) -> Http {
    made_up(&[
        ("GET", ENVIRONMENTS, 200, ours()),
        (
            "POST",
            "/core/keypairs",
            200,
            json!({"status": true, "keypair": {"id": 77}}),
        ),
        ("POST", MACHINES, status, body),
    ])
}

#[tokio::test]
async fn a_recorded_lease_lives_from_launch_to_gone() {
    let http = recorded("hyperstack", "lease");
    let order = order(&an_offer("n3-H100-SXM5x8").await, 1);
    let asked = Hyperstack
        .request_lease(&http, &order)
        .await
        .expect("a launch");
    assert_eq!(
        (asked.id.0.as_str(), asked.state),
        ("675003", State::Pending)
    );
    assert_eq!(asked.client_token(), Some(order.client_token.clone()));
    assert_eq!((asked.node_count, asked.gpus_per_node), (Some(1), Some(8)));
    // Renamed in the console; the label still identifies it.
    let found = Hyperstack
        .find_lease(&http, &order.client_token)
        .await
        .expect("a list");
    assert_eq!(found.expect("the lease").id, asked.id);
    let all = Hyperstack.list_leases(&http).await.expect("a list");
    let states: Vec<_> = all.iter().map(|lease| lease.state).collect();
    assert_eq!(states, [State::Failed, State::Pending]);
    assert!(all[0].client_token().is_none() && all[1].nodes.is_empty());

    let lease = lease("675003");
    let read = async || {
        Hyperstack
            .read_lease(&http, &lease)
            .await
            .expect("an answer")
    };
    assert_eq!(read().await.expect("the lease").state, State::Pending);
    let active = read().await.expect("the lease");
    assert_eq!(active.state, State::Running);
    assert_eq!(
        (active.sku.as_deref(), active.region.as_deref()),
        (Some("n3-H100-SXM5x8"), Some("CANADA-1"))
    );
    let node = &active.nodes[0];
    assert_eq!(
        (node.host.as_str(), node.port, node.user.as_str()),
        ("198.51.100.7", 22, "ubuntu")
    );
    assert_eq!(node.private_address.as_deref(), Some("10.0.4.17"));
    let created_at = active.created_at.expect("a time");
    assert_eq!((created_at - now()).num_seconds(), 2);
    for expected in [Release::NotYet, Release::Accepted, Release::NotShown] {
        let released = Hyperstack.release_lease(&http, &lease).await;
        assert_eq!(released.expect("an answer"), expected);
    }
    assert_eq!(read().await.expect("the lease").state, State::Ending);
    assert_eq!(read().await, None);

    let keys = Hyperstack.list_attachments(&http).await.expect("a list");
    let key = Attachment {
        kind: "keypairs".into(),
        id: "77".into(),
        region: Some("CANADA-1".into()),
        client_token: order.client_token,
    };
    assert_eq!(keys, [key]);
    for _ in 0..2 {
        Hyperstack
            .remove_attachment(&http, &keys[0])
            .await
            .expect("removed, then absent");
    }
    assert_eq!(
        Hyperstack.list_attachments(&http).await.expect("a list"),
        []
    );
}

fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").expect("a body").1).expect("JSON")
}

#[tokio::test]
async fn a_launch_makes_an_environment_once_and_a_key_under_its_mark() {
    let answer = |body: Value| Turn::Answer(200, "", body.to_string());
    let key = || answer(json!({"status": true, "keypair": {"id": 77}}));
    let environment = json!({"status": true, "environment": {"id": 41}});
    let none = page(
        "environments",
        json!([{"id": 1, "name": "default-CANADA-1", "region": "CANADA-1"}]),
    );
    let server = Server::start(vec![
        answer(none),
        answer(environment),
        key(),
        answer(made()),
        answer(ours()),
        key(),
        answer(made()),
    ])
    .await;
    let profile = Hyperstack.profile();
    let config = HttpConfig {
        auth: profile.auth,
        fields: profile.credential,
        ..server.config()
    };
    let http = Http::live(config).expect("a connection");
    let mut order = order(&an_offer("n3-H100-SXM5x8").await, 1);
    let second = SSH_KEY.replace("somebody", "second");
    order.ssh_public_keys.push(second.clone());
    order.machine.ports = vec![8_080];
    for _ in 0..2 {
        Hyperstack
            .request_lease(&http, &order)
            .await
            .expect("a launch");
    }
    let requests = server.requests();
    let lines: Vec<_> = requests
        .iter()
        .map(|it| it.split(" HTTP").next().unwrap_or_default())
        .collect();
    let [get, post] = [
        format!("GET /api/v1{ENVIRONMENTS}"),
        format!("POST /api/v1{MACHINES}"),
    ];
    let (key, make) = (
        "POST /api/v1/core/keypairs",
        "POST /api/v1/core/environments",
    );
    assert_eq!(lines, [&*get, make, key, &*post, &*get, key, &*post]);
    assert!(
        requests
            .iter()
            .all(|it| it.contains("\r\napi_key: a-credential-4711\r\n"))
    );
    assert_eq!(
        body(&requests[1]),
        json!({"name": "gpb-CANADA-1", "region": "CANADA-1"})
    );
    let token = order.client_token.as_str();
    let pair = json!({"name": token, "environment_name": "gpb-CANADA-1", "public_key": SSH_KEY});
    assert_eq!(body(&requests[2]), pair);
    let launch = body(&requests[3]);
    let user_data = launch["user_data"].as_str().expect("user data");
    assert!(user_data.contains(&order.startup_script) && user_data.contains(&second));
    assert!(!user_data.contains(SSH_KEY));
    let rule = |port: u16| {
        json!({"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
        "remote_ip_prefix": "0.0.0.0/0", "port_range_min": port, "port_range_max": port})
    };
    let expected = json!({
        "name": token, "environment_name": "gpb-CANADA-1", "flavor_name": "n3-H100-SXM5x8",
        "image_name": "Ubuntu Server 22.04 LTS R570 CUDA 12.8", "key_name": token, "count": 1,
        "assign_floating_ip": true, "enable_port_randomization": false, "user_data": user_data,
        "security_rules": [rule(22), rule(8_080)], "labels": [token],
    });
    assert_eq!(launch, expected);
    // The one-time token of the script is in no other call.
    let with_script = |it: &&String| it.contains("once-only-4711");
    assert_eq!(requests.iter().filter(with_script).count(), 2);
}

#[tokio::test]
async fn what_somebody_made_a_moment_before_is_used() {
    let order = order(&an_offer("n3-H100-SXM5x8").await, 1);
    for (status, words) in [(400, "The name already exists"), (409, "Conflict")] {
        let taken = json!({"status": false, "message": words});
        let http = made_up(&[
            ("GET", ENVIRONMENTS, 200, page("environments", json!([]))),
            ("POST", "/core/environments", status, taken.clone()),
            ("POST", "/core/keypairs", status, taken.clone()),
            ("POST", MACHINES, 200, made()),
        ]);
        Hyperstack
            .request_lease(&http, &order)
            .await
            .expect("a launch");
    }
    let elsewhere = page(
        "environments",
        json!([{"id": 41, "name": "gpb-CANADA-1", "region": "US-1"}]),
    );
    let http = made_up(&[("GET", ENVIRONMENTS, 200, elsewhere)]);
    let error = Hyperstack
        .request_lease(&http, &order)
        .await
        .expect_err("another region");
    assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
}

#[tokio::test]
async fn what_the_launch_answers_decides_what_may_be_done_next() {
    let order = order(&an_offer("n3-H100-SXM5x8").await, 1);
    let answered = async |status: u16, body: Value| {
        let http = ready(status, body);
        Hyperstack
            .request_lease(&http, &order)
            .await
            .expect_err("no launch")
    };
    let says =
        |words: &str| json!({"status": false, "message": words, "error_reason": "bad_request"});
    for (status, words, next) in [
        (
            400,
            "Not enough stock for the flavor",
            Disposition::TryNextCandidate,
        ),
        (
            400,
            "The flavor is currently not available in this region",
            Disposition::TryNextCandidate,
        ),
        (
            400,
            "Quota exceeded for instances",
            Disposition::TryNextCandidate,
        ),
        (
            400,
            "Insufficient balance to create the resource",
            Disposition::GiveUp,
        ),
        (402, "Add credit to your account", Disposition::GiveUp),
        (401, "API key is missing", Disposition::GiveUp),
        (403, "Insufficient permissions", Disposition::GiveUp),
        (
            400,
            "The image does not suit the flavor",
            Disposition::Fault,
        ),
        (404, "Flavor does not exist", Disposition::Fault),
        // A success that its own words deny.
        (
            200,
            "Not enough stock for the flavor",
            Disposition::TryNextCandidate,
        ),
    ] {
        let error = answered(status, says(words)).await;
        assert!(
            error.is_refusal() && !error.is_outcome_unknown(),
            "{words}: {error}"
        );
        assert_eq!(error.disposition(), next, "{words}");
        assert!(error.to_string().contains(words), "{error}");
    }
    for (status, body) in [
        (500, json!({"message": "Internal Server Error"})),
        (409, says("The name already exists")),
        (200, says("Something went wrong")),
        (200, json!({"status": true, "instances": []})),
        (
            200,
            json!({"status": true, "instances": [{"name": "no id"}]}),
        ),
        (200, json!({"status": true})),
        (200, json!("{\"status\": true, \"inst")),
    ] {
        let error = answered(status, body.clone()).await;
        assert!(error.is_outcome_unknown(), "{body}: {error}");
    }
}

#[tokio::test]
async fn trouble_before_the_launch_leaves_no_open_order() {
    let order = order(&an_offer("n3-H100-SXM5x8").await, 1);
    let server = Server::start(vec![Turn::Answer(200, "", ours().to_string()), Turn::Close]).await;
    let error = Hyperstack
        .request_lease(&server.http(), &order)
        .await
        .expect_err("no key");
    assert!(!error.is_outcome_unknown(), "{error}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn an_order_that_cannot_be_right_is_never_sent() {
    let nobody = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let offer = an_offer("n3-H100-SXM5x8").await;
    let changed = |change: fn(&mut market::order::LeaseOrder)| {
        let mut order = order(&offer, 1);
        change(&mut order);
        order
    };
    for order in [
        order(&offer, 2),
        changed(|order| order.offer.place.region = None),
        changed(|order| order.ssh_public_keys.clear()),
        changed(|order| order.ssh_public_keys[0].push_str("\nssh-rsa AAAA another")),
        changed(|order| order.startup_script = "#".repeat(49_152)),
        changed(|order| order.machine.disk_gib = Some(32_101)),
        changed(|order| order.machine.image = Some(ImageChoice::Catalogue("windows".into()))),
        changed(|order| order.machine.image = Some(ImageChoice::Container("a@sha256:0".into()))),
    ] {
        let error = Hyperstack
            .request_lease(&nobody, &order)
            .await
            .expect_err("impossible");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
    let mut fits = order(&offer, 1);
    fits.machine.disk_gib = Some(32_100);
    fits.machine.image = Some(ImageChoice::Provider("mine".into()));
    Hyperstack
        .request_lease(&ready(200, made()), &fits)
        .await
        .expect("a launch");
}

#[tokio::test]
async fn a_list_or_a_machine_that_cannot_be_read_is_an_error() {
    let two = json!([{"id": 7, "status": "ACTIVE"}, {"id": 7, "status": "ACTIVE"}]);
    let mut short = page("instances", json!([{"id": 7, "status": "ACTIVE"}]));
    short["count"] = json!(2);
    for (status, body) in [
        (200, page("instances", json!([{"status": "ACTIVE"}]))),
        (200, page("instances", two)),
        (200, short),
        (200, json!({"status": false, "message": "Internal"})),
        (200, json!({"status": true, "instances": {}})),
        (404, json!({"status": false, "error_reason": "not_found"})),
    ] {
        let http = made_up(&[("GET", LISTED, status, body.clone())]);
        assert!(Hyperstack.list_leases(&http).await.is_err(), "{body}");
    }
    let one = "/core/virtual-machines/7";
    for (status, body) in [
        (200, json!({"status": false, "message": "Internal"})),
        (200, json!({"status": true, "instance": null})),
        (404, json!("<html>not found</html>")),
        (400, json!({"status": false, "message": "odd"})),
    ] {
        let http = made_up(&[
            ("GET", one, status, body.clone()),
            ("DELETE", one, status, body.clone()),
        ]);
        assert!(
            Hyperstack.read_lease(&http, &lease("7")).await.is_err(),
            "{body}"
        );
        let released = Hyperstack.release_lease(&http, &lease("7")).await;
        assert_eq!(
            released.is_ok(),
            body["instance"].is_null() && status == 200 && body["status"] == true,
            "{body}"
        );
    }
    for id in ["", "..", &"7".repeat(201)] {
        let nobody = made_up(&[("GET", "/nothing", 200, json!(null))]);
        let error = Hyperstack.read_lease(&nobody, &lease(id)).await;
        assert!(matches!(error, Err(AdapterError::BadId(_))), "{error:?}");
    }
}

/// Follows the references of the specification.
fn schema<'a>(spec: &'a Value, at: &'a Value) -> &'a Value {
    match at["$ref"].as_str().and_then(|it| it.strip_prefix('#')) {
        Some(pointer) => spec.pointer(pointer).unwrap_or(&Value::Null),
        None => at,
    }
}

#[tokio::test]
async fn the_specification_has_every_field_that_is_sent_and_its_examples_are_readable() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/providers/specs/hyperstack-infrahub-openapi.json");
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!(
            "skipped: {} is not here, nor are recorded answers",
            file.display()
        );
        return;
    };
    let spec: Value = serde_json::from_str(&text).expect("JSON");
    let json_of = |path: &str, method: &str, part: &str| {
        let operation = &spec["paths"][path][method];
        let content = operation.pointer(part).unwrap_or(&Value::Null);
        schema(&spec, &content["content"]["application/json"]["schema"]).clone()
    };
    let sent = |schema: &Value, body: &Value| {
        for field in body.as_object().expect("an object").keys() {
            assert!(schema["properties"][field].is_object(), "{field}");
        }
        for field in schema["required"].as_array().into_iter().flatten() {
            let field = field.as_str().unwrap_or_default();
            // Demanded of a rule, and unknown before the machine exists.
            assert!(
                body.get(field).is_some() || field == "virtual_machine_id",
                "{field}"
            );
        }
    };
    let server = Server::start(vec![
        Turn::Answer(200, "", page("environments", json!([])).to_string()),
        Turn::Answer(200, "", json!({"status": true}).to_string()),
        Turn::Answer(200, "", json!({"status": true}).to_string()),
        Turn::Answer(200, "", made().to_string()),
    ])
    .await;
    let order = order(&an_offer("n3-H100-SXM5x8").await, 1);
    Hyperstack
        .request_lease(&server.http(), &order)
        .await
        .expect("a launch");
    let requests = server.requests();
    for (at, path) in [
        (1, "/core/environments"),
        (2, "/core/keypairs"),
        (3, MACHINES),
    ] {
        sent(&json_of(path, "post", "/requestBody"), &body(&requests[at]));
    }
    let launch = json_of(MACHINES, "post", "/requestBody");
    let rule = schema(&spec, &launch["properties"]["security_rules"]["items"]);
    sent(rule, &body(&requests[3])["security_rules"][0]);

    // The examples hold placeholders: they must be readable, and give no offer.
    let example = |path: &str| json_of(path, "get", "/responses/200")["example"].clone();
    let entry = schema(
        &spec,
        &json_of("/pricebook", "get", "/responses/200")["items"],
    )["example"]
        .clone();
    let http = answers(
        json!([entry]),
        example("/core/flavors"),
        example("/core/stocks"),
    );
    let reading = read(&http).await;
    assert!(reading.offers.is_empty() && !reading.skipped.is_empty());
    assert!(
        reading.skipped.iter().all(|skipped| !skipped.is_unread()),
        "{:?}",
        reading.skipped
    );
    let machines = example(MACHINES);
    let listed = made_up(&[(
        "GET",
        LISTED,
        200,
        page("instances", json!([machines["instances"][0]])),
    )]);
    let leases = Hyperstack.list_leases(&listed).await.expect("a list");
    assert!(
        leases[0].sku.is_some() && leases[0].region.is_some() && leases[0].created_at.is_some()
    );
}
