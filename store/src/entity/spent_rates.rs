//! The sum charged on each line of a reservation at each rate, stored beside the charges.

use market::ids::ReservationId;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::Text;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "spent_rates")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub reservation_id: Text<ReservationId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub line: i32,
    #[sea_orm(primary_key, auto_increment = false)]
    pub rate_units: i64,
    pub gpu_seconds: i64,
    pub amount_units: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
