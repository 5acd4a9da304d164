//! SkyPilot's catalogue files: `vms.csv` of one cloud, named by the folder or by the file.
//!
//! The columns and their contents: `skypilot-org/skypilot-catalog`, `README.md` (schema v8), and the files of
//! the clouds there, read 2026-11-21. Clouds write them in any order, some with more columns (`Arch`,
//! `Generation`, `UpstreamCloudId`), which no offer needs.
//!
//! `GpuInfo` is the text of a Python dictionary, JSON, or a bare name, by cloud.

use std::collections::HashMap;
use std::path::Path;

use market::catalog::SkipReason;
use market::ids::ProviderId;
use market::offer::{Availability, Terms};
use rust_decimal::Decimal;

use super::dialect::{Dialect, Fields};
use super::facts;
use super::number::{number, whole};
use super::row::{Row, RowRead, memory_of};
use super::two_prices::both_prices;
use crate::gate::{Rejection, shown};

pub(super) const DIALECT: Dialect = Dialect {
    columns: &[
        "InstanceType",
        "AcceleratorName",
        "AcceleratorCount",
        "vCPUs",
        "MemoryGiB",
        "Price",
        "Region",
        "GpuInfo",
        "SpotPrice",
    ],
    optional: &["AvailabilityZone"],
    spellings: &[("GPUInfo", "GpuInfo")],
    takes_more: true,
    sku: "InstanceType",
    seller_of_file: Some(seller),
    prices_apart: false,
    parse,
    join,
};

/// A smaller figure is in GiB, as in runpod's file: no data-centre GPU has so little memory. Units: MiB.
const LEAST_MIB: Decimal = Decimal::from_parts(1_024, 0, 0, false, 0);

/// The cloud whose file it is: `lambda` for `lambda.csv` and for `lambda/vms.csv`.
fn seller(file: &str) -> Result<ProviderId, String> {
    let path = Path::new(file);
    let word = |part: Option<&std::ffi::OsStr>| {
        let part = part.and_then(|part| part.to_str()).unwrap_or_default();
        let stem = part.split('.').next().unwrap_or_default();
        stem.to_ascii_lowercase()
    };
    let mut name = word(path.file_name());
    if name == "vms" {
        name = word(path.parent().and_then(Path::file_name));
    }
    ProviderId::parse(&name).map_err(|_| {
        format!(
            "the name of the file does not say whose prices it holds; call it after the cloud, \
             such as `lambda.csv` or `lambda/vms.csv`, not `{}`",
            shown(file)
        )
    })
}

fn parse<'r>(fields: &Fields<'r>) -> Result<Row<'r>, Rejection> {
    let seller = fields.seller("")?;
    let (sku, name) = (fields.text("InstanceType"), fields.text("AcceleratorName"));
    let read = |column: &'static str| number(column, fields.text(column));
    let gpu_count = read("AcceleratorCount")?;
    let info = fields.text("GpuInfo");
    let memory = value_of(info, "SizeInMiB")
        .and_then(|text| text.parse::<Decimal>().ok())
        .map(|size| {
            if size < LEAST_MIB {
                size * LEAST_MIB
            } else {
                size
            }
        });
    let (gpu_memory_mib, memory_if_sum_mib) = memory_of(memory, gpu_count);
    Ok(Row {
        tenancy: facts::tenancy(seller.as_str()),
        internode: facts::internode(seller.as_str(), sku),
        gpu_memory_mib,
        memory_if_sum_mib,
        seller,
        sku,
        gpu_name: name,
        other_gpu_name: value_of(info, "Name"),
        gpu_count,
        vcpus: whole("vCPUs", fields.text("vCPUs"))?,
        memory_gib: whole("MemoryGiB", fields.text("MemoryGiB"))?,
        prices: both_prices(read("Price")?, read("SpotPrice")?),
        region: fields.text("Region"),
        zone: fields.text("AvailabilityZone"),
        country: None,
        availability: Availability::UNKNOWN,
        as_of: None,
    })
}

/// Identifies a row of an accelerator alone: its name, count, region and zone.
type Accelerator<'r> = (&'r str, Option<Decimal>, &'r str, &'r str);

