//! Providers, and the state of their catalogues.

use market::catalog::Skipped;
use market::ids::ProviderId;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "providers")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<ProviderId>,
    pub enabled: bool,
    pub base_url: Option<String>,
    pub created_at: Moment,
    pub last_attempt_at: Option<Moment>,
    pub last_read_at: Option<Moment>,
    pub last_complete_at: Option<Moment>,
    pub stale_reason: Option<String>,
    pub last_generation: Option<i64>,
    pub live_offers: i32,
    pub skipped: Json<Vec<Skipped>>,
    pub sealed_credential: Option<Vec<u8>>,
    pub credential_hint: Option<String>,
    pub credential_set_at: Option<Moment>,
    pub quarantine_reason: Option<String>,
    pub quarantined_at: Option<Moment>,
    pub quarantined_until: Option<Moment>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
