//! The answers of `voltagepark` on its bare-metal API. No specification of it is public: the shapes are those
//! that open clients and a public price collector read (August 2026).
//!
//! Our choices where they leave something open: prices need no token; a rental that was ended is gone at once
//! (204, then 404); too few free GPUs is a 400; a list without a slash at its end redirects to the one with
//! it. The answer to a rental has its id twice, as `id` and as `rental_id`, because clients disagree.

mod wire;

use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::web::{
    Bytes, Data, Path, Query, ServiceConfig, delete, get, post, resource, route, scope,
};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use self::wire::{Paging, RentalBody};
use crate::exchange::{Call, Dialect, Kind, Reply, exchange};
use crate::machine::{Order, Phase};
use crate::market::Row;
use crate::state::State;
use crate::world::Refusal;
use crate::{FaultKind, Operation, Provider};

const VOLTAGEPARK: Dialect = Dialect {
    provider: Provider::Voltagepark,
    unauthorized: || detail(StatusCode::UNAUTHORIZED, "Not authenticated"),
    too_many_requests: || detail(StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
    internal_error: || detail(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error"),
};

pub(crate) fn routes(config: &mut ServiceConfig) {
    let not_allowed = || {
        route().to(|| async {
            detail(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed").write(true)
        })
    };
    let api = scope("/api/v1")
        .service(
            resource(["/bare-metal/locations", "/bare-metal/locations/"])
                .route(get().to(locations))
                .default_service(not_allowed()),
        )
        .service(resource("/bare-metal").default_service(route().to(redirect)))
        .service(
            resource("/bare-metal/")
                .route(get().to(rentals))
                .route(post().to(rent))
                .default_service(not_allowed()),
        )
        .service(
            resource("/bare-metal/{id}")
                .route(get().to(rental))
                .route(delete().to(end))
                .default_service(not_allowed()),
        );
    config.service(api).default_service(route().to(nowhere));
}

async fn nowhere() -> HttpResponse {
    detail(StatusCode::NOT_FOUND, "Not found").write(true)
}

/// As the real service does: a client that follows it with another method loses its body.
async fn redirect(request: HttpRequest) -> HttpResponse {
    let query = request
        .uri()
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let target = format!("{}/{query}", request.path());
    HttpResponse::TemporaryRedirect()
        .insert_header((LOCATION, target))
        .finish()
}

fn detail(status: StatusCode, what: &str) -> Reply {
    Reply::new(status, json!({ "detail": what }))
}

fn no_such_rental() -> Reply {
    detail(StatusCode::NOT_FOUND, "Rental not found")
}

async fn locations(
    request: HttpRequest,
    state: Data<State>,
    paging: Query<Paging>,
) -> HttpResponse {
    let kind = Kind {
        operation: Operation::Catalog,
        sku: None,
        public: true,
    };
    exchange(&VOLTAGEPARK, &request, &state, kind, |call| {
        catalog(call, &paging)
    })
    .await
}

fn catalog(call: &mut Call<'_>, paging: &Paging) -> Reply {
    if paging.offset() == 0 {
        call.world.later_pages_fail = call.fault == Some(FaultKind::PartialCatalog);
    } else if call.world.later_pages_fail {
        return (VOLTAGEPARK.internal_error)();
    }
    if call.fault == Some(FaultKind::EmptyCatalog) {
        return Reply::ok(paging.page(Vec::new()));
    }
    let rows: Vec<_> = call.world.rows(Provider::Voltagepark).collect();
    let locations = wire::locations(&rows);
    if call.fault == Some(FaultKind::PartialCatalog) {
        let half = Paging::first(locations.len() / 2);
        return Reply::ok(half.page(locations));
    }
    Reply::ok(paging.page(locations))
}

async fn rentals(request: HttpRequest, state: Data<State>, paging: Query<Paging>) -> HttpResponse {
    exchange(
        &VOLTAGEPARK,
        &request,
        &state,
        Kind::of(Operation::List),
        |call| {
            let listed = call.listed(Provider::Voltagepark).into_iter();
            let views = listed.map(|record| wire::rental(record, call.now));
            Reply::ok(paging.page(views.collect()))
        },
    )
    .await
}

async fn rental(request: HttpRequest, state: Data<State>, id: Path<String>) -> HttpResponse {
    exchange(
        &VOLTAGEPARK,
        &request,
        &state,
        Kind::of(Operation::Read),
        |call| {
            let record = call.known(Provider::Voltagepark, &id);
            match record.filter(|record| record.phase(call.now) != Phase::Gone) {
                Some(record) => Reply::ok(wire::rental(record, call.now)),
                None => no_such_rental(),
            }
        },
    )
    .await
}

async fn rent(request: HttpRequest, state: Data<State>, body: Bytes) -> HttpResponse {
    let body = RentalBody::parse(&body);
    let sku = body.as_ref().ok().and_then(|body| sold_as(&state, body));
    let kind = Kind {
        operation: Operation::Launch,
        sku: sku.as_deref(),
        public: false,
    };
    exchange(&VOLTAGEPARK, &request, &state, kind, |call| match body {
        Ok(body) => make(call, body, sku.as_deref().unwrap_or_default()),
        Err(invalid) => invalid,
    })
    .await
}

/// The SKU of a rental: the one that its location sells over its network.
fn sold_as(state: &State, body: &RentalBody) -> Option<String> {
    let world = state.world();
    let mut rows = world.rows(Provider::Voltagepark);
    rows.find(|row| row.place == body.location_id && row.network == Some(body.network_type))
        .map(Row::key)
}

fn make(call: &mut Call<'_>, body: RentalBody, sku: &str) -> Reply {
    let order = Order {
        sku: sku.to_owned(),
        nodes: body.nodes(),
        place: body.location_id,
        name: body.name,
        authorized_keys: body.ssh_keys.unwrap_or_default(),
        tags: Some(json!(body.tags.unwrap_or_default())),
        user_data: body.cloudinit_script.and_then(wire::StartUp::into_script),
        foreign: call.foreign,
        ..Order::default()
    };
    match call
        .world
        .launch(Provider::Voltagepark, order, call.fault.as_ref(), call.now)
    {
        Ok(record) => {
            Reply::ok(json!({ "id": record.id, "rental_id": record.id, "warning": null }))
        }
        Err(Refusal::UnknownPlace) => detail(StatusCode::NOT_FOUND, "Location not found"),
        Err(Refusal::UnknownSku | Refusal::SoldOut) => detail(
            StatusCode::BAD_REQUEST,
            "Not enough GPUs available at this location",
        ),
    }
}

async fn end(request: HttpRequest, state: Data<State>, id: Path<String>) -> HttpResponse {
    exchange(
        &VOLTAGEPARK,
        &request,
        &state,
        Kind::of(Operation::Release),
        |call| {
            let is_known = call.known(Provider::Voltagepark, &id).is_some();
            if !is_known || !call.world.end(Provider::Voltagepark, &id, call.now) {
                return no_such_rental();
            }
            call.state.nodes.stop_machine(&id);
            Reply {
                status: StatusCode::NO_CONTENT,
                body: None,
                retry_after_seconds: None,
            }
        },
    )
    .await
}
