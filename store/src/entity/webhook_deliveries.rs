//! Events on their way to webhook endpoints.

use market::ids::{EventId, TenantId, WebhookDeliveryId, WebhookEndpointId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text, Word};
use crate::webhooks::DeliveryState;
use crate::work::ClaimToken;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "webhook_deliveries")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<WebhookDeliveryId>,
    pub tenant_id: Text<TenantId>,
    pub endpoint_id: Text<WebhookEndpointId>,
    pub event_id: Text<EventId>,
    pub state: Word<DeliveryState>,
    pub tries: i32,
    pub due_at: Option<Moment>,
    pub claim_token: Option<Text<ClaimToken>>,
    pub claim_expires_at: Option<Moment>,
    pub created_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
