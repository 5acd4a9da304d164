//! The GPUs that were seen in each lease.

use market::attestation::FindingCode;
use market::ids::{LeaseId, OfferId, ProviderId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "gpu_sightings")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub lease_id: Text<LeaseId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub node_index: i32,
    #[sea_orm(primary_key, auto_increment = false)]
    pub uuid: String,
    pub serial: Option<String>,
    pub name: String,
    pub memory_mib: i32,
    pub provider_id: Text<ProviderId>,
    pub offer_id: Text<OfferId>,
    pub failed: Json<Vec<FindingCode>>,
    pub first_seen_at: Moment,
    pub last_seen_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
