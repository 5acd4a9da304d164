//! The result of each attempt to deliver an event.

use market::ids::WebhookDeliveryId;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "webhook_attempts")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub delivery_id: Text<WebhookDeliveryId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i32,
    pub at: Moment,
    pub latency_ms: i32,
    pub status: Option<i32>,
    pub answer: Option<String>,
    pub error: Option<String>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
