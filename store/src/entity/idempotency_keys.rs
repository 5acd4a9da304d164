//! Idempotency keys of tenants.

use market::ids::TenantId;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "idempotency_keys")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub tenant_id: Text<TenantId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    pub method_path: String,
    pub body_hash: String,
    pub state: String,
    pub attempt: i64,
    pub status: Option<i32>,
    pub body: Option<String>,
    pub started_at: Moment,
    pub expires_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
