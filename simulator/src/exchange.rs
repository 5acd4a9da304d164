//! One call to a provider, whichever it is: it is routed by the twin and counted, its caller identified, its
//! pending fault carried out, and the answer written or withheld.

use std::time::Duration;

use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use chrono::TimeDelta;
use serde_json::Value;

use crate::call::{Answer, Call};
use crate::cloud_init::keys_in;
use crate::machine::{Order, Shown};
use crate::page::{Page, Paging};
use crate::reply::{Refusal, Reply};
use crate::request::Request;
use crate::route::{Act, Route};
use crate::server::cut;
use crate::state::{Caller, State};
use crate::twin::Twin;
use crate::{FaultKind, Front, Operation, Provider, token};

/// The longest that a call hangs.
const LONGEST_HANG: Duration = Duration::from_secs(60);

/// The methods that a path may be known by.
const METHODS: [Method; 5] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

enum Outcome {
    Answer(Reply),
    Page(u16, &'static str),
    Truncated(Reply),
    Silence,
    Hang,
}

/// Carries out one call and answers it, unless its fault prevents that.
pub(crate) async fn exchange(
    provider: Provider,
    request: HttpRequest,
    state: Data<State>,
    body: Bytes,
) -> HttpResponse {
    state.advance();
    match outcome(provider, &request, &state, body) {
        Outcome::Answer(reply) => reply.write(true),
        Outcome::Page(status, body) => page(status, body),
        Outcome::Truncated(reply) => reply.write(false),
        Outcome::Silence => silence(&request),
        Outcome::Hang => {
            tokio::select! {
                () = state.let_go.notified() => {}
                () = tokio::time::sleep(LONGEST_HANG) => {}
            }
            silence(&request)
        }
    }
}

fn outcome(provider: Provider, request: &HttpRequest, state: &State, body: Bytes) -> Outcome {
    let twin = provider.twin();
    let Some(below) = Request::below(twin.base_path, request, body.clone()) else {
        let whole = Request::below("", request, body);
        let refusal = whole.map(|whole| word(twin, Refusal::NoSuchPath, &whole));
        return Outcome::Answer(refusal.unwrap_or_else(|| Reply::empty(404)));
    };
    match find_route(twin, &below) {
        Ok(route) => carry_out(provider, route, &below, state),
        Err(refusal) => Outcome::Answer(word(twin, refusal, &below)),
    }
}

/// The route of a call, or whether the path or only the method is unknown.
fn find_route(twin: &Twin, request: &Request) -> Result<Route, Refusal> {
    let route = |request: &Request| token::route(twin, request).or_else(|| (twin.route)(request));
    route(request).ok_or_else(|| {
        let is_known = METHODS.map(|method| route(&request.with_method(method)).is_some());
        if twin.knows_methods && is_known.contains(&true) {
            Refusal::NotAllowed
        } else {
            Refusal::NoSuchPath
        }
    })
}

fn word(twin: &Twin, refusal: Refusal, request: &Request) -> Reply {
    match refusal {
        Refusal::Own(reply) => reply,
        refusal => (twin.refuse)(&refusal, request),
    }
}

fn carry_out(provider: Provider, route: Route, request: &Request, state: &State) -> Outcome {
    let (twin, operation) = (provider.twin(), route.operation);
    if let Act::Fixed(reply) = route.act {
        return Outcome::Answer(reply(request));
    }
    let mut world = state.world();
    *world.calls.entry((provider, operation)).or_default() += 1;
    let front = world.fronts.get(&provider).copied();
    if let Some((status, body)) = front.and_then(|front| front.page(operation)) {
        return Outcome::Page(status, body);
    }
    let caller = state.caller(provider, request, &world.tokens);
    let refused = caller == Caller::Stranger || front == Some(Front::CredentialRefused);
    if refused && !is_open(twin, operation) {
        return Outcome::Answer(word(twin, Refusal::Unauthorized, request));
    }
    let lag = front.map_or_else(TimeDelta::zero, |front| front.lag(operation));
    let mut call = Call {
        world: &mut world,
        state,
        provider,
        now: state.now() - lag,
        foreign: caller == Caller::Foreign,
        fault: None,
        front,
    };
    answer(&mut call, route, request)
}

/// Whether strangers are answered.
const fn is_open(twin: &Twin, operation: Operation) -> bool {
    match operation {
        Operation::Token => true,
        Operation::Catalog | Operation::Places => twin.public_catalog,
        _ => false,
    }
}

/// Takes the fault of the call, and lets the dialect answer unless the fault does.
fn answer(call: &mut Call<'_>, route: Route, request: &Request) -> Outcome {
    let twin = call.provider.twin();
    let order = match route.act {
        Act::Launch(order, _) => order(call, request),
        // Only a launch has one.
        _ => Err(Refusal::NoSuchPath),
    };
    let sku = order.as_ref().ok().map(|order| order.sku.as_str());
    call.fault = call.world.faults.take(call.provider, route.operation, sku);
    let refused = |refusal| word(twin, refusal, request);
    match call.fault {
        Some(FaultKind::ReplyLostBeforeCreate) => return Outcome::Silence,
        Some(FaultKind::Hang) => return Outcome::Hang,
        Some(FaultKind::InternalError) => return Outcome::Answer(refused(Refusal::Internal)),
        Some(FaultKind::TooManyRequests {
            retry_after_seconds,
        }) => {
            let reply = refused(Refusal::TooManyRequests);
            return Outcome::Answer(match retry_after_seconds {
                Some(seconds) => reply.with(RETRY_AFTER.as_str(), seconds.to_string()),
                None => reply,
            });
        }
        _ => {}
    }
    let answer = match route.act {
        Act::Launch(_, made) => order.and_then(|order| launch(call, order, made)),
        act => act_on(call, act, paging_of(twin, route), request),
    };
    let reply = answer.unwrap_or_else(refused);
    match call.fault {
        Some(FaultKind::ReplyLostAfterCreate) => Outcome::Silence,
        Some(FaultKind::TruncatedJson) => Outcome::Truncated(reply),
        _ => Outcome::Answer(reply),
    }
}

fn paging_of(twin: &Twin, route: Route) -> Option<&Paging> {
    twin.paging.as_ref().filter(|_| route.is_paged)
}

/// Everything but a launch.
fn act_on(call: &mut Call<'_>, act: Act, paging: Option<&Paging>, request: &Request) -> Answer {
    let page = |items: Vec<Value>| match paging {
        Some(paging) => paging.cut(request, items, usize::MAX),
        None => Page::whole(items),
    };
    match act {
        Act::Answer(answer) => answer(call, request),
        Act::Catalog(records, written) => {
            let records = records(call);
            call.catalog_page(request, paging, records).map(written)
        }
        Act::Places(record, written) => Ok(written(page(call.places(record)))),
        Act::List(written) => Ok(written(page(call.machines()))),
        Act::Read(found) => call.read(request.last_segment()).map(found),
        Act::Release(ended) => call.release(request.last_segment()).map(|()| ended()),
        Act::Things(kind, written) => Ok(written(page(call.shown_things(kind)))),
        Act::AddThing(kind, read, added) => read(call, request).map(|new| {
            let thing = call.add_thing(kind, &new.name, new.body);
            added((call.provider.twin().thing)(&thing))
        }),
        Act::RemoveThing(kind, removed) => {
            let thing = call.remove_thing(kind, request.last_segment());
            thing.map(|_| removed())
        }
        Act::Fixed(reply) => Ok(reply(request)),
        Act::Launch(..) => Err(Refusal::NoSuchPath),
    }
}

fn launch(call: &mut Call<'_>, order: Order, made: fn(&Shown<'_>) -> Reply) -> Answer {
    let (provider, now) = (call.provider, call.now);
    if call.world.launches_too_fast(provider, now) {
        return Err(Refusal::TooManyRequests);
    }
    let mut order = Order {
        foreign: call.foreign,
        ..order
    };
    let keys = order.user_data.iter().flat_map(|data| keys_in(data));
    order.authorized_keys.extend(keys.collect::<Vec<_>>());
    let beside = std::mem::take(&mut order.beside);
    let record = call
        .world
        .launch(provider, order, call.fault.as_ref(), now)?;
    let reply = made(&record.shown(now));
    for (kind, name) in beside {
        call.add_beside(kind, name);
    }
    Ok(reply)
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
