//! Large messages that were refused because too many arrived at once. Another replica may accept one later,
//! so their times are by the database's clock.

use std::time::Duration;

use chrono::{DateTime, Utc};
use market::ids::VerificationId;
use market::verification::Digest;
use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter};

use super::AllVerifications;
use super::clock::{database_time, moment_sql};
use crate::StoreError;
use crate::entity::column::Text;
use crate::entity::node_sessions;

/// The least time between two recorded refusals of a node: any holder of a token can make the broker refuse.
/// An agent waits longer before it retries.
const NOTED_EVERY: Duration = Duration::from_millis(500);

/// A message that a node has tried to send since the last answer to it. The record is deleted once any
/// message completes the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedMessage {
    /// Its digest. A different message was not what the node had at that time.
    pub digest: Digest,
    /// When it was first refused, if the node kept retrying. By the database's clock.
    pub first_at: DateTime<Utc>,
    /// When it was last refused.
    pub last_at: DateTime<Utc>,
}

impl RefusedMessage {
    pub(super) fn of(row: &node_sessions::Model) -> Option<Self> {
        Some(Self {
            digest: row.refused_digest.as_ref()?.0,
            first_at: row.refused_first_at?.at(),
            last_at: row.refused_last_at?.at(),
        })
    }

    /// How long its node has tried by then; `None` where it was not refused within `again_within` before, or
    /// where the clock was set back meanwhile.
    fn tried_for(&self, now: DateTime<Utc>, again_within: Duration) -> Option<Duration> {
        let since = |at: DateTime<Utc>| (now - at).to_std().ok();
        since(self.last_at).filter(|paused| *paused <= again_within)?;
        since(self.first_at)
    }
}

impl AllVerifications<'_> {
    /// Records that a message of this step, with this digest, was refused now because too many arrived at
    /// once. If the same message was refused before and its node retried within `again_within` each time, the
    /// time counts from the first refusal. Nothing is recorded for a node whose next step is another.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn note_refusal(
        &self,
        (id, agent_key): (VerificationId, &str),
        (step, digest): (u8, Digest),
        again_within: Duration,
    ) -> Result<(), StoreError> {
        use node_sessions::Column;
        let backend = self.store.write.get_database_backend();
        let before = |ago| Expr::cust(moment_sql(backend, ago));
        let now = before(Duration::ZERO);
        let is_same = Expr::col(Column::RefusedDigest).eq(Text(digest));
        let kept_on = Expr::col(Column::RefusedLastAt).gte(before(again_within));
        let first = Expr::case(is_same.and(kept_on), Expr::col(Column::RefusedFirstAt))
            .finally(now.clone());
        let not_just_now = Condition::any()
            .add(Column::RefusedLastAt.is_null())
            .add(Expr::col(Column::RefusedLastAt).lte(before(NOTED_EVERY)));
        node_sessions::Entity::update_many()
            .col_expr(Column::RefusedFirstAt, first.into())
            .col_expr(Column::RefusedLastAt, now)
            .col_expr(Column::RefusedDigest, Expr::value(Text(digest)))
            .filter(Column::VerificationId.eq(Text(id)))
            .filter(Column::AgentKey.eq(agent_key))
            .filter(Column::Step.eq(i32::from(step) - 1))
            .filter(Column::Verdict.is_null())
            .filter(not_just_now)
            .exec(&self.store.write)
            .await?;
        Ok(())
    }

    /// How long a node has tried to send this message, by the database's clock; `None` where it did not retry
    /// within `again_within` each time, or where the clock was set back meanwhile.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn tried_for(
        &self,
        refused: &RefusedMessage,
        again_within: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let now = database_time(&self.store.read).await?;
        Ok(refused.tried_for(now.at(), again_within))
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_node_that_was_refused_has_tried_since_then_if_it_came_again_in_time() {
        let second = |second| DateTime::<Utc>::UNIX_EPOCH + TimeDelta::seconds(second);
        let refused = RefusedMessage {
            digest: Digest([1; 32]),
            first_at: second(10),
            last_at: second(24),
        };
        let within = Duration::from_secs(10);
        let tried_for = |now| refused.tried_for(second(now), within);
        assert_eq!(tried_for(24), Some(Duration::from_secs(14)));
        assert_eq!(tried_for(34), Some(Duration::from_secs(24)));
        assert_eq!(tried_for(35), None, "it did something else meanwhile");
        assert_eq!(tried_for(23), None, "the clock was set back");
    }
}
