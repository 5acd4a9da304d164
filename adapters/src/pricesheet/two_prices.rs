//! Lists whose rows have a price on demand and one for spot: the columns of the public lists collected from
//! many sellers, and of the bundled one.

use market::catalog::SkipReason;
use market::offer::{Availability, Terms};
use rust_decimal::Decimal;

use super::date::date;
use super::dialect::{Dialect, Fields};
use super::fabric::internode;
use super::facts;
use super::number::{number, whole};
use super::row::{Row, memory_of};
use crate::gate::Rejection;

pub(super) const DIALECT: Dialect = Dialect {
    columns: &[
        "provider",
        "instance_type",
        "gpu_name",
        "gpu_count",
        "vcpus",
        "memory_gib",
        "gpu_memory_mib",
        "price_usd_hour",
        "spot_usd_hour",
        "region",
        "zone",
    ],
    optional: &["as_of", "fabric"],
    spellings: &[],
    takes_more: false,
    sku: "instance_type",
    seller_of_file: None,
    prices_apart: false,
    parse,
    join: |_| {},
};

fn parse<'r>(fields: &Fields<'r>) -> Result<Row<'r>, Rejection> {
    let seller = fields.seller("provider")?;
    let sku = fields.text("instance_type");
    if sku.is_empty() {
        return Err(Rejection::new(
            SkipReason::Unreadable,
            "`instance_type` is blank",
        ));
    }
    let read = |column: &'static str| number(column, fields.text(column));
    let gpu_count = read("gpu_count")?;
    let (gpu_memory_mib, memory_if_sum_mib) = memory_of(read("gpu_memory_mib")?, gpu_count);
    Ok(Row {
        tenancy: facts::tenancy(seller.as_str()),
        internode: internode(fields, &seller, sku)?,
        seller,
        sku,
        gpu_name: fields.text("gpu_name"),
        other_gpu_name: None,
        gpu_count,
        vcpus: whole("vcpus", fields.text("vcpus"))?,
        memory_gib: whole("memory_gib", fields.text("memory_gib"))?,
        gpu_memory_mib,
        memory_if_sum_mib,
        prices: both_prices(read("price_usd_hour")?, read("spot_usd_hour")?),
        region: fields.text("region"),
        zone: fields.text("zone"),
        country: None,
        availability: Availability::UNKNOWN,
        as_of: date("as_of", fields.text("as_of"))?,
    })
}

/// The prices that a row has, on demand before spot.
pub(super) fn both_prices(
    on_demand: Option<Decimal>,
    spot: Option<Decimal>,
) -> Vec<(Terms, Decimal)> {
    [(Terms::OnDemand, on_demand), (Terms::Spot, spot)]
        .into_iter()
        .filter_map(|(terms, amount)| Some((terms, amount?)))
        .collect()
}
