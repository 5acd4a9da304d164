//! Checks whether a provider answers: our machines there and the catalogue are read once, and nothing of them
//! is kept.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use adapters::{AdapterError, Refusal};
use chrono::{DateTime, Utc};
use market::catalog::CatalogReading;
use market::ids::ProviderId;
use serde::Serialize;

use crate::flow::ingest::gate;
use crate::platform::provider_set::ProviderLink;

/// How long both may take together. An idempotency key can be taken over after a minute, so a caller that
/// waits for this must be done well before.
const PATIENCE: Duration = Duration::from_secs(25);

/// The kind of a provider's trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckTrouble {
    /// It does not take the credential, or the account is not in order.
    CredentialRefused,
    /// It refused for another reason.
    Refused,
    /// It accepts no more calls at present.
    RateLimited,
    /// It did not answer, or not in time.
    Unreachable,
    /// Its answer does not follow its interface.
    Unreadable,
    /// Some of its catalogue could not be read.
    Incomplete,
    /// Its catalogue holds nothing that can be sold.
    Empty,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct CheckedProvider {
    /// The provider.
    pub id: ProviderId,
    /// Whether the broker would accept its catalogue as it was read.
    pub ok: bool,
    /// The trouble; `null` where there is none.
    pub trouble: Option<CheckTrouble>,
    /// The trouble in words; `null` where there is none.
    pub detail: Option<String>,
    /// The number of machines of our account there, others' machines included; `null` where it could not be
    /// read. Catalogues of some providers are open to everybody, so this reading is the proof of the
    /// credential.
    #[schema(minimum = 0, maximum = 4_294_967_295_u64)]
    pub machines: Option<usize>,
    /// Offers in the catalogue.
    #[schema(minimum = 0, maximum = 4_294_967_295_u64)]
    pub offers: usize,
    /// The number of them that are available now.
    #[schema(minimum = 0, maximum = 4_294_967_295_u64)]
    pub in_stock: usize,
    /// Records of the catalogue that are no offer, by reason.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub skipped_by_reason: BTreeMap<String, u64>,
    /// How long it took. Units: milliseconds.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub elapsed_ms: u64,
}

/// Reads once our account's machines at a provider and its catalogue, as the service would, and keeps nothing
/// of it.
pub async fn check(link: &ProviderLink, now: DateTime<Utc>) -> CheckedProvider {
    let began = Instant::now();
    let mut machines = None;
    let read = async {
        machines = Some(link.adapter.list_leases(&link.http).await?.len());
        link.adapter.read_catalog(&link.http, now).await
    };
    let read = tokio::time::timeout(PATIENCE, read).await;
    let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let checked = CheckedProvider {
        machines,
        id: link.adapter.profile().provider_id(),
        ok: false,
        trouble: None,
        detail: None,
        offers: 0,
        in_stock: 0,
        skipped_by_reason: BTreeMap::new(),
        elapsed_ms,
    };
    match read {
        Ok(Ok(reading)) => checked.with(&gate::admit(reading)),
        Ok(Err(error)) => checked.amiss(trouble_of(&error), error.to_string()),
        Err(_) => {
            let late = format!("it did not answer within {} s", PATIENCE.as_secs());
            checked.amiss(CheckTrouble::Unreachable, late)
        }
    }
}

impl CheckedProvider {
    /// The provider's message when it rejects the credential; `None` when it accepts it, or does not answer.
    #[must_use]
    pub fn refused_credential(&self) -> Option<&str> {
        let refused = self.trouble == Some(CheckTrouble::CredentialRefused);
        self.detail.as_deref().filter(|_| refused)
    }

    fn amiss(mut self, trouble: CheckTrouble, detail: impl Into<String>) -> Self {
        self.ok = false;
        self.trouble = Some(trouble);
        self.detail = Some(detail.into());
        self
    }

    fn with(mut self, reading: &CatalogReading) -> Self {
        let offers = &reading.offers;
        self.offers = offers.len();
        let in_stock = offers.iter().filter(|one| !one.availability.is_sold_out());
        self.in_stock = in_stock.count();
        for record in &reading.skipped {
            let reason = record.reason.as_str().to_owned();
            *self.skipped_by_reason.entry(reason).or_default() += record.rows;
        }
        if let Some(first) = reading.unread_records().next() {
            let sku = first.sku.as_deref().unwrap_or("a record without a SKU");
            let detail = format!(
                "not all of the catalogue could be read; first {sku}: {}",
                first.why
            );
            return self.amiss(CheckTrouble::Incomplete, detail);
        }
        if offers.is_empty() {
            let nothing = "the catalogue holds nothing that can be sold";
            return self.amiss(CheckTrouble::Empty, nothing);
        }
        self.ok = true;
        self
    }
}

const fn trouble_of(error: &AdapterError) -> CheckTrouble {
    match error {
        AdapterError::Refused {
            refusal: Refusal::Credential,
            ..
        } => CheckTrouble::CredentialRefused,
        AdapterError::RateLimited { .. } => CheckTrouble::RateLimited,
        AdapterError::Unreachable { .. } | AdapterError::OutcomeUnknown { .. } => {
            CheckTrouble::Unreachable
        }
        AdapterError::Unreadable { .. } | AdapterError::BadRecording(_) => CheckTrouble::Unreadable,
        AdapterError::Refused { .. }
        | AdapterError::CannotOrder(_)
        | AdapterError::BadId(_)
        | AdapterError::BadConnection(_) => CheckTrouble::Refused,
    }
}

#[cfg(test)]
mod tests {
    use market::catalog::{SkipReason, Skipped, Unread};

    use super::*;

    fn checked(skipped: Vec<Skipped>) -> CheckedProvider {
        let provider = ProviderId::parse("lambda").expect("an id");
        let blank = CheckedProvider {
            id: provider.clone(),
            ok: false,
            trouble: None,
            detail: None,
            machines: Some(0),
            offers: 0,
            in_stock: 0,
            skipped_by_reason: BTreeMap::new(),
            elapsed_ms: 1,
        };
        blank.with(&CatalogReading {
            provider,
            read_at: DateTime::UNIX_EPOCH,
            offers: Vec::new(),
            skipped,
            unread: Unread::Nothing,
        })
    }

    #[test]
    fn a_catalogue_that_is_empty_or_not_readable_is_not_well() {
        let unreadable = Skipped {
            file: None,
            row: None,
            rows: 1,
            sku: Some("gpu_8x_odd".into()),
            reason: SkipReason::Unreadable,
            why: "no price".into(),
        };
        for (skipped, trouble, words) in [
            (vec![], CheckTrouble::Empty, "nothing that can be sold"),
            (
                vec![unreadable],
                CheckTrouble::Incomplete,
                "gpu_8x_odd: no price",
            ),
        ] {
            let found = checked(skipped);
            assert_eq!((found.ok, found.trouble), (false, Some(trouble)));
            assert!(found.detail.is_some_and(|detail| detail.contains(words)));
        }
    }
}
