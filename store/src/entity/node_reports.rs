//! Tenants' reports on nodes that they have in use.

use market::attestation::{FindingCode, Verdict};
use market::ids::{LeaseId, NodeReportId, PrincipalId, ReservationId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};
use crate::node_reports::Follows;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "node_reports")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<NodeReportId>,
    pub tenant_id: Text<TenantId>,
    pub reservation_id: Text<ReservationId>,
    pub lease_id: Text<LeaseId>,
    pub node: i32,
    pub reported_by: Text<PrincipalId>,
    #[sea_orm(column_type = "Text", nullable)]
    pub reason: Option<String>,
    pub verdict: Option<Word<Verdict>>,
    pub failed: Json<Vec<FindingCode>>,
    pub missing: Json<Vec<String>>,
    pub foreign_gpus: Option<Json<Vec<String>>>,
    pub result: Option<Json<serde_json::Value>>,
    pub follows: Word<Follows>,
    pub reported_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
