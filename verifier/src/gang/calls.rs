//! The form that a node's call must have to be accepted.

use std::net::SocketAddr;

use market::verification::{MOST_RAILS, Rail, Shown};

use crate::order::Mode;
use crate::plain::is_one_word;

/// Why a call was refused. A refused call changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallRefused {
    /// The key belongs to no node of the gang.
    #[error("no node of this gang speaks under this key")]
    Stranger,
    /// The message cannot answer the request.
    #[error("the message does not have the expected form: {0}")]
    Malformed(&'static str),
}

pub(super) fn check_rails(rails: &[Rail], mode: Mode) -> Result<(), CallRefused> {
    if rails.is_empty() || rails.len() > MOST_RAILS {
        return Err(CallRefused::Malformed(
            "a node listens at 1 to 16 addresses",
        ));
    }
    let plain = |rail: &Rail| rail.name.len() <= 64 && is_one_word(&rail.name);
    // A node must not direct its siblings to a service on their own machines, or to a broadcast address.
    let elsewhere = |rail: &Rail| {
        let address = rail.address.parse::<SocketAddr>();
        address.is_ok_and(|address| {
            let ip = address.ip().to_canonical();
            let reachable = !ip.is_unspecified() && !ip.is_multicast();
            reachable && (mode == Mode::Simulation || !ip.is_loopback()) && address.port() >= 1_024
        })
    };
    if !rails.iter().all(|rail| plain(rail) && elsewhere(rail)) {
        return Err(CallRefused::Malformed(
            "a rail has the name of an adapter and an address that other machines reach",
        ));
    }
    Ok(())
}

pub(super) fn check_shown(shown: &Shown) -> Result<(), CallRefused> {
    let fits = match shown {
        Shown::Pair {
            sent_mb_per_s,
            received_mb_per_s,
        } => sent_mb_per_s.len() <= MOST_RAILS && received_mb_per_s.len() <= MOST_RAILS,
        Shown::Ring { repeats_us, .. } | Shown::NcclSum { repeats_us, .. } => {
            repeats_us.len() <= 1_000
        }
        Shown::NcclId { .. } => true,
        Shown::Failed { why } => why.len() <= 512,
    };
    match fits {
        true => Ok(()),
        false => Err(CallRefused::Malformed("the result is too long")),
    }
}
