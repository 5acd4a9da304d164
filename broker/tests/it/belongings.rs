//! Something of every kind that a tenant can have, marked so that it is recognised anywhere.

use serde_json::{Value, json};

use crate::service::{Key, SSH_LINE, Service, orderable_demand};

/// What one principal of a tenant made.
#[derive(Debug, Clone)]
pub(crate) struct Belongings {
    pub(crate) tenant: String,
    pub(crate) plan: String,
    pub(crate) quote: String,
    pub(crate) reservation: String,
    pub(crate) ssh_key: String,
    pub(crate) api_key: String,
    pub(crate) project: String,
    pub(crate) webhook: String,
    /// The word in every name, tag and description.
    pub(crate) mark: String,
}

impl Belongings {
    /// Has a member make one of each.
    pub(crate) async fn make(service: &Service, key: &Key, mark: &str) -> Self {
        let caller = service.with(key);
        let made = async |path: &str, body: Value| {
            let made = caller.post(path, &body).await.expect(201);
            made["id"].as_str().expect("an id").to_owned()
        };
        let mut demand = orderable_demand(service).await;
        demand["tags"] = json!({ "team": mark });
        let ssh_key = json!({ "name": mark, "public_key": SSH_LINE });
        let ssh_key = made("/v1/ssh-keys", ssh_key).await;
        let project = made("/v1/projects", json!({ "name": mark })).await;
        let plan = made("/v1/plans", demand).await;
        let taken = made("/v1/quotes", json!({ "plan_id": plan })).await;
        let reserve = json!({
            "quote_id": taken, "name": mark, "project_id": project, "tags": { "purpose": mark },
        });
        Self {
            tenant: key.tenant.to_string(),
            reservation: made("/v1/reservations", reserve).await,
            quote: made("/v1/quotes", json!({ "plan_id": plan })).await,
            api_key: made("/v1/api-keys", json!({ "name": mark, "role": "viewer" })).await,
            webhook: made(
                "/v1/webhook-endpoints",
                json!({ "url": "https://hooks.example.com/", "description": mark }),
            )
            .await,
            ssh_key,
            project,
            plan,
            mark: mark.to_owned(),
        }
    }

    /// Every id.
    pub(crate) fn ids(&self) -> [&str; 8] {
        [
            &self.tenant,
            &self.plan,
            &self.quote,
            &self.reservation,
            &self.ssh_key,
            &self.api_key,
            &self.project,
            &self.webhook,
        ]
    }

    /// A route's path with the ids of these things; ids of what a tenant does not own name nothing.
    pub(crate) fn path(&self, path: &str) -> String {
        let own = [
            ("/v1/plans/", &self.plan),
            ("/v1/quotes/", &self.quote),
            ("/v1/reservations/", &self.reservation),
            ("/v1/ssh-keys/", &self.ssh_key),
            ("/v1/api-keys/", &self.api_key),
            ("/v1/webhook-endpoints/", &self.webhook),
        ];
        let nothing = "0".repeat(32);
        let other = [
            ("/v1/offers/", "off_"),
            ("/v1/budgets/", "bud_"),
            ("/v1/providers/", "x"),
            ("/v1/verifications/", "ver_"),
            ("/v1/attestations/", "att_"),
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
        path.replace("{n}", "1")
            .replace("{gpu}", "H100-SXM")
            .replace("{sha256}", &"0".repeat(64))
            .replace("{delivery}", &format!("whd_{nothing}"))
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
            "PATCH /v1/reservations/{id}" => json!({ "name": self.mark }),
            "POST /v1/reservations/{id}/extend" => json!({ "end": "2030-01-01T00:00:00Z" }),
            "POST /v1/ssh-keys" => json!({ "name": "laptop", "public_key": SSH_LINE }),
            "POST /v1/api-keys" => json!({ "name": "ci", "role": "viewer" }),
            "POST /v1/api-keys/{id}/rotate" => json!({}),
            "POST /v1/projects" => json!({ "name": "llm" }),
            "POST /v1/credits" => json!({ "amount_usd": "1", "reason": "a try" }),
            "PATCH /v1/limits" => json!({ "open_holds": 400 }),
            "POST /v1/budgets" => json!({ "period": "day", "cap_usd": "1", "mode": "notify" }),
            "PATCH /v1/budgets/{id}" => json!({ "cap_usd": "2" }),
            "POST /v1/webhook-endpoints" => json!({ "url": "https://hooks.example.com/x" }),
            "PATCH /v1/webhook-endpoints/{id}" => json!({ "description": self.mark }),
            "POST /v1/verifications/{id}/steps/{n}" => json!({}),
            _ => return None,
        })
    }
}
