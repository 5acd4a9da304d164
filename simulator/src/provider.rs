//! The simulated providers, and the operations of each.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::SimulatorError;

/// A simulated provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// `lambda`: virtual machines, one to a launch.
    Lambda,
    /// `runpod`: containers, one to a pod.
    Runpod,
    /// `voltagepark`: bare metal, n nodes to a rental.
    Voltagepark,
}

impl Provider {
    /// Every simulated provider.
    pub const ALL: [Self; 3] = [Self::Lambda, Self::Runpod, Self::Voltagepark];

    /// The provider's id as the broker writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lambda => "lambda",
            Self::Runpod => "runpod",
            Self::Voltagepark => "voltagepark",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Provider {
    type Err = SimulatorError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|provider| provider.as_str() == name)
            .ok_or_else(|| SimulatorError::UnknownProvider(name.to_owned()))
    }
}

/// A kind of call, counted and broken by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The price list: `GET /instance-types`, `GET /bare-metal/locations`, the query for GPU types.
    Catalog,
    /// The list of places, where there is one apart from the prices: `GET /regions`.
    Places,
    /// Creating a machine.
    Launch,
    /// The list of machines.
    List,
    /// One machine by its id.
    Read,
    /// Ending a machine.
    Release,
    /// All calls about SSH keys.
    Keys,
}
