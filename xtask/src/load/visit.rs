//! The loop of a visitor: it looks around, plans, takes a quote, holds it, reads its reservation, and
//! cancels. Three of twenty calls change a reservation's state, one plans, the others read. In one visit of
//! [`VISITS_A_LIFE`] it confirms instead, looks around until the machine has passed verification and is
//! handed off, reads the access data, and releases the machine.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::{Request, Response};
use ureq::{Body, SendBody};

use super::service::Service;

/// One in this many visits of a visitor confirms its hold.
const VISITS_A_LIFE: u64 = 50;
/// How many holds a visitor cancels: after some more within an hour none is placed for it.
const CANCELS: u64 = 18;
/// Nodes of its offer that a visitor needs.
const NODES_EACH: u64 = 2;
/// How long a machine may take to be handed off, and to be given back.
const LIFE: Duration = Duration::from_secs(300);
/// The number of refusals whose text is kept.
const KEPT: usize = 5;
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// A public key without a private key that is kept anywhere.
const SSH_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL/jvLoaH32TkoT3REDQJN2Kns8sKpmipKlobgQsB0mt";

/// The results of calls.
#[derive(Default)]
pub(super) struct Tally {
    /// The calls, and the time of each answer. Units: microseconds.
    pub(super) micros: Vec<(&'static str, u32)>,
    /// Reservations that were placed and ended.
    pub(super) reservations: u64,
    /// The reservations among them whose machine was handed off.
    pub(super) handed_off: u64,
    /// Answers that were not successful.
    pub(super) errors: u64,
    /// The first of them, in words.
    pub(super) said: Vec<String>,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.micros.extend(other.micros);
        self.reservations += other.reservations;
        self.handed_off += other.handed_off;
        self.errors += other.errors;
        self.said.extend(other.said);
        self.said.truncate(KEPT);
    }

    fn note(&mut self, error: String) {
        self.errors += 1;
        if self.said.len() < KEPT {
            self.said.push(error);
        }
    }
}

/// A member of a tenant, with a connection of its own.
pub(super) struct Visitor {
    agent: Agent,
    base: String,
    bearer: String,
    demand: Value,
    /// The offer that it takes of those that satisfy its demand.
    offer: String,
    number: u32,
    calls: u64,
    visits: u64,
    cancels: u64,
}

/// The calls of one visit that are under way.
struct Visit<'a> {
    of: &'a mut Visitor,
    tally: &'a mut Tally,
    pace: Pace,
}

/// When the next call is due.
struct Pace {
    next: Instant,
    end: Instant,
    apart: Option<Duration>,
}

impl Visitor {
    /// Makes a tenant with a key and an SSH key, and finds something to reserve.
    pub(super) fn enter(service: &Service, number: u32) -> Result<Self> {
        let key = service.key(&format!("load-{number}"))?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .proxy(None);
        let mut visitor = Self {
            agent: config.build().into(),
            base: format!("http://{}", service.address()),
            bearer: format!("Bearer {key}"),
            demand: Value::Null,
            offer: String::new(),
            number,
            calls: 0,
            // Visitors do not take machines in step.
            visits: u64::from(number) * 7,
            cancels: 0,
        };
        let ssh = json!({ "name": "laptop", "public_key": SSH_KEY });
        visitor.ask("POST", "/v1/ssh-keys", Some(&ssh))?;
        let offer = visitor.find_offer()?;
        visitor.demand = json!({
            "kind": "gpus", "gpu": offer["gpu"], "count": offer["gpus"],
            "policy": { "allow_providers": [offer["provider"]] },
        });
        offer["offer_id"]
            .as_str()
            .context("an offer without an id")?
            .clone_into(&mut visitor.offer);
        Ok(visitor)
    }

