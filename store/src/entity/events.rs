//! Events, appended.

use market::event::EventType;
use market::ids::{EventId, ReservationId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "events")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<EventId>,
    pub tenant_id: Text<TenantId>,
    pub sequence: i64,
    pub reservation_id: Option<Text<ReservationId>>,
    pub kind: Text<EventType>,
    pub at: Moment,
    pub data: Json<serde_json::Value>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
