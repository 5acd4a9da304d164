//! Whether this replica can do its work, part by part: the answer of `GET /readyz`.
//!
//! A failed part takes the replica out of service, because another replica may be well. A degraded part is
//! only reported. A lost Redis costs speed. A poller that hangs must affect the offers of its provider alone.
//! Supply that cannot be read is as old on every other replica, and running reservations must still be
//! proved, shown and released.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::check::DemandFault;
use serde::Serialize;
use store::StoreError;
use store::catalog::Generation;
use tokio::sync::Mutex;

use super::providers::is_fresh;
use crate::flow::ingest::POLL;
use crate::platform::app::Broker;
use crate::platform::clock::Doubt;
use crate::platform::heartbeat::Life;

/// How far the snapshot may be behind the database. It follows each second.
const SNAPSHOT_LIMIT: TimeDelta = TimeDelta::seconds(30);
/// How long the database may take to answer; callers wait no longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a write may wait for those before it.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);
/// How long the database's answer is cached.
const BELIEVED: TimeDelta = TimeDelta::seconds(1);

/// The state of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// As it should be.
    Ok,
    /// Worse than it should be; the work continues.
    Degraded,
    /// The work cannot be done.
    Failed,
}

/// One part that the work needs.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(crate) struct Part {
    /// `process`, `database`, `migrations`, `snapshot`, `providers`, `background`, `clock` or `hot_state`.
    name: &'static str,
    /// Its state.
    status: Standing,
    /// The trouble and the remedy; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Part {
    fn ok(name: &'static str) -> Self {
        Self {
            name,
            status: Standing::Ok,
            detail: None,
        }
    }

    fn of(name: &'static str, status: Standing, detail: impl Into<String>) -> Self {
        Self {
            name,
            status,
            detail: Some(detail.into()),
        }
    }

    fn failed_unless(is_well: bool, name: &'static str, detail: &str) -> Self {
        match is_well {
            true => Self::ok(name),
            false => Self::of(name, Standing::Failed, detail),
        }
    }
}

/// That the replica can do its work.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Readiness {
    /// `ready`
    status: &'static str,
    /// Each part that the work needs.
    parts: Vec<Part>,
}

impl Readiness {
    /// Looks at every part.
    ///
    /// Errors: the parts that fail, each with the remedy.
    pub(super) async fn examine(
        broker: &Broker,
        looked: &LastLook,
    ) -> Result<Self, Vec<DemandFault>> {
        let mut parts = vec![Part::failed_unless(
            !broker.pulses().is_stopping(),
            "process",
            "it stops and takes on nothing more; call another replica",
        )];
        match tokio::time::timeout(PATIENCE, looked.stored(broker)).await {
            Ok(stored) => parts.extend(stored),
            Err(_) => parts.push(lost_database()),
        }
        parts.push(background(&broker.pulses().lives()));
        parts.push(clock(broker.clock().doubt()));
        parts.push(match broker.hot().is_lost() {
            false => Part::ok("hot_state"),
            true => Part::of(
                "hot_state",
                Standing::Degraded,
                "Redis does not answer: each replica works alone, slower; check whether Redis runs",
            ),
        });
        let failed: Vec<_> = parts
            .iter()
            .filter(|part| part.status == Standing::Failed)
            .map(|part| DemandFault {
                field: part.name.to_owned(),
                detail: part.detail.clone().unwrap_or_default(),
            })
            .collect();
        if failed.is_empty() {
            let status = "ready";
            Ok(Self { status, parts })
        } else {
            Err(failed)
        }
    }
}

fn lost_database() -> Part {
    let detail = "it does not answer; see whether it runs and can be reached";
    Part::of("database", Standing::Failed, detail)
}

/// The last state of the database: one caller checks it once a second for all others.
#[derive(Default)]
pub(crate) struct LastLook(Mutex<Option<(DateTime<Utc>, Vec<Part>)>>);

impl LastLook {
    async fn stored(&self, broker: &Broker) -> Vec<Part> {
        let mut last = self.0.lock().await;
        let now = broker.now();
        if let Some((at, parts)) = &*last
            && (TimeDelta::zero()..BELIEVED).contains(&(now - at))
        {
            return parts.clone();
        }
        let parts = stored(broker).await;
        *last = Some((now, parts.clone()));
        parts
    }
}

