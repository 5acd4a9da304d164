//! Plans and the quotes made from them.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::big_integer;

use crate::columns::{document, id, id_null, moment, one_of, word};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(plans()).await?;
        manager.create_table(quotes()).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in ["quotes", "plans"] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        Ok(())
    }
}

fn plans() -> TableCreateStatement {
    Table::create()
        .table("plans")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(document("demand"))
        .col(big_integer("generation"))
        .col(document("candidates"))
        .col(document("rejections"))
        .col(moment("created_at"))
        .foreign_key(
            ForeignKey::create()
                .from("plans", "tenant_id")
                .to("tenants", "id"),
        )
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
        .foreign_key(
            ForeignKey::create()
                .from("quotes", "tenant_id")
                .to("tenants", "id"),
        )
        .foreign_key(
            ForeignKey::create()
                .from("quotes", "plan_id")
                .to("plans", "id"),
        )
        .to_owned()
}
