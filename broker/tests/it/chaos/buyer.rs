//! A tenant who buys in the middle of it all, and asks again until it has an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use market::ids::ReservationId;
use market::reservation::{CloseReason, ReservationState};
use rand::Rng as _;
use rand::rngs::StdRng;
use reqwest::Method;
use serde_json::{Value, json};

use crate::lifecycle::scene::{fleet, training};

/// How long anything may take before it has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(150);

/// The service as a tenant sees it, through the load balancer.
#[derive(Clone)]
pub(super) struct Api {
    client: reqwest::Client,
    url: String,
    key: String,
}

/// The tenant's final wish for a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// To have it.
    Keep,
    /// To have had it.
    Release,
    /// Not to confirm it.
    Cancel,
    /// To have confirmed it and to think better of it.
    ThinkBetter,
}

impl Intent {
    /// Whether a reservation in this state is as wished.
    pub(super) fn is_met_by(self, state: ReservationState) -> bool {
        use CloseReason::{Cancelled, Expired, Released};
        match (self, state) {
            (Self::Keep, state) => state == ReservationState::Active,
            (Self::Release, ReservationState::Closed(why)) => why == Released,
            // A hold that waited for a replica may lapse first.
            (Self::Cancel, ReservationState::Closed(why)) => matches!(why, Cancelled | Expired),
            (Self::ThinkBetter, ReservationState::Closed(why)) => {
                matches!(why, Cancelled | Released)
            }
            (Self::Release | Self::Cancel | Self::ThinkBetter, _) => false,
        }
    }
}

/// A reservation that the service acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledged {
    pub(super) id: ReservationId,
    pub(super) wish: Intent,
}

impl Api {
    pub(super) fn new(url: &str, key: &str) -> Self {
        // A connection each, so that both replicas are asked.
        let client = reqwest::Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .timeout(Duration::from_secs(20));
        Self {
            client: client.build().expect("a client"),
            url: url.to_owned(),
            key: key.to_owned(),
        }
    }

