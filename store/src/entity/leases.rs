//! Leases.

use market::ids::{LeaseId, OfferId, ProviderId, ReservationId, TenantId};
use market::lease::{LeaseEvent, LeaseState};
use market::money::Currency;
use market::offer::Offer;
use market::order::{ClientToken, ProviderNode};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "leases")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<LeaseId>,
    pub reservation_id: Text<ReservationId>,
    pub tenant_id: Text<TenantId>,
    pub line: i32,
    pub provider_id: Text<ProviderId>,
    pub offer_id: Text<OfferId>,
    pub offer: Json<Offer>,
    pub nodes: i32,
    pub node_base: i32,
    pub state: Word<LeaseState>,
    pub client_token: Text<ClientToken>,
    pub provider_lease_id: Option<String>,
    pub provider_nodes: Json<Vec<ProviderNode>>,
    pub attempts: i32,
    pub requested_at: Moment,
    pub accepted_at: Option<Moment>,
    pub started_at: Option<Moment>,
    pub up_at: Option<Moment>,
    pub verify_deadline: Option<Moment>,
    pub handed_off_at: Option<Moment>,
    pub metered_to: Option<Moment>,
    pub release_accepted_at: Option<Moment>,
    pub gone_at: Option<Moment>,
    pub fell_at: Option<Moment>,
    pub fall_reason: Option<Word<LeaseEvent>>,
    pub fall_note: Option<String>,
    pub replaces: Option<Text<LeaseId>>,
    pub replaced_by: Option<Text<LeaseId>>,
    pub given_up: bool,
    pub price_units: Option<i64>,
    pub price_currency: Option<Text<Currency>>,
    pub missing_since: Option<Moment>,
    pub lacked_since: Option<Moment>,
    pub seen_credential: Option<String>,
    pub returned_at: Option<Moment>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
