//! Databases for tests: a fresh one for each test, on SQLite and on PostgreSQL.
//!
//! For tests only, of this crate and of those that use it (feature `fixture`). A failed set-up panics with
//! its reason. PostgreSQL is `TEST_DATABASE_URL` where that is set, else a private cluster from installed
//! binaries, else the test reports that it skips that half; `REQUIRE_SERVICES=1` turns the skip into a
//! failure. Most life-cycle tests run on SQLite alone unless `EVERY_DATABASE=1` is set
//! ([`for_usual_database`]).

mod gate;
mod postgres;
mod statements;
mod trouble;
mod wire;

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use chrono::{DateTime, Utc};
use market::ids::ReservationId;
use sea_orm::{ColumnTrait as _, Condition, ConnectionTrait};
use tempfile::TempDir;
use tokio::sync::OnceCell;

pub use gate::Gate;
pub use postgres::PostgresServer;
pub(crate) use statements::heard;
pub use statements::statements_of;
pub use trouble::{interrupt_after, leave_pages};
pub use wire::{Cut, Wire};

use crate::entity::column::Text;
use crate::entity::reservations::Column;
use crate::work::{ClaimToken, Claimed};
use crate::{Database, Store, StoreError};

/// A migrated database that nobody else uses.
#[derive(Debug)]
pub struct TestDatabase {
    /// The opened database; another process may open it too.
    pub database: Database,
    /// Its open store.
    pub store: Store,
    cleanup: Cleanup,
}

#[derive(Debug)]
enum Cleanup {
    /// The folder is removed when this is dropped.
    Folder { _folder: TempDir },
    /// The private server ends with all of its databases.
    WithServer,
    /// The database is dropped through the server's own database.
    Drop { admin_url: String, name: String },
}

impl TestDatabase {
    /// A fresh SQLite file.
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn sqlite() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().join("test.db");
        write_migrated_sqlite(&path).await;
        let database = Database::Sqlite { path };
        let store = Store::connect(database.clone()).await;
        let store = store.expect("a migrated database opens");
        Self {
            database,
            store,
            cleanup: Cleanup::Folder { _folder: folder },
        }
    }

    /// A fresh database on PostgreSQL; `None`, with a message, where there is none.
    ///
    /// # Panics
    /// When `REQUIRE_SERVICES=1` and there is none, or when it cannot be made.
    pub async fn postgres() -> Option<Self> {
        let server = match env::var("TEST_DATABASE_URL") {
            Ok(url) => Ok(postgres::Server::at(&url)),
            Err(_) => postgres::Server::private(),
        };
        let server = found(server)?;
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("broker_test_{}_{number}", std::process::id());
        let admin_url = server.url("postgres");
        let database = Database::Url(server.url(&name));
        if !server.is_private() {
            // A template would be left behind there: nobody knows which test is the last.
            execute(&admin_url, &format!("CREATE DATABASE {name}")).await;
            return Some(Self {
                store: open(database.clone()).await,
                database,
                cleanup: Cleanup::Drop { admin_url, name },
            });
        }
        static TEMPLATE: OnceCell<()> = OnceCell::const_new();
        TEMPLATE.get_or_init(|| make_template(&server)).await;
        let copy = format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE_NAME}");
        execute(&admin_url, &copy).await;
        let store = Store::connect(database.clone()).await;
        Some(Self {
            database,
            store: store.expect("a migrated database opens"),
            cleanup: Cleanup::WithServer,
        })
    }

    /// A fresh database on the test's own server.
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn on(server: &PostgresServer) -> Self {
        let name = "broker_test";
        execute(&server.url("postgres"), &format!("CREATE DATABASE {name}")).await;
        let database = Database::Url(server.url(name));
        Self {
            store: open(database.clone()).await,
            database,
            cleanup: Cleanup::WithServer,
        }
    }

    /// Closes and removes it. A test that fails earlier leaves a database on a server that existed before. A
    /// private server removes its databases with it, 8 MB each; dropping one takes longer than creating it.
    ///
    /// # Panics
    /// When it cannot be removed.
    pub async fn remove(self) {
        self.store.close().await.expect("closes");
        if let Cleanup::Drop { admin_url, name } = self.cleanup {
            execute(&admin_url, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
    }
}

/// The server, or `None` with a message.
///
/// # Panics
/// When `REQUIRE_SERVICES=1` and there is none.
fn found<T>(server: Result<T, String>) -> Option<T> {
    let why = match server {
        Ok(server) => return Some(server),
        Err(why) => why,
    };
    let is_required = env::var("REQUIRE_SERVICES").is_ok_and(|set| set == "1");
    assert!(
        !is_required,
        "REQUIRE_SERVICES=1, but there is no PostgreSQL: {why}"
    );
    // Not a print macro: the output of a passing test is not shown.
    let _ = writeln!(std::io::stderr(), "skipped: needs PostgreSQL ({why})");
    None
}

/// Runs a test on a fresh SQLite file and then on a fresh PostgreSQL database.
///
/// # Panics
/// When the test does, or a database cannot be made.
pub async fn for_each_database<F>(test: F)
where
    F: AsyncFn(&Store),
{
    on_sqlite(&test).await;
    on_postgres(&test).await;
}

/// Runs a test on a fresh SQLite file and, where `EVERY_DATABASE=1` is set, on PostgreSQL too: `cargo xtask
/// check --full` sets it. For a test whose statements other tests run on both.
///
/// # Panics
/// When the test does, or a database cannot be made.
pub async fn for_usual_database<F>(test: F)
where
    F: AsyncFn(&Store),
{
    on_sqlite(&test).await;
    if env::var("EVERY_DATABASE").is_ok_and(|set| set == "1") {
        on_postgres(&test).await;
    }
}

async fn on_sqlite(test: &impl AsyncFn(&Store)) {
    let sqlite = TestDatabase::sqlite().await;
    eprintln!("on SQLite:");
    test(&sqlite.store).await;
    sqlite.remove().await;
}

async fn on_postgres(test: &impl AsyncFn(&Store)) {
    if let Some(postgres) = TestDatabase::postgres().await {
        eprintln!("on PostgreSQL:");
        test(&postgres.store).await;
        postgres.remove().await;
    }
}

/// Puts a migrated SQLite file at a free path, as [`Store::connect`] would have created it. The schema is
/// created once for this process, and each file is a copy.
///
/// # Panics
/// When it cannot be made.
pub async fn write_migrated_sqlite(path: &Path) {
    static MIGRATED: OnceCell<Vec<u8>> = OnceCell::const_new();
    let bytes = MIGRATED.get_or_init(migrated_sqlite).await;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).expect("no file is there");
    file.write_all(bytes).expect("room for it");
}

