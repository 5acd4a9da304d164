//! The HTTP interface: a handler parses, checks who may, calls one stage and renders.
//!
//! To find a route, read `routes`. The table of [`access`] holds the rights; every refusal is a line of the
//! table in [`error`]. The handlers call the stages: [`crate::flow::plan`] and on.

pub mod access;
mod agents;
pub mod api_keys;
mod attestations;
mod audit;
mod auth;
mod balance;
mod body;
mod budgets;
mod cancelled_orders;
mod commitments;
mod credential;
mod credits;
mod docs;
mod document;
pub mod error;
mod events;
mod gpus;
mod idempotency;
mod limits;
mod masked;
mod members;
mod metrics;
mod names;
mod offers;
mod openapi;
mod page;
mod plans;
mod plumbing;
mod projects;
mod provider_accounts;
mod providers;
mod query;
mod quotes;
mod readiness;
mod reports;
mod request;
mod required_tags;
mod reservations;
mod routes;
mod spending_limits;
mod ssh_keys;
mod tokens;
mod unrouted;
mod verifications;
mod webhook_endpoints;

use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::middleware::{Compress, from_fn};
use actix_web::{App, HttpServer, guard, web};
use utoipa_actix_web::AppExt as _;

pub(crate) use body::read_strictly;
pub(crate) use commitments::AddCommitment;
pub use document::Document;
pub(crate) use names::name_fault;
pub use openapi::document;
pub(crate) use provider_accounts::AddProviderAccount;

use crate::platform::app::Broker;
use agents::AgentFile;
use audit::refused::Refused;
use auth::KnownKeys;
use offers::OfferPages;
use query::unreadable;
use readiness::LastLook;
use unrouted::KnownPaths;
use verifications::LargeSteps;

/// How long an idle connection is kept open. It is longer than usual proxies keep theirs (60 seconds),
/// because the side that closes first may close while a call is being sent.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long requests under way may take once the server is stopping. Units: seconds.
const SHUTDOWN_SECONDS: u64 = 10;

/// How long a client may leave sent data unread before its connection is cut. Otherwise slow clients could
/// occupy all connections for as long as they like.
const UNREAD: Duration = Duration::from_secs(120);

/// Cuts connections of a listener on which sent data stays unread for so long. Only Linux reports that.
fn cut_unread(listener: &TcpListener, after: Duration) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let after = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(listener, after)?;
    }
    Ok(())
}

/// Starts the service on a listener. The server runs once it is awaited or spawned, and ends when its handle
/// stops it; signals are the caller's.
///
/// Errors: the listener's.
pub fn serve(broker: Broker, listener: TcpListener) -> std::io::Result<Server> {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    serve_with_workers(broker, listener, cores)
}

/// As [`serve`], with so many threads that answer.
///
/// Errors: the listener's.
pub fn serve_with_workers(
    broker: Broker,
    listener: TcpListener,
    workers: NonZeroUsize,
) -> std::io::Result<Server> {
    crate::platform::metrics::install();
    cut_unread(&listener, UNREAD)?;
    let document = openapi::document();
    let known = web::Data::new(KnownPaths::of(&document));
    let docs = web::Data::new(docs::Page::of(&document));
    let document = web::Data::new(document);
    let broker = web::Data::new(broker);
    let agent_file = web::Data::new(AgentFile::default());
    let large_steps = web::Data::new(LargeSteps::default());
    let offer_pages = web::Data::new(OfferPages::default());
    let known_keys = web::Data::new(KnownKeys::default());
    let refused = web::Data::new(Refused::default());
    let looked = web::Data::new(LastLook::default());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::clone(&broker))
            .app_data(web::Data::clone(&document))
            .app_data(web::Data::clone(&docs))
            .app_data(web::Data::clone(&known))
            .app_data(web::Data::clone(&agent_file))
            .app_data(web::Data::clone(&large_steps))
            .app_data(web::Data::clone(&offer_pages))
            .app_data(web::Data::clone(&known_keys))
            .app_data(web::Data::clone(&refused))
            .app_data(web::Data::clone(&looked))
            .app_data(
                web::PathConfig::default().error_handler(|error, _| unreadable("path", &error)),
            )
            .app_data(
                web::QueryConfig::default().error_handler(|error, _| unreadable("query", &error)),
            )
            .wrap(from_fn(request::surround))
            .wrap(Compress::default())
            // The path with `{id}` would read `confirm` as an id; every method but POST gets 405 here.
            .service(
                web::resource("/v1/reservations/confirm")
                    .guard(guard::Not(guard::Post()))
                    .to(unrouted::unrouted),
            )
            .into_utoipa_app()
            .configure(routes::routes)
            .default_service(web::to(unrouted::unrouted))
            .into_app()
    });
    Ok(server
        .workers(workers.get())
        .disable_signals()
        .keep_alive(KEEP_ALIVE)
        .shutdown_timeout(SHUTDOWN_SECONDS)
        .listen(listener)?
        .run())
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};
    use std::net::TcpStream;

    use super::*;

    /// The system's own clock: nothing of ours cuts it.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_client_that_reads_nothing_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        cut_unread(&listener, Duration::from_millis(200)).expect("it is set");
        let address = listener.local_addr().expect("an address");
        let _reads_nothing = TcpStream::connect(address).expect("connected");
        let (mut sent, _) = listener.accept().expect("accepted");
        let patience = Some(Duration::from_secs(30));
        sent.set_write_timeout(patience).expect("it is set");
        let cut = loop {
            if let Err(error) = sent.write_all(&[0; 1 << 16]) {
                break error;
            }
        };
        assert_eq!(cut.kind(), ErrorKind::TimedOut, "{cut}");
    }
}
