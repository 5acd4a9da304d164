//! Reservations.

use market::demand::{Ceiling, Demand, DemandKind};
use market::ids::{BudgetId, PlanId, PrincipalId, ProjectId, QuoteId, ReservationId, TenantId};
use market::quote::QuoteLine;
use market::reservation::CloseReason;
use market::tags::{Attribution, Tags};
use market::verification::Level;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};
use crate::reservations::{Notices, RequestedAction};
use crate::work::ClaimToken;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "reservations")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<ReservationId>,
    pub tenant_id: Text<TenantId>,
    pub project_id: Text<ProjectId>,
    pub name: String,
    pub kind: Word<DemandKind>,
    pub state: String,
    pub reason: Option<Word<CloseReason>>,
    pub version: i64,
    pub demand: Json<Demand>,
    pub plan_id: Text<PlanId>,
    pub quote_id: Text<QuoteId>,
    pub lines: Json<Vec<QuoteLine>>,
    pub gang: bool,
    pub ceiling: Option<Json<Ceiling>>,
    pub ssh_public_keys: Json<Vec<String>>,
    pub tags: Json<Tags>,
    pub attribution: Json<Attribution>,
    pub window_end: Option<Moment>,
    pub hold_expires_at: Moment,
    pub created_at: Moment,
    pub confirmed_at: Option<Moment>,
    pub active_at: Option<Moment>,
    pub closed_at: Option<Moment>,
    pub wish: Word<RequestedAction>,
    pub wish_at: Option<Moment>,
    pub due_at: Option<Moment>,
    pub nudges: i64,
    pub claim_token: Option<Text<ClaimToken>>,
    pub claim_expires_at: Option<Moment>,
    pub last_error: Option<String>,
    pub created_by: Option<Text<PrincipalId>>,
    pub stopped_by: Option<Text<BudgetId>>,
    /// `None`, as is the next: a row of a release that did not count it.
    pub gpus: Option<i64>,
    pub units_per_hour: Option<i64>,
    /// `None`: a row of a release that had only `standard`.
    pub verification: Option<Word<Level>>,
    pub starts_at: Option<Moment>,
    pub ends_at: Option<Moment>,
    pub follows: Option<Text<ReservationId>>,
    pub staging_seconds: Option<i64>,
    pub notices: Option<Json<Notices>>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
