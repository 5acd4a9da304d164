//! Capacity that tenants have paid for at providers.

use market::capacity::OwnScope;
use market::ids::{CommitmentId, ProviderId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "commitments")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<CommitmentId>,
    pub tenant_id: Text<TenantId>,
    pub name: String,
    pub provider_id: Text<ProviderId>,
    pub scope: Json<OwnScope>,
    pub nodes: i32,
    pub node_hours: Option<i32>,
    pub price_units: i64,
    pub expires_at: Moment,
    pub created_at: Moment,
    pub withdrawn_at: Option<Moment>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
