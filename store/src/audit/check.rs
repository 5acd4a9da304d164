//! The hashes of the audit log, and the check of all of them.

use std::collections::BTreeMap;

use sea_orm::{ColumnTrait, DatabaseTransaction};
use sea_orm::{EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Serialize;

use super::Audit;
use crate::StoreError;
use crate::entity::audit_entries::{Column, Entity, Model};
use crate::entity::audit_heads;

/// The hash before the first entry of a chain: 32 bytes of zeros, in hexadecimal.
pub(super) const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Entries read at once.
const PAGE: u64 = 1_000;

/// The input of the hash, in this order: the row as canonical JSON (no spaces, fixed order of fields).
#[derive(Serialize)]
struct Hashed<'a> {
    version: u8,
    chain: &'a str,
    seq: i64,
    at_micros: i64,
    principal_id: Option<&'a str>,
    own_tenant_id: Option<&'a str>,
    role: Option<&'a str>,
    credential: &'a str,
    key_prefix: Option<&'a str>,
    issuer: Option<&'a str>,
    subject: Option<&'a str>,
    operation: &'a str,
    target: Option<&'a str>,
    outcome: &'a str,
    status: Option<i32>,
    code: Option<&'a str>,
    peer: Option<&'a str>,
    request_id: Option<&'a str>,
    previous: &'a str,
}

/// The hash of a row: BLAKE3 over everything in it except the hash itself, in hexadecimal.
pub(super) fn hash(row: &Model) -> String {
    let hashed = Hashed {
        version: 1,
        chain: &row.chain,
        seq: row.seq,
        at_micros: row.at.at().timestamp_micros(),
        principal_id: row.principal_id.as_deref(),
        own_tenant_id: row.own_tenant_id.as_deref(),
        role: row.role.as_deref(),
        credential: &row.credential,
        key_prefix: row.key_prefix.as_deref(),
        issuer: row.issuer.as_deref(),
        subject: row.subject.as_deref(),
        operation: &row.operation,
        target: row.target.as_deref(),
        outcome: &row.outcome,
        status: row.status,
        code: row.code.as_deref(),
        peer: row.peer.as_deref(),
        request_id: row.request_id.as_deref(),
        previous: &row.previous,
    };
    // Text and integers alone always serialise.
    let text = serde_json::to_vec(&hashed).unwrap_or_default();
    blake3::hash(&text).to_hex().to_string()
}

/// The last entry of a chain. Note it elsewhere: a chain that was rewritten as a whole has another end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainEnd {
    /// The tenant's id, or [`super::SERVICE_CHAIN`].
    pub chain: String,
    /// How many entries it has.
    pub entries: i64,
    /// The hash of the last one.
    pub hash: String,
}

/// The fault of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// Its contents do not match its hash.
    #[error("its contents are not what was written")]
    Altered,
    /// It does not follow the entry before.
    #[error("it does not follow on the entry before")]
    OutOfOrder,
    /// It is missing.
    #[error("it is missing")]
    Missing,
    /// It is beyond the end of its chain.
    #[error("it lies beyond the end of its chain")]
    Beyond,
}

/// The first break of a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the audit chain `{chain}` breaks at entry {seq}: {fault}")]
pub struct ChainBreak {
    /// The tenant's id, or [`super::SERVICE_CHAIN`].
    pub chain: String,
    /// The number of the entry.
    pub seq: i64,
    /// The fault.
    pub fault: ChainFault,
}

impl Audit<'_> {
    /// Checks every chain from its first entry to its end, as of one moment; returns the ends.
    ///
    /// Errors: [`StoreError::Database`]. The first break of a chain, when there is one.
    pub async fn check(&self) -> Result<Result<Vec<ChainEnd>, ChainBreak>, StoreError> {
        let tx = self.store.snapshot().await?;
        let heads = audit_heads::Entity::find()
            .order_by_asc(audit_heads::Column::Chain)
            .all(&tx)
            .await?;
        let mut chains: BTreeMap<String, Option<audit_heads::Model>> = Entity::find()
            .select_only()
            .column(Column::Chain)
            .distinct()
            .into_tuple::<String>()
            .all(&tx)
            .await?
            .into_iter()
            .map(|chain| (chain, None))
            .collect();
        for head in heads {
            chains.insert(head.chain.clone(), Some(head));
        }
        let mut ends = Vec::new();
        for (chain, head) in chains {
            match walk(&tx, &chain, head).await? {
                Ok(end) => ends.push(end),
                Err(broken) => return Ok(Err(broken)),
            }
        }
        Ok(Ok(ends))
    }
}

async fn walk(
    tx: &DatabaseTransaction,
    chain: &str,
    head: Option<audit_heads::Model>,
) -> Result<Result<ChainEnd, ChainBreak>, StoreError> {
    let broken = |seq, fault| {
        Ok(Err(ChainBreak {
            chain: chain.to_owned(),
            seq,
            fault,
        }))
    };
    let (mut seq, mut last) = (0, NOTHING.to_owned());
    loop {
        let rows = Entity::find()
            .filter(Column::Chain.eq(chain))
            .filter(Column::Seq.gt(seq))
            .order_by_asc(Column::Seq)
            .limit(PAGE)
            .all(tx)
            .await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            if row.seq != seq + 1 {
                return broken(seq + 1, ChainFault::Missing);
            }
            if hash(&row) != row.hash {
                return broken(row.seq, ChainFault::Altered);
            }
            if row.previous != last {
                return broken(row.seq, ChainFault::OutOfOrder);
            }
            (seq, last) = (row.seq, row.hash);
        }
    }
    let (end, hash) = head.map_or((0, NOTHING.to_owned()), |head| (head.seq, head.hash));
    match seq.cmp(&end) {
        std::cmp::Ordering::Less => broken(seq + 1, ChainFault::Missing),
        std::cmp::Ordering::Greater => broken(end + 1, ChainFault::Beyond),
        std::cmp::Ordering::Equal if hash != last => broken(seq, ChainFault::Altered),
        std::cmp::Ordering::Equal => Ok(Ok(ChainEnd {
            chain: chain.to_owned(),
            entries: seq,
            hash: last,
        })),
    }
}
