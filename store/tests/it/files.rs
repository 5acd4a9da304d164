use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use store::fixture::TestDatabase;
use store::{Database, Store, StoreError};

/// The database, and the files that SQLite keeps beside it.
fn files(database: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|beside| {
        let mut name = OsString::from(database);
        name.push(beside);
        name.into()
    })
}

fn rights(database: &Path) -> [u32; 3] {
    files(database).map(|file| {
        let found = fs::metadata(&file).expect("it is there");
        found.permissions().mode() & 0o777
    })
}

#[tokio::test]
async fn only_its_owner_reads_the_file_of_a_database_and_those_beside_it() {
    let test = TestDatabase::sqlite().await;
    let Database::Sqlite { path } = &test.database else {
        panic!("SQLite")
    };
    let path = &path.with_file_name("new.db");
    let database = Database::Sqlite { path: path.clone() };
    let new = Store::connect(database.clone()).await.expect("is made");
    new.migrate_up().await.expect("takes the schema");
    assert_eq!(rights(path), [0o600; 3], "of a new one");
    for file in files(path) {
        fs::set_permissions(file, Permissions::from_mode(0o664)).expect("changed");
    }
    let again = Store::connect(database).await.expect("opens");
    assert_eq!(rights(path), [0o600; 3], "of one that was open to others");
    again.ping().await.expect("answers");
    again.close().await.expect("closes");
    new.close().await.expect("closes");
    test.remove().await;
}

#[tokio::test]
async fn a_file_that_is_no_database_is_named_once_with_why() {
    let test = TestDatabase::sqlite().await;
    let Database::Sqlite { path } = &test.database else {
        panic!("SQLite")
    };
    let directory = path.with_file_name("directory");
    fs::create_dir(&directory).expect("a directory");
    let nowhere = path.with_file_name("nowhere").join("broker.db");
    for (path, why) in [
        (directory, "unable to open database file"),
        (nowhere, "No such file or directory"),
    ] {
        let shown = path.display().to_string();
        let refused = Store::connect(Database::Sqlite { path }).await;
        let refused = refused.expect_err("nothing to open");
        assert!(
            matches!(refused, StoreError::Unopened { .. }),
            "{refused:?}"
        );
        let words = refused.to_string();
        for said in [shown.as_str(), why] {
            assert_eq!(words.matches(said).count(), 1, "{words}");
        }
    }
    test.remove().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named_at_once_without_user_and_password() {
    // A port without a listener: it was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = free.local_addr().expect("an address");
    drop(free);
    let url = format!("postgres://robin:canary@{at}/books");
    let refused = Store::connect(Database::Url(url)).await;
    let words = refused.expect_err("nobody there").to_string();
    for said in [at.to_string().as_str(), "`books`", "refused"] {
        assert_eq!(words.matches(said).count(), 1, "{words}");
    }
    assert!(
        !words.contains("robin") && !words.contains("canary"),
        "{words}"
    );
}

#[tokio::test]
async fn a_server_that_refuses_a_user_or_has_no_such_database_is_not_quoted() {
    let Some(test) = TestDatabase::postgres().await else {
        return;
    };
    let Database::Url(url) = &test.database else {
        panic!("PostgreSQL")
    };
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let (server, name) = address.rsplit_once('/').expect("a database");
    let (scheme, host) = server.split_once("://").expect("a URL");
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let other = format!("{server}/no_such_database?{options}");
    let robin = format!("{scheme}://robin_the_unknown:canary@{host}/{name}?{options}");
    for (url, why) in [
        (other, "it has no such database"),
        (robin, "it refuses the user or the password"),
    ] {
        let refused = Store::connect(Database::Url(url)).await;
        let words = refused.expect_err("refused").to_string();
        assert!(
            words.contains(why) && words.contains("PostgreSQL at "),
            "{words}"
        );
        assert!(
            !words.contains("robin") && !words.contains("canary"),
            "{words}"
        );
    }
    test.remove().await;
}
