//! `/v1/budgets`, `/v1/spending-limits` and `/v1/balance`.

use market::identity::Role;
use serde_json::{Value, json};

use crate::service::{Key, Service, hold, quote, ssh_key};

async fn budget(service: &Service, admin: &Key, of: &Key, ask: &Value) -> Value {
    let path = format!("/v1/budgets?tenant={}", of.tenant);
    service.with(admin).post(&path, ask).await.expect(201)
}

/// Tries to hold an orderable offer; returns the refusal.
async fn refused(service: &Service, key: &Key, code: &str) -> String {
    ssh_key(service, key).await;
    let (_, quote) = quote(service, key).await;
    let body = json!({ "quote_id": quote });
    let answer = service.with(key).post("/v1/reservations", &body).await;
    answer.refused(409, code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_could_pass_a_blocking_budget_is_refused_with_what_to_do() {
    let service = Service::start().await;
    let admin = service.key("operator", Role::Admin).await;
    let member = service.key("acme", Role::Member).await;
    let ask = json!({ "period": "day", "cap_usd": "0.01", "mode": "block_new" });
    let made = budget(&service, &admin, &member, &ask).await;
    assert_eq!(made["thresholds_percent"], json!([50, 80, 100]));
    assert_eq!(made["grace_seconds"], 3_600);
    let said = refused(&service, &member, "budget_exceeded").await;
    for part in [
        made["id"].as_str().expect("an id"),
        "0.01 USD in a day",
        "budget raised",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let listed = service
        .with(&member)
        .get("/v1/reservations")
        .await
        .expect(200);
    assert_eq!(listed["items"], json!([]), "nothing was written");

    let path = format!(
        "/v1/budgets/{}?tenant={}",
        made["id"].as_str().expect("an id"),
        member.tenant
    );
    let raise = json!({ "cap_usd": "1000000", "mode": "stop_running" });
    let raised = service.with(&admin).patch(&path, &raise).await.expect(200);
    assert_eq!(
        (&raised["cap_usd"], &raised["mode"], &raised["period"]),
        (&json!("1000000.00"), &json!("stop_running"), &json!("day"))
    );
    hold(&service, &member).await;
    service.with(&admin).delete(&path).await.expect(204);
    service
        .with(&admin)
        .get(&path)
        .await
        .refused(404, "not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_read_their_budgets_and_limits_and_only_administrators_write_them() {
    let service = Service::start().await;
    let admin = service.key("operator", Role::Admin).await;
    let finance = service.key("acme", Role::Finance).await;
    let other = service.key("other", Role::Finance).await;
    let ask = json!({ "period": "month", "cap_usd": "100", "mode": "notify" });
    let made = budget(&service, &admin, &finance, &ask).await;
    let own = format!("/v1/budgets/{}", made["id"].as_str().expect("an id"));
    let seen = service.with(&finance).get(&own).await.expect(200);
    assert_eq!(seen, made);
    let listed = service.with(&finance).get("/v1/budgets").await.expect(200);
    assert_eq!(listed, json!({ "items": [made], "next_cursor": null }));
    service
        .with(&other)
        .get(&own)
        .await
        .refused(404, "not_found");
    let listed = service.with(&other).get("/v1/budgets").await.expect(200);
    assert_eq!(listed["items"], json!([]));
    let change = json!({ "cap_usd": "1" });
    for role in [Role::Finance, Role::Member] {
        let key = service.key("acme", role).await;
        let caller = service.with(&key);
        let denied = |answer: crate::service::Answer| answer.refused(403, "access_denied");
        denied(caller.patch(&own, &change).await);
        denied(caller.delete(&own).await);
        denied(caller.post("/v1/budgets", &ask).await);
        denied(
            caller
                .patch("/v1/spending-limits", &json!({ "gpus": 1 }))
                .await,
        );
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_budget_and_no_limit_is_refused() {
    let service = Service::start().await;
    let admin = service.key("operator", Role::Admin).await;
    let caller = service.with(&admin);
    let good = json!({ "period": "day", "cap_usd": "1", "mode": "notify" });
    for (field, value) in [
        ("cap_usd", json!("0")),
        ("cap_usd", json!("1000000000.01")),
        ("period", json!("week")),
        ("mode", json!("maybe")),
        ("thresholds_percent", json!([0])),
        ("thresholds_percent", json!([50, 50])),
        ("grace_seconds", json!(604_801)),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        let answer = caller.post("/v1/budgets", &bad).await;
        answer.refused(422, "invalid_body");
    }
    let mut strange = good.clone();
    strange["project_id"] = json!("prj_00000000000000000000000000000000");
    let answer = caller.post("/v1/budgets", &strange).await;
    answer.refused(404, "not_found");
    for bad in [
        json!({}),
        json!({ "gpus": 1_000_000_001 }),
        json!({ "usd_per_hour": "-1" }),
    ] {
        let answer = caller.patch("/v1/spending-limits", &bad).await;
        answer.refused(422, "invalid_body");
    }
    let unknown = "/v1/spending-limits?project_id=prj_00000000000000000000000000000000";
    caller.get(unknown).await.refused(404, "not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_refuses_a_hold_and_says_how_much_is_in_use() {
    let service = Service::start_configured(|config| config.spending.open_holds = Some(1)).await;
    let admin = service.key("operator", Role::Admin).await;
    let member = service.key("acme", Role::Member).await;
    let limits = service
        .with(&member)
        .get("/v1/spending-limits")
        .await
        .expect(200);
    assert_eq!(
        (&limits["open_holds"], &limits["changed_at"]),
        (&json!(1), &Value::Null),
        "as configured"
    );
    hold(&service, &member).await;
    let said = refused(&service, &member, "quota_exceeded").await;
    assert!(
        said.contains("`open_holds` of the tenant is 1: 1 are in use and 1 more"),
        "{said}"
    );
    let path = format!("/v1/spending-limits?tenant={}", member.tenant);
    let more = json!({ "open_holds": null, "usd_per_hour": "1000000" });
    let once = || service.with(&admin).once("limits-1");
    let changed = once().patch(&path, &more).await.expect(200);
    assert_eq!(
        (
            &changed["open_holds"],
            &changed["usd_per_hour"],
            &changed["gpus"]
        ),
        (&Value::Null, &json!("1000000.00"), &json!(4_096))
    );
    assert_eq!(once().patch(&path, &more).await.expect(200), changed);
    let seen = service
        .with(&member)
        .get("/v1/spending-limits")
        .await
        .expect(200);
    assert_eq!(seen["in_use"]["open_holds"], 1);
    // The old path of before still answers, with its query.
    let old = format!("/v1/limits?tenant={}", member.tenant);
    assert_eq!(service.with(&admin).get(&old).await.expect(200), seen);
    assert!(seen["in_use"]["gpus"].as_u64() > Some(0));
    hold(&service, &member).await;

    let projects = service.with(&member).get("/v1/projects").await.expect(200);
    let project = projects["items"][0]["id"].as_str().expect("an id");
    let of_project = format!("{path}&project_id={project}");
    let none = json!({ "reservations": 2 });
    service
        .with(&admin)
        .patch(&of_project, &none)
        .await
        .expect(200);
    let said = refused(&service, &member, "quota_exceeded").await;
    assert!(
        said.contains(project) && said.contains("`reservations`"),
        "{said}"
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_balance_adds_up_what_is_open_by_project_and_budget() {
    let service = Service::start().await;
    let admin = service.key("operator", Role::Admin).await;
    let member = service.key("acme", Role::Member).await;
    let empty = service.with(&member).get("/v1/balance").await.expect(200);
    assert_eq!(
        (
            &empty["open_this_month_usd"],
            &empty["burn_usd_per_hour"],
            &empty["hours_left"]
        ),
        (&json!("0.00"), &json!("0.00"), &Value::Null)
    );
    hold(&service, &member).await;
    let ask = json!({ "period": "month", "cap_usd": "9999999", "mode": "block_new" });
    let made = budget(&service, &admin, &member, &ask).await;
    let credit = json!({ "amount_usd": "3", "reason": "goodwill" });
    let path = format!("/v1/credits?tenant={}", member.tenant);
    service.with(&admin).post(&path, &credit).await.expect(201);
    let path = format!("/v1/balance?tenant={}", member.tenant);
    let seen = service.with(&admin).get(&path).await.expect(200);
    let balance = service.with(&member).get("/v1/balance").await.expect(200);
    assert_eq!(seen["total"], balance["total"]);
    assert_ne!(balance["open_this_month_usd"], "0.00");
    assert_eq!(balance["charged_this_month_usd"], "0.00");
    assert_eq!(balance["credited_usd"], "3.00");
    let (budget, project) = (&balance["budgets"][0], &balance["projects"][0]);
    assert_eq!(budget["budget_id"], made["id"]);
    assert_eq!(budget["open_usd"], balance["open_this_month_usd"]);
    assert_eq!(
        project["open_this_month_usd"],
        balance["open_this_month_usd"]
    );
    assert_eq!(project["name"], "default");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_whose_budget_is_used_up_since_is_not_confirmed() {
    let service = Service::start().await;
    let admin = service.key("operator", Role::Admin).await;
    let member = service.key("acme", Role::Member).await;
    let ask = json!({ "period": "month", "cap_usd": "1000000", "mode": "block_new" });
    let made = budget(&service, &admin, &member, &ask).await;
    let path = format!(
        "/v1/budgets/{}?tenant={}",
        made["id"].as_str().expect("an id"),
        member.tenant
    );
    let cap = async |cap: &str| {
        let change = json!({ "cap_usd": cap });
        service.with(&admin).patch(&path, &change).await.expect(200);
    };
    let (first, second) = (hold(&service, &member).await, hold(&service, &member).await);
    let confirm = async |id: &str| {
        let path = format!("/v1/reservations/{id}/confirm");
        service.with(&member).send("POST", &path, None).await
    };
    cap("0.01").await;
    let said = confirm(&first).await.refused(409, "budget_exceeded");
    assert!(said.contains("0.01 USD in a month"), "{said}");
    let held = service
        .with(&member)
        .get(&format!("/v1/reservations/{first}"));
    assert_eq!(
        held.await.expect(200)["state"],
        "held",
        "it may still fit later"
    );

    // Room for either of them in the longest of months, and not for both: neither has an end.
    let limits = service
        .with(&member)
        .get("/v1/spending-limits")
        .await
        .expect(200);
    let both: f64 = limits["in_use"]["usd_per_hour"]
        .as_str()
        .and_then(|sum| sum.parse().ok())
        .expect("a sum");
    cap(&format!("{:.2}", both * 0.75 * 24.0 * 31.0)).await;
    confirm(&first).await.expect(200);
    confirm(&second).await.refused(409, "budget_exceeded");
    cap("1000000").await;
    confirm(&second).await.expect(200);
    service.stop().await;
}