async fn migrated_sqlite() -> Vec<u8> {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("migrated.db");
    let store = open(Database::Sqlite { path: path.clone() }).await;
    store.close().await.expect("closes");
    let wal = folder.path().join("migrated.db-wal");
    assert!(!wal.exists(), "some of it is still in another file");
    std::fs::read(path).expect("the file")
}

/// The migrated database that others on the private server are copied from. A copy takes as long as an empty
/// database, and the migrations several times as long.
const TEMPLATE_NAME: &str = "broker_test_template";

/// Nobody is connected to a template while it is copied.
async fn make_template(server: &postgres::Server) {
    let make = format!("CREATE DATABASE {TEMPLATE_NAME}");
    execute(&server.url("postgres"), &make).await;
    let store = open(Database::Url(server.url(TEMPLATE_NAME))).await;
    store.close().await.expect("closes");
}

async fn open(database: Database) -> Store {
    let store = Store::connect(database)
        .await
        .expect("a fresh database opens");
    store
        .migrate_up()
        .await
        .expect("a fresh database takes the schema");
    store
}

async fn execute(url: &str, statement: &str) {
    let server = sea_orm::Database::connect(url)
        .await
        .expect("PostgreSQL answers");
    server.execute_unprepared(statement).await.expect(statement);
    server.close().await.expect("closes");
}

/// Runs a raw statement, to see whether the database itself refuses it.
///
/// # Errors
/// The database's error, in words.
pub async fn execute_raw(store: &Store, statement: &str) -> Result<(), String> {
    store
        .write
        .execute_unprepared(statement)
        .await
        .map(|_| ())
        .map_err(|no| no.to_string())
}

/// Claims this reservation, due or not, unless another worker has it or it is closed.
///
/// # Errors
/// As [`Work::claim_due`](crate::work::Work::claim_due).
pub async fn claim_one(
    store: &Store,
    id: ReservationId,
    token: ClaimToken,
    now: DateTime<Utc>,
    ttl_seconds: u32,
) -> Result<Option<Claimed>, StoreError> {
    let this = Condition::all()
        .add(Column::Id.eq(Text(id)))
        .add(Column::State.ne("closed"));
    let work = store.work();
    Ok(work.claim(this, token, now, ttl_seconds, 1).await?.pop())
}

/// How many rows a table has.
///
/// # Panics
/// When there is no such table.
pub async fn count_rows(store: &Store, table: &str) -> i64 {
    let sql = format!("SELECT COUNT(*) AS n FROM {table}");
    let statement = sea_orm::Statement::from_string(store.read.get_database_backend(), sql);
    let row = store
        .read
        .query_one_raw(statement)
        .await
        .expect("counts")
        .expect("a row");
    row.try_get("", "n").expect("a number")
}

/// Table and name of every column of the schema.
///
/// # Panics
/// When the schema cannot be read.
pub async fn columns(store: &Store) -> Vec<(String, String)> {
    let sql = match store.read.get_database_backend() {
        sea_orm::DbBackend::Postgres => {
            "SELECT table_name AS t, column_name AS c FROM information_schema.columns
             WHERE table_schema = current_schema()"
        }
        _ => {
            "SELECT m.name AS t, p.name AS c FROM sqlite_master m, pragma_table_info(m.name) p
             WHERE m.type = 'table'"
        }
    };
    let statement = sea_orm::Statement::from_string(store.read.get_database_backend(), sql);
    let rows = store.read.query_all_raw(statement).await.expect("lists");
    rows.into_iter()
        .map(|row| {
            let text = |name| row.try_get::<String>("", name).expect("a name");
            (text("t"), text("c"))
        })
        .collect()
}

/// The whole contents of the database, as text: table, name and values of every column.
///
/// # Panics
/// When it cannot be read.
pub async fn contents(store: &Store) -> Vec<(String, String, String)> {
    let backend = store.read.get_database_backend();
    let mut found = Vec::new();
    for (table, column) in columns(store).await {
        let sql = match backend {
            sea_orm::DbBackend::Postgres => {
                format!("SELECT CAST(\"{column}\" AS TEXT) AS v FROM {table}")
            }
            _ => format!("SELECT quote(\"{column}\") AS v FROM {table}"),
        };
        let statement = sea_orm::Statement::from_string(backend, sql);
        let rows = store.read.query_all_raw(statement).await.expect("reads");
        let values = rows.into_iter().map(|row| {
            let value = row.try_get::<Option<String>>("", "v").expect("a text");
            value.unwrap_or_default() + "\n"
        });
        found.push((table, column, values.collect()));
    }
    found
}
