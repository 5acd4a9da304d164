//! The answers of `runpod`: REST v2 for pods by its published specification (2.0.0), and the two things that
//! only its GraphQL has, the listing of prices and stock and the bid for a spot pod.
//!
//! Our choices where those leave something open: the listing needs no credential; a pod that was deleted is
//! gone at once (204, then 404); no capacity is a 400 with words; the lowest accepted bid is half the list
//! price; a pod publishes its SSH port under one fixed number. A pod runs its start command with the
//! environment of its order. The bodies are in [`wire`], the answers to queries in [`graphql`].

mod graphql;
mod wire;

use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Data, Path, ServiceConfig, delete, get, post, resource, route};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use self::graphql::Asked;
use self::wire::PodBody;
use crate::exchange::{Call, Dialect, Kind, Reply, exchange};
use crate::machine::{Order, Phase};
use crate::market::COMMUNITY;
use crate::state::State;
use crate::world::Refusal;
use crate::{Operation, Provider};

const REST: Dialect = Dialect {
    provider: Provider::Runpod,
    unauthorized: || problem(StatusCode::UNAUTHORIZED, "the key is not known"),
    too_many_requests: || problem(StatusCode::TOO_MANY_REQUESTS, "rate limit exceeded"),
    internal_error: || problem(StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
};

const GRAPHQL: Dialect = Dialect {
    unauthorized: || graphql::error("Unauthorized", "UNAUTHENTICATED"),
    ..REST
};

/// The service's message when nothing is free.
const SOLD_OUT: &str = "There are no longer any instances available with the requested \
                        specifications. Please refresh and try again.";

pub(crate) fn routes(config: &mut ServiceConfig) {
    let at = |path: &str| resource(path).default_service(route().to(nowhere));
    config
        .service(at("/graphql").route(post().to(query)))
        .service(
            at("/v2/pods")
                .route(get().to(pods))
                .route(post().to(create)),
        )
        .service(
            at("/v2/pods/{id}")
                .route(get().to(pod))
                .route(delete().to(end)),
        )
        .default_service(route().to(nowhere));
}

async fn nowhere() -> HttpResponse {
    problem(StatusCode::NOT_FOUND, "nothing is here").write(true)
}

fn problem(status: StatusCode, detail: &str) -> Reply {
    let title = status.canonical_reason().unwrap_or_default();
    let body = json!({ "title": title, "status": status.as_u16(), "detail": detail });
    Reply::new(status, body)
}

fn no_such_pod() -> Reply {
    problem(StatusCode::NOT_FOUND, "pod not found")
}

async fn pods(request: HttpRequest, state: Data<State>) -> HttpResponse {
    let kind = Kind::of(Operation::List);
    exchange(&REST, &request, &state, kind, |call| {
        let listed = call.listed(Provider::Runpod).into_iter();
        let views = listed.map(|record| wire::pod(record, call.now));
        Reply::ok(json!({ "pods": views.collect::<Vec<_>>() }))
    })
    .await
}

async fn pod(request: HttpRequest, state: Data<State>, id: Path<String>) -> HttpResponse {
    let kind = Kind::of(Operation::Read);
    exchange(&REST, &request, &state, kind, |call| {
        let record = call.known(Provider::Runpod, &id);
        match record.filter(|record| record.phase(call.now) != Phase::Gone) {
            Some(record) => Reply::ok(wire::pod(record, call.now)),
            None => no_such_pod(),
        }
    })
    .await
}

async fn end(request: HttpRequest, state: Data<State>, id: Path<String>) -> HttpResponse {
    let kind = Kind::of(Operation::Release);
    exchange(&REST, &request, &state, kind, |call| {
        let is_known = call.known(Provider::Runpod, &id).is_some();
        if !is_known || !call.world.end(Provider::Runpod, &id, call.now) {
            return no_such_pod();
        }
        call.state.nodes.stop_machine(&id);
        Reply {
            status: StatusCode::NO_CONTENT,
            body: None,
            retry_after_seconds: None,
        }
    })
    .await
}

async fn create(request: HttpRequest, state: Data<State>, body: Bytes) -> HttpResponse {
    let body = PodBody::parse(&body);
    let sku = body.as_ref().ok().map(PodBody::sku);
    let kind = Kind {
        operation: Operation::Launch,
        sku: sku.as_deref(),
        public: false,
    };
    exchange(&REST, &request, &state, kind, |call| match body {
        Ok(body) => {
            let (places, order) = body.into_order();
            match launch(call, &places, order) {
                Ok(made) => Reply::new(StatusCode::CREATED, made),
                Err(why) => problem(StatusCode::BAD_REQUEST, why),
            }
        }
        Err(invalid) => invalid,
    })
    .await
}

async fn query(request: HttpRequest, state: Data<State>, body: Bytes) -> HttpResponse {
    let asked = Asked::parse(&body);
    let sku = match &asked {
        Asked::Bid(bid) => Some(bid.sku()),
        _ => None,
    };
    let kind = Kind {
        operation: match asked {
            Asked::Bid(_) => Operation::Launch,
            _ => Operation::Catalog,
        },
        sku: sku.as_deref(),
        public: !matches!(asked, Asked::Bid(_)),
    };
    exchange(&GRAPHQL, &request, &state, kind, |call| match asked {
        Asked::Listing(query) => graphql::listing(call, &query),
        Asked::Bid(bid) => match bid.into_order(call.world) {
            Ok((places, order)) => match launch(call, &places, order) {
                Ok(made) => graphql::made(&made),
                Err(why) => graphql::error(why, "RUNPOD"),
            },
            Err(why) => graphql::error(why, "BAD_USER_INPUT"),
        },
        Asked::Nonsense(why) => graphql::error(&why, "GRAPHQL_VALIDATION_FAILED"),
    })
    .await
}

/// Creates a pod at the first of these places that has room, or at any place with room when none is named,
/// and returns it.
fn launch(
    call: &mut Call<'_>,
    places: &[String],
    order: Order,
) -> Result<serde_json::Value, &'static str> {
    let secure = |place: &&String| places.is_empty() && place.as_str() != COMMUNITY;
    let anywhere: Vec<String> = {
        let rows = call.world.rows(Provider::Runpod);
        let sold = rows
            .filter(|row| row.key() == order.sku)
            .map(|row| &row.place);
        sold.filter(secure).cloned().collect()
    };
    for place in places.iter().chain(&anywhere) {
        let order = Order {
            place: place.clone(),
            foreign: call.foreign,
            ..order.clone()
        };
        let fault = call.fault.as_ref();
        match call.world.launch(Provider::Runpod, order, fault, call.now) {
            Ok(record) => return Ok(wire::pod(record, call.now)),
            Err(Refusal::SoldOut) => {}
            Err(Refusal::UnknownSku) => return Err("this GPU type cannot be deployed"),
            Err(Refusal::UnknownPlace) => return Err("this data center is not known"),
        }
    }
    Err(SOLD_OUT)
}
