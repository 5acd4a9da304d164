//! `/v1/credits`.

use broker::tenant::books;
use market::identity::Role;
use serde_json::json;

use crate::service::Service;

async fn assert_books_are_right(service: &Service) {
    let store = service.world.broker().store();
    let books = store.ledger().books().await.expect("the books");
    assert!(books.check.is_balanced());
    assert_eq!(books::differences(&books), Ok(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_gives_a_credit_once_and_the_tenant_sees_it() {
    let service = Service::start().await;
    let admin = service.key("operator", Role::Admin).await;
    let tenant = service.key("acme", Role::Finance).await;
    let other = service.key("other", Role::Finance).await;
    let path = format!("/v1/credits?tenant={}", tenant.tenant);
    let ask = json!({ "amount_usd": "12.50", "reason": "the second node came late" });
    let caller = || service.with(&admin).once("credit-1");
    let given = caller().post(&path, &ask).await.expect(201);
    assert_eq!(given["amount_usd"], "12.50");
    let again = caller().post(&path, &ask).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.expect(201), given);
    let dearer = json!({ "amount_usd": "99", "reason": "the second node came late" });
    caller()
        .post(&path, &dearer)
        .await
        .refused(422, "idempotency_key_reused");

    let mine = service.with(&tenant).get("/v1/credits").await.expect(200);
    assert_eq!(mine, json!({ "items": [given], "next_cursor": null }));
    let theirs = service.with(&other).get("/v1/credits").await.expect(200);
    assert_eq!(theirs["items"], json!([]));
    let report = service.with(&tenant).get("/v1/reports/costs").await;
    let report = report.expect(200);
    assert_eq!(
        (
            &report["credited_usd"],
            &report["total_usd"],
            &report["rows"]
        ),
        (&json!("12.50"), &json!("0.00"), &json!([]))
    );
    let report = service.with(&other).get("/v1/reports/costs").await;
    assert_eq!(report.expect(200)["credited_usd"], "0.00");
    let report = service.with(&admin).get("/v1/reports/costs").await;
    assert_eq!(report.expect(200)["credited_usd"], "12.50", "everybody's");
    assert_books_are_right(&service).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credits_are_listed_page_by_page_the_newest_first() {
    let service = Service::start().await;
    let admin = service.key("operator", Role::Admin).await;
    let mut given = Vec::new();
    for cents in 1..=3 {
        service.world.clock().advance(chrono::TimeDelta::seconds(1));
        let ask = json!({ "amount_usd": format!("0.0{cents}"), "reason": "goodwill" });
        let path = format!("/v1/credits?tenant={}", admin.tenant);
        let credit = service.with(&admin).post(&path, &ask).await.expect(201);
        given.insert(0, credit);
    }
    let list = async |path: String| service.with(&admin).get(&path).await.expect(200);
    let first = list("/v1/credits?limit=2".into()).await;
    assert_eq!(first["items"], json!(given[..2]));
    let cursor = first["next_cursor"].as_str().expect("another page");
    let last = list(format!("/v1/credits?limit=2&cursor={cursor}")).await;
    assert_eq!(last, json!({ "items": given[2..], "next_cursor": null }));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_gives_credits_and_an_impossible_one_is_refused() {
    let service = Service::start().await;
    let admin = service.key("operator", Role::Admin).await;
    let fine = json!({ "amount_usd": "1", "reason": "goodwill" });
    for role in [Role::Member, Role::Finance, Role::Viewer, Role::Provider] {
        let key = service.key("acme", role).await;
        let path = format!("/v1/credits?tenant={}", key.tenant);
        service
            .with(&key)
            .post(&path, &fine)
            .await
            .refused(403, "access_denied");
    }
    let unnamed = service.with(&admin).post("/v1/credits", &fine).await;
    assert!(
        unnamed
            .refused(422, "invalid_parameter")
            .contains("?tenant=")
    );
    let path = format!("/v1/credits?tenant={}", admin.tenant);
    for (amount, reason) in [
        ("0", "goodwill"),
        ("-5", "goodwill"),
        ("1000000.01", "goodwill"),
        ("0.000000001", "goodwill"),
        ("plenty", "goodwill"),
        ("1", " "),
        ("1", "two\nlines"),
    ] {
        let ask = json!({ "amount_usd": amount, "reason": reason });
        let answer = service.with(&admin).post(&path, &ask).await;
        answer.refused(422, "invalid_body");
    }
    let listed = service.with(&admin).get(&path).await.expect(200);
    assert_eq!(listed["items"], json!([]));
    assert_books_are_right(&service).await;
    service.stop().await;
}