/// The database, and the parts that only it knows.
async fn stored(broker: &Broker) -> Vec<Part> {
    let (store, now) = (broker.store(), broker.now());
    if store.ping().await.is_err() {
        return vec![lost_database()];
    }
    let mut parts = Vec::new();
    let migrated = store.migration_status().await;
    let detail = match migrated {
        Ok(changes) if changes.iter().all(|change| change.applied) => None,
        Err(refusal @ (StoreError::OlderSchema { .. } | StoreError::NewerSchema { .. })) => {
            Some(refusal.to_string())
        }
        _ => Some("the schema is not up to date; run `broker migrate up`".to_owned()),
    };
    if let Some(detail) = detail {
        parts.push(Part::ok("database"));
        parts.push(Part::of("migrations", Standing::Failed, detail));
        return parts;
    }
    let proved = tokio::time::timeout(WRITE_PATIENCE, store.prove_writes()).await;
    parts.push(match proved {
        Ok(Ok(())) => Part::ok("database"),
        // One writer after the other: all others wait as long, on every replica.
        Err(_) => Part::of(
            "database",
            Standing::Degraded,
            "it answers, but a write waits longer than 2 seconds; find the load that keeps it busy",
        ),
        Ok(Err(error)) => {
            let causes = crate::chain(&error);
            tracing::error!(error = %causes, "The database takes no writes: {causes}");
            let detail = "it takes no writes; see whether its disk is full, and the log for why";
            Part::of("database", Standing::Failed, detail)
        }
    });
    parts.push(Part::ok("migrations"));
    let snapshot = broker.snapshot();
    let measures = store.measures();
    let behind = measures.behind(Generation(snapshot.generation())).await;
    let follows =
        behind.is_ok_and(|behind| behind.since.is_none_or(|at| now - at <= SNAPSHOT_LIMIT));
    let detail = "it does not follow the database; the log says why";
    parts.push(Part::failed_unless(follows, "snapshot", detail));
    let providers = store.providers().list().await.unwrap_or_default();
    // Price lists never grow old; where there is anybody to order from, they do not do.
    let only_lists = broker.providers().is_empty();
    let fresh = providers
        .iter()
        .filter(|provider| only_lists || broker.provider(&provider.id).is_some())
        .any(|provider| is_fresh(&snapshot, provider, now));
    parts.push(match fresh {
        true => Part::ok("providers"),
        false => Part::of(
            "providers",
            Standing::Degraded,
            "no provider's supply is fresh, so nothing can be reserved; GET /v1/providers says why",
        ),
    });
    parts
}

/// The state of the background tasks: none of them may be missing but pollers.
fn background(lives: &[(String, Life)]) -> Part {
    let mut missing = lives.iter().filter(|(_, life)| !life.is_alive()).peekable();
    if missing.peek().is_none() {
        return Part::ok("background");
    }
    let words = |(task, life): &(String, Life)| match life {
        Life::Silent(by) => format!("`{task}` is silent, by {} s", by.as_secs()),
        _ => format!("`{task}` failed and waits for its restart"),
    };
    let (mut detail, mut status) = (Vec::new(), Standing::Degraded);
    for one in missing {
        detail.push(words(one));
        if !one.0.starts_with(POLL) {
            status = Standing::Failed;
        }
    }
    let detail = format!("{}; the log says why", detail.join(", "));
    Part::of("background", status, detail)
}

/// An untrusted clock stops nothing: the work continues on the earlier time.
fn clock(doubt: Option<Doubt>) -> Part {
    let Some(doubt) = doubt else {
        return Part::ok("clock");
    };
    let off_by = (doubt.shows - doubt.believed).num_seconds();
    let stands_for = doubt.stands_for.num_seconds();
    let detail = format!(
        "the machine's clock is off by {off_by} s for {stands_for} s, and is not followed; set it right, or restart the service if it is right"
    );
    Part::of("clock", Standing::Degraded, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_poller_may_be_missing() {
        let lives = |task: &str| {
            vec![
                ("tail".to_owned(), Life::Alive),
                (task.to_owned(), Life::Fallen),
            ]
        };
        assert_eq!(background(&lives("poll:lambda")).status, Standing::Degraded);
        let worker = background(&lives("fulfil"));
        assert_eq!(worker.status, Standing::Failed);
        assert!(
            worker
                .detail
                .is_some_and(|words| words.contains("`fulfil` failed"))
        );
        assert_eq!(background(&[]).status, Standing::Ok);
    }

    #[test]
    fn a_silent_task_is_said_with_for_how_long() {
        let silent = Life::Silent(Duration::from_secs(42));
        let part = background(&[("webhooks".to_owned(), silent)]);
        let words = part.detail.expect("words");
        assert!(words.contains("`webhooks` is silent, by 42 s"), "{words}");
    }
}