    /// Finds an orderable offer. Each visitor has its own nodes, so that none takes the last one of another:
    /// the node that it uses, and the one that it released before, which is for sale again once its provider
    /// was read.
    fn find_offer(&mut self) -> Result<Value> {
        // The providers are read in the first seconds.
        for _ in 0..100 {
            let (_, offers) = self.ask("GET", "/v1/offers?terms=on_demand&limit=200", None)?;
            let mut offers = offers["items"].as_array().cloned().unwrap_or_default();
            offers.retain(|offer| offer["orderable"] == true);
            let free = |offer: &Value| offer["availability"]["nodes"].as_u64().unwrap_or(0);
            let most = offers.iter().map(free).max().unwrap_or(0);
            // The first visitor of each offer, then the second of each that has enough, and so on.
            let mut turns = (1..=most / NODES_EACH).flat_map(|visitors| {
                let enough = move |offer: &&Value| free(offer) >= visitors * NODES_EACH;
                offers.iter().filter(enough)
            });
            if let Some(offer) = turns.nth(self.number as usize) {
                return Ok(offer.clone());
            }
            thread::sleep(Duration::from_millis(200));
        }
        anyhow::bail!("the simulated market has fewer nodes than there are visitors")
    }

    /// Visits until the time is over.
    pub(super) fn call(
        &mut self,
        began: Instant,
        long: Duration,
        apart: Option<Duration>,
    ) -> Tally {
        let mut tally = Tally::default();
        // Visitors do not call in step.
        let offset = apart.unwrap_or_default() * self.number / 8;
        let mut pace = Pace {
            next: began + offset,
            end: began + long,
            apart,
        };
        while Instant::now() < pace.end {
            let visit = Visit {
                of: self,
                tally: &mut tally,
                pace,
            };
            pace = visit.run();
        }
        tally
    }

    /// Makes a call and returns status and body; no answer at all is an error.
    fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        self.calls += 1;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("authorization", &self.bearer);
        if method != "GET" {
            let once = format!("load-{}-{}", self.number, self.calls);
            request = request
                .header("content-type", "application/json")
                .header("idempotency-key", once);
        }
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut answer: Response<Body> = if method == "GET" {
            self.agent.run(request.body(())?)?
        } else {
            self.agent
                .run(request.body(SendBody::from_owned_reader(std::io::Cursor::new(text)))?)?
        };
        let text = answer.body_mut().read_to_string()?;
        let body = match text.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).context("an answer that is no JSON")?,
        };
        Ok((answer.status().as_u16(), body))
    }
}

