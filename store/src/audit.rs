//! The audit log: each action and its actor, appended in the transaction of the action.
//!
//! Each tenant has a chain of its own, and the service has one. The hash of an entry covers everything in it
//! and the hash before, and the end of each chain is stored beside it. [`Audit::check`] finds an entry that
//! was altered, removed, added or moved. A rewrite of the whole chain with its end is found only by
//! comparison with an end noted elsewhere, which is why the check returns the ends.

mod check;

use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, Utc};
use market::identity::Role;
use market::ids::{PrincipalId, TenantId};
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QueryOrder, QuerySelect,
};
use serde::{Deserialize, Serialize};

pub use check::{ChainBreak, ChainEnd, ChainFault};

use crate::StoreError;
use crate::entity::audit_entries::{Column, Entity, Model};
use crate::entity::audit_heads;
use crate::entity::column::Moment;
use crate::idempotency::Answer;
use crate::scope::service_wide;
use crate::tx::transaction;

/// The chain of entries that belong to no tenant.
pub const SERVICE_CHAIN: &str = "service";

/// The kind of credential of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    /// An API key.
    ApiKey,
    /// A token traded for an API key.
    Token,
    /// A token of an outside issuer.
    Oidc,
    /// Direct access to the database.
    CommandLine,
}

impl CredentialKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::Token => "token",
            Self::Oidc => "oidc",
            Self::CommandLine => "command_line",
        }
    }
}

/// The outcome of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// It was done.
    Done,
    /// It was refused: not allowed, or not possible.
    Refused,
    /// It failed on our side.
    Failed,
}

impl AuditOutcome {
    /// The word on the wire and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// The actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The principal behind the credential; `None` on the command line.
    pub principal: Option<PrincipalId>,
    /// The tenant that it belongs to.
    pub own_tenant: Option<TenantId>,
    /// Its role.
    pub role: Option<Role>,
    /// Its kind of credential.
    pub credential: CredentialKind,
    /// The beginning of the API key, by which a person recognises it.
    pub key_prefix: Option<String>,
    /// The outside issuer.
    pub issuer: Option<String>,
    /// The subject at that issuer.
    pub subject: Option<String>,
}

impl Actor {
    /// The operator who runs commands beside the database.
    #[must_use]
    pub const fn command_line() -> Self {
        Self {
            principal: None,
            own_tenant: None,
            role: None,
            credential: CredentialKind::CommandLine,
            key_prefix: None,
            issuer: None,
            subject: None,
        }
    }
}

/// An entry to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAuditEntry {
    /// The tenant it is about; `None` for the service.
    pub tenant: Option<TenantId>,
    /// The time.
    pub at: DateTime<Utc>,
    /// The actor.
    pub actor: Actor,
    /// The operation's id in the OpenAPI document, or the command.
    pub operation: String,
    /// The id of the thing that it acted on.
    pub target: Option<String>,
    /// The outcome.
    pub outcome: AuditOutcome,
    /// The HTTP status of the answer.
    pub status: Option<u16>,
    /// The code of a refusal.
    pub code: Option<String>,
    /// The address of the caller.
    pub peer: Option<String>,
    /// The request's id in the log.
    pub request_id: Option<String>,
}

impl NewAuditEntry {
    /// An action on the command line.
    #[must_use]
    pub fn of_command(
        tenant: Option<TenantId>,
        operation: &str,
        target: Option<String>,
        at: DateTime<Utc>,
    ) -> Self {
        Self {
            tenant,
            at,
            actor: Actor::command_line(),
            operation: operation.to_owned(),
            target,
            outcome: AuditOutcome::Done,
            status: None,
            code: None,
            peer: None,
            request_id: None,
        }
    }
}

/// An entry that is appended in the transaction of an effect; it records whether that happened.
#[derive(Debug)]
pub struct AuditNote {
    entry: NewAuditEntry,
    written: AtomicBool,
}

impl AuditNote {
    /// A note of an action that is about to happen.
    #[must_use]
    pub const fn new(entry: NewAuditEntry) -> Self {
        Self {
            entry,
            written: AtomicBool::new(false),
        }
    }

