//! Creates the tables and indexes of a migration, and drops them.

use sea_orm_migration::SchemaManager;
use sea_orm_migration::prelude::{
    DbErr, ForeignKey, ForeignKeyCreateStatement, Index, Table, TableCreateStatement,
};

/// Name, table and columns of an index.
pub(crate) type IndexOf<'a> = (&'static str, &'static str, &'a [&'static str]);

/// Creates tables in this order.
pub(crate) async fn create_tables(
    manager: &SchemaManager<'_>,
    tables: impl IntoIterator<Item = TableCreateStatement>,
) -> Result<(), DbErr> {
    for table in tables {
        manager.create_table(table).await?;
    }
    Ok(())
}

/// Creates indexes that allow equal rows.
pub(crate) async fn create_indexes(
    manager: &SchemaManager<'_>,
    indexes: &[IndexOf<'_>],
) -> Result<(), DbErr> {
    for (name, table, columns) in indexes {
        let mut index = Index::create();
        index.name(*name).table(*table);
        for column in *columns {
            index.col(*column);
        }
        manager.create_index(index).await?;
    }
    Ok(())
}

/// Creates an index that refuses equal rows.
pub(crate) async fn create_unique(
    manager: &SchemaManager<'_>,
    (name, table, columns): IndexOf<'_>,
) -> Result<(), DbErr> {
    let mut index = Index::create();
    index.unique().name(name).table(table);
    for column in columns {
        index.col(*column);
    }
    manager.create_index(index).await
}

/// Drops tables in this order, with their indexes and triggers.
pub(crate) async fn drop_tables(
    manager: &SchemaManager<'_>,
    tables: &[&'static str],
) -> Result<(), DbErr> {
    for table in tables {
        let drop = Table::drop().table(*table).to_owned();
        manager.drop_table(drop).await?;
    }
    Ok(())
}

/// A foreign key: `column` of `table` is the id of a row of `parent`.
pub(crate) fn refers(
    table: &'static str,
    column: &'static str,
    parent: &'static str,
) -> ForeignKeyCreateStatement {
    ForeignKey::create()
        .from(table, column)
        .to(parent, "id")
        .to_owned()
}