/// Joins machines and accelerators that are priced in separate rows, as `gcp` has them, where the seller
/// publishes which go together. Afterwards it refuses rows that are no machine with a GPU.
fn join(rows: &mut [RowRead<'_>]) {
    let mut accelerators: HashMap<Accelerator<'_>, usize> = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        if let Ok(Some(row)) = row
            && row.sku.is_empty()
        {
            let key = (row.gpu_name, row.gpu_count, row.region, row.zone);
            accelerators.entry(key).or_insert(at);
        }
    }
    let mut joined: Vec<usize> = Vec::new();
    for at in 0..rows.len() {
        let Ok(Some(host)) = &rows[at] else { continue };
        if !host.gpu_name.is_empty() {
            continue;
        }
        let found =
            facts::accelerator_of(host.seller.as_str(), host.sku).and_then(|(name, count)| {
                let key = (name, Some(Decimal::from(count)), host.region, host.zone);
                accelerators.get(&key).copied()
            });
        let Some(of) = found else { continue };
        let Ok(Some(accelerator)) = &rows[of] else {
            continue;
        };
        let prices = sums(&host.prices, &accelerator.prices);
        if prices.is_empty() {
            continue;
        }
        let whole = Row {
            gpu_name: accelerator.gpu_name,
            other_gpu_name: accelerator.other_gpu_name,
            gpu_count: accelerator.gpu_count,
            gpu_memory_mib: accelerator.gpu_memory_mib,
            memory_if_sum_mib: accelerator.memory_if_sum_mib,
            prices,
            ..host.clone()
        };
        rows[at] = Ok(Some(whole));
        joined.push(of);
    }
    for at in joined {
        rows[at] = Ok(None);
    }
    for row in rows {
        if let Ok(Some(read)) = row
            && let Err(rejection) = check_kind(read.sku, read.gpu_name)
        {
            *row = Err(rejection);
        }
    }
}

/// The prices of both together, on the terms on which both are sold.
fn sums(one: &[(Terms, Decimal)], other: &[(Terms, Decimal)]) -> Vec<(Terms, Decimal)> {
    let sum = |(terms, price): &(Terms, Decimal)| {
        let (_, more) = other.iter().find(|(same, _)| same == terms)?;
        Some((*terms, price.checked_add(*more)?))
    };
    one.iter().filter_map(sum).collect()
}

/// Refuses rows that sell no machine with a GPU.
fn check_kind(sku: &str, accelerator: &str) -> Result<(), Rejection> {
    let refuse = |reason, why: &str| Err(Rejection::new(reason, why));
    if accelerator.is_empty() {
        return refuse(SkipReason::NoGpu, "it names no accelerator");
    }
    let is_tpu = |name: &str| name.starts_with("tpu-");
    if is_tpu(&accelerator.to_ascii_lowercase()) {
        return refuse(SkipReason::NotAGpu, "a TPU, by its name");
    }
    if sku.is_empty() {
        let why = "`InstanceType` is blank: the price is that of the accelerator alone, and of no \
                   machine to put it in";
        return refuse(SkipReason::Unreadable, why);
    }
    Ok(())
}

/// The first value under a key in the text of a Python dictionary or of a JSON object, without its
/// quotes.
///
/// A parser of the whole would need both grammars, and would refuse a text that is cut short; we need only
/// two plain values of it.
fn value_of<'r>(text: &'r str, key: &str) -> Option<&'r str> {
    let is_quote = |letter: char| matches!(letter, '\'' | '"');
    let (at, _) = text.match_indices(key).find(|(at, _)| {
        text[..*at].ends_with(is_quote) && text[at + key.len()..].starts_with(is_quote)
    })?;
    let value = text[at + key.len() + 1..]
        .trim_start()
        .strip_prefix(':')?
        .trim_start();
    let value = match value.strip_prefix(is_quote) {
        Some(quoted) => quoted.split(is_quote).next(),
        None => value.split([',', '}', ']']).next(),
    };
    value.map(str::trim).filter(|value| !value.is_empty())
}
