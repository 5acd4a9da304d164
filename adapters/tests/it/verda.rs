//! Verda, over recordings and against a scripted server.

mod catalog;

use adapters::providers::verda::Verda;
use adapters::{Adapter, AdapterError, Disposition, Release};
use market::machine::ImageChoice;
use market::offer::{Offer, Terms};
use market::order::{Attachment, EndReason, ProviderLeaseState as State};
use serde_json::{Value, json};

use crate::recorded::{SSH_KEY, lease, made_up, now, order, recorded};
use crate::server::{Server, Turn};

const MARK: &str = "gpb-00000000000000000000000000000007";

async fn an_offer(sku: &str, terms: Terms) -> Offer {
    let catalog = recorded("verda", "catalog");
    let offers = Verda.read_catalog(&catalog, now()).await;
    let mut offers = offers.expect("a reading").offers.into_iter();
    let wanted = |offer: &Offer| {
        offer.sku == sku && offer.terms == terms && !offer.availability.is_sold_out()
    };
    offers.find(wanted).expect("an offer")
}

/// Turns that make a key and a script, and then answer a launch like this.
fn launch(status: u16, answer: impl Into<String>) -> Vec<Turn> {
    vec![
        Turn::Answer(201, "", "key-1".into()),
        Turn::Answer(201, "", "\"script-1\"".into()),
        Turn::Answer(status, "", answer.into()),
    ]
}

fn body(request: &str) -> Value {
    let body = request.split_once("\r\n\r\n").expect("a body").1;
    serde_json::from_str(body).expect("JSON")
}

#[tokio::test]
async fn a_recorded_lease_lives_from_launch_to_gone() {
    let http = recorded("verda", "lease");
    let order = order(&an_offer("8H100.80S.176V", Terms::OnDemand).await, 1);
    let asked = Verda.request_lease(&http, &order).await.expect("a launch");
    let of_order = Some(order.client_token.clone());
    assert_eq!(
        (asked.state, asked.client_token()),
        (State::Pending, of_order)
    );
    // Renamed in the console; the description still identifies it.
    let found = Verda.find_lease(&http, &order.client_token).await;
    assert_eq!(found.expect("a list").expect("the lease").id, asked.id);

    let it = lease(&asked.id.0);
    let read = async || Verda.read_lease(&http, &it).await.expect("an answer");
    let booting = read().await.expect("the lease");
    assert_eq!((booting.state, booting.nodes.len()), (State::Pending, 0));
    let released = Verda.release_lease(&http, &it).await;
    assert_eq!(released.expect("an answer"), Release::NotYet);

    let running = read().await.expect("the lease");
    assert_eq!(running.state, State::Running);
    let place = (running.sku.as_deref(), running.region.as_deref());
    assert_eq!(place, (Some("8H100.80S.176V"), Some("FIN-03")));
    assert_eq!(
        (running.node_count, running.gpus_per_node),
        (Some(1), Some(8))
    );
    let node = &running.nodes[0];
    let login = (node.host.as_str(), node.user.as_str(), node.port);
    assert_eq!(login, ("198.51.100.2", "root", 22));
    let began = running.created_at.expect("a time").to_rfc3339();
    assert_eq!(began, "2026-11-21T10:00:05.123+00:00");

    let released = Verda.release_lease(&http, &it).await;
    assert_eq!(released.expect("an answer"), Release::Accepted);
    let states = [read().await, read().await, read().await].map(|it| it.map(|it| it.state));
    assert_eq!(states, [Some(State::Ending), Some(State::Gone), None]);
    let released = Verda.release_lease(&http, &it).await;
    assert_eq!(released.expect("an answer"), Release::NotShown);
}

