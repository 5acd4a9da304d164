//! Credits: an amount that a tenant need not pay, granted by the operator for a reason.
//!
//! A credit changes no charge: what was sold stays sold at the quoted rate. How it is booked is in
//! `pricing`; keeping it is the store's business.

use chrono::{DateTime, Utc};

use crate::ids::{ApiKeyId, CreditId, TenantId};
use crate::money::{Currency, Money};

/// The most that one credit gives. Units: USD 1e-8; a million dollars.
const MOST_UNITS: i64 = 100_000_000_000_000;
/// The longest reason. Units: characters.
pub const MAX_REASON_CHARS: usize = 200;

/// A credit given to a tenant. Only [`Credit::try_new`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credit {
    /// Its id.
    pub id: CreditId,
    /// The tenant that need not pay it.
    pub tenant_id: TenantId,
    /// How much, above zero.
    pub amount: Money,
    /// The reason, in words that the tenant also reads.
    pub reason: String,
    /// The key of the administrator who gave it.
    pub granted_by: ApiKeyId,
    /// When.
    pub granted_at: DateTime<Utc>,
}

/// Why something is no credit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreditRefusal {
    /// An amount that is not positive, or is more than one credit may give.
    #[error("a credit is above 0 and at most 1000000 {currency}, not {0}", currency = .0.currency())]
    Amount(Money),
    /// A reason that is empty or cannot be shown.
    #[error("a credit has a reason of 1 to {MAX_REASON_CHARS} printable characters")]
    Reason,
}

impl Credit {
    /// A credit of this amount, for this reason.
    ///
    /// Errors: [`CreditRefusal`].
    pub fn try_new(
        id: CreditId,
        tenant_id: TenantId,
        amount: Money,
        reason: String,
        granted_by: ApiKeyId,
        granted_at: DateTime<Utc>,
    ) -> Result<Self, CreditRefusal> {
        let most = Money::from_units(MOST_UNITS, Currency::Usd);
        if !amount.is_positive() || amount > most {
            return Err(CreditRefusal::Amount(amount));
        }
        let is_said = !reason.trim().is_empty()
            && reason.chars().count() <= MAX_REASON_CHARS
            && !reason.chars().any(char::is_control);
        if !is_said {
            return Err(CreditRefusal::Reason);
        }
        Ok(Self {
            id,
            tenant_id,
            amount,
            reason,
            granted_by,
            granted_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn credit(units: i64, reason: &str) -> Result<Credit, CreditRefusal> {
        Credit::try_new(
            CreditId::from_uuid(Uuid::from_u128(1)),
            TenantId::from_uuid(Uuid::from_u128(2)),
            Money::usd_units(units),
            reason.to_owned(),
            ApiKeyId::from_uuid(Uuid::from_u128(3)),
            DateTime::UNIX_EPOCH,
        )
    }

    #[test]
    fn a_credit_is_above_zero_and_has_a_reason() {
        assert!(credit(1, "a node was slow to come").is_ok());
        assert!(credit(MOST_UNITS, "x").is_ok());
        for units in [0, -1, MOST_UNITS + 1] {
            let refusal = credit(units, "x").expect_err("no credit");
            assert!(matches!(refusal, CreditRefusal::Amount(_)), "{units}");
            assert!(refusal.to_string().contains("1000000 USD"), "{refusal}");
        }
        for reason in ["", "  ", "two\nlines", &"x".repeat(201)] {
            assert_eq!(credit(1, reason), Err(CreditRefusal::Reason), "{reason:?}");
        }
    }
}