impl Visit<'_> {
    /// One visit; any refusal ends it.
    fn run(mut self) -> Pace {
        // A visit that fails is counted where it failed.
        let _ = self.steps();
        self.pace
    }

    fn steps(&mut self) -> Option<()> {
        self.of.visits += 1;
        let takes = self.of.visits.is_multiple_of(VISITS_A_LIFE);
        for limit in [50, 20, 100] {
            self.look_around(limit)?;
        }
        let quote = self.quote()?;
        // The other visits only read: a tenant that cancels too often within an hour may not hold for a
        // while.
        if !takes {
            self.of.cancels += 1;
            if self.of.cancels > CANCELS {
                return Some(());
            }
        }
        let path = self.hold(&quote)?;
        self.get("GET reservation", &path)?;
        self.get("GET reservations", "/v1/reservations")?;
        self.get("GET balance", "/v1/balance")?;
        if takes {
            self.live(&path)?;
        } else {
            self.post("POST cancel", &format!("{path}/cancel"), &json!({}))?;
        }
        self.tally.reservations += 1;
        self.get("GET reservation", &path)?;
        self.get("GET events", "/v1/events?limit=20")?;
        Some(())
    }

    fn look_around(&mut self, limit: u32) -> Option<()> {
        let gpu = self.of.demand["gpu"].as_str().unwrap_or("any").to_owned();
        self.get("GET offers", &format!("/v1/offers?limit={limit}"))?;
        self.get("GET offers of a GPU", &format!("/v1/offers?gpu={gpu}"))?;
        self.get("GET gpus", "/v1/gpus")?;
        Some(())
    }

    /// Makes a plan and a quote; returns its id.
    fn quote(&mut self) -> Option<Value> {
        let demand = self.of.demand.clone();
        let plan = self.post("POST plans", "/v1/plans", &demand)?;
        let plan_path = format!("/v1/plans/{}", plan["id"].as_str()?);
        self.get("GET plan", &plan_path)?;
        let candidates = plan["candidates"].as_array()?;
        let mine = |candidate: &&Value| candidate["lines"][0]["offer_id"] == *self.of.offer;
        let Some(mine) = candidates.iter().find(mine) else {
            let (offer, rejected) = (self.of.offer.clone(), plan["rejected"].clone());
            let shown = self.of.ask("GET", &format!("/v1/offers/{offer}"), None);
            let shown = shown.map(|(_, body)| body).unwrap_or_default();
            self.tally.note(format!(
                "the offer {offer} is in no plan; rejected were {rejected}; it is {shown}"
            ));
            return None;
        };
        let ask = json!({ "plan_id": plan["id"], "candidate": mine["rank"] });
        let quote = self.post("POST quotes", "/v1/quotes", &ask)?;
        let quote_path = format!("/v1/quotes/{}", quote["id"].as_str()?);
        self.get("GET quote", &quote_path)?;
        Some(quote["id"].clone())
    }

    /// Holds the quote; returns the path of the reservation.
    fn hold(&mut self, quote: &Value) -> Option<String> {
        let ask = json!({ "quote_id": quote });
        let held = self.post("POST reservations", "/v1/reservations", &ask)?;
        Some(format!("/v1/reservations/{}", held["id"].as_str()?))
    }

    /// Confirms the hold and runs the reservation to its end.
    fn live(&mut self, path: &str) -> Option<()> {
        self.post("POST confirm", &format!("{path}/confirm"), &json!({}))?;
        self.look_around_until("active", path)?;
        self.get("GET access", &format!("{path}/access"))?;
        self.post("POST release", &format!("{path}/release"), &json!({}))?;
        self.look_around_until("closed", path)?;
        self.tally.handed_off += 1;
        Some(())
    }

    /// Looks around until the reservation is in this state; any other end is an error.
    fn look_around_until(&mut self, wanted: &str, path: &str) -> Option<()> {
        let began = Instant::now();
        loop {
            let shown = self.get("GET reservation", path)?;
            let state = shown["state"].as_str().unwrap_or_default();
            if state == wanted {
                return Some(());
            }
            if state == "closed" || began.elapsed() > LIFE {
                self.tally
                    .note(format!("{path} is {state}, not {wanted}: {shown}"));
                return None;
            }
            self.look_around(20)?;
        }
    }

    fn get(&mut self, name: &'static str, path: &str) -> Option<Value> {
        self.step(name, "GET", path, None)
    }

    fn post(&mut self, name: &'static str, path: &str, body: &Value) -> Option<Value> {
        self.step(name, "POST", path, Some(body))
    }

    /// Waits for its next slot, calls and records the result. A visit always runs to its end, so that it
    /// releases its hold, even after its time is over.
    fn step(
        &mut self,
        name: &'static str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Value> {
        self.pace.wait();
        let asked = Instant::now();
        let answer = self.of.ask(method, path, body);
        let took = u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX);
        self.tally.micros.push((name, took));
        let said = match answer {
            Ok((200..=299, body)) => return Some(body),
            Ok((status, body)) => format!("{name}: {status} {body}"),
            Err(error) => format!("{name}: {error:#}"),
        };
        self.tally.note(said);
        None
    }
}

impl Pace {
    fn wait(&mut self) {
        let Some(apart) = self.apart else { return };
        thread::sleep(self.next.saturating_duration_since(Instant::now()));
        self.next += apart;
    }
}
