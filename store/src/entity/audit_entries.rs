//! Entries of the audit log. Their columns are plain text, so that an altered row is still read, and found by
//! its hash.

use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::Moment;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "audit_entries")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub seq: i64,
    pub at: Moment,
    pub principal_id: Option<String>,
    pub own_tenant_id: Option<String>,
    pub role: Option<String>,
    pub credential: String,
    pub key_prefix: Option<String>,
    pub issuer: Option<String>,
    pub subject: Option<String>,
    pub operation: String,
    pub target: Option<String>,
    pub outcome: String,
    pub status: Option<i32>,
    pub code: Option<String>,
    pub peer: Option<String>,
    pub request_id: Option<String>,
    pub previous: String,
    pub hash: String,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
