//! Orders and machines.

use adapters::providers::vultr::Vultr;
use adapters::{Adapter, AdapterError, Disposition, Release};
use market::machine::{ImageChoice, MachineRequest};
use market::order::{LeaseOrder, ProviderLeaseState as State};
use serde_json::{Value, json};

use super::{an_offer, page};
use crate::recorded::{SSH_KEY, lease, made_up, order, recorded};
use crate::server::{Server, Turn};

const VM: &str = "vcg-l40s-16c-180g-48vram";
const METAL: &str = "vbm-112c-2048gb-8-h100-gpu";
const INSTANCES: &str = "/instances?per_page=500";
const BARE_METALS: &str = "/bare-metals?per_page=500";

#[tokio::test]
async fn a_recorded_virtual_machine_lives_from_launch_to_gone() {
    let http = recorded("vultr", "lease");
    let mut order = order(&an_offer(VM).await, 1);
    order.offer.place.region = Some("ewr".to_owned());
    let asked = Vultr.request_lease(&http, &order).await.expect("a launch");
    let token = Some(order.client_token.clone());
    assert_eq!((asked.state, asked.client_token()), (State::Pending, token));
    // Renamed in the console; the tag still identifies it.
    let found = Vultr.find_lease(&http, &order.client_token).await;
    assert_eq!(found.expect("a list").expect("the lease").id, asked.id);
    let all = Vultr.list_leases(&http).await.expect("a list");
    let states: Vec<_> = all.iter().map(|lease| lease.state).collect();
    let of_vms = [
        State::Running,
        State::Pending,
        State::Failed,
        State::Pending,
    ];
    assert_eq!(states, [&of_vms[..], &[State::Pending]].concat());
    let of_metal = &all[4];
    assert_eq!(
        of_metal.id.0,
        "bare-metal:00000000-0000-4000-8000-00000000000d"
    );

    let of_lease = lease(&asked.id.0);
    let read = async || Vultr.read_lease(&http, &of_lease).await.expect("an answer");
    let booting = read().await.expect("the lease");
    assert!(booting.state == State::Pending && booting.nodes.is_empty());
    let active = read().await.expect("the lease");
    assert_eq!(
        (active.state, active.raw_status.as_str()),
        (State::Running, "active")
    );
    assert_eq!(active.sku.as_deref(), Some(VM));
    assert_eq!(active.region.as_deref(), Some("ewr"));
    assert_eq!(active.node_count, Some(1));
    let created_at = active.created_at.expect("a time").to_rfc3339();
    assert_eq!(created_at, "2026-11-21T09:58:30+00:00");
    let node = &active.nodes[0];
    assert_eq!(
        (node.host.as_str(), node.user.as_str(), node.port),
        ("198.51.100.7", "root", 22)
    );
    assert_eq!(node.private_address.as_deref(), Some("10.1.96.3"));

    for expected in [Release::NotYet, Release::Accepted, Release::NotShown] {
        let released = Vultr.release_lease(&http, &of_lease).await;
        assert_eq!(released.expect("an answer"), expected);
    }
    assert_eq!(read().await, None);
}

#[tokio::test]
async fn recorded_bare_metal_is_ordered_read_and_ended_on_paths_of_its_own() {
    let http = recorded("vultr", "lease");
    let order = order(&an_offer(METAL).await, 1);
    let asked = Vultr.request_lease(&http, &order).await.expect("a launch");
    assert_eq!(
        asked.id.0,
        "bare-metal:b6a859c5-b299-49dd-8888-b1abbc517d08"
    );
    assert_eq!((asked.state, asked.nodes.len()), (State::Pending, 0));
    let of_lease = lease(&asked.id.0);
    let read = async || Vultr.read_lease(&http, &of_lease).await.expect("an answer");
    let active = read().await.expect("the lease");
    assert_eq!((active.state, &active.id), (State::Running, &asked.id));
    assert_eq!(active.client_token(), Some(order.client_token.clone()));
    assert_eq!(active.nodes[0].host, "198.51.100.20");
    let released = Vultr.release_lease(&http, &of_lease).await;
    assert_eq!(released.expect("an answer"), Release::Accepted);
}

