//! Lists in which every row is one offer: one price, its terms, the network between its nodes, and how many
//! of them are free.
//!
//! `offer_id` is the list's own number for the row; ours is computed from the thing sold, as everywhere.
//! Disk, reliability and the rate of the fabric are not part of an offer and are not read. Neither is the
//! continent: it follows from the country, by which offers are chosen, and lists draw the line through
//! Russia, Turkey and Egypt where they like.

use market::catalog::SkipReason;
use market::offer::{Availability, MAX_NODES, Tenancy, Terms};
use market::place::Country;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::date::date;
use super::dialect::{Dialect, Fields};
use super::fabric::internode;
use super::facts;
use super::number::{number, whole};
use super::row::Row;
use super::word::word;
use crate::gate::Rejection;

pub(super) const DIALECT: Dialect = Dialect {
    columns: &[
        "offer_id",
        "provider",
        "instance_type",
        "gpu",
        "gpu_count",
        "gpu_memory_gib",
        "vcpus",
        "memory_gib",
        "disk_gib",
        "region",
        "country",
        "continent",
        "kind",
        "fabric",
        "fabric_gbps",
        "spot",
        "price_micro_usd_hour",
        "nodes_available",
        "min_term_hours",
        "reliability_bp",
    ],
    optional: &["as_of"],
    spellings: &[],
    takes_more: false,
    sku: "instance_type",
    seller_of_file: None,
    prices_apart: true,
    parse,
    join: |_| {},
};

/// The words of `kind`.
const KINDS: [(&str, Tenancy); 3] = [
    ("vm", Tenancy::Vm),
    ("bare_metal", Tenancy::BareMetal),
    ("container", Tenancy::Container),
];

/// The words of `spot`.
const YES_OR_NO: [(&str, bool); 4] = [("true", true), ("false", false), ("1", true), ("0", false)];

fn parse<'r>(fields: &Fields<'r>) -> Result<Row<'r>, Rejection> {
    let seller = fields.seller("provider")?;
    let sku = fields.text("instance_type");
    if sku.is_empty() {
        return Err(unreadable("`instance_type` is blank"));
    }
    let read = |column: &'static str| number(column, fields.text(column));
    let of_one_gpu = read("gpu_memory_gib")?.map(|gib| gib * Decimal::from(1_024));
    let terms = terms(fields)?;
    let price = read("price_micro_usd_hour")?.map(|micro| micro / Decimal::from(1_000_000));
    Ok(Row {
        tenancy: word("kind", fields, &KINDS)?.unwrap_or_else(|| facts::tenancy(seller.as_str())),
        internode: internode(fields, &seller, sku)?,
        seller,
        sku,
        gpu_name: fields.text("gpu"),
        other_gpu_name: None,
        gpu_count: read("gpu_count")?,
        vcpus: whole("vcpus", fields.text("vcpus"))?,
        memory_gib: whole("memory_gib", fields.text("memory_gib"))?,
        gpu_memory_mib: of_one_gpu
            .and_then(|mib| mib.to_u64())
            .filter(|mib| *mib > 0),
        memory_if_sum_mib: None,
        prices: price.map(|price| (terms, price)).into_iter().collect(),
        region: fields.text("region"),
        zone: "",
        country: country(fields.text("country"))?,
        availability: availability(fields.text("nodes_available"))?,
        as_of: date("as_of", fields.text("as_of"))?,
    })
}

/// Spot is spot. A term longer than the hour of the price is reserved: on demand would mean that it can be
/// ended at any time.
fn terms(fields: &Fields<'_>) -> Result<Terms, Rejection> {
    if word("spot", fields, &YES_OR_NO)?.unwrap_or(false) {
        return Ok(Terms::Spot);
    }
    let hours = number("min_term_hours", fields.text("min_term_hours"))?;
    Ok(match hours {
        Some(hours) if hours > Decimal::ONE => Terms::Reserved,
        _ => Terms::OnDemand,
    })
}

fn country(code: &str) -> Result<Option<Country>, Rejection> {
    if code.is_empty() {
        return Ok(None);
    }
    let read = Country::parse(code);
    read.map(Some)
        .map_err(|error| unreadable(format!("`country`: {error}")))
}

fn availability(text: &str) -> Result<Availability, Rejection> {
    match whole("nodes_available", text)? {
        None => Ok(Availability::UNKNOWN),
        Some(nodes) if nodes > MAX_NODES => Err(Rejection::new(
            SkipReason::ImpossibleCount,
            format!("{nodes} free nodes are more than anyone has"),
        )),
        Some(nodes) => Ok(Availability::exactly(nodes)),
    }
}

fn unreadable(why: impl Into<String>) -> Rejection {
    Rejection::new(SkipReason::Unreadable, why)
}
