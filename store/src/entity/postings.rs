//! Legs of the ledger's transactions, appended.

use market::ids::TransactionId;
use market::ledger::{Account, LedgerUnit};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::Text;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "postings")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub transaction_id: Text<TransactionId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub leg: i32,
    pub account: Text<Account>,
    pub unit: Text<LedgerUnit>,
    pub amount: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
