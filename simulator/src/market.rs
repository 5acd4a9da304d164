//! The market file: the offers, their places and list prices, how many are free, and the hardware of a node.
//! The bundled one is `data/market.csv`, written by hand, each row with its source. State that changes while
//! the simulator runs is in `world`.

use std::collections::{HashMap, HashSet};

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::Deserialize;

use crate::{Provider, SimulatorError};

const BUNDLED: &str = include_str!("../data/market.csv");

/// The basis of a published price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceBasis {
    /// For a whole machine.
    Node,
    /// For each GPU of it.
    Gpu,
}

/// The network between nodes, where it is chosen at launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Plain Ethernet.
    Ethernet,
    /// InfiniBand.
    Infiniband,
}

impl Network {
    /// The word in `network_type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Infiniband => "infiniband",
        }
    }
}

/// One thing sold at one place.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The provider that sells it.
    pub provider: Provider,
    /// The provider's own name: the instance type, or the GPU model.
    pub sku: String,
    /// Where it is chosen at launch; absent elsewhere.
    pub network: Option<Network>,
    /// The region, or the id of the location.
    pub place: String,
    /// How the provider describes the place; may be empty.
    pub place_label: String,
    /// The canonical GPU, for instance `H100-SXM`.
    pub gpu: String,
    /// How the provider describes the GPU; may be empty.
    pub gpu_label: String,
    /// GPUs of one node.
    pub gpus: u32,
    /// The memory that the driver reports for one GPU.
    pub gpu_memory_mib: u32,
    /// May be empty.
    pub cpu_model: String,
    /// Processor threads of one node.
    pub vcpus: u32,
    /// Memory of one node.
    pub memory_gib: u32,
    /// Disk of one node.
    pub storage_gib: u32,
    /// The list price.
    pub price_usd_hour: Decimal,
    /// The basis of the list price.
    pub per: PriceBasis,
    /// Nodes that are available now.
    pub free_nodes: u32,
    /// The broker's word for the network between the nodes of one rental.
    pub internode: String,
    /// How sure the source is: high, medium or low.
    pub certainty: String,
    /// Where the numbers come from.
    pub source: String,
}

impl Row {
    /// The name of this row in commands and faults: the SKU, with `-ethernet` or `-infiniband` after it where
    /// the network is chosen at launch, and with the count before it (`8x NVIDIA H200`) where that is chosen.
    #[must_use]
    pub fn key(&self) -> String {
        (self.provider.twin().rows.key)(self)
    }

    /// The key where a SKU has one count of GPUs.
    pub fn usual_key(&self) -> String {
        match self.network {
            Some(network) => format!("{}-{}", self.sku, network.as_str()),
            None => self.sku.clone(),
        }
    }

    /// The list price in whole cents.
    pub fn price_cents(&self) -> Option<u64> {
        (self.price_usd_hour * Decimal::ONE_HUNDRED).to_u64()
    }

    /// Rows of one provider and group have one price.
    pub(crate) fn price_group(&self) -> (Provider, String) {
        (self.provider, (self.provider.twin().rows.price_group)(self))
    }

    /// The list price of this many whole nodes for an hour.
    pub(crate) fn price_of(&self, nodes: u32) -> Decimal {
        let units = match self.per {
            PriceBasis::Node => nodes,
            PriceBasis::Gpu => nodes * self.gpus,
        };
        self.price_usd_hour * Decimal::from(units)
    }
}

/// The offers, their places and prices, when the simulator starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Market {
    rows: Vec<Row>,
}

impl Market {
    /// The market file that comes with the simulator.
    #[must_use]
    pub fn bundled() -> Self {
        // A test of this module parses the same text, so it cannot fail here.
        Self::parse(BUNDLED).expect("the bundled market file is valid")
    }

    /// Reads a market file with the columns of `data/market.csv`.
    ///
    /// Errors: [`SimulatorError::Market`] with the first row that cannot be used.
    pub fn parse(csv: &str) -> Result<Self, SimulatorError> {
        let mut rows: Vec<Row> = Vec::new();
        for (index, record) in csv::Reader::from_reader(csv.as_bytes())
            .deserialize::<Row>()
            .enumerate()
        {
            let refuse = |why: String| SimulatorError::Market {
                row: index + 1,
                why,
            };
            rows.push(record.map_err(|error| refuse(error.to_string()))?);
        }
        Self::try_new(rows)
    }