#[tokio::test]
async fn an_order_makes_its_key_and_script_under_the_mark_and_then_the_machine() {
    let mut spot = order(&an_offer("8H100.80S.176V", Terms::Spot).await, 1);
    spot.machine.disk_gib = Some(500);
    let server = Server::start(launch(202, "\"i-1\"")).await;
    let made = Verda
        .request_lease(&server.http(), &spot)
        .await
        .expect("a launch");
    assert_eq!(made.id.0, "i-1");
    let requests = server.requests();
    assert!(requests[0].starts_with("POST /api/v1/ssh-keys "));
    let key = json!({ "name": format!("{MARK}-1"), "key": SSH_KEY });
    assert_eq!(body(&requests[0]), key);
    assert!(requests[1].starts_with("POST /api/v1/scripts "));
    let script = json!({ "name": MARK, "script": spot.startup_script });
    assert_eq!(body(&requests[1]), script);
    assert!(requests[2].starts_with("POST /api/v1/instances "));
    let machine = json!({
        "instance_type": "8H100.80S.176V", "image": "24.04.cuda13.0.docker", "hostname": MARK, "description": MARK,
        "ssh_key_ids": ["key-1"], "startup_script_id": "script-1", "location_code": "FIN-03", "contract": "SPOT",
        "pricing": "FIXED_PRICE", "is_spot": true,
        "os_volume": { "name": MARK, "size": 500, "on_spot_discontinue": "delete_permanently" },
    });
    assert_eq!(body(&requests[2]), machine);
    assert!(!requests[2].contains("once-only") && requests.len() == 3);

    let mut usual = order(&an_offer("1A100.22V", Terms::OnDemand).await, 1);
    usual.machine.image = Some(ImageChoice::Catalogue("ubuntu-22.04-cuda-12".into()));
    let whole = json!({ "id": "i-2", "status": "ordered", "hostname": MARK, "location": "FIN-01" });
    let server = Server::start(launch(201, whole.to_string())).await;
    let made = Verda
        .request_lease(&server.http(), &usual)
        .await
        .expect("a launch");
    assert_eq!(
        (made.id.0.as_str(), made.region.as_deref()),
        ("i-2", Some("FIN-01"))
    );
    let sent = body(&server.requests()[2]);
    assert_eq!(sent["image"], "ubuntu-22.04-cuda-12.4-docker");
    assert_eq!(
        (&sent["contract"], &sent["is_spot"]),
        (&json!("PAY_AS_YOU_GO"), &json!(false))
    );
    assert_eq!(sent["os_volume"], json!({ "name": MARK, "size": 50 }));
}

#[tokio::test]
async fn what_the_launch_answers_decides_what_may_be_done_next() {
    let order = order(&an_offer("8H100.80S.176V", Terms::OnDemand).await, 1);
    let answered = async |status: u16, body: Value| {
        let http = made_up(&[
            ("POST", "/ssh-keys", 201, json!("key-1")),
            ("POST", "/scripts", 201, json!({ "id": "script-1" })),
            ("POST", "/instances", status, body),
        ]);
        let made = Verda.request_lease(&http, &order).await;
        made.expect_err("no launch")
    };
    let next = Disposition::TryNextCandidate;
    for (status, code, message, disposition) in [
        (400, "invalid_request", "Not enough resources", next),
        (503, "service_unavailable", "No capacity available", next),
        (400, "invalid_request", "Instance quota exceeded", next),
        (
            402,
            "insufficient_funds",
            "Insufficient funds",
            Disposition::GiveUp,
        ),
        (
            400,
            "invalid_request",
            "Account balance is too low",
            Disposition::GiveUp,
        ),
        (
            401,
            "unauthorized_request",
            "Access token is invalid",
            Disposition::GiveUp,
        ),
        (
            403,
            "forbidden_action",
            "This account may not deploy",
            Disposition::GiveUp,
        ),
        (
            400,
            "invalid_request",
            "Operating system is not valid for this instance type",
            Disposition::Fault,
        ),
        (
            404,
            "not_found",
            "Instance type not found",
            Disposition::Fault,
        ),
    ] {
        let error = answered(status, json!({ "code": code, "message": message })).await;
        assert!(error.is_refusal(), "{message}: {error}");
        assert_eq!(error.disposition(), disposition, "{message}");
        assert!(error.to_string().contains(message), "{error}");
    }
    for (status, body) in [
        (500, json!({ "code": "server_error", "message": "Oops" })),
        (
            503,
            json!({ "code": "service_unavailable", "message": "Try again" }),
        ),
        (409, json!({ "code": "conflict" })),
        (200, json!("<html>wait a moment</html>")),
        (200, json!("")),
        (202, json!({ "status": "ordered" })),
        (202, json!([])),
    ] {
        let error = answered(status, body.clone()).await;
        assert!(error.is_outcome_unknown(), "{body}: {error}");
    }
}

