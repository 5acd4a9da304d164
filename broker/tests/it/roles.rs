//! Every route × every role × one's own and another tenant, against a table written by hand.
//!
//! The table is the oracle: it states what the product promises, not what the code does. A route that is
//! added without a row here fails the test. The walk has an effect by nearly every route that writes, so it
//! also sees that each effect is recorded in the audit log.

mod of_provider;

use std::collections::{BTreeMap, BTreeSet};

use market::identity::Role;
use serde_json::{Value, json};

use crate::belongings::Belongings;
use crate::routes;
use crate::service::{Answer, Key, Service, orderable_demand};

/// The callers of a row, in order: an administrator, a provider, the member who made the things,
/// another member of the same tenant, finance, a viewer.
const CALLERS: [Role; 6] = [
    Role::Admin,
    Role::Provider,
    Role::Member,
    Role::Member,
    Role::Finance,
    Role::Viewer,
];

/// The answer for each caller: `+` admitted, `x` 403, `.` 404, `t` 401 (another kind of credential).
///
/// First about their own tenant's things, then about another's: by its id in the path or the body, or by
/// `?tenant=` where a route takes no id. Last the answers for a member whose key works in one project only:
/// about the things it made there, and about those of its tenant in another.
const TABLE: &[(&str, &str, &str, &str)] = &[
    ("GET /docs", "++++++", "++++++", "++"),
    ("GET /healthz", "++++++", "++++++", "++"),
    ("GET /readyz", "++++++", "++++++", "++"),
    // Metrics are nobody's.
    ("GET /metrics", "+xxxxx", "+xxxxx", "xx"),
    ("GET /openapi.json", "++++++", "++++++", "++"),
    ("GET /.well-known/jwks.json", "++++++", "++++++", "++"),
    ("GET /v1/gpus", "++++++", "++++++", "++"),
    ("GET /v1/gpus/{gpu}/index", "++++++", "++++++", "++"),
    ("GET /v1/offers", "++++++", "++++++", "++"),
    // No offer of the table's id is there.
    ("GET /v1/offers/{id}", "......", "......", ".."),
    ("GET /v1/offers/{id}/history", "......", "......", ".."),
    // Providers are nobody's.
    ("GET /v1/providers", "++++x+", "++++x+", "++"),
    ("POST /v1/providers", "+xxxxx", "+xxxxx", "xx"),
    // No provider of the table's id is there.
    ("GET /v1/providers/{id}", "....x.", "....x.", ".."),
    ("PATCH /v1/providers/{id}", ".xxxxx", ".xxxxx", "xx"),
    ("POST /v1/providers/{id}/check", ".xxxxx", ".xxxxx", "xx"),
    (
        "GET /v1/providers/{id}/quarantine",
        "....x.",
        "....x.",
        "..",
    ),
    (
        "POST /v1/providers/{id}/quarantine",
        ".xxxxx",
        ".xxxxx",
        "xx",
    ),
    (
        "DELETE /v1/providers/{id}/quarantine",
        ".xxxxx",
        ".xxxxx",
        "xx",
    ),
    ("POST /v1/plans", "+x++xx", "+.....", "++"),
    ("GET /v1/plans/{id}", "+x++x+", ".x..x.", "+."),
    // No offer of the table's id is there.
    (
        "GET /v1/plans/{id}/offers/{offer}",
        ".x..x.",
        ".x..x.",
        "..",
    ),
    ("POST /v1/quotes", "+x++xx", ".x..xx", "+."),
    ("GET /v1/quotes/{id}", "+x++x+", ".x..x.", "+."),
    ("POST /v1/reservations", "+x++xx", ".x..xx", "+."),
    ("GET /v1/reservations", "+x++++", "+.....", "++"),
    ("GET /v1/reservations/{id}", "+x++++", ".x....", "+."),
    ("PATCH /v1/reservations/{id}", "+x+xxx", ".x..xx", "+."),
    (
        "POST /v1/reservations/{id}/confirm",
        "+x+xxx",
        ".x..xx",
        "+.",
    ),
    ("POST /v1/reservations/confirm", "+x+xxx", ".x..xx", "+."),
    (
        "POST /v1/reservations/{id}/cancel",
        "+x+xxx",
        ".x..xx",
        "+.",
    ),
    (
        "POST /v1/reservations/{id}/release",
        "+x+xxx",
        ".x..xx",
        "+.",
    ),
    (
        "POST /v1/reservations/{id}/extend",
        "+x+xxx",
        ".x..xx",
        "+.",
    ),
    ("GET /v1/reservations/{id}/nodes", "+x++++", ".x....", "+."),
    (
        "POST /v1/reservations/{id}/nodes/{n}/report",
        "+x+xxx",
        ".x..xx",
        "+.",
    ),
    (
        "POST /v1/reservations/{id}/nodes/{n}/recheck",
        "+x+xxx",
        ".x..xx",
        "+.",
    ),
    // Nothing permits a re-check of its node.
    (
        "DELETE /v1/reservations/{id}/nodes/{n}/recheck",
        ".x.xxx",
        ".x..xx",
        "+.",
    ),
    (
        "GET /v1/reservations/{id}/nodes/{n}/reports",
        "+x++++",
        ".x....",
        "+.",
    ),
    ("GET /v1/reservations/{id}/access", "+x++++", ".x....", "+."),
    ("GET /v1/reservations/{id}/events", "+x++++", ".x....", "+."),
    ("GET /v1/events", "+x++++", "+.....", "++"),
    ("GET /v1/webhook-endpoints", "+x++xx", "+.....", "xx"),
    ("POST /v1/webhook-endpoints", "+x++xx", "+.....", "xx"),
    ("GET /v1/webhook-endpoints/{id}", "+x++xx", ".x..xx", "xx"),
    ("PATCH /v1/webhook-endpoints/{id}", "+x++xx", ".x..xx", "xx"),
    (
        "DELETE /v1/webhook-endpoints/{id}",
        "+x++xx",
        ".x..xx",
        "xx",
    ),
    (
        "POST /v1/webhook-endpoints/{id}/rotate",
        "+x++xx",
        ".x..xx",
        "xx",
    ),
    (
        "POST /v1/webhook-endpoints/{id}/test",
        "+x++xx",
        ".x..xx",
        "xx",
    ),
    (
        "GET /v1/webhook-endpoints/{id}/deliveries",
        "+x++xx",
        ".x..xx",
        "xx",
    ),
    (
        "POST /v1/webhook-endpoints/{id}/deliveries/{delivery}/redeliver",
        "+x++xx",
        ".x..xx",
        "xx",
    ),
    // Only the one-time token of a node opens it.
    (
        "POST /v1/verifications/{id}/steps/{n}",
        "tttttt",
        "tttttt",
        "tt",
    ),
    ("POST /v1/verifications/{id}/gang", "tttttt", "tttttt", "tt"),
    ("GET /v1/attestations/{id}", "+x++x+", ".x..x.", ".."),
    ("GET /v1/agents", "++++++", "++++++", "++"),
    ("GET /v1/agents/{sha256}", "......", "......", ".."),
    ("GET /v1/reports/costs", "+x+++x", "+.....", "++"),
    ("GET /v1/reports/cancelled-orders", "+xxxxx", "+.....", "xx"),
    ("GET /v1/credits", "+x+++x", "+.....", "xx"),
    ("POST /v1/credits", "+xxxxx", "+.....", "xx"),
    ("GET /v1/balance", "+x+++x", "+.....", "xx"),
    ("GET /v1/spending-limits", "+x+++x", "+.....", "xx"),
    ("PATCH /v1/spending-limits", "+xxxxx", "+.....", "xx"),
    ("GET /v1/required-tags", "+x+++x", "+.....", "xx"),
    ("PATCH /v1/required-tags", "+xxxxx", "+.....", "xx"),
    ("GET /v1/budgets", "+x+++x", "+.....", "xx"),
    ("POST /v1/budgets", "+xxxxx", "+.....", "xx"),
    ("GET /v1/budgets/{id}", "+x+++x", ".x...x", "xx"),
    ("PATCH /v1/budgets/{id}", "+xxxxx", ".xxxxx", "xx"),
    ("DELETE /v1/budgets/{id}", "+xxxxx", ".xxxxx", "xx"),
    ("GET /v1/commitments", "+x++++", "+.....", "xx"),
    ("POST /v1/commitments", "+xxxxx", "+.....", "xx"),
    ("GET /v1/commitments/{id}", "+x++++", ".x....", "xx"),
    ("DELETE /v1/commitments/{id}", "+xxxxx", ".xxxxx", "xx"),
    ("GET /v1/provider-accounts", "+x++++", "+.....", "xx"),
    ("POST /v1/provider-accounts", "+xxxxx", "+.....", "xx"),
    ("GET /v1/provider-accounts/{id}", "+x++++", ".x....", "xx"),
    (
        "DELETE /v1/provider-accounts/{id}",
        "+xxxxx",
        ".xxxxx",
        "xx",
    ),
    ("GET /v1/ssh-keys", "+x++x+", "+.....", "++"),
    ("POST /v1/ssh-keys", "+x++xx", "+.....", "xx"),
    ("DELETE /v1/ssh-keys/{id}", "+x++xx", ".x..xx", "xx"),
    ("POST /v1/tokens", "++++++", "+.....", "++"),
    ("GET /v1/api-keys", "+x++xx", "+.....", "++"),
    ("POST /v1/api-keys", "+x++xx", "+.....", "++"),
    // The key is another principal's: only an administrator takes its place.
    ("POST /v1/api-keys/{id}/rotate", "+xxxxx", ".x..xx", "x."),
    // Open to its maker.
    ("DELETE /v1/api-keys/{id}", "+x+xxx", ".x..xx", "+."),
    ("GET /v1/members", "+x++xx", "+.....", "xx"),
    ("GET /v1/projects", "+x++xx", "+.....", "++"),
    ("POST /v1/projects", "+x++xx", "+.....", "xx"),
    ("GET /v1/audit", "+xxxxx", "+.....", "xx"),
];