#[tokio::test]
async fn a_launch_sends_the_mark_the_image_and_user_data_and_nothing_else() {
    let turn = |kind: &str| Turn::Answer(202, "", json!({kind: {"id": "i-7"}}).to_string());
    let turns = vec![turn("instance"), turn("instance"), turn("bare_metal")];
    let server = Server::start(turns).await;
    let vm = order(&an_offer(VM).await, 1);
    let mut own = vm.clone();
    own.machine = MachineRequest {
        image: Some(ImageChoice::Provider("5f1a2b3c-own-image".into())),
        disk_gib: Some(1_200),
        ports: vec![443],
    };
    let mut metal = order(&an_offer(METAL).await, 1);
    metal.machine.image = Some(ImageChoice::Catalogue("ubuntu-24.04".into()));
    for order in [&vm, &own, &metal] {
        let lease = Vultr.request_lease(&server.http(), order).await;
        let lease = lease.expect("a launch");
        assert_eq!(lease.client_token(), Some(order.client_token.clone()));
    }
    let token = vm.client_token.as_str();
    let launch = |offer: &LeaseOrder, image: (&str, Value)| {
        let mut launch = json!({"region": offer.offer.place.region, "plan": offer.offer.sku, "label": token,
            "tags": [token], "activation_email": false});
        launch[image.0] = image.1;
        launch
    };
    let mut expected = [
        launch(&vm, ("os_id", json!(1_743))),
        launch(&own, ("image_id", json!("5f1a2b3c-own-image"))),
        launch(&metal, ("os_id", json!(2_284))),
    ];
    for of_vm in &mut expected[..2] {
        of_vm["backups"] = json!("disabled");
    }
    let paths = ["instances", "instances", "bare-metals"];
    let requests = server.requests();
    for ((request, path), expected) in requests.iter().zip(paths).zip(expected) {
        let begin = format!("POST /api/v1/{path} ");
        assert!(request.starts_with(&begin), "{request}");
        let (_, body) = request.split_once("\r\n\r\n").expect("a body");
        let mut sent: Value = serde_json::from_str(body).expect("JSON");
        let members = sent.as_object_mut().expect("an object");
        let user_data = members.remove("user_data").expect("user data");
        assert_eq!(sent, expected);
        let user_data = decode(user_data.as_str().expect("a text"));
        let key = format!("ssh_authorized_keys:\n  - \"{SSH_KEY}\"\n");
        assert!(user_data.contains(&key), "{user_data}");
        assert!(user_data.contains(&vm.startup_script), "{user_data}");
    }
}

/// The text of base64 (RFC 4648, section 4).
fn decode(encoded: &str) -> String {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other} is no digit"),
    };
    let digits = encoded.trim_end_matches('=').bytes().map(digit);
    let bits: Vec<u8> = digits
        .flat_map(|digit| (0..6).rev().map(move |at| digit >> at & 1))
        .collect();
    let byte = |bits: &[u8]| bits.iter().fold(0, |byte, bit| byte << 1 | bit);
    let bytes = bits.chunks_exact(8).map(byte).collect();
    String::from_utf8(bytes).expect("a text")
}

#[tokio::test]
async fn what_the_launch_answers_decides_what_may_be_done_next() {
    let order = order(&an_offer(VM).await, 1);
    let answered = async |status: u16, body: Value| {
        let http = made_up(&[("POST", "/instances", status, body)]);
        let launched = Vultr.request_lease(&http, &order).await;
        launched.expect_err("no launch")
    };
    let says = |error: &str, status: u16| json!({"error": error, "status": status});
    for (status, words, next) in [
        (
            400,
            "Plan is not available in the selected region.",
            Disposition::TryNextCandidate,
        ),
        (
            400,
            "Unable to create instance: this plan is sold out in this location",
            Disposition::TryNextCandidate,
        ),
        (
            400,
            "Please open a support request for access to this product",
            Disposition::TryNextCandidate,
        ),
        (
            400,
            "You have reached the maximum monthly fee limit for this account",
            Disposition::TryNextCandidate,
        ),
        (
            400,
            "Your account balance is too low. Add funds to continue.",
            Disposition::GiveUp,
        ),
        (400, "Invalid os_id", Disposition::Fault),
        (401, "Invalid API token.", Disposition::GiveUp),
        (403, "Unauthorized IP address", Disposition::GiveUp),
    ] {
        let error = answered(status, says(words, status)).await;
        let certain = error.is_refusal() && !error.is_outcome_unknown();
        assert!(certain, "{words}: {error}");
        assert_eq!(error.disposition(), next, "{words}");
    }
    let limited = answered(429, says("Rate limit reached", 429)).await;
    let is_limit = matches!(limited, AdapterError::RateLimited { .. });
    assert!(is_limit, "{limited}");
    for (status, body) in [
        (500, says("server error", 500)),
        (500, says("Server is currently locked", 500)),
        (409, says("conflict", 409)),
        (202, json!({"instance": {}})),
        (202, json!({"bare_metal": {"id": "i-7"}})),
        (202, json!("{\"instance\": {\"id")),
    ] {
        let error = answered(status, body.clone()).await;
        assert!(error.is_outcome_unknown(), "{body}: {error}");
    }
}

