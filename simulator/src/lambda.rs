//! The answers of `lambda`, by the published specification of its API, version 1.10.0.
//!
//! Our choices where that leaves something open: a launch that was accepted and fails becomes `unhealthy`; a
//! machine that was terminated is listed as `terminating` for a while, then only found by its id as
//! `terminated`; 429 has a code of its own; no key pair is generated, so `public_key` must be given. The
//! bodies are in [`wire`], the keys in [`keys`].

mod keys;
mod wire;

use std::collections::BTreeMap;

use actix_web::web::{Bytes, Data, Path, ServiceConfig, delete, get, post, resource, route, scope};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Map, Value, json};

pub(crate) use self::keys::SshKeys;
use self::wire::{Error, InstanceView, LaunchBody, TerminateBody};
use crate::cloud_init::keys_in;
use crate::exchange::{Call, Dialect, Kind, Reply, exchange};
use crate::machine::{Order, Phase};
use crate::state::State;
use crate::world::Refusal;
use crate::{FaultKind, Operation, Provider};

const LAMBDA: Dialect = Dialect {
    provider: Provider::Lambda,
    unauthorized: || Error::INVALID_API_KEY.reply(),
    too_many_requests: || Error::TOO_MANY_REQUESTS.reply(),
    internal_error: || Error::INTERNAL.reply(),
};

pub(crate) fn routes(config: &mut ServiceConfig) {
    let at = |path: &str| resource(path).default_service(route().to(nowhere));
    let keys = at("/ssh-keys").route(get().to(keys::list));
    let api = scope("/api/v1")
        .service(at("/instance-types").route(get().to(instance_types)))
        .service(at("/regions").route(get().to(regions)))
        .service(at("/instances").route(get().to(instances)))
        .service(at("/instances/{id}").route(get().to(instance)))
        .service(at("/instance-operations/launch").route(post().to(launch)))
        .service(at("/instance-operations/terminate").route(post().to(terminate)))
        .service(keys.route(post().to(keys::add)))
        .service(at("/ssh-keys/{id}").route(delete().to(keys::remove)));
    config.service(api).default_service(route().to(nowhere));
}

async fn nowhere() -> HttpResponse {
    Error::NOT_FOUND.reply().write(true)
}

pub(super) fn data(body: Value) -> Reply {
    Reply::ok(json!({ "data": body }))
}

async fn instance_types(request: HttpRequest, state: Data<State>) -> HttpResponse {
    exchange(
        &LAMBDA,
        &request,
        &state,
        Kind::of(Operation::Catalog),
        |call| data(catalog(call)),
    )
    .await
}

/// Every instance type, by its name; a sold-out type has no regions.
fn catalog(call: &Call<'_>) -> Value {
    let mut types = Map::new();
    if call.fault == Some(FaultKind::EmptyCatalog) {
        return Value::Object(types);
    }
    for row in call.world.rows(Provider::Lambda) {
        let regions = types.entry(row.sku.clone()).or_insert_with(
            || json!({ "instance_type": wire::instance_type(row), "regions_with_capacity_available": [] }),
        );
        if row.free_nodes > 0
            && let Some(regions) = regions["regions_with_capacity_available"].as_array_mut()
        {
            regions.push(wire::region(row));
        }
    }
    if call.fault == Some(FaultKind::PartialCatalog) {
        let half = types.len() / 2;
        types = types.into_iter().take(half).collect();
    }
    Value::Object(types)
}

async fn regions(request: HttpRequest, state: Data<State>) -> HttpResponse {
    exchange(
        &LAMBDA,
        &request,
        &state,
        Kind::of(Operation::Places),
        |call| {
            let regions = call
                .world
                .rows(Provider::Lambda)
                .map(|row| (row.place.as_str(), wire::region(row)));
            data(regions.collect::<BTreeMap<_, _>>().into_values().collect())
        },
    )
    .await
}

