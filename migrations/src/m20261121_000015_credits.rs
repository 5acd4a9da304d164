//! Credits given to tenants, and the kind of transaction that books them.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, string_len};
use sea_orm_migration::sea_orm::DbBackend;

use crate::append_only;
use crate::columns::{id, moment, one_of, word};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const KINDS_BEFORE: &[&str] = &["charge", "provider_cost"];
const KINDS: &[&str] = &["charge", "provider_cost", "credit"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        append_only::lift(manager, "transactions").await?;
        allow_kinds(manager, KINDS).await?;
        append_only::protect(manager, "transactions").await?;
        manager.create_table(credits()).await?;
        let by_tenant = Index::create()
            .name("credits_tenant")
            .table("credits")
            .col("tenant_id")
            .col("id")
            .to_owned();
        manager.create_index(by_tenant).await?;
        append_only::protect(manager, "credits").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .drop_table(Table::drop().table("credits").to_owned())
            .await?;
        append_only::forget(manager, "credits").await?;
        for table in ["postings", "transactions"] {
            append_only::lift(manager, table).await?;
        }
        let booked = "SELECT id FROM transactions WHERE kind = 'credit'";
        let unbook = format!(
            "DELETE FROM postings WHERE transaction_id IN ({booked});
             DELETE FROM transactions WHERE kind = 'credit';"
        );
        manager.get_connection().execute_unprepared(&unbook).await?;
        allow_kinds(manager, KINDS_BEFORE).await?;
        for table in ["transactions", "postings"] {
            append_only::protect(manager, table).await?;
        }
        Ok(())
    }
}

/// Changes which kinds a transaction may have.
async fn allow_kinds(manager: &SchemaManager<'_>, kinds: &[&str]) -> Result<(), DbErr> {
    let database = manager.get_connection();
    if manager.get_database_backend() == DbBackend::Postgres {
        let words = kinds.join("', '");
        let statement = format!(
            "ALTER TABLE transactions DROP CONSTRAINT transactions_kind_check;
             ALTER TABLE transactions ADD CONSTRAINT transactions_kind_check
             CHECK (kind IN ('{words}'));"
        );
        database.execute_unprepared(&statement).await?;
        return Ok(());
    }
    // SQLite changes no check: the table is made anew around its rows. What refers to them is
    // checked when the migration commits, and they are all there again by then.
    let set_aside = "PRAGMA defer_foreign_keys = ON;
         CREATE TABLE transactions_kept AS SELECT * FROM transactions;
         DROP TABLE transactions;";
    database.execute_unprepared(set_aside).await?;
    manager.create_table(transactions(kinds)).await?;
    let put_back = "INSERT INTO transactions SELECT * FROM transactions_kept;
         DROP TABLE transactions_kept;";
    database.execute_unprepared(put_back).await?;
    Ok(())
}

fn transactions(kinds: &[&str]) -> TableCreateStatement {
    Table::create()
        .table("transactions")
        .col(id("id").primary_key())
        .col(string_len("idempotency_key", 255).unique_key())
        .col(word("kind"))
        .col(moment("effective_at"))
        .col(moment("posted_at"))
        .check(one_of("kind", kinds))
        .to_owned()
}

fn credits() -> TableCreateStatement {
    Table::create()
        .table("credits")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(big_integer("amount_units"))
        .col(word("currency"))
        .col(string_len("reason", 200))
        .col(id("granted_by"))
        .col(moment("granted_at"))
        .check(Expr::cust("amount_units > 0"))
        .foreign_key(
            ForeignKey::create()
                .from("credits", "tenant_id")
                .to("tenants", "id"),
        )
        .to_owned()
}
