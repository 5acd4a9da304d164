//! Plans and the quotes made from them.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::big_integer;

use crate::columns::{document, document_null, id, id_null, moment, one_of, word};
use crate::tables::{IndexOf, create_indexes, create_tables, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const INDEXES: [IndexOf; 5] = [
    // Lapsed quotes and old plans, which are deleted.
    ("quotes_expiry", "quotes", &["state", "expires_at"]),
    ("plans_age", "plans", &["created_at"]),
    // The database looks here for quotes of a plan that is being deleted.
    ("quotes_plan", "quotes", &["plan_id"]),
    // The newest of a tenant: those beyond the limit are deleted.
    ("plans_of_tenant", "plans", &["tenant_id", "created_at"]),
    (
        "quotes_of_tenant",
        "quotes",
        &["tenant_id", "state", "expires_at"],
    ),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        create_tables(manager, [plans(), quotes()]).await?;
        create_indexes(manager, &INDEXES).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["quotes", "plans"]).await
    }
}

fn plans() -> TableCreateStatement {
    Table::create()
        .table("plans")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        // The projects of the key that asked; NULL: all of the tenant's.
        .col(document_null("projects"))
        .col(document("demand"))
        .col(big_integer("generation"))
        // The plan's inputs, except the offers, which the history has: the plan can be recomputed.
        .col(document_null("decided_from"))
        .col(document("candidates"))
        .col(document("rejections"))
        .col(moment("created_at"))
        .foreign_key(&mut refers("plans", "tenant_id", "tenants"))
        .to_owned()
}

fn quotes() -> TableCreateStatement {
    Table::create()
        .table("quotes")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(id("plan_id"))
        .col(document("lines"))
        .col(word("state"))
        .col(id_null("taken_by"))
        .col(moment("created_at"))
        .col(moment("expires_at"))
        .check(one_of("state", &["open", "taken"]))
        .check(Expr::cust("(state = 'taken') = (taken_by IS NOT NULL)"))
        .foreign_key(&mut refers("quotes", "tenant_id", "tenants"))
        .foreign_key(&mut refers("quotes", "plan_id", "plans"))
        .to_owned()
}