#[tokio::test]
async fn an_order_that_cannot_be_right_is_never_sent() {
    let nobody = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let good = order(&an_offer(VM).await, 1);
    let slice = order(&an_offer("vcg-a40-6c-30g-12vram").await, 1);
    let mut no_region = good.clone();
    no_region.offer.place.region = None;
    let mut smuggled = good.clone();
    smuggled.ssh_public_keys[0].push_str("\nssh-rsa AAAA another");
    let mut large = good.clone();
    large.startup_script = "#".repeat(65_536);
    let mut disk = good.clone();
    disk.machine.disk_gib = Some(1_201);
    let mut container = good.clone();
    let digest = format!("registry.example.com/a@sha256:{}", "0f".repeat(32));
    container.machine.image = Some(ImageChoice::Container(digest));
    let mut word = good.clone();
    word.machine.image = Some(ImageChoice::Catalogue("ubuntu-18.04".into()));
    let two = order(&good.offer, 2);
    for order in [
        two, slice, no_region, smuggled, large, disk, container, word,
    ] {
        let sent = Vultr.request_lease(&nobody, &order).await;
        let error = sent.expect_err("an impossible order");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
}

#[tokio::test]
async fn half_a_list_is_no_list_and_a_refusal_is_no_end() {
    let one = || [json!({"id": "i-7", "status": "active"})];
    let none = |kind: &str| page(kind, &[], 0);
    let nameless = page("instances", &[json!({"status": "active"})], 1);
    let bad_metal = page("bare_metals", &[json!({"id": ""})], 1);
    for (vms, metal) in [
        (
            (200, page("instances", &one(), 2)),
            (200, none("bare_metals")),
        ),
        ((200, nameless), (200, none("bare_metals"))),
        (
            (200, none("instances")),
            (200, page("bare_metals", &one(), 2)),
        ),
        ((200, none("instances")), (200, bad_metal)),
        ((200, none("instances")), (500, json!({}))),
        ((200, none("instances")), (404, json!({}))),
    ] {
        let http = made_up(&[
            ("GET", INSTANCES, vms.0, vms.1),
            ("GET", BARE_METALS, metal.0, metal.1),
        ]);
        assert!(Vultr.list_leases(&http).await.is_err());
    }
    let empty = made_up(&[
        ("GET", INSTANCES, 200, none("instances")),
        ("GET", BARE_METALS, 200, none("bare_metals")),
    ]);
    let all = Vultr.list_leases(&empty).await.expect("a list");
    assert!(all.is_empty());
    for (status, words) in [
        (403, "Unauthorized IP address"),
        (400, "Server is currently locked"),
        (500, "Unable to destroy server"),
    ] {
        let body = json!({"error": words, "status": status});
        let refused = made_up(&[("DELETE", "/instances/i-7", status, body)]);
        let released = Vultr.release_lease(&refused, &lease("i-7")).await;
        assert!(released.is_err(), "{words}: {released:?}");
    }
    for id in ["..", "bare-metal:", "bare-metal:.."] {
        let bad = Vultr.read_lease(&empty, &lease(id)).await;
        assert!(matches!(bad, Err(AdapterError::BadId(_))), "{bad:?}");
    }
}
