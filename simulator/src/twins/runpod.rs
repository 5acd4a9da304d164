//! The answers of `runpod`: REST v2 for pods by its published specification (2.0.0), and the two things that
//! only its GraphQL has, the listing of prices and stock and the bid for a spot pod.
//!
//! Our choices where those leave something open: the listing needs no credential; a pod that was deleted is
//! gone at once (204, then 404); no capacity is a 400 with words; the lowest accepted bid is half the list
//! price; a pod publishes its SSH port under one fixed number. A pod runs its start command with the
//! environment of its order. The bodies are in [`wire`], the answers to queries in [`graphql`].

mod graphql;
mod wire;

use serde_json::json;

use crate::kit::*;

/// The place of everything on the community cloud.
const COMMUNITY: &str = "community";

/// The service's message when nothing is free.
const SOLD_OUT: &str = "There are no longer any instances available with the requested \
                        specifications. Please refresh and try again.";

static RUNPOD: Twin = Twin {
    id: "runpod",
    timing: Timing::boot(120),
    public_catalog: true,
    is_container: true,
    ssh_user: "root",
    ids: Ids::Hex(14),
    rows: RowRules {
        per: PriceBasis::Gpu,
        counts: &[1, 2, 4, 8],
        key: |row| sku(row.gpus, &row.sku),
        // One price a GPU of a type on each cloud, whatever the count.
        price_group: |row| format!("{} {}", is_community(row), row.sku),
        ..RowRules::BASE
    },
    words: StatusWords {
        booting: "PROVISIONING",
        running: "RUNNING",
        failed: "ERROR",
        ending: "TERMINATED",
        gone: "TERMINATED",
        preempted: Some("EXITED"),
        ..Twin::BASE.words
    },
    route,
    machine: wire::pod,
    refuse,
    ..Twin::BASE
};

impl Provider {
    /// `runpod`: containers, one to a pod.
    pub const RUNPOD: Self = Self::of(&RUNPOD);
}

fn sku(count: u32, id: &str) -> String {
    format!("{count}x {id}")
}

/// Whether a row is sold on machines of other people, at no place of its own.
fn is_community(row: &Row) -> bool {
    row.place == COMMUNITY
}

fn route(request: &Request) -> Option<Route> {
    Some(match (request.method(), request.segments().as_slice()) {
        ("POST", ["graphql"]) => graphql::route(request),
        ("GET", ["v2", "pods"]) => Route::list(|page| Reply::ok(json!({ "pods": page.items }))),
        ("POST", ["v2", "pods"]) => {
            Route::launch(wire::order, |made| Reply::new(201, wire::pod(made)))
        }
        ("GET", ["v2", "pods", _]) => Route::read(Reply::ok),
        ("DELETE", ["v2", "pods", _]) => Route::release(|| Reply::empty(204)),
        _ => return None,
    })
}

fn refuse(refusal: &Refusal, request: &Request) -> Reply {
    let (status, detail) = match refusal {
        Refusal::Unauthorized => (401, "the key is not known"),
        Refusal::NoSuchPath => (404, "nothing is here"),
        Refusal::NoSuchMachine => (404, "pod not found"),
        Refusal::UnknownSku => (400, "this GPU type cannot be deployed"),
        Refusal::UnknownPlace => (400, "this data center is not known"),
        Refusal::SoldOut => (400, SOLD_OUT),
        Refusal::NotYet => (409, "a pod that is being provisioned cannot be deleted"),
        other => (other.status(), other.words()),
    };
    match refusal {
        Refusal::TooManyRequests | Refusal::Internal => {}
        _ if request.path() == "/graphql" => return graphql::refuse(refusal, detail),
        Refusal::Invalid(why) => return wire::unprocessable(why),
        _ => {}
    }
    let title = match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        409 => "Conflict",
        429 => "Too Many Requests",
        _ => "Internal Server Error",
    };
    Reply::new(
        status,
        json!({ "title": title, "status": status, "detail": detail }),
    )
}

/// The places where a pod may be: those that are named, or each one of the secure cloud that sells it.
fn places(call: &Call<'_>, sku: &str, named: Vec<String>) -> Vec<String> {
    if !named.is_empty() {
        return named;
    }
    let sold = call
        .rows()
        .filter(|row| row.key() == sku && !is_community(row));
    sold.map(|row| row.place.clone()).collect()
}
