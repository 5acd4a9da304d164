//! A tenant's own capacity, from a file: the bodies of `POST /v1/commitments` and of
//! `POST /v1/provider-accounts`, so that a plan without a server uses them too.

use std::path::Path;

use chrono::{DateTime, Utc};
use market::capacity::{OpenCommitment, OwnCapacity};
use market::ids::{CommitmentId, ProviderAccountId};
use serde::Deserialize;
use uuid::Uuid;

use super::input::read_json;
use crate::http::{AddCommitment, AddProviderAccount, name_fault};
use crate::terminal::ending::Ending;

/// The content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnFile {
    #[serde(default)]
    commitments: Vec<AddCommitment>,
    #[serde(default)]
    provider_accounts: Vec<AddProviderAccount>,
}

/// Reads commitments and negotiated prices. No part of a commitment is used yet; ids number the entries of
/// each list from 1. If several prices apply to an offer, the first in the file counts.
///
/// Errors: wrong input, with the entry and what is wrong with it.
pub(super) fn read_own(file: &Path, now: DateTime<Utc>) -> Result<OwnCapacity, Ending> {
    let shown = file.display();
    let read: OwnFile = read_json("what is paid for", file)?;
    let wrong = |list: &str, nth: usize, why: &str| {
        Ending::wrong_input(format!("{shown}: {list}[{nth}]: {why}"))
    };
    let mut own = OwnCapacity::default();
    for (nth, asked) in read.commitments.into_iter().enumerate() {
        let wrong = |why: String| wrong("commitments", nth, &why);
        let id = CommitmentId::from_uuid(number(nth));
        let commitment = asked.into_commitment(id, now);
        let commitment = commitment.map_err(|fault| wrong(fault.to_string()))?;
        name_fault("name", &commitment.name).map_or(Ok(()), |fault| Err(wrong(fault)))?;
        let hours = commitment.node_hours.map(i64::from);
        own.commitments.push(OpenCommitment {
            nodes_left: commitment.nodes,
            node_seconds_left: hours.map(|hours| hours * 3_600),
            commitment,
        });
    }
    for (nth, asked) in read.provider_accounts.into_iter().enumerate() {
        let wrong = |why: String| wrong("provider_accounts", nth, &why);
        let id = ProviderAccountId::from_uuid(number(nth));
        let account = asked.into_account(id, now);
        let account = account.map_err(|fault| wrong(fault.to_string()))?;
        name_fault("name", &account.name).map_or(Ok(()), |fault| Err(wrong(fault)))?;
        own.accounts.push(account);
    }
    own.use_in_order();
    Ok(own)
}

/// The id of the entry at a place.
const fn number(nth: usize) -> Uuid {
    Uuid::from_u128(nth as u128 + 1)
}
