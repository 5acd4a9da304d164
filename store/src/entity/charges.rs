//! Charges, appended.

use market::demand::DemandKind;
use market::ids::{LeaseId, ProjectId, ProviderId, ReservationId, TenantId, UsageId};
use market::money::Currency;
use market::tags::{Attribution, Tags};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "charges")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub usage_id: Text<UsageId>,
    pub tenant_id: Text<TenantId>,
    pub project_id: Text<ProjectId>,
    pub reservation_id: Text<ReservationId>,
    pub lease_id: Text<LeaseId>,
    pub line: i32,
    pub provider_id: Text<ProviderId>,
    pub gpu: String,
    pub workload: Word<DemandKind>,
    pub gpus: i32,
    pub from_at: Moment,
    pub to_at: Moment,
    pub gpu_seconds: i64,
    pub rate_units: i64,
    pub amount_units: i64,
    pub currency: Text<Currency>,
    pub tags: Json<Tags>,
    pub attribution: Json<Attribution>,
    pub charged_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