async fn instances(request: HttpRequest, state: Data<State>) -> HttpResponse {
    exchange(
        &LAMBDA,
        &request,
        &state,
        Kind::of(Operation::List),
        |call| {
            let listed = call.listed(Provider::Lambda).into_iter();
            let view = |record| InstanceView::of(record, call.now).into_json();
            data(listed.map(view).collect())
        },
    )
    .await
}

async fn instance(request: HttpRequest, state: Data<State>, id: Path<String>) -> HttpResponse {
    exchange(
        &LAMBDA,
        &request,
        &state,
        Kind::of(Operation::Read),
        |call| match call.known(Provider::Lambda, &id) {
            Some(record) => data(InstanceView::of(record, call.now).into_json()),
            None => Error::NO_SUCH_INSTANCE.reply(),
        },
    )
    .await
}

async fn launch(request: HttpRequest, state: Data<State>, body: Bytes) -> HttpResponse {
    let body = LaunchBody::parse(&body);
    let sku = body
        .as_ref()
        .ok()
        .map(|body| body.instance_type_name.clone());
    let operation = Kind {
        operation: Operation::Launch,
        sku: sku.as_deref(),
        public: false,
    };
    exchange(&LAMBDA, &request, &state, operation, |call| match body {
        Ok(body) => make(call, body),
        Err(why) => Error::invalid(why),
    })
    .await
}

fn make(call: &mut Call<'_>, body: LaunchBody) -> Reply {
    if let Some(name) = body
        .ssh_key_names
        .iter()
        .find(|name| !call.world.ssh_keys.has(name))
    {
        return Error::no_such("SSH key", name);
    }
    if call.world.launches_too_fast(Provider::Lambda, call.now) {
        return Error::TOO_MANY_REQUESTS.reply();
    }
    let (sku, region) = (body.instance_type_name.clone(), body.region_name.clone());
    let named = body.ssh_key_names.iter();
    let named = named.filter_map(|name| call.world.ssh_keys.public_key(name));
    let mut authorized_keys: Vec<String> = named.map(str::to_owned).collect();
    authorized_keys.extend(body.user_data.iter().flat_map(|data| keys_in(data)));
    let order = Order {
        sku: body.instance_type_name,
        place: body.region_name,
        nodes: 1,
        name: body.name.unwrap_or_default(),
        hostname: body.hostname,
        ssh_key_names: body.ssh_key_names,
        authorized_keys,
        tags: body.tags.map(|tags| json!(tags)),
        user_data: body.user_data,
        bid_usd_hour: None,
        foreign: call.foreign,
    };
    match call
        .world
        .launch(Provider::Lambda, order, call.fault.as_ref(), call.now)
    {
        Ok(record) => data(json!({ "instance_ids": [record.id] })),
        Err(Refusal::UnknownSku) => Error::no_such("Instance type", &sku),
        Err(Refusal::UnknownPlace) => Error::no_such("Region", &region),
        Err(Refusal::SoldOut) => Error::INSUFFICIENT_CAPACITY.reply(),
    }
}

async fn terminate(request: HttpRequest, state: Data<State>, body: Bytes) -> HttpResponse {
    exchange(
        &LAMBDA,
        &request,
        &state,
        Kind::of(Operation::Release),
        |call| {
            let Ok(TerminateBody { instance_ids }) = serde_json::from_slice(&body) else {
                return Error::invalid("instance_ids: a list of ids is required".to_owned());
            };
            let now = call.now;
            let alive = |id: &String| {
                call.known(Provider::Lambda, id)
                    .is_some_and(|record| record.phase(now) != Phase::Gone)
            };
            if instance_ids.is_empty() || !instance_ids.iter().all(alive) {
                return Error::NO_SUCH_INSTANCE.reply();
            }
            let mut terminated = Vec::new();
            for id in &instance_ids {
                call.world.end(Provider::Lambda, id, now);
                call.state.nodes.stop_machine(id);
                terminated.extend(
                    call.world
                        .record(Provider::Lambda, id)
                        .map(|record| InstanceView::of(record, now).into_json()),
                );
            }
            data(json!({ "terminated_instances": terminated }))
        },
    )
    .await
}
