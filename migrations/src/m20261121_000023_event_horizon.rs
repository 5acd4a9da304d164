//! Up to which number each tenant's events were let go. Behind it they may be deleted, and nowhere
//! else; webhook deliveries are found by age and by event for the same work.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::big_integer;
use sea_orm_migration::sea_orm::DbBackend;

use crate::append_only;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const INDEXES: [(&str, &str); 2] = [
    ("webhook_deliveries_created", "created_at"),
    ("webhook_deliveries_of_event", "event_id"),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let mut horizon = big_integer("pruned_through").default(0).take();
        let add = Table::alter()
            .table("event_counters")
            .add_column(&mut horizon)
            .to_owned();
        manager.alter_table(add).await?;
        for (name, column) in INDEXES {
            let index = Index::create()
                .name(name)
                .table("webhook_deliveries")
                .col(column)
                .to_owned();
            manager.create_index(index).await?;
        }
        let statements = match manager.get_database_backend() {
            DbBackend::Postgres => {
                "DROP TRIGGER events_no_change ON events;
                 CREATE TRIGGER events_no_change BEFORE UPDATE ON events
                 FOR EACH ROW EXECUTE FUNCTION events_is_append_only();
                 CREATE FUNCTION events_are_let_go() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                   IF NOT EXISTS (SELECT 1 FROM event_counters c
                     WHERE c.tenant_id = OLD.tenant_id AND c.pruned_through >= OLD.sequence)
                   THEN RAISE EXCEPTION 'events is append-only'; END IF;
                   RETURN OLD;
                 END $$;
                 CREATE TRIGGER events_no_delete BEFORE DELETE ON events
                 FOR EACH ROW EXECUTE FUNCTION events_are_let_go();"
            }
            _ => {
                "DROP TRIGGER events_no_delete;
                 CREATE TRIGGER events_no_delete BEFORE DELETE ON events
                 WHEN NOT EXISTS (SELECT 1 FROM event_counters c
                   WHERE c.tenant_id = OLD.tenant_id AND c.pruned_through >= OLD.sequence)
                 BEGIN SELECT RAISE(ABORT, 'events is append-only'); END;"
            }
        };
        manager
            .get_connection()
            .execute_unprepared(statements)
            .await?;
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        if manager.get_database_backend() == DbBackend::Postgres {
            let statements = "DROP TRIGGER events_no_delete ON events;
                 DROP FUNCTION events_are_let_go();";
            manager
                .get_connection()
                .execute_unprepared(statements)
                .await?;
        }
        append_only::lift(manager, "events").await?;
        append_only::protect(manager, "events").await?;
        for (name, _) in INDEXES {
            let index = Index::drop()
                .name(name)
                .table("webhook_deliveries")
                .to_owned();
            manager.drop_index(index).await?;
        }
        let drop = Table::alter()
            .table("event_counters")
            .drop_column("pruned_through")
            .to_owned();
        manager.alter_table(drop).await
    }
}