/// Routes that write but have no effect in the walk: their target is missing, exists already, or is past it.
const WITHOUT_EFFECT: &[&str] = &[
    "POST /v1/providers",
    "PATCH /v1/providers/{id}",
    "POST /v1/providers/{id}/check",
    "POST /v1/providers/{id}/quarantine",
    "DELETE /v1/providers/{id}/quarantine",
    "POST /v1/reservations/{id}/confirm",
    "POST /v1/reservations/{id}/extend",
    // Nothing permits a re-check of its node.
    "DELETE /v1/reservations/{id}/nodes/{n}/recheck",
    "POST /v1/verifications/{id}/steps/{n}",
    "POST /v1/verifications/{id}/gang",
    "POST /v1/ssh-keys",
];

fn sign(answer: &Answer) -> char {
    match answer.status {
        401 => 't',
        403 => 'x',
        404 => '.',
        500.. => '!',
        _ => '+',
    }
}

/// Keys of one tenant, in the order of [`CALLERS`].
async fn keys(service: &Service, tenant: &str) -> Vec<Key> {
    let mut keys = Vec::new();
    for role in CALLERS {
        keys.push(service.key(tenant, role).await);
    }
    keys
}

struct Stage {
    service: Service,
    demand: Value,
    maker: Key,
    /// The maker's like, with a key of one project.
    bound: Key,
    admin: Key,
}

