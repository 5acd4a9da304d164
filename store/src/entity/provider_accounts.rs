//! Tenants' agreements with providers.

use market::capacity::BookPrice;
use market::ids::{ProviderAccountId, ProviderId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "provider_accounts")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<ProviderAccountId>,
    pub tenant_id: Text<TenantId>,
    pub name: String,
    pub provider_id: Text<ProviderId>,
    pub prices: Json<Vec<BookPrice>>,
    pub created_at: Moment,
    pub withdrawn_at: Option<Moment>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
