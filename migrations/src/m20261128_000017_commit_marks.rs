//! Proof that a write arrived: a mark in each transaction whose outcome we may have to look up, and one row
//! that is written and read back.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, integer};

use crate::columns::{id, moment};
use crate::tables::{create_indexes, create_tables, drop_tables};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let marks = Table::create()
            .table("commit_marks")
            .col(id("id").primary_key())
            .col(moment("at"))
            .to_owned();
        let probe = Table::create()
            .table("write_probe")
            .col(integer("id").primary_key())
            .col(big_integer("writes"))
            .check(Expr::cust("id = 1"))
            .to_owned();
        create_tables(manager, [marks, probe]).await?;
        create_indexes(manager, &[("commit_marks_at", "commit_marks", &["at"])]).await?;
        let first = Query::insert()
            .into_table("write_probe")
            .columns(["id", "writes"])
            .values_panic([1.into(), 0.into()])
            .to_owned();
        manager.execute(first).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["write_probe", "commit_marks"]).await
    }
}
