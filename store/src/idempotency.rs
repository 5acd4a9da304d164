//! Idempotency keys: a repeated write happens once, and gets the same answer.
//!
//! `begin` takes the key before the work. The function that does the work completes it in the same
//! transaction as the effect, so that there is never one without the other. The key of a refused request is
//! abandoned, and may be tried again. A process that died in between leaves the key running: after
//! [`TAKE_OVER_SECONDS`] the next attempt takes it over, and the first one, should it still be alive, can no
//! longer complete.

use chrono::{DateTime, TimeDelta, Utc};
use market::ids::TenantId;
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ColumnTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect,
};

use crate::StoreError;
use crate::audit::AuditNote;
use crate::entity::column::Text;
use crate::entity::idempotency_keys::{Column, Entity, Model};
use crate::scope::tenant_scoped;
use crate::tx::transaction;

/// How long an answer is replayed. Units: seconds.
pub const KEPT_SECONDS: i64 = 24 * 3_600;
/// How long a key that nobody completed blocks later attempts. Units: seconds.
pub const TAKE_OVER_SECONDS: i64 = 60;

const RUNNING: &str = "running";
const DONE: &str = "done";

/// The right to complete a key. It is lost when another attempt takes the key over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyMark {
    key: String,
    attempt: i64,
}

/// The answer to a request, sent or to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, byte for byte.
    pub body: String,
}

/// The state of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Nothing yet: do the work and complete the mark.
    Fresh(IdempotencyMark),
    /// The same request was made before: give the same answer.
    Replay(Answer),
    /// The same request is in progress.
    InProgress,
    /// The key belongs to another request.
    Mismatch,
}

/// Additions to the transaction of an effect: the answer to a repetition, and the audit entry.
pub struct Completion<'a, T> {
    /// The mark to complete; `None` when the request has no key.
    pub mark: Option<&'a IdempotencyMark>,
    /// The note to append to the audit log.
    pub audit: Option<&'a AuditNote>,
    /// Renders the answer for the written row; it may be called more than once.
    pub render: &'a (dyn Fn(&T) -> Answer + Send + Sync),
}

// A derive would require the same traits of `T`, which is only borrowed.
impl<T> Clone for Completion<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Completion<'_, T> {}

impl<T> std::fmt::Debug for Completion<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion")
            .field("mark", &self.mark)
            .finish_non_exhaustive()
    }
}

tenant_scoped!(
    IdempotencyKeys,
    idempotency,
    TenantIdempotencyKeys,
    "idempotency keys"
);

impl TenantIdempotencyKeys<'_> {
    /// Takes a key, or returns its state.
    ///
    /// `method_path` and `body_hash` (at most 64 characters) tell whether it is the same request.
    /// Errors: [`StoreError::Database`].
    pub async fn begin(
        &self,
        key: &str,
        method_path: &str,
        body_hash: &str,
        now: DateTime<Utc>,
    ) -> Result<Begun, StoreError> {
        let row = Model {
            tenant_id: Text(self.tenant),
            key: key.to_owned(),
            method_path: method_path.to_owned(),
            body_hash: body_hash.to_owned(),
            state: RUNNING.to_owned(),
            attempt: 1,
            status: None,
            body: None,
            started_at: now.into(),
            expires_at: (now + TimeDelta::seconds(KEPT_SECONDS)).into(),
        };
        transaction!(self.store, |tx| {
            let taken = Entity::insert(row.clone().into_active_model())
                .on_conflict(
                    OnConflict::columns([Column::TenantId, Column::Key])
                        .do_nothing()
                        .to_owned(),
                )
                .exec_without_returning(tx)
                .await?;
            if taken == 1 {
                return Ok(Begun::Fresh(row.mark()));
            }
            let found = self.find_locked(tx, key).await?;
            let lapsed = found.expires_at.at() <= now;
            if !lapsed && (found.method_path != method_path || found.body_hash != body_hash) {
                return Ok(Begun::Mismatch);
            }
            if let (false, Some(answer)) = (lapsed, found.answer()?) {
                return Ok(Begun::Replay(answer));
            }
            let deserted = found.started_at.at() + TimeDelta::seconds(TAKE_OVER_SECONDS) <= now;
            if !lapsed && !deserted {
                return Ok(Begun::InProgress);
            }
            let next = Model {
                attempt: found.attempt + 1,
                ..row.clone()
            };
            self.delete(tx, key).await?;
            Entity::insert(next.clone().into_active_model())
                .exec_without_returning(tx)
                .await?;
            Ok(Begun::Fresh(next.mark()))
        })
    }

    /// Releases a key after the request was refused and nothing was written.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn abandon(&self, mark: &IdempotencyMark) -> Result<(), StoreError> {
        Entity::delete_many()
            .filter(own(self.tenant, mark))
            .exec(&self.store.write)
            .await?;
        Ok(())
    }

    async fn find_locked(&self, tx: &DatabaseTransaction, key: &str) -> Result<Model, StoreError> {
        Entity::find_by_id((Text(self.tenant), key.to_owned()))
            .lock_exclusive()
            .one(tx)
            .await?
            .ok_or(StoreError::Stale)
    }

    async fn delete(&self, tx: &DatabaseTransaction, key: &str) -> Result<(), StoreError> {
        Entity::delete_by_id((Text(self.tenant), key.to_owned()))
            .exec(tx)
            .await?;
        Ok(())
    }
}

impl Model {
    fn mark(&self) -> IdempotencyMark {
        IdempotencyMark {
            key: self.key.clone(),
            attempt: self.attempt,
        }
    }

    fn answer(&self) -> Result<Option<Answer>, StoreError> {
        let (Some(status), Some(body)) = (self.status, self.body.clone()) else {
            return Ok(None);
        };
        let status = u16::try_from(status).map_err(StoreError::corrupt)?;
        Ok(Some(Answer { status, body }))
    }
}

/// Completes a mark and appends the audit entry within the transaction of the effect, as its last statements.
///
/// Errors: [`StoreError::Stale`] when another attempt took the key over.
pub(crate) async fn complete<T>(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    completion: Option<&Completion<'_, T>>,
    row: &T,
) -> Result<(), StoreError> {
    let Some(completion) = completion else {
        return Ok(());
    };
    let answer = (completion.render)(row);
    if let Some(mark) = completion.mark {
        keep(tx, tenant, mark, &answer).await?;
    }
    match completion.audit {
        Some(note) => note.write(tx, &answer).await,
        None => Ok(()),
    }
}

async fn keep(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    mark: &IdempotencyMark,
    answer: &Answer,
) -> Result<(), StoreError> {
    let done = Entity::update_many()
        .col_expr(Column::State, Expr::value(DONE))
        .col_expr(Column::Status, Expr::value(i32::from(answer.status)))
        .col_expr(Column::Body, Expr::value(answer.body.as_str()))
        .filter(own(tenant, mark))
        .exec(tx)
        .await?;
    if done.rows_affected == 1 {
        Ok(())
    } else {
        Err(StoreError::Stale)
    }
}

fn own(tenant: TenantId, mark: &IdempotencyMark) -> sea_orm::Condition {
    sea_orm::Condition::all()
        .add(Column::TenantId.eq(Text(tenant)))
        .add(Column::Key.eq(mark.key.as_str()))
        .add(Column::Attempt.eq(mark.attempt))
        .add(Column::State.eq(RUNNING))
}