#[tokio::test]
async fn trouble_before_the_launch_leaves_no_open_order() {
    let order = order(&an_offer("8H100.80S.176V", Terms::OnDemand).await, 1);
    for turns in 0..2 {
        let mut script = launch(202, "i-1");
        script.truncate(turns);
        script.push(Turn::Close);
        let server = Server::start(script).await;
        let error = Verda.request_lease(&server.http(), &order).await;
        let error = error.expect_err("nothing was made");
        assert!(!error.is_outcome_unknown(), "{error}");
        assert_eq!(server.requests().len(), turns + 1);
        assert!(!error.to_string().contains("once-only"), "{error}");
    }
}

#[tokio::test]
async fn an_order_that_cannot_be_right_is_never_sent() {
    let nobody = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let offer = an_offer("8H100.80S.176V", Terms::OnDemand).await;
    let good = order(&offer, 1);
    let mut wrong = vec![order(&offer, 2)];
    let mut but = |change: &dyn Fn(&mut market::order::LeaseOrder)| {
        let mut order = good.clone();
        change(&mut order);
        wrong.push(order);
    };
    but(&|order| order.offer.place.region = None);
    but(&|order| order.offer.terms = Terms::Reserved);
    but(&|order| order.ssh_public_keys.clear());
    but(&|order| order.ssh_public_keys[0].push_str("\nssh-rsa AAAA another"));
    but(&|order| order.offer.particulars = Default::default());
    let word = |word: &str| Some(ImageChoice::Catalogue(word.into()));
    but(&|order| order.machine.image = word("debian-12"));
    but(&|order| order.machine.image = word("ubuntu-22.04"));
    let container = format!("example.com/a@sha256:{}", "0f".repeat(32));
    but(&|order| order.machine.image = Some(ImageChoice::Container(container.clone())));
    for order in wrong {
        let error = Verda.request_lease(&nobody, &order).await;
        let error = error.expect_err("an impossible order");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
}

#[tokio::test]
async fn a_machine_is_deleted_with_its_disks_and_a_refusal_is_read_by_its_words() {
    let shown =
        json!({ "id": "i-1", "status": "running", "os_volume_id": "v-1", "volume_ids": ["v-2"] });
    let released = async |state: &str, status: u16, answer: Value| {
        let mut shown = shown.clone();
        shown["status"] = json!(state);
        let turns = [(200, shown), (status, answer)];
        let turns = turns.map(|(status, body)| Turn::Answer(status, "", body.to_string()));
        let server = Server::start(turns.into()).await;
        let released = Verda.release_lease(&server.http(), &lease("i-1")).await;
        (released, server.requests())
    };
    let (done, requests) = released("running", 200, json!(null)).await;
    assert_eq!(done.expect("an answer"), Release::Accepted);
    assert!(requests[1].starts_with("PUT /api/v1/instances "));
    let sent = json!({ "action": "delete", "id": ["i-1"], "volume_ids": ["v-1", "v-2"], "delete_permanently": true });
    assert_eq!(body(&requests[1]), sent);

    let outcome = |fields: Value| {
        let mut outcome = json!({ "action": "delete", "instanceId": "i-1" });
        let fields = fields.as_object().expect("fields").clone();
        outcome.as_object_mut().expect("an object").extend(fields);
        json!([outcome])
    };
    let failed = |status: u16, error: &str| {
        outcome(json!({ "status": "error", "statusCode": status, "error": error }))
    };
    let refused = |code: &str, message: &str| json!({ "code": code, "message": message });
    let coming_up = "Can't discontinue a provisioning instance";
    for (state, status, answer, expected) in [
        (
            "running",
            202,
            outcome(json!({ "status": "success" })),
            Some(Release::Accepted),
        ),
        (
            "running",
            207,
            failed(403, coming_up),
            Some(Release::NotYet),
        ),
        (
            "running",
            207,
            failed(404, "not found"),
            Some(Release::NotShown),
        ),
        ("running", 207, failed(500, "it broke"), None),
        (
            "running",
            403,
            refused("forbidden_action", coming_up),
            Some(Release::NotYet),
        ),
        (
            "ordered",
            403,
            refused("forbidden_action", "Not now"),
            Some(Release::NotYet),
        ),
        ("running", 403, refused("forbidden_action", "Locked"), None),
        (
            "running",
            403,
            refused("x", "Can't discontinue a discontinued instance"),
            Some(Release::Accepted),
        ),
        (
            "running",
            404,
            refused("not_found", "No such instance"),
            Some(Release::NotShown),
        ),
        (
            "running",
            400,
            refused("invalid_request", "Invalid instance id"),
            Some(Release::NotShown),
        ),
        (
            "running",
            400,
            refused("invalid_request", "Invalid action"),
            None,
        ),
    ] {
        let (done, _) = released(state, status, answer.clone()).await;
        assert_eq!(done.ok(), expected, "{state}, {status} {answer}");
    }
    // One that is ending already is left alone.
    for state in ["deleting", "discontinued"] {
        let (done, requests) = released(state, 500, json!(null)).await;
        assert_eq!(
            (done.ok(), requests.len()),
            (Some(Release::Accepted), 1),
            "{state}"
        );
    }
}

#[tokio::test]
async fn what_is_left_beside_machines_is_listed_by_its_mark_and_removed() {
    let http = recorded("verda", "lease");
    let left = Verda.list_attachments(&http).await.expect("a list");
    let kinds: Vec<&str> = left.iter().map(|it| it.kind.as_str()).collect();
    // A disk that is attached is not listed: it ends with its machine.
    assert_eq!(kinds, ["scripts", "ssh-keys", "volumes"]);
    assert!(left.iter().all(|it| it.client_token.as_str() == MARK));
    for attachment in &left {
        for _ in 0..2 {
            Verda
                .remove_attachment(&http, attachment)
                .await
                .expect("removed, then absent");
        }
    }
    let disk = Attachment {
        id: "v-1".into(),
        ..left[2].clone()
    };
    let server = Server::start(vec![Turn::Answer(202, "", String::new())]).await;
    Verda
        .remove_attachment(&server.http(), &disk)
        .await
        .expect("removed");
    let sent = body(&server.requests()[0]);
    assert_eq!(
        sent,
        json!({ "action": "delete", "id": ["v-1"], "is_permanent": true })
    );
    for (kind, status) in [("scripts", 403), ("volumes", 400)] {
        let path = if kind == "volumes" {
            "/volumes"
        } else {
            "/scripts/x-1"
        };
        let method = if kind == "volumes" { "PUT" } else { "DELETE" };
        let http = made_up(&[(method, path, status, json!({ "message": "No" }))]);
        let thing = Attachment {
            kind: kind.into(),
            id: "x-1".into(),
            ..left[0].clone()
        };
        assert!(
            Verda.remove_attachment(&http, &thing).await.is_err(),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_list_is_whole_or_an_error_and_every_state_is_ours() {
    let machine = |fields: Value| {
        let mut machine =
            json!({ "id": "i-1", "status": "running", "gpu": { "number_of_gpus": 8 } });
        let fields = fields.as_object().expect("fields").clone();
        machine.as_object_mut().expect("an object").extend(fields);
        machine
    };
    let listed = async |machines: Value| {
        let http = made_up(&[("GET", "/instances", 200, machines)]);
        Verda.list_leases(&http).await
    };
    for broken in [
        json!([{ "id": "i-1" }]),
        json!([machine(json!({ "id": ".." }))]),
        json!({}),
        json!("[{\"id\""),
    ] {
        assert!(listed(broken.clone()).await.is_err(), "{broken}");
    }
    for (status, is_spot, state, reason) in [
        ("provisioning", false, State::Pending, None),
        ("restoring", false, State::Pending, None),
        ("offline", false, State::Failed, None),
        (
            "no_capacity",
            false,
            State::Failed,
            Some(EndReason::NoCapacity),
        ),
        ("installation_failed", true, State::Failed, None),
        ("deleting", true, State::Ending, None),
        ("discontinued", false, State::Gone, None),
        (
            "discontinued",
            true,
            State::Gone,
            Some(EndReason::Preempted),
        ),
    ] {
        let all = listed(json!([machine(
            json!({ "status": status, "is_spot": is_spot })
        )]))
        .await;
        let it = all.expect("a list").remove(0);
        assert_eq!((it.state, it.end_reason), (state, reason), "{status}");
    }
    for (price, currency, believed) in [
        (json!("18.32"), json!("usd"), Some("18.32")),
        (json!(18.32), json!("USD"), Some("18.32")),
        (json!("18.32"), json!("eur"), None),
        (json!("18.32"), json!(null), None),
        (json!("0"), json!("usd"), None),
        (json!("soon"), json!("usd"), None),
    ] {
        let all = listed(json!([machine(
            json!({ "price_per_hour": price, "currency": currency })
        )]))
        .await;
        let price = all.expect("a list").remove(0).price_per_node_hour;
        assert_eq!(
            price.map(|it| it.to_string()).as_deref(),
            believed,
            "{currency}"
        );
    }
}
