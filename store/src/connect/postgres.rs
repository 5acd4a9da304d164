//! PostgreSQL: one pool, after one connection that shows why it would fail.

use std::time::Duration;

use sea_orm::sqlx::postgres::PgConnectOptions;
use sea_orm::sqlx::{ConnectOptions as _, Connection as _};
use sea_orm::{ConnectOptions, DatabaseConnection, SqlxError};
use tokio::time::{Instant, sleep, timeout_at};

use super::{why, words};
use crate::StoreError;

/// The size of the pool.
const CONNECTIONS: u32 = 16;
/// How long a server may take for the first connection, and how long we keep trying while it reports that it
/// cannot serve yet.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);

/// The pool for a URL.
///
/// Errors: [`StoreError::Unusable`], [`StoreError::Unopened`]; neither shows user or password.
pub(super) async fn open(url: String) -> Result<DatabaseConnection, StoreError> {
    let server = parse(&url)?;
    // A pool keeps trying, and finally reports that its time is up, not why.
    first(&server).await?;
    let mut options = ConnectOptions::new(url);
    options
        .max_connections(CONNECTIONS)
        .test_before_acquire_if_idle_for(Duration::from_secs(30))
        .sqlx_logging(false);
    let pool = sea_orm::Database::connect(options).await;
    pool.map_err(|error| unopened(&server, &why(error)))
}

/// Refuses an invalid PostgreSQL URL before another layer does: its error would repeat the URL, and with it
/// the password.
fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    // A password with a bare slash is parsed as a port and a name, which errors show.
    let is_whole = |server: &PgConnectOptions| {
        let name = server.get_database();
        !name.is_some_and(|name| name.contains('@'))
    };
    url.parse()
        .ok()
        .filter(is_whole)
        .filter(|_| matches!(scheme, "postgres" | "postgresql"))
        .ok_or(StoreError::NoPostgresUrl)
}

/// Connects once and disconnects. It waits for a server that is starting, or has no connection left.
async fn first(server: &PgConnectOptions) -> Result<(), StoreError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let error = match timeout_at(end, server.connect()).await {
            Ok(Ok(connection)) => {
                // We only needed to know that it works.
                let _ = connection.close().await;
                return Ok(());
            }
            Ok(Err(error)) => error,
            Err(_) => {
                let why = format!("no answer within {} seconds", PATIENCE.as_secs());
                return Err(unopened(server, &why));
            }
        };
        if !is_passing(&error) || Instant::now() + PAUSE > end {
            return Err(unopened(server, &refusal(&error, server.get_username())));
        }
        sleep(PAUSE).await;
    }
}

fn code(error: &SqlxError) -> Option<String> {
    let SqlxError::Database(refusal) = error else {
        return None;
    };
    refusal.code().map(|code| code.into_owned())
}

/// Whether the server reports that it has no connection left (53300), or is about to start or to stop.
fn is_passing(error: &SqlxError) -> bool {
    matches!(
        code(error).as_deref(),
        Some("53300" | "57P01" | "57P02" | "57P03")
    )
}

/// Why there is no connection. The server's own messages about users name them, so we use other words.
fn refusal(error: &SqlxError, user: &str) -> String {
    let said = words(error);
    match code(error).as_deref() {
        Some(code) if code.starts_with("28") => "it refuses the user or the password".to_owned(),
        Some("53300") => "it has no connection left".to_owned(),
        Some("3D000") => "it has no such database".to_owned(),
        Some(code) if said.contains(user) => format!("it refuses with code {code}"),
        _ => said,
    }
}

fn unopened(server: &PgConnectOptions, why: &str) -> StoreError {
    let at = match server.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", server.get_host(), server.get_port()),
    };
    let name = server.get_database().unwrap_or_default();
    StoreError::Unopened {
        place: format!("`{name}` of PostgreSQL at {at}"),
        why: format!("{why}; check DATABASE_URL, and that the server runs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_be_used_is_refused_without_its_password() {
        for url in [
            "mysql://user:canary@host/name",
            "postgres://user:can ary@host:99999/name",
            "postgres://canary:1/canary@host/name",
            "sqlite://file?canary",
            "canary",
        ] {
            let error = parse(url).expect_err("no PostgreSQL URL");
            assert!(matches!(error, StoreError::NoPostgresUrl), "{error:?}");
            let words = error.to_string();
            assert!(
                words.contains("postgres://") && !words.contains("ary"),
                "{words}"
            );
        }
        parse("postgres://user:password@host/name").expect("a usable URL");
    }
}
