//! Hyperstack (NexGen Cloud, the interface called Infrahub): virtual machines, one node a lease.
//!
//! The catalogue is a join of three answers. `/core/flavors` has the machines and their regions, `/pricebook`
//! the price of one GPU by the flavor's word for it, and `/core/stocks` how many whole machines of each size
//! can be made now. That word with `-spot` behind it is a product that may be taken back, with a price and a
//! stock of its own. The flag `stock_available` of a flavor was seen to contradict the counts, so nothing
//! follows from it. All sizes of one GPU in one region draw on one stock.
//!
//! A machine lives in an environment of its region. We make one for each region, under a name that never
//! changes; all orders share it. Machines are stopped, started and hibernated by `GET` at this provider: no
//! path of that kind may ever be called from here.
//!
//! Facts and their sources: `fixtures/hyperstack/SOURCE.md`. Orders and machines are in `lease`.

mod lease;
mod price;
mod stock;

use std::collections::HashSet;

use async_trait::async_trait;
use chrono::{DateTime, NaiveDateTime, Utc};
use market::catalog::{CatalogReading, SkipReason};
use market::fabric::Internode;
use market::offer::{Offer, Particulars, Tenancy, Tenure, Terms};
use market::order::{Attachment, LeaseOrder, LeaseRef, ProviderLease};
use rust_decimal::prelude::ToPrimitive;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::price::Pricebook;
use self::stock::Stocks;
use crate::adapter::{Adapter, Capability, MachineChoices, Ports, Profile, Release};
use crate::auth::{Auth, Field};
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http};
use crate::reading::{OfferDraft, Reading, parse};

const PROFILE: Profile = Profile {
    id: "hyperstack",
    name: "Hyperstack",
    default_base_url: "https://infrahub-api.nexgencloud.com/v1",
    auth: Auth::Header("api_key"),
    credential: &[Field {
        name: "api_key",
        variable: "HYPERSTACK_API_KEY",
    }],
    machines: MachineChoices {
        own_images: true,
        // No port is open but those that the order names.
        ports: Ports::AtLaunch,
        ..MachineChoices::NONE
    },
    unsupported: &[
        (
            Capability::Fabric,
            "no network between machines can be ordered, only flavors with faster virtual networking",
        ),
        (
            Capability::IdempotencyKey,
            "a launch takes no key; it is looked up by its name and label",
        ),
    ],
    ..Profile::REST
};

/// The suffix of a GPU's name that makes it a product that may be taken back.
const SPOT: &str = "-spot";

/// The adapter for Hyperstack.
#[derive(Debug)]
pub struct Hyperstack;

#[async_trait]
impl Adapter for Hyperstack {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        let entries: Vec<Value> = body_of(&http.get("/pricebook").await?)?;
        let groups = list_in(http, "/core/flavors", "data").await?;
        let mut reading = Reading::new(&PROFILE, now);
        let (book, unread) = Pricebook::read(&entries, now);
        for rejection in unread {
            reading.record(None, Err(rejection));
        }
        let stocks = list_in(http, "/core/stocks", "stocks").await;
        let stocks = stocks.unwrap_or_else(|error| {
            reading.unread_part("the stock", error);
            Vec::new()
        });
        let mut shelf = Shelf {
            book,
            stocks: Stocks::read(&stocks),
            seen: HashSet::new(),
            now,
        };
        for group in &groups {
            let Some(flavors) = group["flavors"].as_array() else {
                reading.unread_part("a group of flavors", "it has no list of them");
                continue;
            };
            for record in flavors {
                let offer = shelf.convert_flavor(record, group);
                reading.record(record["name"].as_str(), offer.map(|offer| vec![offer]));
            }
        }
        reading.finish()
    }

    async fn request_lease(
        &self,
        http: &Http,
        order: &LeaseOrder,
    ) -> Result<ProviderLease, AdapterError> {
        lease::request(http, order).await
    }

    async fn list_leases(&self, http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
        lease::list(http).await
    }

    async fn read_lease(
        &self,
        http: &Http,
        lease: &LeaseRef,
    ) -> Result<Option<ProviderLease>, AdapterError> {
        lease::read(http, lease).await
    }

    async fn release_lease(&self, http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
        lease::release(http, lease).await
    }

    async fn list_attachments(&self, http: &Http) -> Result<Vec<Attachment>, AdapterError> {
        lease::list_keys(http).await
    }

    async fn remove_attachment(
        &self,
        http: &Http,
        attachment: &Attachment,
    ) -> Result<(), AdapterError> {
        lease::remove_key(http, attachment).await
    }
}

/// The list in this field of an answer.
async fn list_in(http: &Http, path: &str, field: &str) -> Result<Vec<Value>, AdapterError> {
    let answer = http.get(path).await?;
    let mut body: Value = body_of(&answer)?;
    match body.get_mut(field).map(Value::take) {
        Some(Value::Array(records)) => Ok(records),
        _ => Err(answer.unreadable(format!("it has no list `{field}`"))),
    }
}

/// What the records of flavors are joined with.
struct Shelf {
    book: Pricebook,
    stocks: Stocks,
    /// Name and region of every flavor so far.
    seen: HashSet<(String, String)>,
    now: DateTime<Utc>,
}

