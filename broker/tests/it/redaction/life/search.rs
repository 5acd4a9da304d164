//! The end of the life: everything that can be read is read, and every recorded text is searched.

use store::fixture::contents;

use super::{LATER, Life, Receiver, text};
use crate::routes::{self, Route};

impl Life {
    /// Reads everything readable, as each caller who may.
    pub(super) async fn read_everything(&mut self, used: &str) {
        let tenant = format!("?tenant={}", self.member.tenant);
        let hooks = self.service.with(&self.member).get("/v1/webhook-endpoints");
        let hooks = hooks.await.expect(200);
        let hooks = hooks["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|hook| format!("/v1/webhook-endpoints/{}/deliveries", text(&hook["id"])));
        let mut paths: Vec<String> = hooks.collect();
        let routes = routes::all();
        let gets = routes.iter().filter(|route| route.method == "GET");
        paths.extend(gets.map(Route::filled));
        paths.push(format!("/v1/providers/{LATER}"));
        paths.push(format!("/v1/providers/{LATER}/quarantine"));
        for part in ["", "/nodes", "/events", "/access"] {
            paths.push(format!("/v1/reservations/{used}{part}"));
        }
        for path in paths {
            let call = format!("GET {path}");
            let scraper = self.service.bearer(&self.scraper);
            for caller in [
                scraper,
                self.service.anyone(),
                self.service.with(&self.member),
            ] {
                self.heard.ask(&caller, &call, None).await;
            }
            let call = format!("{call}{tenant}");
            self.heard
                .ask(&self.service.with(&self.admin), &call, None)
                .await;
        }
        let audit = self
            .service
            .with(&self.admin)
            .get("/v1/audit?limit=200")
            .await;
        assert!(
            audit.text.contains("access_denied"),
            "no refusal was recorded"
        );
    }

    /// Searches all answers and messages, and every column of the database.
    pub(super) async fn search(&self, receivers: &[Receiver]) {
        let secrets = self.secrets.without_addresses();
        for (call, said) in &self.heard.0 {
            secrets.assert_absent(call, said);
            if !call.contains("/v1/webhook-endpoints") {
                self.secrets.assert_absent(call, said);
            }
        }
        for message in receivers.iter().flat_map(Receiver::received) {
            let body = String::from_utf8(message.body).expect("text");
            self.secrets.assert_absent("a message of a webhook", &body);
        }
        let store = self.service.world.broker().store();
        let columns = contents(store).await;
        assert!(columns.len() > 100, "not every table was read");
        for (table, column, values) in columns {
            let place = format!("{table}.{column}");
            // A tenant's own address is kept as the tenant gave it, and for a day the answer to that.
            let sought = match place.as_str() {
                "webhook_endpoints.url" | "idempotency_keys.body" => &secrets,
                _ => &self.secrets,
            };
            sought.assert_absent(&place, &values);
        }
    }
}
