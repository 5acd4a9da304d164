//! Credentials of providers: tried before they are kept, taken over at once, and never shown.

use broker::flow::ingest;
use market::identity::Role;
use serde_json::{Value, json};
use simulator::Provider;

use super::{entry, id_of, replica, without};
use crate::echo::Echo;
use crate::service::{Answer, Service};

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_credential_takes_over_on_every_replica_and_a_bad_one_changes_nothing() {
    let provider = Provider::LAMBDA;
    let service = without(provider).await;
    let admin = service.key("operators", Role::Admin).await;
    let (broker, other) = (service.world.broker(), replica(&service, provider).await);
    let (caller, path) = (service.with(&admin), "/v1/providers/lambda");
    // It does not answer well, which does not mean that it rejects the credential.
    let echo = Echo::start(404).await;
    let add = json!({ "id": "lambda", "credential": "first-credential", "base_url": echo.url() });
    let made = caller.post("/v1/providers", &add).await.expect(201);
    assert_eq!(made["credential"]["hint"], "tial");
    assert!(
        echo.credentials()
            .iter()
            .all(|one| one == "first-credential")
    );
    // The credential that each replica shows to the provider, once it has looked at the database.
    let shown = async |replica: &broker::platform::app::Broker| {
        ingest::catch_up(replica)
            .await
            .expect("the database answers");
        echo.credentials();
        let link = replica.provider(&id_of(provider)).expect("connected");
        let listed = link.adapter.list_leases(&link.http).await;
        assert!(listed.is_err(), "it refuses everything");
        echo.credentials().pop().expect("it was asked")
    };
    for replica in [broker, &other] {
        assert_eq!(shown(replica).await, "first-credential");
    }

    let change = json!({ "credential": "second-credential" });
    let changed = caller.patch(path, &change).await.expect(200);
    assert_ne!(
        changed["credential"]["set_at"],
        made["credential"]["set_at"]
    );
    for replica in [broker, &other] {
        assert_eq!(shown(replica).await, "second-credential");
    }

    echo.answer(401);
    let change = json!({ "credential": "third-credential" });
    let refused = caller.patch(path, &change).await;
    refused.refused(422, "credential_refused");
    assert!(!refused.text.contains("third"), "{}", refused.text);
    for replica in [broker, &other] {
        assert_eq!(shown(replica).await, "second-credential");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_credential_is_refused_in_clear_words_and_nothing_is_kept() {
    let service = without(Provider::LAMBDA).await;
    let admin = service.key("operators", Role::Admin).await;
    let caller = service.with(&admin);
    let post = async |body: Value| caller.post("/v1/providers", &body).await;
    let with = |credential: Value| {
        let mut entry = entry(&service, Provider::LAMBDA);
        entry["credential"] = credential;
        entry
    };
    let detail = post(with(json!("not-the-one")))
        .await
        .refused(422, "credential_refused");
    assert!(
        detail.contains("Lambda") && detail.contains("401"),
        "{detail}"
    );
    for bad in [
        "",
        "two words",
        "two\nlines",
        "schlüssel",
        &"x".repeat(4_097),
    ] {
        let detail = post(with(json!(bad))).await.refused(422, "invalid_body");
        assert!(detail.contains("visible characters"), "{detail}");
    }
    // A number may be a credential without its quotes.
    let unquoted = post(with(json!(31_415_926))).await;
    unquoted.refused(422, "invalid_body");
    assert!(!unquoted.text.contains("31415926"), "{}", unquoted.text);
    let nobody = json!({ "id": "nobody", "credential": "x" });
    let detail = post(nobody).await.refused(422, "unknown_reference");
    assert!(
        detail.contains("lambda, runpod, shadeform, verda"),
        "{detail}"
    );
    // One of several fields is an object of exactly these.
    let half = r#"{"client_id": "hunter2"}"#;
    let halved = json!({ "id": "verda", "credential": half, "base_url": "http://127.0.0.1:9" });
    let refused = post(halved).await;
    let detail = refused.refused(422, "invalid_body");
    assert!(detail.contains("`client_id`, `client_secret`"), "{detail}");
    assert!(!refused.text.contains("hunter2"), "{}", refused.text);
    let away = json!({ "id": "lambda", "credential": "x", "base_url": "https://192.0.2.1" });
    post(away).await.refused(422, "invalid_body");
    let path = "/v1/providers/lambda";
    caller.get(path).await.refused(404, "not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_what_it_found_or_what_is_wrong_and_keeps_nothing() {
    let service = Service::start().await;
    let admin = service.key("operators", Role::Admin).await;
    let caller = service.with(&admin);
    for provider in Provider::DEMONSTRATION {
        let path = format!("/v1/providers/{provider}");
        let before = caller.get(&path).await.expect(200);
        let check = async |body: Value| {
            let checked = caller.post(&format!("{path}/check"), &body).await;
            checked.expect(200)
        };
        let good = check(json!({})).await;
        assert_eq!(
            (&good["ok"], &good["trouble"], &good["machines"]),
            (&json!(true), &Value::Null, &json!(0)),
            "{good}"
        );
        assert_eq!(good["offers"], before["live_offers"]);
        let url = service.world.simulator().url(provider);
        let bad = check(json!({ "credential": "not-the-one", "base_url": url })).await;
        assert_eq!(
            (&bad["ok"], &bad["trouble"]),
            (&json!(false), &json!("credential_refused")),
            "{bad}"
        );
        let after = caller.get(&path).await.expect(200);
        assert_eq!(after, before);
    }
    let silent = json!({ "credential": "x", "base_url": "http://127.0.0.1:1" });
    let checked = caller.post("/v1/providers/lambda/check", &silent);
    let checked = checked.await.expect(200);
    assert_eq!(checked["trouble"], "unreachable", "{checked}");
    let nobody = caller.post("/v1/providers/nobody/check", &silent);
    nobody.await.refused(404, "not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_in_no_answer_and_in_no_entry_of_the_log() {
    let service = without(Provider::LAMBDA).await;
    let admin = service.key("operators", Role::Admin).await;
    let member = service.key("operators", Role::Member).await;
    let (caller, path) = (service.with(&admin), "/v1/providers/lambda");
    let echo = Echo::start(404).await;
    let (first, second) = ("canary-1-in-the-mine", "canary-2-in-the-mine");
    let mut answers: Vec<Answer> = Vec::new();
    let add = json!({ "id": "lambda", "credential": first, "base_url": echo.url() });
    answers.push(caller.post("/v1/providers", &add).await);
    assert_eq!(answers[0].status, 201, "{}", answers[0].text);
    let change = json!({ "credential": second });
    let check = json!({ "credential": second, "base_url": echo.url() });
    for status in [404, 401, 500] {
        echo.answer(status);
        answers.push(caller.post("/v1/providers", &add).await);
        answers.push(caller.patch(path, &change).await);
        answers.push(caller.post(&format!("{path}/check"), &check).await);
        let broker = service.world.broker();
        ingest::catch_up(broker)
            .await
            .expect("the database answers");
        service.world.read_providers().await;
    }
    for caller in [service.with(&admin), service.with(&member)] {
        for path in [
            "/v1/providers",
            path,
            "/v1/providers/lambda/quarantine",
            "/v1/audit",
            "/v1/events",
        ] {
            answers.push(caller.get(path).await);
        }
    }
    let shown = service.with(&member).get(path).await.expect(200);
    assert_eq!(
        (&shown["credential"], &shown["base_url"]),
        (&Value::Null, &Value::Null),
        "the hint is for administrators"
    );
    for answer in answers {
        assert!(!answer.text.contains("in-the-mine"), "{}", answer.text);
    }
    let row = service.world.broker().store().providers();
    let row = row.find(&id_of(Provider::LAMBDA)).await.expect("reads");
    assert!(!format!("{row:?}").contains("mine"), "{row:?}");
    service.stop().await;
}
