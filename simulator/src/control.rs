//! The control plane, for processes that share one simulation: read the providers' URLs, the clock and the
//! machines, and inject faults. Bearer-protected; not part of any provider.

use actix_web::web::{Bytes, Data, ServiceConfig, get, post, resource};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use crate::Fault;
use crate::machine::Record;
use crate::state::State;

pub(crate) fn routes(config: &mut ServiceConfig) {
    config
        .service(resource("/market").route(get().to(market)))
        .service(resource("/clock").route(get().to(clock)))
        .service(resource("/machines").route(get().to(machines)))
        .service(resource("/faults").route(post().to(faults)));
}

async fn market(request: HttpRequest, state: Data<State>) -> HttpResponse {
    if !state.may_control(request.headers()) {
        return unauthorized();
    }
    let providers = state.providers().map(|(provider, base_url)| {
        json!({
            "id": provider.as_str(),
            "base_url": base_url,
            "credential": state.credential(provider),
        })
    });
    HttpResponse::Ok().json(json!({ "providers": providers.collect::<Vec<_>>() }))
}

async fn clock(request: HttpRequest, state: Data<State>) -> HttpResponse {
    if !state.may_control(request.headers()) {
        return unauthorized();
    }
    HttpResponse::Ok().json(json!({ "now": state.now() }))
}

async fn machines(request: HttpRequest, state: Data<State>) -> HttpResponse {
    if !state.may_control(request.headers()) {
        return unauthorized();
    }
    let now = state.now();
    let world = state.world();
    let describe = |record: &Record| record.describe(now);
    HttpResponse::Ok()
        .json(json!({ "machines": world.every_record().iter().map(describe).collect::<Vec<_>>() }))
}

async fn faults(request: HttpRequest, state: Data<State>, body: Bytes) -> HttpResponse {
    if !state.may_control(request.headers()) {
        return unauthorized();
    }
    let refuse = |why: String| HttpResponse::UnprocessableEntity().json(json!({ "error": why }));
    let fault: Fault = match serde_json::from_slice(&body) {
        Ok(fault) => fault,
        Err(error) => return refuse(error.to_string()),
    };
    match state.world().faults.add(fault) {
        Ok(()) => HttpResponse::NoContent().finish(),
        Err(error) => refuse(error.to_string()),
    }
}

fn unauthorized() -> HttpResponse {
    HttpResponse::Unauthorized()
        .json(json!({ "error": "send the control credential as a bearer token" }))
}
