//! API keys of tenants.

use std::collections::BTreeSet;

use market::identity::{Role, Scopes};
use market::ids::{ApiKeyId, PrincipalId, ProjectId, ProviderId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "api_keys")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<ApiKeyId>,
    pub tenant_id: Text<TenantId>,
    pub name: String,
    pub role: Word<Role>,
    pub scopes: Json<Scopes>,
    pub prefix: String,
    pub hash: String,
    pub created_at: Moment,
    pub expires_at: Option<Moment>,
    pub last_used_at: Option<Moment>,
    pub revoked_at: Option<Moment>,
    pub principal_id: Option<Text<PrincipalId>>,
    pub replaced_by: Option<Text<ApiKeyId>>,
    pub projects: Option<Json<BTreeSet<ProjectId>>>,
    pub made_by: Option<Text<PrincipalId>>,
    pub provider_id: Option<Text<ProviderId>>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
