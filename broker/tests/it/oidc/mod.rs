//! Logins of outside issuers: who gets in, and everything that does not.

pub(crate) mod issuer;

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};

use crate::service::{Answer, Service, hold};
use issuer::{Issuer, Kind, Signer};

/// A service that believes one issuer, for two tenants.
async fn service(issuer: &Issuer) -> Service {
    let config = issuer.config();
    let service = Service::start_configured(move |broker| {
        broker.rate_limits.enabled = false;
        broker.oidc = vec![config.clone()];
    })
    .await;
    service.key("acme", Role::Member).await;
    service
}

/// The claims of the issuer's token for a member of acme.
fn claims(service: &Service, issuer: &Issuer) -> Value {
    let now = service.world.broker().now().timestamp();
    json!({
        "iss": issuer.name(), "aud": "broker", "sub": "ada", "exp": now + 300, "iat": now,
        "org": "acme-corp", "realm_access": { "roles": ["gpu-user"] },
    })
}

async fn ask(service: &Service, token: &str) -> Answer {
    service.bearer(token).get("/v1/reservations").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_with_a_mapped_role_and_tenant_gets_in_by_each_algorithm() {
    let signers = [
        Signer::new(Kind::Rs256, "rsa"),
        Signer::new(Kind::Es256, "ec"),
        Signer::new(Kind::EdDsa, "ed"),
    ];
    let issuer = Issuer::start(&signers).await;
    let service = service(&issuer).await;
    for signer in &signers {
        let token = signer.sign(&claims(&service, &issuer));
        ask(&service, &token).await.expect(200);
    }
    // The same subject may change the things it made, with another token as well; another subject may not.
    let member = service.key("acme", Role::Member).await;
    hold(&service, &member).await;
    let token = signers[1].sign(&claims(&service, &issuer));
    let plan = service.bearer(&token).post(
        "/v1/plans",
        &crate::service::orderable_demand(&service).await,
    );
    let plan = plan.await.expect(201);
    let quote = json!({ "plan_id": plan["id"] });
    let quote = service.bearer(&token).post("/v1/quotes", &quote).await;
    let take = json!({ "quote_id": quote.expect(201)["id"] });
    let held = service.bearer(&token).post("/v1/reservations", &take).await;
    let cancel = format!(
        "/v1/reservations/{}/cancel",
        held.expect(201)["id"].as_str().expect("an id")
    );
    let mut other = claims(&service, &issuer);
    other["sub"] = "grace".into();
    let grace = signers[0].sign(&other);
    let refused = service.bearer(&grace).send("POST", &cancel, None).await;
    refused.refused(403, "not_yours");
    let again = signers[2].sign(&claims(&service, &issuer));
    let done = service.bearer(&again).send("POST", &cancel, None).await;
    done.expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_login_is_nobody_unless_the_configuration_says_otherwise() {
    let signer = Signer::new(Kind::EdDsa, "ed");
    let issuer = Issuer::start(std::slice::from_ref(&signer)).await;
    let service = service(&issuer).await;
    let usual = claims(&service, &issuer);
    for (claim, value) in [
        ("realm_access", json!({ "roles": ["somebody"] })),
        ("realm_access", json!(null)),
        ("org", json!("unknown-corp")),
        ("org", json!(null)),
        ("org", json!(["acme-corp", "other-corp"])),
        // Mapped to a tenant that is not there.
        ("org", json!("other-corp")),
        // The name of a tenant here is not a word of the issuer's.
        ("org", json!("acme")),
    ] {
        let mut odd = usual.clone();
        odd[claim] = value;
        let detail = ask(&service, &signer.sign(&odd))
            .await
            .refused(403, "not_a_member");
        assert!(detail.contains("API key"), "{claim}: {detail}");
    }
    // A login of a provider whose claim names no provider, or two.
    for seller in [
        json!(null),
        json!("lambda"),
        json!(["lambda-labs", "runpod-inc"]),
    ] {
        let mut odd = usual.clone();
        odd["realm_access"] = json!({ "roles": ["gpu-seller"] });
        odd["seller"] = seller.clone();
        let detail = service
            .bearer(&signer.sign(&odd))
            .get("/v1/providers")
            .await;
        let detail = detail.refused(403, "not_a_member");
        assert!(detail.contains("provider"), "{seller}: {detail}");
    }
    let admin = service.key("operators", Role::Admin).await;
    let noted = service.with(&admin).get("/v1/audit?outcome=refused").await;
    let noted = noted.expect(200)["items"].clone();
    assert_eq!(noted[0]["code"], "not_a_member", "{noted}");
    assert_eq!(
        noted.as_array().map(Vec::len),
        Some(1),
        "the first in an hour"
    );
    ask(&service, &signer.sign(&usual)).await.expect(200);
    // A login makes nothing that would outlive it.
    let key = json!({ "name": "for good", "role": "viewer" });
    let caller = service.bearer(&signer.sign(&usual));
    caller
        .post("/v1/api-keys", &key)
        .await
        .refused(403, "access_denied");
    caller
        .send("POST", "/v1/tokens", None)
        .await
        .refused(403, "access_denied");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_a_provider_reads_the_provider_that_its_claim_names() {
    let signer = Signer::new(Kind::EdDsa, "ed");
    let issuer = Issuer::start(std::slice::from_ref(&signer)).await;
    let service = service(&issuer).await;
    let mut seller = claims(&service, &issuer);
    seller["realm_access"] = json!({ "roles": ["gpu-seller"] });
    seller["seller"] = json!("lambda-labs");
    let seller = service.bearer(&signer.sign(&seller));
    let seen = seller.get("/v1/providers").await.expect(200);
    let ids: Vec<_> = seen["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(ids, ["lambda"]);
    let other = seller.get("/v1/providers/runpod/quarantine").await;
    other.refused(404, "not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_the_issuers_for_us_and_now_is_refused() {
    let signer = Signer::new(Kind::Es256, "ec");
    let issuer = Issuer::start(&[signer.clone(), Signer::new(Kind::Rs256, "rsa")]).await;
    let service = service(&issuer).await;
    let usual = claims(&service, &issuer);
    let now = service.world.broker().now().timestamp();
    let wrong = [
        ("aud", json!("elsewhere")),
        ("aud", json!(null)),
        ("iss", json!("https://other.example")),
        ("iss", json!(format!("{}/", issuer.name()))),
        ("sub", json!("")),
        ("sub", json!(7)),
        ("exp", json!(null)),
        ("exp", json!("soon")),
        ("nbf", json!(now + 600)),
        ("iat", json!(now + 600)),
    ];
    for (claim, value) in wrong {
        let mut odd = usual.clone();
        odd[claim] = value.clone();
        if value.is_null() {
            odd.as_object_mut().expect("an object").remove(claim);
        }
        let answer = ask(&service, &signer.sign(&odd)).await;
        answer.refused(401, "invalid_token");
    }
    let mut past = usual.clone();
    past["exp"] = json!(now - 60);
    let answer = ask(&service, &signer.sign(&past)).await;
    answer.refused(401, "token_expired");
    // Its clock may be a little ahead or behind.
    for (claim, seconds) in [("nbf", 20), ("exp", -20)] {
        let mut near = usual.clone();
        near[claim] = json!(now + seconds);
        ask(&service, &signer.sign(&near)).await.expect(200);
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_confusion_of_algorithms_or_keys_gets_in() {
    let signer = Signer::new(Kind::Es256, "ec");
    let rsa = Signer::new(Kind::Rs256, "rsa");
    let issuer = Issuer::start(&[signer.clone(), rsa.clone()]).await;
    let service = service(&issuer).await;
    let usual = claims(&service, &issuer);
    let stranger = Signer::new(Kind::Es256, "ec");
    for (what, token) in [
        ("none", issuer::unsigned(&usual)),
        (
            "the public key as a password",
            rsa.sign_with_public_half(&usual),
        ),
        ("another key under a known name", stranger.sign(&usual)),
        (
            "a known key under another name",
            signer.named("rsa").sign(&usual),
        ),
        ("a key without a name", signer.unnamed().sign(&usual)),
        ("an unknown name", signer.named("other").sign(&usual)),
    ] {
        let answer = ask(&service, &token).await;
        assert_eq!(
            (answer.status, answer.body["code"].as_str()),
            (401, Some("invalid_token")),
            "{what}"
        );
    }
    // An algorithm that the issuer is not configured for.
    let mut config = issuer.config();
    config.algorithms = vec![broker::platform::config::OidcAlgorithm::Es256];
    let narrow = Service::start_configured(move |broker| {
        broker.rate_limits.enabled = false;
        broker.oidc = vec![config.clone()];
    })
    .await;
    narrow.key("acme", Role::Member).await;
    let usual = claims(&narrow, &issuer);
    ask(&narrow, &signer.sign(&usual)).await.expect(200);
    ask(&narrow, &rsa.sign(&usual))
        .await
        .refused(401, "invalid_token");
    narrow.stop().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_one_issuer_does_not_sign_for_another() {
    let (first, second) = (
        Signer::new(Kind::EdDsa, "one"),
        Signer::new(Kind::EdDsa, "two"),
    );
    let (one, two) = (
        Issuer::start(std::slice::from_ref(&first)).await,
        Issuer::start(std::slice::from_ref(&second)).await,
    );
    let (a, mut b) = (one.config(), two.config());
    b.tenant_claim = None;
    b.tenant_map.clear();
    b.tenant = Some("other".to_owned());
    let service = Service::start_configured(move |broker| {
        broker.rate_limits.enabled = false;
        broker.oidc = vec![a.clone(), b.clone()];
    })
    .await;
    service.key("acme", Role::Member).await;
    service.key("other", Role::Member).await;
    let forged = second.sign(&claims(&service, &one));
    ask(&service, &forged).await.refused(401, "invalid_token");
    let forged = second.named("one").sign(&claims(&service, &one));
    ask(&service, &forged).await.refused(401, "invalid_token");
    ask(&service, &first.sign(&claims(&service, &one)))
        .await
        .expect(200);
    ask(&service, &second.sign(&claims(&service, &two)))
        .await
        .expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_of_the_issuer_is_asked_for_and_not_more_than_once_a_minute() {
    let old = Signer::new(Kind::EdDsa, "old");
    let new = Signer::new(Kind::EdDsa, "new");
    let issuer = Issuer::start(std::slice::from_ref(&old)).await;
    let service = service(&issuer).await;
    ask(&service, &old.sign(&claims(&service, &issuer)))
        .await
        .expect(200);
    assert_eq!(issuer.reads(), 1);
    issuer.put(std::slice::from_ref(&new));
    service.world.clock().advance(TimeDelta::seconds(61));
    ask(&service, &new.sign(&claims(&service, &issuer)))
        .await
        .expect(200);
    assert_eq!(issuer.reads(), 2);
    let unknown = Signer::new(Kind::EdDsa, "unknown");
    for _ in 0..20 {
        let token = unknown.sign(&claims(&service, &issuer));
        ask(&service, &token).await.refused(401, "invalid_token");
    }
    assert_eq!(issuer.reads(), 2, "asked again within the minute");
    ask(&service, &old.sign(&claims(&service, &issuer)))
        .await
        .refused(401, "invalid_token");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_its_issuer_withdrew_is_unknown_five_minutes_later() {
    let (kept, stolen) = (
        Signer::new(Kind::EdDsa, "kept"),
        Signer::new(Kind::EdDsa, "stolen"),
    );
    let issuer = Issuer::start(&[kept.clone(), stolen.clone()]).await;
    let service = service(&issuer).await;
    let by = async |signer: &Signer| ask(&service, &signer.sign(&claims(&service, &issuer))).await;
    by(&stolen).await.expect(200);
    issuer.put(std::slice::from_ref(&kept));
    service.world.clock().advance(TimeDelta::minutes(5));
    by(&stolen).await.refused(401, "invalid_token");
    by(&kept).await.expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_does_not_answer_lets_nobody_new_in_and_keeps_those_it_vouched_for() {
    let signer = Signer::new(Kind::EdDsa, "ed");
    let issuer = Issuer::start(std::slice::from_ref(&signer)).await;
    let service = service(&issuer).await;
    issuer.break_down(true);
    let answer = ask(&service, &signer.sign(&claims(&service, &issuer))).await;
    answer.refused(503, "issuer_unavailable");
    assert!(answer.header("retry-after").is_some());
    issuer.break_down(false);
    service.world.clock().advance(TimeDelta::seconds(6));
    ask(&service, &signer.sign(&claims(&service, &issuer)))
        .await
        .expect(200);
    issuer.break_down(true);
    service.world.clock().advance(TimeDelta::hours(2));
    ask(&service, &signer.sign(&claims(&service, &issuer)))
        .await
        .expect(200);
    service.world.clock().advance(TimeDelta::hours(23));
    let answer = ask(&service, &signer.sign(&claims(&service, &issuer))).await;
    answer.refused(503, "issuer_unavailable");
    service.stop().await;
}
