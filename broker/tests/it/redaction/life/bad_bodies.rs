//! Secrets in the wrong places: no refusal repeats any of them.

use serde_json::json;

use super::{Life, canary};

impl Life {
    /// Secrets where none belong: in bodies that do not fit, in addresses and in headers.
    pub(super) async fn send_bad_bodies(&mut self) {
        let misplaced = canary("misplaced");
        self.secrets.add("a secret where none belongs", &*misplaced);
        let ssh = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
        let bodies = [
            ("POST /v1/plans", json!({ "kind": misplaced })),
            (
                "POST /v1/plans",
                json!({ "kind": "gpus", "gpu": misplaced, "count": misplaced }),
            ),
            (
                "POST /v1/plans",
                json!({ "kind": "gpus", "gpu": misplaced, "count": 0 }),
            ),
            (
                "POST /v1/plans",
                json!({ "kind": "gpus", "gpu": "H100", "count": 1, "places": misplaced }),
            ),
            ("POST /v1/quotes", json!({ "plan_id": misplaced })),
            (
                "POST /v1/reservations",
                json!({ "quote_id": format!("quo_{misplaced}") }),
            ),
            (
                "POST /v1/ssh-keys",
                json!({ "name": "x", "public_key": format!("{ssh}{misplaced}") }),
            ),
            (
                "POST /v1/ssh-keys",
                json!({ "name": "x", "public_key": format!("ssh-ed25519 {misplaced}") }),
            ),
            (
                "POST /v1/api-keys",
                json!({ "name": "x", "role": misplaced }),
            ),
            (
                "POST /v1/api-keys",
                json!({ "name": "x", "role": "viewer", "expires_at": misplaced }),
            ),
            ("POST /v1/webhook-endpoints", json!({ "url": misplaced })),
            (
                "POST /v1/webhook-endpoints",
                json!({ "url": format!("http://me:{misplaced}@example.com/") }),
            ),
            (
                "POST /v1/webhook-endpoints",
                json!({ "url": format!("ftp://{misplaced}.example.com/") }),
            ),
            (
                "POST /v1/webhook-endpoints",
                json!({ "url": "https://a.example.com/", "event_types": [misplaced] }),
            ),
            (
                "POST /v1/verifications/ver_1/steps/1",
                json!({ "token": misplaced }),
            ),
            ("POST /v1/budgets", json!({ "cap_usd": misplaced })),
            ("PATCH /v1/spending-limits", json!({ "gpus": misplaced })),
        ];
        for key in [self.member.clone(), self.admin.clone()] {
            let caller = self.service.with(&key);
            for (call, body) in &bodies {
                let answer = self.heard.ask(&caller, call, Some(body.clone())).await;
                assert!(
                    (400..500).contains(&answer.status),
                    "{call} {body}: {}",
                    answer.text
                );
            }
            for path in [
                format!("/v1/events?since={misplaced}"),
                format!("/v1/events?types={misplaced}"),
                format!("/v1/events?cursor={misplaced}"),
                format!("/v1/reservations?tenant={misplaced}"),
                format!("/v1/reservations/{misplaced}"),
                format!("/v1/audit?outcome={misplaced}"),
                format!("/v1/offers?sort={misplaced}"),
                format!("/v1/reports/costs?from={misplaced}"),
                format!("/v1/gpus/{misplaced}/index"),
                format!("/v1/{misplaced}"),
            ] {
                let call = format!("GET {path}");
                let answer = self.heard.ask(&self.service.with(&key), &call, None).await;
                assert!(
                    (400..500).contains(&answer.status),
                    "{call}: {}",
                    answer.text
                );
            }
            let torn = format!("{{ \"kind\": \"gpus\", \"gpu\": \"{misplaced}");
            let caller = self.service.with(&key).header("cookie", &*misplaced);
            let sent = caller.send("POST", "/v1/plans", Some(("application/json", torn.into())));
            let torn = sent.await;
            assert_eq!(torn.status, 400);
            self.heard.0.push(("a torn body".into(), torn.text));
        }
    }
}
