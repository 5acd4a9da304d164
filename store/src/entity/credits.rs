//! Credits given to tenants, appended.

use market::ids::{ApiKeyId, CreditId, TenantId};
use market::money::Currency;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "credits")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<CreditId>,
    pub tenant_id: Text<TenantId>,
    pub amount_units: i64,
    pub currency: Text<Currency>,
    pub reason: String,
    pub granted_by: Text<ApiKeyId>,
    pub granted_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