impl Stage {
    /// The things that a caller may or may not use. A call that removes one is followed by making it again.
    async fn things(&self, of: &Belongings, route: &str, within: Option<&str>) -> Belongings {
        let mut things = of.clone();
        let (service, maker) = (&self.service, self.service.with(&self.maker));
        let operator = self.service.with(&self.admin);
        let id = |made: Value| made["id"].as_str().expect("an id").to_owned();
        match route {
            "DELETE /v1/ssh-keys/{id}" => {
                // A tenant has each key once, so the one that is there is put back.
                let body = of.body("POST /v1/ssh-keys", &self.demand).expect("a body");
                let made = maker.post("/v1/ssh-keys", &body).await;
                if made.status == 201 {
                    things.ssh_key = id(made.body);
                } else {
                    let known = maker.get("/v1/ssh-keys").await.expect(200);
                    things.ssh_key = id(known["items"][0].clone());
                }
            }
            "DELETE /v1/api-keys/{id}" => {
                let maker = match within {
                    Some(_) => self.service.with(&self.bound),
                    None => maker,
                };
                let body = json!({ "name": "to be revoked", "role": "viewer" });
                things.api_key = id(maker.post("/v1/api-keys", &body).await.expect(201));
            }
            "POST /v1/api-keys/{id}/rotate" => {
                let key = match within {
                    Some(project) => service.key_in("acme", Role::Viewer, project).await,
                    None => service.key("acme", Role::Viewer).await,
                };
                things.api_key = key.id.to_string();
            }
            "DELETE /v1/webhook-endpoints/{id}" => {
                let body = of.body("POST /v1/webhook-endpoints", &self.demand);
                let made = maker.post("/v1/webhook-endpoints", &body.expect("a body"));
                things.webhook = id(made.await.expect(201));
            }
            "DELETE /v1/commitments/{id}" => {
                let body = of.body("POST /v1/commitments", &self.demand);
                let made = operator.post("/v1/commitments", &body.expect("a body"));
                things.commitment = id(made.await.expect(201));
            }
            "DELETE /v1/provider-accounts/{id}" => {
                let body = of.body("POST /v1/provider-accounts", &self.demand);
                let made = operator.post("/v1/provider-accounts", &body.expect("a body"));
                things.account = id(made.await.expect(201));
            }
            "DELETE /v1/budgets/{id}" => {
                let body = of.body("POST /v1/budgets", &self.demand).expect("a body");
                let made = operator.post("/v1/budgets", &body);
                things.budget = id(made.await.expect(201));
            }
            "POST /v1/reservations" => {
                let body = of.body("POST /v1/quotes", &self.demand).expect("a body");
                things.quote = id(maker.post("/v1/quotes", &body).await.expect(201));
            }
            _ => {}
        }
        things
    }

