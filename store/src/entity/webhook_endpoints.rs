//! Where tenants want their events sent.

use market::event::EventType;
use market::ids::{TenantId, WebhookEndpointId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};
use crate::webhooks::DisabledReason;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "webhook_endpoints")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<WebhookEndpointId>,
    pub tenant_id: Text<TenantId>,
    pub url: String,
    pub description: String,
    pub event_types: Json<Vec<EventType>>,
    pub enabled: bool,
    pub disabled_reason: Option<Word<DisabledReason>>,
    pub sealed_secret: Option<Vec<u8>>,
    pub sealed_previous_secret: Option<Vec<u8>>,
    pub previous_until: Option<Moment>,
    pub failing_since: Option<Moment>,
    pub created_at: Moment,
    pub deleted_at: Option<Moment>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