    /// Asks until there is an answer that another try would not change.
    async fn ask(&self, method: Method, path: &str, once: &str, body: Option<&Value>) -> Answer {
        let began = Instant::now();
        loop {
            let last = self.try_once(method.clone(), path, once, body).await;
            let said = match last {
                Ok(answer) if answer.is_final() => return answer,
                Ok(answer) => format!("{answer:?}"),
                Err(failure) => failure.to_string(),
            };
            assert!(began.elapsed() < PATIENCE, "{method} {path}: {said}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_once(
        &self,
        method: Method,
        path: &str,
        once: &str,
        body: Option<&Value>,
    ) -> reqwest::Result<Answer> {
        let url = format!("{}{path}", self.url);
        let mut request = self.client.request(method, url).bearer_auth(&self.key);
        if !once.is_empty() {
            request = request.header("idempotency-key", once);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        Ok(Answer {
            status,
            body: serde_json::from_str(&text).unwrap_or_default(),
        })
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, "", None).await
    }

    pub(super) async fn post(&self, path: &str, once: &str, body: Option<&Value>) -> Answer {
        self.ask(Method::POST, path, once, body).await
    }

    /// Asks for something that must be granted.
    pub(super) async fn granted(&self, path: &str, once: &str, body: Option<&Value>) {
        let answer = self.post(path, once, body).await;
        assert!(answer.status < 300, "{path}: {answer:?}");
    }

    /// Waits until the reservation is in the tenant's hands or over; returns whether the tenant has it.
    async fn until_settled(&self, id: ReservationId) -> bool {
        let began = Instant::now();
        loop {
            let shown = self.get(&format!("/v1/reservations/{id}")).await;
            let state = shown.body["state"].as_str().unwrap_or_default().to_owned();
            if state == "active" || state == "closed" {
                return state == "active";
            }
            assert!(began.elapsed() < PATIENCE, "{id} is still {state}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    fn is_final(&self) -> bool {
        let passing = ["idempotency_in_progress", "changed_meanwhile"];
        self.status < 500 && self.status != 429 && !passing.contains(&self.code())
    }
}

/// Buys one thing after the other until stopped, and settles everything it began; returns everything that was
/// acknowledged.
pub(super) async fn buy(
    api: Api,
    number: usize,
    mut random: StdRng,
    stop: Arc<AtomicBool>,
) -> Vec<Acknowledged> {
    let mut bought = Vec::new();
    let mut turn = 0;
    // Everyone buys something, however long nobody serves.
    while turn == 0 || !stop.load(Ordering::Relaxed) {
        let name = format!("buyer-{number}-{turn}");
        let wish = match (turn, random.random_range(0..5)) {
            (0, _) if number < 3 => Intent::Keep,
            // More of all buyers together, within an hour, and no hold is placed for their tenant.
            (..3, 0) => Intent::Cancel,
            (_, 1) => Intent::ThinkBetter,
            _ => Intent::Release,
        };
        let demand = match number {
            0 => training(16),
            _ => fleet(random.random_range(1..=2)),
        };
        let told_to_stop = || turn > 0 && stop.load(Ordering::Relaxed);
        let Some(id) = place(&api, &name, demand, wish, told_to_stop).await else {
            break;
        };
        turn += 1;
        let second_thoughts = Duration::from_millis(random.random_range(0..3_000));
        fulfil_wish(&api, &name, id, wish, second_thoughts).await;
        bought.push(Acknowledged { id, wish });
    }
    bought
}

/// Reserves something and waits until the tenant has it.
pub(super) async fn keep(api: &Api, name: &str, demand: Value) -> ReservationId {
    let id = place(api, name, demand, Intent::Keep, || false).await;
    let id = id.expect("nobody tells it to stop");
    fulfil_wish(api, name, id, Intent::Keep, Duration::ZERO).await;
    id
}

/// Places a hold, and confirms it in the same call unless its end will be a cancellation: a hold on lambda,
/// which states no counts, may lapse before a replica serves again. Each refused try is followed by one under
/// a new key; `None` when stopped before.
async fn place(
    api: &Api,
    name: &str,
    demand: Value,
    wish: Intent,
    told_to_stop: impl Fn() -> bool,
) -> Option<ReservationId> {
    let confirms = wish != Intent::Cancel;
    let body = json!({ "demand": demand, "name": name, "auto_confirm": confirms });
    let began = Instant::now();
    for attempt in 0.. {
        let once = format!("{name}-place-{attempt}");
        let answer = api.post("/v1/reservations", &once, Some(&body)).await;
        if answer.status == 201 {
            let id = answer.body["id"].as_str().expect("an id");
            return Some(id.parse().expect("an id"));
        }
        assert_eq!(answer.status, 409, "{answer:?}");
        if told_to_stop() {
            return None;
        }
        assert!(began.elapsed() < PATIENCE, "{name}: {answer:?}");
        tokio::time::sleep(PAUSE).await;
    }
    None
}

async fn fulfil_wish(
    api: &Api,
    name: &str,
    id: ReservationId,
    wish: Intent,
    second_thoughts: Duration,
) {
    let path = |verb: &str| format!("/v1/reservations/{id}/{verb}");
    let once = |verb: &str| format!("{name}-{verb}");
    if wish == Intent::Cancel {
        let answer = api.post(&path("cancel"), &once("cancel"), None).await;
        // It lapsed before.
        assert!(
            answer.status < 300 || answer.code() == "wrong_state",
            "{answer:?}"
        );
        return;
    }
    match wish {
        Intent::ThinkBetter => {
            tokio::time::sleep(second_thoughts).await;
            let answer = api.post(&path("cancel"), &once("cancel"), None).await;
            if answer.code() == "wrong_state" {
                api.granted(&path("release"), &once("release"), None).await;
            } else {
                assert!(answer.status < 300, "{answer:?}");
            }
        }
        Intent::Release => {
            if api.until_settled(id).await {
                api.granted(&path("release"), &once("release"), None).await;
            }
        }
        Intent::Keep | Intent::Cancel => {
            api.until_settled(id).await;
        }
    }
}
