//! Something of every kind that a tenant can have, marked so that it is recognised anywhere.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::lifecycle::scene::fleet;
use crate::service::{Key, SSH_LINE, Service, orderable_demand};

/// The things that one principal of a tenant made.
#[derive(Debug, Clone)]
pub(crate) struct Belongings {
    pub(crate) tenant: String,
    pub(crate) plan: String,
    pub(crate) quote: String,
    /// It is held.
    pub(crate) reservation: String,
    /// It was handed off: its nodes run, and their access is delivered.
    pub(crate) in_use: String,
    /// Its node's attestation.
    pub(crate) attestation: String,
    pub(crate) budget: String,
    pub(crate) commitment: String,
    pub(crate) account: String,
    /// A message to the endpoint that waits to be sent.
    pub(crate) delivery: String,
    pub(crate) ssh_key: String,
    pub(crate) api_key: String,
    pub(crate) project: String,
    pub(crate) webhook: String,
    /// The word in every name, tag and description.
    pub(crate) mark: String,
}

impl Belongings {
    /// Makes a member create one of each, and an administrator of its tenant the things that only they can.
    /// The service's nodes must run.
    pub(crate) async fn make(service: &Service, key: &Key, admin: &Key, mark: &str) -> Self {
        let caller = service.with(key);
        let id = |made: Value| made["id"].as_str().expect("an id").to_owned();
        let made = async |path: &str, body: Value| id(caller.post(path, &body).await.expect(201));
        let ssh_key = json!({ "name": mark, "public_key": SSH_LINE });
        let ssh_key = made("/v1/ssh-keys", ssh_key).await;
        // Time passes until it is handed off, so that nothing that lapses may be there before.
        let (in_use, attestation) = handed_off(service, key, mark).await;
        let mut demand = orderable_demand(service).await;
        demand["tags"] = json!({ "team": mark });
        let project = made("/v1/projects", json!({ "name": mark })).await;
        let plan = made("/v1/plans", demand).await;
        let taken = made("/v1/quotes", json!({ "plan_id": plan })).await;
        let reserve = json!({
            "quote_id": taken, "name": mark, "project_id": project, "tags": { "purpose": mark },
        });
        let endpoint = json!({ "url": "https://hooks.example.com/", "description": mark });
        let webhook = made("/v1/webhook-endpoints", endpoint).await;
        let sent = format!("/v1/webhook-endpoints/{webhook}/test");
        let sent = caller.send("POST", &sent, None).await;
        let budget = json!({ "period": "month", "cap_usd": "1000000", "mode": "notify" });
        let by_admin = async |path: &str, body: Value| {
            let made = service.with(admin).post(path, &body).await;
            id(made.expect(201))
        };
        Self {
            tenant: key.tenant.to_string(),
            reservation: made("/v1/reservations", reserve).await,
            quote: made("/v1/quotes", json!({ "plan_id": plan })).await,
            api_key: made("/v1/api-keys", json!({ "name": mark, "role": "viewer" })).await,
            delivery: id(sent.expect(202)),
            budget: by_admin("/v1/budgets", budget).await,
            commitment: by_admin("/v1/commitments", commitment(mark)).await,
            account: by_admin("/v1/provider-accounts", account(mark)).await,
            in_use,
            attestation,
            webhook,
            ssh_key,
            project,
            plan,
            mark: mark.to_owned(),
        }
    }

    /// Makes a member create everything possible within this project; the rest stays as it is.
    pub(crate) async fn within(
        &self,
        service: &Service,
        key: &Key,
        project: &str,
        mark: &str,
    ) -> Self {
        let caller = service.with(key);
        let made = async |path: &str, body: Value| {
            let made = caller.post(path, &body).await.expect(201);
            made["id"].as_str().expect("an id").to_owned()
        };
        let mut demand = orderable_demand(service).await;
        demand["tags"] = json!({ "team": mark });
        let plan = made("/v1/plans", demand).await;
        let taken = made("/v1/quotes", json!({ "plan_id": plan })).await;
        let reserve = json!({ "quote_id": taken, "name": mark });
        let reservation = made("/v1/reservations", reserve).await;
        Self {
            in_use: reservation.clone(),
            reservation,
            quote: made("/v1/quotes", json!({ "plan_id": plan })).await,
            api_key: made("/v1/api-keys", json!({ "name": mark, "role": "viewer" })).await,
            project: project.to_owned(),
            plan,
            mark: mark.to_owned(),
            ..self.clone()
        }
    }

    /// Every id.
    pub(crate) fn ids(&self) -> [&str; 14] {
        [
            &self.tenant,
            &self.plan,
            &self.quote,
            &self.reservation,
            &self.in_use,
            &self.attestation,
            &self.budget,
            &self.commitment,
            &self.account,
            &self.delivery,
            &self.ssh_key,
            &self.api_key,
            &self.project,
            &self.webhook,
        ]
    }

