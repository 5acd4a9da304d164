//! One call to a provider, in any dialect: it is counted, its caller identified, its pending fault carried
//! out, and the answer written or withheld.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use crate::machine::{Phase, Record};
use crate::server::cut;
use crate::state::{Caller, State};
use crate::world::SimulatedMarket;
use crate::{FaultKind, Front, Operation, Provider};

/// The longest that a call hangs.
const LONGEST_HANG: Duration = Duration::from_secs(60);

/// An answer before it is written: a status and a JSON body, or none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Option<Value>,
    pub(crate) retry_after_seconds: Option<u32>,
}

impl Reply {
    pub(crate) const fn new(status: StatusCode, body: Value) -> Self {
        Self {
            status,
            body: Some(body),
            retry_after_seconds: None,
        }
    }

    pub(crate) const fn ok(body: Value) -> Self {
        Self::new(StatusCode::OK, body)
    }

    pub(crate) const fn after(mut self, seconds: Option<u32>) -> Self {
        self.retry_after_seconds = seconds;
        self
    }

    /// Writes the answer; `whole` is false where its body ends in the middle.
    pub(crate) fn write(self, whole: bool) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        if let Some(seconds) = self.retry_after_seconds {
            response.insert_header((RETRY_AFTER, seconds.to_string()));
        }
        let Some(body) = self.body else {
            return response.finish();
        };
        let mut text = body.to_string();
        if !whole {
            text.truncate(text.floor_char_boundary(text.len() / 2));
        }
        response
            .insert_header((CONTENT_TYPE, "application/json"))
            .body(text)
    }
}

/// A provider's wording of answers that every provider has.
pub(crate) struct Dialect {
    pub(crate) provider: Provider,
    pub(crate) unauthorized: fn() -> Reply,
    pub(crate) too_many_requests: fn() -> Reply,
    pub(crate) internal_error: fn() -> Reply,
}

/// A call that got through, with everything that it may read and change.
pub(crate) struct Call<'a> {
    pub(crate) world: &'a mut SimulatedMarket,
    pub(crate) state: &'a State,
    pub(crate) now: DateTime<Utc>,
    pub(crate) foreign: bool,
    pub(crate) fault: Option<FaultKind>,
    front: Option<Front>,
}

impl Call<'_> {
    /// The machines of the list, in the order of their creation.
    pub(crate) fn listed(&self, provider: Provider) -> Vec<&Record> {
        let made = self.world.records(provider);
        let mut listed: Vec<_> = made
            .filter(|record| record.created_at <= self.now)
            .filter(|record| record.phase(self.now) != Phase::Gone)
            .collect();
        match self.front {
            Some(Front::EmptyList) => listed.clear(),
            Some(Front::CutList) => listed.truncate(listed.len() / 2),
            _ => {}
        }
        listed
    }

    /// The machine with this id, if it is known; a machine that is gone may be.
    pub(crate) fn known(&self, provider: Provider, id: &str) -> Option<&Record> {
        let listed = self.listed(provider);
        let record = self.world.record(provider, id)?;
        let is_listed = listed.iter().any(|listed| listed.id == id);
        (is_listed || record.phase(self.now) == Phase::Gone).then_some(record)
    }
}

/// The kind of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind<'a> {
    pub(crate) operation: Operation,
    /// The SKU of a launch.
    pub(crate) sku: Option<&'a str>,
    /// Whether callers without a credential are answered as well.
    pub(crate) public: bool,
}

impl Kind<'_> {
    pub(crate) const fn of(operation: Operation) -> Self {
        Self {
            operation,
            sku: None,
            public: false,
        }
    }
}

enum Outcome {
    Answer(Reply),
    Page(u16, &'static str),
    Truncated(Reply),
    Silence,
    Hang,
}

/// Carries out one call and answers it, unless its fault prevents that.
pub(crate) async fn exchange(
    dialect: &Dialect,
    request: &HttpRequest,
    state: &State,
    kind: Kind<'_>,
    act: impl FnOnce(&mut Call<'_>) -> Reply,
) -> HttpResponse {
    state.advance();
    match carry_out(dialect, request, state, kind, act) {
        Outcome::Answer(reply) => reply.write(true),
        Outcome::Page(status, body) => page(status, body),
        Outcome::Truncated(reply) => reply.write(false),
        Outcome::Silence => silence(request),
        Outcome::Hang => {
            tokio::select! {
                () = state.let_go.notified() => {}
                () = tokio::time::sleep(LONGEST_HANG) => {}
            }
            silence(request)
        }
    }
}

fn carry_out(
    dialect: &Dialect,
    request: &HttpRequest,
    state: &State,
    kind: Kind<'_>,
    act: impl FnOnce(&mut Call<'_>) -> Reply,
) -> Outcome {
    let mut world = state.world();
    *world
        .calls
        .entry((dialect.provider, kind.operation))
        .or_default() += 1;
    let caller = state.caller(dialect.provider, request.headers());
    let front = world.fronts.get(&dialect.provider).copied();
    if let Some((status, body)) = front.and_then(|front| front.page(kind.operation)) {
        return Outcome::Page(status, body);
    }
    let refused = front == Some(Front::CredentialRefused);
    if (caller == Caller::Stranger || refused) && !kind.public {
        return Outcome::Answer((dialect.unauthorized)());
    }
    let fault = world
        .faults
        .take(dialect.provider, kind.operation, kind.sku);
    match fault {
        Some(FaultKind::ReplyLostBeforeCreate) => return Outcome::Silence,
        Some(FaultKind::Hang) => return Outcome::Hang,
        Some(FaultKind::InternalError) => return Outcome::Answer((dialect.internal_error)()),
        Some(FaultKind::TooManyRequests {
            retry_after_seconds,
        }) => {
            return Outcome::Answer((dialect.too_many_requests)().after(retry_after_seconds));
        }
        _ => {}
    }
    let foreign = caller == Caller::Foreign;
    let mut call = Call {
        world: &mut world,
        state,
        now: state.now() - front.map_or_else(TimeDelta::zero, |front| front.lag(kind.operation)),
        foreign,
        fault,
        front,
    };
    let reply = act(&mut call);
    match call.fault {
        Some(FaultKind::ReplyLostAfterCreate) => Outcome::Silence,
        Some(FaultKind::TruncatedJson) => Outcome::Truncated(reply),
        _ => Outcome::Answer(reply),
    }
}

/// A gateway's own page, with no provider's words.
fn page(status: u16, body: &'static str) -> HttpResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
    HttpResponse::build(status)
        .insert_header((CONTENT_TYPE, "text/html"))
        .body(body)
}

/// Closes the connection; the answer that the server requires is discarded.
fn silence(request: &HttpRequest) -> HttpResponse {
    cut(request);
    HttpResponse::InternalServerError().finish()
}