impl Shelf {
    /// Converts a flavor, which may leave GPU and region to the group that it is listed in.
    fn convert_flavor(&mut self, record: &Value, group: &Value) -> Result<Offer, Rejection> {
        let Flavor { name, gpu_count } = parse(record)?;
        let gpus = gate::gpus(gpu_count)?;
        let [word, region] = ["gpu", "region_name"].map(|field| {
            let words = [&record[field], &group[field]].map(|word| word.as_str().unwrap_or(""));
            words
                .into_iter()
                .find(|word| !word.is_empty())
                .unwrap_or("")
        });
        if region.is_empty() {
            return Err(Rejection::new(SkipReason::NoPlace, "it names no region"));
        }
        if !self.seen.insert((name.clone(), region.to_owned())) {
            let why = format!("it stands twice in {}", gate::shown(region));
            return Err(Rejection::new(SkipReason::ContradictsList, why));
        }
        let model = word.strip_suffix(SPOT).unwrap_or(word);
        let terms = match word != model || name.ends_with(SPOT) {
            true => Terms::Spot,
            false => Terms::OnDemand,
        };
        let gpu_memory_mib = memory_in(model);
        let (gpu, _) = gate::hardware(PROFILE.id, &name, Some(model), gpu_memory_mib)?;
        let ephemeral_gib = whole(&record["ephemeral"]).unwrap_or_default();
        let draft = OfferDraft {
            profile: &PROFILE,
            sku: &name,
            region,
            terms,
            tenancy: Tenancy::Vm,
            internode: Internode::None,
            raw_gpu_name: word,
            gpu,
            gpus,
            gpu_memory_mib,
            vcpus: whole(&record["cpu"]),
            memory_gib: whole(&record["ram"]),
            node_price: self.book.node_price(word, model, gpus)?,
            availability: self.stocks.availability(region, word, gpu_count)?,
            particulars: Particulars {
                stock: Some(self.stocks.stock(region, word)),
                disk_gib: whole(&record["disk"]).and_then(|gib| gib.checked_add(ephemeral_gib)),
                extras: self.book.extras(),
                tenure: Tenure {
                    increment_seconds: 60,
                    ..Tenure::default()
                },
                ..Particulars::default()
            },
        };
        draft.finish(self.now)
    }
}

/// The memory that a word for a GPU names: `H100-80G-PCIe`. Units: MiB.
fn memory_in(model: &str) -> Option<u64> {
    let gib = |part: &str| part.strip_suffix('G')?.parse::<u64>().ok();
    model.split('-').find_map(gib)?.checked_mul(1_024)
}

/// A quantity of a machine, rounded down; zero and everything that cannot be meant are unknown.
fn whole(quantity: &Value) -> Option<u32> {
    let quantity = gate::price(quantity).ok()??;
    quantity.trunc().to_u32().filter(|quantity| *quantity > 0)
}

/// A date and time; one without an offset is in UTC.
fn time(text: &str) -> Option<DateTime<Utc>> {
    let with_offset = DateTime::parse_from_rfc3339(text).ok();
    let naive =
        || NaiveDateTime::parse_from_str(&text.replacen(' ', "T", 1), "%Y-%m-%dT%H:%M:%S%.f");
    with_offset
        .map(|at| at.with_timezone(&Utc))
        .or_else(|| Some(naive().ok()?.and_utc()))
}

/// The body of a success that it does not deny.
fn body_of<T: DeserializeOwned>(answer: &Answer) -> Result<T, AdapterError> {
    accepted(answer)?;
    answer.read(refusal_of)
}

/// Accepts a success with any body, unless the body denies it: `"status": false`.
fn accepted(answer: &Answer) -> Result<(), AdapterError> {
    answer.accepted(refusal_of)?;
    let body = answer.json().unwrap_or_default();
    if body["status"] != false {
        return Ok(());
    }
    let words = body["message"].as_str().unwrap_or("without a reason");
    Err(match refusal_of(answer) {
        // Who knows what was done.
        Refusal::Request => answer.unreadable(format!("a success that is denied: {words}")),
        refusal => AdapterError::Refused {
            refusal,
            status: answer.status(),
            message: answer.without_secrets(words),
        },
    })
}

/// The meaning of a refusal. `error_reason` repeats the status, so the words decide. That for a balance is
/// published; none is for capacity and quota, so those are the usual ones.
fn refusal_of(answer: &Answer) -> Refusal {
    if matches!(answer.status(), 401 | 403) {
        return Refusal::Credential;
    }
    answer.refusal_by_words(&[
        ("balance", Refusal::Credential),
        ("credit", Refusal::Credential),
        ("payment", Refusal::Credential),
        ("billing", Refusal::Credential),
        ("quota", Refusal::Quota),
        ("limit", Refusal::Quota),
        ("stock", Refusal::Capacity),
        ("capacity", Refusal::Capacity),
        ("insufficient", Refusal::Capacity),
        ("not enough", Refusal::Capacity),
        ("available", Refusal::Capacity),
    ])
}

/// What a record must have to be a flavor at all.
#[derive(Debug, Deserialize)]
struct Flavor {
    name: String,
    gpu_count: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_for_a_gpu_may_name_its_memory() {
        assert_eq!(memory_in("H100-80G-PCIe-NVLink"), Some(81_920));
        assert_eq!(memory_in("H200-141G-SXM5"), Some(144_384));
        for none in ["L40", "B200-SXM", "RTX-A6000", "G", "H100-manyG-PCIe"] {
            assert_eq!(memory_in(none), None, "{none}");
        }
        assert_eq!(memory_in("H100-18446744073709551615G"), None);
    }

    #[test]
    fn a_time_may_lack_its_offset() {
        let at = time("2026-11-21T09:00:00Z");
        assert!(at.is_some());
        for same in [
            "2026-11-21T09:00:00",
            "2026-11-21 09:00:00+00:00",
            "2026-11-21 10:00:00+01:00",
            "2026-11-21 09:00:00.000",
        ] {
            assert_eq!(time(same), at, "{same}");
        }
        assert_eq!(time("yesterday"), None);
    }
}
