//! Reservations that start later: the state `scheduled`, the start and the latest end as columns, the run after
//! which a fleet starts, and the notices that its tenant got.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::big_integer_null;
use sea_orm_migration::sea_orm::{ConnectionTrait, DbBackend, Statement};

use crate::columns::{document_null, id_null, moment_null};
use crate::tables::create_indexes;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

/// The fleets that start after a run.
const FOLLOWERS: &str = "reservations_followers";

/// The first states in the check of the column, before and after.
const OLD_STATES: &str = "'held', 'confirmed'";
const NEW_STATES: &str = "'held', 'scheduled', 'confirmed'";
/// The states that follow in it.
const LATER_STATES: &str =
    "'provisioning', 'replacing', 'handing_off', 'active', 'repairing', 'releasing', 'closed'";

fn columns() -> [(&'static str, ColumnDef); 8] {
    [
        // `NULL`: from its confirmation on.
        ("quotes", moment_null("starts_at")),
        // The quote of the run.
        ("quotes", id_null("follows")),
        ("quotes", big_integer_null("staging_seconds")),
        ("reservations", moment_null("starts_at")),
        // An upper bound; `NULL`: open, or a row of a release that did not keep it.
        ("reservations", moment_null("ends_at")),
        // The reservation of the run.
        ("reservations", id_null("follows")),
        ("reservations", big_integer_null("staging_seconds")),
        ("reservations", document_null("notices")),
    ]
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for (table, column) in columns() {
            let add = Table::alter().table(table).add_column(column).to_owned();
            manager.alter_table(add).await?;
        }
        states(manager, OLD_STATES, NEW_STATES).await?;
        create_indexes(manager, &[(FOLLOWERS, "reservations", &["follows"][..])]).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let waiting = Query::select()
            .expr(Expr::cust("1"))
            .from("reservations")
            .and_where(Expr::cust(
                "starts_at IS NOT NULL AND active_at IS NULL AND state <> 'closed'",
            ))
            .limit(1)
            .to_owned();
        let connection = manager.get_connection();
        if connection.query_one(&waiting).await?.is_some() {
            let why = "some reservations start later, which the older release does not know; cancel them or wait \
                       for their hand-off";
            return Err(DbErr::Custom(why.to_owned()));
        }
        let drop = Index::drop()
            .name(FOLLOWERS)
            .table("reservations")
            .to_owned();
        manager.drop_index(drop).await?;
        states(manager, NEW_STATES, OLD_STATES).await?;
        for (table, column) in columns() {
            let drop = Table::alter()
                .table(table)
                .drop_column(column.get_column_name())
                .to_owned();
            manager.alter_table(drop).await?;
        }
        Ok(())
    }
}

/// Exchanges the first words in the check of the states.
///
/// SQLite cannot alter a check; its documentation lets the text of the table be edited where no row is
/// affected, and the number of the schema be counted up, so that every connection reads it again.
async fn states(manager: &SchemaManager<'_>, from: &str, to: &str) -> Result<(), DbErr> {
    let connection = manager.get_connection();
    if manager.get_database_backend() == DbBackend::Postgres {
        let alter = format!(
            "ALTER TABLE reservations DROP CONSTRAINT reservations_state_check;
             ALTER TABLE reservations ADD CONSTRAINT reservations_state_check CHECK (state IN ({to}, {LATER_STATES}))"
        );
        return connection.execute_unprepared(&alter).await.map(|_| ());
    }
    let number = async |query: &str| {
        let asked = Statement::from_string(DbBackend::Sqlite, query);
        let row = connection.query_one_raw(asked).await?;
        let number = row.map(|row| row.try_get_by_index::<i64>(0));
        Ok::<_, DbErr>(number.transpose()?.unwrap_or_default())
    };
    let version = number("PRAGMA schema_version").await? + 1;
    let quoted = |words: &str| words.replace('\'', "''");
    let (from, to) = (quoted(from), quoted(to));
    let edit = format!(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, '{from}', '{to}')
             WHERE type = 'table' AND name = 'reservations' AND instr(sql, '{from}') > 0"
    );
    let edited = connection.execute_unprepared(&edit).await;
    let changed = number("SELECT changes()").await;
    let close = format!("PRAGMA schema_version = {version}; PRAGMA writable_schema = OFF");
    connection.execute_unprepared(&close).await?;
    edited?;
    match changed? {
        1 => Ok(()),
        _ => Err(DbErr::Custom(
            "the check of the states of the table `reservations` is not the one that was made"
                .to_owned(),
        )),
    }
}