    async fn call(&self, caller: &Key, route: &str, things: &Belongings, query: &str) -> Answer {
        let (method, path) = route.split_once(' ').expect("method and path");
        let path = format!("{}{query}", things.path(path));
        let body = things.body(route, &self.demand).map(|body| {
            let bytes = body.to_string().into_bytes();
            ("application/json", bytes)
        });
        self.service.with(caller).send(method, &path, body).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_gets_at_every_route_what_the_table_says_and_nothing_else() {
    let service = Service::start_with_nodes().await;
    let (own, other) = (keys(&service, "acme").await, keys(&service, "other").await);
    let made = Belongings::make(&service, &own[2], &own[0], "canary").await;
    let project = service
        .with(&own[2])
        .post("/v1/projects", &json!({ "name": "the bound one" }))
        .await
        .expect(201);
    let project = project["id"].as_str().expect("an id");
    let bound = service.key_in("acme", Role::Member, project).await;
    let inside = made.within(&service, &bound, project, "inside").await;
    let stage = Stage {
        demand: orderable_demand(&service).await,
        maker: own[2].clone(),
        bound: bound.clone(),
        admin: own[0].clone(),
        service,
    };
    let table: BTreeMap<_, _> = TABLE
        .iter()
        .map(|(route, own, other, bound)| (*route, (*own, *other, *bound)))
        .collect();
    assert_eq!(
        table.len(),
        TABLE.len(),
        "a route stands in the table twice"
    );
    let (mut wrong, mut walked) = (Vec::new(), 0);
    let mut effects = Vec::new();
    for route in routes::all() {
        let route = route.to_string();
        let Some((for_own, for_other, for_bound)) = table.get(route.as_str()) else {
            wrong.push(format!("{route} has no row in the table"));
            continue;
        };
        walked += 1;
        let named = format!("?tenant={}", made.tenant);
        let refers = route.contains("{id}")
            || [
                "POST /v1/quotes",
                "POST /v1/reservations",
                "POST /v1/reservations/confirm",
            ]
            .contains(&route.as_str());
        let of_nobody = for_own == for_other;
        let query = if refers || of_nobody { "" } else { &named };
        let bound = std::slice::from_ref(&bound);
        let project = Some(project);
        for (callers, expected, things, within, query) in [
            (&*other, *for_other, &made, None, query),
            (&*own, *for_own, &made, None, ""),
            (bound, &for_bound[..1], &inside, project, ""),
            (bound, &for_bound[1..], &made, None, ""),
        ] {
            let mut found = String::new();
            let mut last = String::new();
            for caller in callers {
                let things = stage.things(things, &route, within).await;
                let answer = stage.call(caller, &route, &things, query).await;
                found.push(sign(&answer));
                if !route.starts_with("GET ") && (200..300).contains(&answer.status) {
                    let id = answer.header("x-request-id").expect("its id").to_owned();
                    effects.push((route.clone(), id));
                }
                if found != expected[..found.len()] && last.is_empty() {
                    last.clone_from(&answer.text);
                }
            }
            if found != expected {
                wrong.push(format!("{route}: {found}, not {expected}: {last}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(walked, TABLE.len(), "the table has rows of no route");
    let noted = noted(&stage.service, &stage.admin).await;
    // A plan takes nothing and promises nothing.
    let missing = effects
        .iter()
        .filter(|(route, id)| route != "POST /v1/plans" && !noted.contains(id))
        .map(|(route, _)| route.as_str());
    assert_eq!(
        missing.collect::<BTreeSet<_>>(),
        BTreeSet::new(),
        "effects that the audit log does not know"
    );
    let writes = TABLE
        .iter()
        .map(|(route, ..)| *route)
        .filter(|route| !route.starts_with("GET "))
        .filter(|route| effects.iter().all(|(done, _)| done != route));
    assert_eq!(writes.collect::<Vec<_>>(), WITHOUT_EFFECT);
    stage.service.stop().await;
}

/// The ids of all requests that the audit log knows of.
async fn noted(service: &Service, admin: &Key) -> BTreeSet<String> {
    let mut noted = BTreeSet::new();
    let mut path = "/v1/audit?limit=200".to_owned();
    loop {
        let page = service.with(admin).get(&path).await.expect(200);
        let entries = page["items"].as_array().expect("items");
        noted.extend(
            entries
                .iter()
                .filter_map(|entry| entry["request_id"].as_str().map(str::to_owned)),
        );
        let Some(cursor) = page["next_cursor"].as_str() else {
            return noted;
        };
        path = format!("/v1/audit?limit=200&cursor={cursor}");
    }
}