    /// The market of these rows.
    ///
    /// Errors: [`SimulatorError::Market`] with the first row that cannot be used.
    pub fn try_new(rows: Vec<Row>) -> Result<Self, SimulatorError> {
        let refuse = |row: usize, why: &str| SimulatorError::Market {
            row,
            why: why.to_owned(),
        };
        if rows.is_empty() {
            return Err(refuse(0, "it has no rows"));
        }
        for (index, row) in rows.iter().enumerate() {
            check(row).map_err(|why| refuse(index + 1, why))?;
        }
        agree(&rows)?;
        Ok(Self { rows })
    }

    /// Every row, in the order of the file.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

fn check(row: &Row) -> Result<(), &'static str> {
    if !(1..=16).contains(&row.gpus) {
        return Err("a node has 1 to 16 GPUs");
    }
    if row.source.trim().is_empty() {
        return Err("the source is missing");
    }
    row.provider.twin().rows.take_row(row)
}

/// A SKU is one thing. A second row at the same place, another shape of the same SKU elsewhere, or another
/// price where the provider has one, would look the same on the wire.
fn agree(rows: &[Row]) -> Result<(), SimulatorError> {
    let mut shapes: HashMap<(Provider, String), &Row> = HashMap::new();
    let mut prices: HashMap<(Provider, String), Decimal> = HashMap::new();
    let mut places = HashSet::new();
    for (index, row) in rows.iter().enumerate() {
        let refuse = |why: &str| SimulatorError::Market {
            row: index + 1,
            why: why.to_owned(),
        };
        let key = (row.provider, row.key());
        if !places.insert((key.clone(), &row.place)) {
            return Err(refuse("the same SKU stands twice at one place"));
        }
        let known = shapes.entry(key).or_insert(row);
        if known.gpu != row.gpu || known.gpus != row.gpus {
            return Err(refuse("the same SKU has another shape elsewhere"));
        }
        let price = prices
            .entry(row.price_group())
            .or_insert(row.price_usd_hour);
        if *price != row.price_usd_hour {
            return Err(refuse(
                "the provider has one price for this, wherever it is sold",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(from: &str, to: &str) -> Result<Market, SimulatorError> {
        assert!(BUNDLED.contains(from));
        Market::parse(&BUNDLED.replacen(from, to, 1))
    }

    #[test]
    fn the_bundled_market_parses_and_has_every_provider_and_both_networks() {
        let market = Market::parse(BUNDLED).unwrap();
        for provider in Provider::ALL {
            assert!(
                market
                    .rows()
                    .iter()
                    .any(|row| row.provider == provider && row.free_nodes > 0)
            );
        }
        for network in [Network::Ethernet, Network::Infiniband] {
            assert!(
                market
                    .rows()
                    .iter()
                    .any(|row| row.network == Some(network) && row.free_nodes > 1)
            );
        }
    }

    #[test]
    fn a_row_without_a_source_is_refused_and_named() {
        let error = changed(
            ",medium,example answer in the notes on the Lambda Cloud API of 2026-08-22",
            ",medium,",
        )
        .unwrap_err();
        assert!(error.to_string().starts_with("row 1 "), "{error}");
    }

    #[test]
    fn prices_that_cannot_be_published_are_refused() {
        assert!(changed("23.92", "0").is_err());
        assert!(changed("23.92", "23.921").is_err());
        assert!(
            changed("23.92", "23.93").is_err(),
            "one instance type, two prices"
        );
    }

    #[test]
    fn a_row_that_stands_twice_is_refused() {
        let row = BUNDLED.lines().nth(1).unwrap();
        assert!(Market::parse(&format!("{BUNDLED}{row}\n")).is_err());
    }

    #[test]
    fn a_price_per_gpu_counts_every_gpu_of_every_node() {
        let market = Market::bundled();
        let row = market
            .rows()
            .iter()
            .find(|row| row.network == Some(Network::Infiniband))
            .unwrap();
        assert_eq!(row.price_of(2), Decimal::new(3984, 2));
        assert_eq!(row.key(), "h100-sxm5-80gb-infiniband");
    }
}