    /// Whether a transaction appended it. A failed transaction leaves none.
    #[must_use]
    pub fn was_taken(&self) -> bool {
        self.written.load(Ordering::Relaxed)
    }

    /// Appends the note within the transaction of the effect that leads to `answer`.
    pub(crate) async fn write(
        &self,
        tx: &DatabaseTransaction,
        answer: &Answer,
    ) -> Result<(), StoreError> {
        let mut entry = self.entry.clone();
        if entry.actor.credential != CredentialKind::CommandLine {
            entry.status = Some(answer.status);
        }
        entry.target = entry.target.or_else(|| id_in(&answer.body));
        append(tx, entry).await?;
        self.written.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The id in an answer.
fn id_in(body: &str) -> Option<String> {
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    Some(body.get("id")?.as_str()?.to_owned())
}

/// A stored entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// The tenant's id, or [`SERVICE_CHAIN`].
    pub chain: String,
    /// Its number in its chain, from 1.
    pub seq: i64,
    /// The time.
    pub at: DateTime<Utc>,
    /// The principal behind the credential.
    pub principal: Option<String>,
    /// The tenant that it belonged to.
    pub own_tenant: Option<String>,
    /// Its role.
    pub role: Option<String>,
    /// Its kind of credential.
    pub credential: String,
    /// The beginning of the API key.
    pub key_prefix: Option<String>,
    /// The outside issuer.
    pub issuer: Option<String>,
    /// The subject at that issuer.
    pub subject: Option<String>,
    /// The operation.
    pub operation: String,
    /// The id of the thing that it acted on.
    pub target: Option<String>,
    /// The outcome.
    pub outcome: String,
    /// The HTTP status of the answer.
    pub status: Option<i32>,
    /// The code of a refusal.
    pub code: Option<String>,
    /// The address of the caller.
    pub peer: Option<String>,
    /// The request's id in the log.
    pub request_id: Option<String>,
    /// The hash of the entry before, in hexadecimal; zeros for the first.
    pub previous: String,
    /// Its own hash.
    pub hash: String,
}

impl From<Model> for AuditEntry {
    fn from(row: Model) -> Self {
        Self {
            chain: row.chain,
            seq: row.seq,
            at: row.at.at(),
            principal: row.principal_id,
            own_tenant: row.own_tenant_id,
            role: row.role,
            credential: row.credential,
            key_prefix: row.key_prefix,
            issuer: row.issuer,
            subject: row.subject,
            operation: row.operation,
            target: row.target,
            outcome: row.outcome,
            status: row.status,
            code: row.code,
            peer: row.peer,
            request_id: row.request_id,
            previous: row.previous,
            hash: row.hash,
        }
    }
}

/// A filter for a list of entries; `None` in a field does not filter by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those about this tenant.
    pub tenant: Option<TenantId>,
    /// Only those of this principal.
    pub principal: Option<PrincipalId>,
    /// Only those of this operation.
    pub operation: Option<String>,
    /// Only those that acted on this.
    pub target: Option<String>,
    /// Only those with this outcome.
    pub outcome: Option<AuditOutcome>,
    /// Only those at this time or later.
    pub from: Option<DateTime<Utc>>,
    /// Only those before this time.
    pub to: Option<DateTime<Utc>>,
}

/// The position of an entry in the list: by time, then chain and number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPosition(pub DateTime<Utc>, pub String, pub i64);

service_wide!(Audit, audit, "audit log");

impl Audit<'_> {
    /// Appends an entry for an action that has no transaction of its own.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn append(&self, entry: NewAuditEntry) -> Result<(), StoreError> {
        transaction!(self.store, |tx| append(tx, entry.clone()).await)
    }

    /// The entries, the newest first, at most `limit`, those after `after` in that order.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn list(
        &self,
        filter: &AuditFilter,
        after: Option<&AuditPosition>,
        limit: u64,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let wanted = Condition::all()
            .add_option(filter.tenant.map(|id| Column::Chain.eq(id.to_string())))
            .add_option(
                filter
                    .principal
                    .map(|id| Column::PrincipalId.eq(id.to_string())),
            )
            .add_option(
                filter
                    .operation
                    .as_deref()
                    .map(|word| Column::Operation.eq(word)),
            )
            .add_option(filter.target.as_deref().map(|id| Column::Target.eq(id)))
            .add_option(filter.outcome.map(|word| Column::Outcome.eq(word.as_str())))
            .add_option(filter.from.map(|at| Column::At.gte(Moment::from(at))))
            .add_option(filter.to.map(|at| Column::At.lt(Moment::from(at))))
            .add_option(after.map(beyond));
        let rows = Entity::find()
            .filter(wanted)
            .order_by_desc(Column::At)
            .order_by_desc(Column::Chain)
            .order_by_desc(Column::Seq)
            .limit(limit)
            .all(&self.store.read)
            .await?;
        Ok(rows.into_iter().map(AuditEntry::from).collect())
    }
}

