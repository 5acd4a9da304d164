//! Offers as last read, including withdrawn ones.

use market::ids::{OfferId, ProviderId};
use market::offer::{AvailabilityLevel, Offer, Tenancy, Terms};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "offers")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<OfferId>,
    pub provider_id: Text<ProviderId>,
    pub gpu: String,
    pub price_units: i64,
    pub currency: String,
    pub terms: Word<Terms>,
    pub tenancy: Word<Tenancy>,
    pub orderable: bool,
    pub level: Word<AvailabilityLevel>,
    pub nodes: Option<i32>,
    pub at_least: bool,
    pub withdrawn: bool,
    pub dated_at: Option<Moment>,
    pub generation: i64,
    pub body: Json<Offer>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
