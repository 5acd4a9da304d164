//! The simulated providers, and the operations of each. A provider is a handle to the data of its twin.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::SimulatorError;
use crate::twin::{Timing, Twin};

/// A simulated provider. Two are equal if their ids are; they are read and written as their ids.
///
/// Each twin declares its constant in its own file; [`Provider::ALL`] is the list of them.
#[derive(Clone, Copy)]
pub struct Provider(&'static Twin);

impl Provider {
    /// The provider with this data.
    pub const fn of(twin: &'static Twin) -> Self {
        Self(twin)
    }

    pub(crate) const fn twin(self) -> &'static Twin {
        self.0
    }

    /// The provider's id as the broker writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0.id
    }

    /// Its usual durations, which [`crate::Config::timing`] may replace.
    #[must_use]
    pub const fn timing(self) -> Timing {
        self.0.timing
    }
}

impl PartialEq for Provider {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Provider {}

impl PartialOrd for Provider {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Provider {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Provider {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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

impl Serialize for Provider {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Provider {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(de::Error::custom)
    }
}

/// A kind of call, counted and broken by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The price list.
    Catalog,
    /// A list of places or of stock, where there is one apart from the prices.
    Places,
    /// Creating a machine.
    Launch,
    /// The list of machines.
    List,
    /// One machine by its id.
    Read,
    /// Ending a machine.
    Release,
    /// All calls about things beside the machines: SSH keys, start-up scripts, volumes.
    Keys,
    /// Exchanging the credential for a token that expires, where a provider wants that.
    Token,
}