    /// A route's path with the ids of these things; ids of things that a tenant does not own name nothing.
    pub(crate) fn path(&self, path: &str) -> String {
        // Where nothing but a running machine has anything to show, the one that runs.
        let of_a_machine = [
            "/nodes", "/access", "/extend", "/release", "/report", "/reports", "/recheck",
        ];
        let reservation = match of_a_machine.iter().any(|end| path.ends_with(end)) {
            true => &self.in_use,
            false => &self.reservation,
        };
        let own = [
            ("/v1/plans/", &self.plan),
            ("/v1/quotes/", &self.quote),
            ("/v1/reservations/", reservation),
            ("/v1/budgets/", &self.budget),
            ("/v1/commitments/", &self.commitment),
            ("/v1/provider-accounts/", &self.account),
            ("/v1/attestations/", &self.attestation),
            ("/v1/ssh-keys/", &self.ssh_key),
            ("/v1/api-keys/", &self.api_key),
            ("/v1/webhook-endpoints/", &self.webhook),
        ];
        let nothing = "0".repeat(32);
        let other = [
            ("/v1/offers/", "off_"),
            ("/v1/providers/", "x"),
            ("/v1/verifications/", "ver_"),
        ];
        let id = own
            .iter()
            .find(|(start, _)| path.starts_with(start))
            .map(|(_, id)| (*id).clone())
            .or_else(|| {
                let found = other.iter().find(|(start, _)| path.starts_with(start));
                found.map(|(_, prefix)| format!("{prefix}{nothing}"))
            });
        let path = match id {
            Some(id) => path.replace("{id}", &id),
            None => path.to_owned(),
        };
        path.replace("/nodes/{n}/", "/nodes/0/")
            .replace("{n}", "1")
            .replace("{gpu}", "H100-SXM")
            .replace("{sha256}", &"0".repeat(64))
            .replace("{delivery}", &self.delivery)
            .replace("{offer}", &format!("off_{nothing}"))
    }

    /// A body that a route takes, naming these things where it names any; `None` for none.
    pub(crate) fn body(&self, route: &str, demand: &Value) -> Option<Value> {
        Some(match route {
            "POST /v1/plans" => demand.clone(),
            "POST /v1/providers" => json!({ "id": "nobody", "credential": "x" }),
            "PATCH /v1/providers/{id}" => json!({ "enabled": true }),
            "POST /v1/providers/{id}/check" => json!({}),
            "POST /v1/providers/{id}/quarantine" => {
                json!({ "reason": "a try", "until": "2027-01-01T00:00:00Z" })
            }
            "POST /v1/quotes" => json!({ "plan_id": self.plan }),
            "POST /v1/reservations" => json!({ "quote_id": self.quote }),
            "POST /v1/reservations/confirm" => json!({ "ids": [self.reservation] }),
            "PATCH /v1/reservations/{id}" => json!({ "name": self.mark }),
            "POST /v1/reservations/{id}/extend" => json!({ "end": "2030-01-01T00:00:00Z" }),
            "POST /v1/reservations/{id}/nodes/{n}/report" => json!({ "reason": self.mark }),
            "POST /v1/ssh-keys" => json!({ "name": "laptop", "public_key": SSH_LINE }),
            "POST /v1/api-keys" => json!({ "name": "ci", "role": "viewer" }),
            "POST /v1/api-keys/{id}/rotate" => json!({}),
            "POST /v1/projects" => json!({ "name": "llm" }),
            "POST /v1/credits" => json!({ "amount_usd": "1", "reason": "a try" }),
            "PATCH /v1/spending-limits" => json!({ "open_holds": 400 }),
            "PATCH /v1/required-tags" => json!({ "tags": [] }),
            "POST /v1/budgets" => json!({ "period": "day", "cap_usd": "1", "mode": "notify" }),
            "PATCH /v1/budgets/{id}" => json!({ "cap_usd": "2" }),
            "POST /v1/commitments" => commitment(&self.mark),
            "POST /v1/provider-accounts" => account(&self.mark),
            "POST /v1/webhook-endpoints" => json!({ "url": "https://hooks.example.com/x" }),
            "PATCH /v1/webhook-endpoints/{id}" => json!({ "description": self.mark }),
            "POST /v1/verifications/{id}/steps/{n}" | "POST /v1/verifications/{id}/gang" => {
                json!({})
            }
            _ => return None,
        })
    }
}

/// Capacity that is paid for, of a thing that nobody sells: no plan takes it.
fn commitment(mark: &str) -> Value {
    json!({
        "name": mark, "provider": "lambda", "sku": "of nobody", "nodes": 1,
        "expires_at": "2030-01-01T00:00:00Z",
    })
}

/// A price that was agreed for it.
fn account(mark: &str) -> Value {
    let price = json!({ "sku": "of nobody", "price_usd_gpu_hour": "1" });
    json!({ "name": mark, "provider": "lambda", "prices": [price] })
}

/// Makes a member buy a small machine and waits until it is handed off; returns the ids of the reservation
/// and of the node's attestation.
async fn handed_off(service: &Service, key: &Key, mark: &str) -> (String, String) {
    let caller = service.with(key);
    let mut demand = fleet(1);
    demand["tags"] = json!({ "team": mark });
    let ask = json!({ "demand": demand, "auto_confirm": true, "name": mark });
    let bought = caller.post("/v1/reservations", &ask).await.expect(201);
    let id = bought["id"].as_str().expect("an id");
    for _ in 0..20 {
        let turn = service.world.live_on(TimeDelta::seconds(120)).await;
        turn.expect("a turn");
        let shown = caller.get(&format!("/v1/reservations/{id}")).await;
        if shown.expect(200)["state"] == "active" {
            let nodes = caller.get(&format!("/v1/reservations/{id}/nodes")).await;
            let attestation = nodes.expect(200)["items"][0]["attestation_id"].clone();
            let attestation = attestation.as_str().expect("an attestation");
            return (id.to_owned(), attestation.to_owned());
        }
    }
    panic!("{id} is not handed off");
}
