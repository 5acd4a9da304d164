//! The HTTP interface: a handler parses, checks who may, calls one stage and renders.
//!
//! To find a route, read `routes`. Who may do what is the table of [`access`]; every refusal is a
//! line of the table in [`error`]. What the calls lead to is in the stages: [`crate::plan`] and on.

pub mod access;
mod agents;
pub mod api_keys;
mod attestations;
mod auth;
mod body;
mod credential;
pub mod error;
mod gpus;
mod idempotency;
mod names;
mod offers;
mod openapi;
mod page;
mod plans;
mod plumbing;
mod providers;
mod quotes;
mod reports;
mod request;
mod reservations;
mod routes;
mod ssh_keys;
mod tokens;
mod unrouted;
mod verifications;

use std::net::TcpListener;

use actix_web::dev::Server;
use actix_web::middleware::{Compress, from_fn};
use actix_web::{App, HttpServer, web};
use tracing_actix_web::TracingLogger;
use utoipa_actix_web::AppExt as _;

pub use openapi::Document;

use crate::app::Broker;
use agents::AgentFile;
use error::ApiError;
use request::RequestSpan;
use unrouted::KnownPaths;
use verifications::LargeSteps;

/// How long requests under way may take once the server is told to stop. Units: seconds.
const SHUTDOWN_SECONDS: u64 = 10;

/// Starts the service on a listener. The server runs once it is awaited or spawned, and ends when
/// its handle says so; signals are the caller's.
///
/// Errors: the listener's.
pub fn serve(broker: Broker, listener: TcpListener) -> std::io::Result<Server> {
    let document = Document::of_routes();
    let known = web::Data::new(KnownPaths::of(&document));
    let document = web::Data::new(document);
    let broker = web::Data::new(broker);
    let agent_file = web::Data::new(AgentFile::default());
    let large_steps = web::Data::new(LargeSteps::default());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::clone(&broker))
            .app_data(web::Data::clone(&document))
            .app_data(web::Data::clone(&known))
            .app_data(web::Data::clone(&agent_file))
            .app_data(web::Data::clone(&large_steps))
            .app_data(
                web::PathConfig::default().error_handler(|error, _| parameter("path", &error)),
            )
            .app_data(
                web::QueryConfig::default().error_handler(|error, _| parameter("query", &error)),
            )
            .wrap(from_fn(request::finish_problems))
            .wrap(Compress::default())
            .wrap(TracingLogger::<RequestSpan>::new())
            .wrap(from_fn(request::identify))
            .into_utoipa_app()
            .configure(routes::routes)
            .default_service(web::to(unrouted::unrouted))
            .into_app()
    });
    Ok(server
        .disable_signals()
        .shutdown_timeout(SHUTDOWN_SECONDS)
        .listen(listener)?
        .run())
}

/// A parameter that cannot be read.
fn parameter(place: &str, error: &dyn std::fmt::Display) -> actix_web::Error {
    ApiError::invalid_parameter(format!("the {place} cannot be read: {error}")).into()
}
