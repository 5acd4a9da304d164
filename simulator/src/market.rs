//! The market file: the offers, their places and list prices, how many are free, and the hardware of a node.
//! The bundled one is `data/market.csv`, written by hand, each row with its source. State that changes while
//! the simulator runs is in `world`.

use std::collections::HashMap;

use rust_decimal::Decimal;
use serde::Deserialize;

use crate::{Provider, SimulatorError};

const BUNDLED: &str = include_str!("../data/market.csv");

/// The place of everything on the community cloud of runpod.
pub(crate) const COMMUNITY: &str = "community";

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
    /// Chosen at launch at voltagepark, absent elsewhere.
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
        match self.network {
            Some(network) => format!("{}-{}", self.sku, network.as_str()),
            None if self.provider == Provider::Runpod => format!("{}x {}", self.gpus, self.sku),
            None => self.sku.clone(),
        }
    }

    /// Whether a new price of the row with this key is also this row's price: runpod publishes one price per
    /// GPU of a type, for every count.
    pub(crate) fn is_priced_with(&self, key: &str) -> bool {
        let of_type = |key: &str| key.split_once("x ").is_some_and(|(_, sku)| sku == self.sku);
        self.key() == key || (self.provider == Provider::Runpod && of_type(key))
    }

    /// Whether the row is sold on machines of other people, at no place of its own.
    pub(crate) fn is_community(&self) -> bool {
        self.provider == Provider::Runpod && self.place == COMMUNITY
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
            let row = record.map_err(|error| refuse(error.to_string()))?;
            check(&row).map_err(|why| refuse(why.to_owned()))?;
            rows.push(row);
        }
        if rows.is_empty() {
            return Err(SimulatorError::Market {
                row: 0,
                why: "it has no rows".to_owned(),
            });
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

/// Whether the provider's wire format can express this price.
pub(crate) fn publishable(provider: Provider, price: Decimal) -> Result<(), &'static str> {
    if price <= Decimal::ZERO {
        return Err("a price is above zero");
    }
    if provider == Provider::Lambda && (price * Decimal::ONE_HUNDRED).fract() != Decimal::ZERO {
        return Err("lambda publishes whole cents");
    }
    Ok(())
}

fn check(row: &Row) -> Result<(), &'static str> {
    publishable(row.provider, row.price_usd_hour)?;
    if !(1..=16).contains(&row.gpus) {
        return Err("a node has 1 to 16 GPUs");
    }
    if row.source.trim().is_empty() {
        return Err("the source is missing");
    }
    let fits = match row.provider {
        Provider::Lambda => row.network.is_none() && row.per == PriceBasis::Node,
        Provider::Runpod => {
            row.network.is_none() && row.per == PriceBasis::Gpu && matches!(row.gpus, 1 | 2 | 4 | 8)
        }
        Provider::Voltagepark => {
            row.network.is_some() && row.per == PriceBasis::Gpu && row.gpus == 8
        }
    };
    if !fits {
        return Err(
            "lambda sells whole nodes without a network; runpod sells 1, 2, 4 or 8 GPUs by the GPU without one; voltagepark sells nodes of 8 by the GPU with one",
        );
    }
    Ok(())
}

/// A SKU is one thing. A second row at the same place, or another price or shape of the same SKU elsewhere,
/// would look the same on the wire.
fn agree(rows: &[Row]) -> Result<(), SimulatorError> {
    let mut first: HashMap<(Provider, String, bool), &Row> = HashMap::new();
    let mut places = std::collections::HashSet::new();
    for (index, row) in rows.iter().enumerate() {
        let refuse = |why: &str| SimulatorError::Market {
            row: index + 1,
            why: why.to_owned(),
        };
        if !places.insert((row.provider, row.key(), row.place.clone())) {
            return Err(refuse("the same SKU stands twice at one place"));
        }
        let key = match row.provider {
            Provider::Runpod => row.sku.clone(),
            Provider::Lambda | Provider::Voltagepark => row.key(),
        };
        let known = first
            .entry((row.provider, key, row.is_community()))
            .or_insert(row);
        let same_price = known.price_usd_hour == row.price_usd_hour && known.gpu == row.gpu;
        if row.provider == Provider::Runpod && !same_price {
            return Err(refuse(
                "runpod has one price a GPU of a type on each cloud, whatever the count",
            ));
        }
        let same = same_price && known.gpus == row.gpus;
        if row.provider == Provider::Lambda && !same {
            return Err(refuse(
                "lambda has one price and one shape for an instance type, wherever it runs",
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
