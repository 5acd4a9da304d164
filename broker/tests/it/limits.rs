//! Rate limits, through the real server.

use market::identity::Role;
use serde_json::json;

use crate::service::{Answer, Service};

/// A service with small quotas that come back slowly.
async fn strict() -> Service {
    Service::start_configured(|config| {
        config.rate_limits = serde_json::from_value(json!({
            "enabled": true,
            "reads": { "per_second": 1, "burst": 4 },
            "writes": { "per_second": 1, "burst": 2 },
            "tenant_reads": { "per_second": 1, "burst": 7 },
            "tenant_writes": { "per_second": 1, "burst": 3 },
            "anonymous": { "per_second": 1, "burst": 3 },
        }))
        .expect("limits");
        config.server.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    })
    .await
}

fn number(answer: &Answer, field: &str) -> u64 {
    let text = answer.header(field).unwrap_or_else(|| panic!("no {field}"));
    text.parse().expect("a number")
}

/// Calls until it is refused, however slow this machine is; gives the refusal.
async fn until_refused(call: impl AsyncFn() -> Answer) -> Answer {
    for _ in 0..100 {
        let answer = call().await;
        if answer.status == 429 {
            answer.refused(429, "rate_limited");
            assert_eq!(number(&answer, "ratelimit-remaining"), 0);
            return answer;
        }
    }
    panic!("nothing was refused: on a machine with a call a second, the quota comes back as fast");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_its_quotas_for_reads_and_writes_and_every_answer_says_where_it_stands() {
    let service = strict().await;
    let acme = service.key("acme", Role::Member).await;
    let first = service.with(&acme).get("/v1/reservations").await;
    assert_eq!(first.status, 200);
    assert_eq!(number(&first, "ratelimit-limit"), 4);
    assert_eq!(number(&first, "ratelimit-remaining"), 3);
    assert_eq!(number(&first, "ratelimit-reset"), 1);
    let refused = until_refused(async || service.with(&acme).get("/v1/offers").await).await;
    let detail = refused.refused(429, "rate_limited");
    assert!(detail.contains("call again in 1 s"), "{detail}");
    assert_eq!(number(&refused, "retry-after"), 1);
    assert!((3..=4).contains(&number(&refused, "ratelimit-reset")));

    // Writes have a quota of their own, of which a body that is refused is a part; a token counts
    // as its key.
    let token = service.with(&acme).post("/v1/tokens", &json!({})).await;
    assert_eq!(number(&token, "ratelimit-limit"), 2);
    let token = token.expect(201)["access_token"].clone();
    let token = token.as_str().expect("a token");
    let plan = async || service.bearer(token).post("/v1/plans", &json!({})).await;
    let bad = plan().await;
    assert_eq!((bad.status, number(&bad, "ratelimit-limit")), (422, 2));
    until_refused(plan).await;

    // Another key is another caller.
    let other = service.key("globex", Role::Member).await;
    let answer = service.with(&other).get("/v1/reservations").await;
    assert_eq!(number(&answer, "ratelimit-remaining"), 3);
    answer.expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_keys_of_a_tenant_together_have_a_quota_of_their_own() {
    let service = strict().await;
    let acme = service.key("acme", Role::Member).await;
    until_refused(async || service.with(&acme).get("/v1/offers").await).await;
    // Refused calls of one key count for no other.
    let colleague = service.key("acme", Role::Member).await;
    let first = service.with(&colleague).get("/v1/offers").await;
    first.expect(200);
    let mut granted = 0;
    let refused = loop {
        let key = service.key("acme", Role::Member).await;
        let answer = service.with(&key).get("/v1/offers").await;
        match answer.status {
            200 => granted += 1,
            _ => break answer,
        }
        assert!(granted < 100, "as many calls as there are keys");
    };
    refused.refused(429, "rate_limited");
    assert_eq!(number(&refused, "ratelimit-limit"), 7);
    let globex = service.key("globex", Role::Member).await;
    let answer = service.with(&globex).get("/v1/offers").await;
    answer.expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_shows_no_valid_credential_is_counted_by_address_as_proxies_of_ours_note_it() {
    let service = strict().await;
    let from = async |hops: &str| {
        let anyone = service.anyone().header("x-forwarded-for", hops);
        anyone.get("/v1/offers").await
    };
    from("198.51.100.1").await.expect(200);
    // A false key is no way to another quota, and neither is a hop made up before ours.
    let forged = async || {
        let forged = service.bearer("gpb_forged");
        let forged = forged.header("x-forwarded-for", "198.51.100.1");
        forged.get("/v1/reservations").await
    };
    let first = forged().await;
    first.refused(401, "invalid_token");
    assert_eq!(number(&first, "ratelimit-limit"), 3);
    until_refused(forged).await;
    until_refused(async || from("203.0.113.7, 198.51.100.1").await).await;
    let neighbour = from("198.51.100.2").await;
    assert_eq!(number(&neighbour, "ratelimit-remaining"), 2);
    neighbour.expect(200);
    // A key that is used from that address has its own quota.
    let acme = service.key("acme", Role::Viewer).await;
    let mine = service
        .with(&acme)
        .header("x-forwarded-for", "198.51.100.1");
    mine.get("/v1/offers").await.expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_prove_themselves_and_those_who_watch_our_health_are_not_counted() {
    let service = strict().await;
    let agent = format!("/v1/agents/{}", "0".repeat(64));
    // A wrong token of a node is counted by address, however it is spelt.
    let verification = "/v1/verifications/ver_00000000000000000000000000000000";
    for (path, node) in [
        ("steps/1", service.bearer("one-time-token")),
        ("gang", service.bearer("another-token")),
        ("steps/1", service.anyone()),
    ] {
        let path = format!("{verification}/{path}");
        until_refused(async || node.post(&path, &json!({})).await).await;
    }
    for _ in 0..5 {
        let answers = [
            service.anyone().get("/healthz").await,
            service.anyone().get("/readyz").await,
            service.anyone().get(&agent).await,
        ];
        for answer in answers {
            assert_ne!(answer.status, 429, "{}", answer.text);
            assert_eq!(answer.header("ratelimit-limit"), None);
        }
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_metrics_is_counted() {
    let service = strict().await;
    let admin = service.key("operators", Role::Admin).await;
    let read = until_refused(async || service.with(&admin).get("/metrics").await).await;
    assert_eq!(number(&read, "ratelimit-limit"), 4);
    let guess = until_refused(async || service.bearer("a-guess").get("/metrics").await).await;
    assert_eq!(number(&guess, "ratelimit-limit"), 3);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_limits_are_off_nothing_is_counted() {
    let service = Service::start().await;
    for _ in 0..60 {
        let answer = service.anyone().get("/v1/gpus").await;
        assert_eq!(answer.header("ratelimit-limit"), None);
        answer.expect(200);
    }
    service.stop().await;
}
