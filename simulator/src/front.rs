//! Things in front of a provider that answer in its place, for as long as they are there: a broken gateway, a
//! database with a part missing, stale replicas.

use chrono::TimeDelta;

use crate::Operation;

/// A thing that answers in place of a provider. Launches go through, except with [`Front::PageOn`] and
/// [`Front::CredentialRefused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// 404 with an HTML page, for every call about machines that exist.
    NotFoundPage,
    /// 410, for every call about machines that exist.
    Gone,
    /// This status with an HTML page, for every call of one kind.
    PageOn {
        /// The kind of call, which may be a launch.
        operation: Operation,
        /// The status.
        status: u16,
    },
    /// An empty list of machines, and each machine unknown by its id.
    EmptyList,
    /// A list of the older half of the machines; the others are unknown by their ids.
    CutList,
    /// 401 for every call that needs a credential.
    CredentialRefused,
    /// Lists and machines as they were a while ago.
    LateReads {
        /// How long ago.
        seconds: u32,
    },
}

impl Front {
    /// The status and body that every call of this kind gets, where the front answers by itself.
    pub(crate) fn page(self, operation: Operation) -> Option<(u16, &'static str)> {
        let of_machines = matches!(
            operation,
            Operation::List | Operation::Read | Operation::Release
        );
        match self {
            Self::NotFoundPage if of_machines => {
                Some((404, "<html><body><h1>404 Not Found</h1></body></html>"))
            }
            Self::PageOn {
                operation: on,
                status,
            } if on == operation => Some((status, "<html><body><h1>Sorry</h1></body></html>")),
            Self::Gone if of_machines => Some((410, "{\"message\":\"Gone\"}")),
            _ => None,
        }
    }

    /// The lag of reads by this kind of call.
    pub(crate) fn lag(self, operation: Operation) -> TimeDelta {
        match self {
            Self::LateReads { seconds }
                if matches!(operation, Operation::List | Operation::Read) =>
            {
                TimeDelta::seconds(seconds.into())
            }
            _ => TimeDelta::zero(),
        }
    }
}