fn beyond(AuditPosition(at, chain, seq): &AuditPosition) -> Condition {
    let at = Moment::from(*at);
    let same_time = Condition::any().add(Column::Chain.lt(chain.as_str())).add(
        Condition::all()
            .add(Column::Chain.eq(chain.as_str()))
            .add(Column::Seq.lt(*seq)),
    );
    Condition::any()
        .add(Column::At.lt(at))
        .add(Condition::all().add(Column::At.eq(at)).add(same_time))
}

/// Appends an entry to its chain, as the last statement of a transaction: other writers of the chain wait
/// from here to its end.
///
/// Errors: [`StoreError::Database`].
pub(crate) async fn append(
    tx: &DatabaseTransaction,
    entry: NewAuditEntry,
) -> Result<(), StoreError> {
    let chain = entry
        .tenant
        .map_or_else(|| SERVICE_CHAIN.to_owned(), |tenant| tenant.to_string());
    let head = lock_head(tx, &chain).await?;
    let row = entry.into_row(chain, &head);
    audit_heads::Entity::update_many()
        .col_expr(audit_heads::Column::Seq, Expr::value(row.seq))
        .col_expr(audit_heads::Column::Hash, Expr::value(row.hash.as_str()))
        .filter(audit_heads::Column::Chain.eq(row.chain.as_str()))
        .exec(tx)
        .await?;
    Entity::insert(row.into_active_model())
        .exec_without_returning(tx)
        .await?;
    Ok(())
}

/// Locks the end of a tenant's chain for an entry that this transaction appends later. A transaction that
/// counts events before that must call it first, because all others append the entry and then count.
pub(crate) async fn lock_chain(
    tx: &DatabaseTransaction,
    tenant: TenantId,
) -> Result<(), StoreError> {
    lock_head(tx, &tenant.to_string()).await.map(drop)
}

/// The end of a chain, locked; the beginning for a chain without entries.
async fn lock_head(
    tx: &DatabaseTransaction,
    chain: &str,
) -> Result<audit_heads::Model, StoreError> {
    let first = audit_heads::Model {
        chain: chain.to_owned(),
        seq: 0,
        hash: check::NOTHING.to_owned(),
    };
    audit_heads::Entity::insert(first.into_active_model())
        .on_conflict(
            OnConflict::column(audit_heads::Column::Chain)
                .do_nothing()
                .to_owned(),
        )
        .exec_without_returning(tx)
        .await?;
    audit_heads::Entity::find_by_id(chain)
        .lock_exclusive()
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound {
            what: "audit chain",
        })
}

impl NewAuditEntry {
    fn into_row(self, chain: String, head: &audit_heads::Model) -> Model {
        let actor = self.actor;
        let mut row = Model {
            chain,
            seq: head.seq + 1,
            at: self.at.into(),
            principal_id: actor.principal.map(|id| id.to_string()),
            own_tenant_id: actor.own_tenant.map(|id| id.to_string()),
            role: actor.role.map(|role| role.as_str().to_owned()),
            credential: actor.credential.as_str().to_owned(),
            key_prefix: actor.key_prefix,
            issuer: actor.issuer,
            subject: actor.subject,
            operation: self.operation,
            target: self.target,
            outcome: self.outcome.as_str().to_owned(),
            status: self.status.map(i32::from),
            code: self.code,
            peer: self.peer,
            request_id: self.request_id,
            previous: head.hash.clone(),
            hash: String::new(),
        };
        row.hash = check::hash(&row);
        row
    }
}
