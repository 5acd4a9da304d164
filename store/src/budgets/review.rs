//! Events and stops as a cap is spent.

use chrono::{DateTime, TimeDelta, Utc};
use market::event::EventType;
use market::ids::{BudgetId, ReservationId};
use market::spending::{Budget, Span, money};
use sea_orm::sea_query::OnConflict;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel,
    QueryFilter, QueryOrder, QuerySelect,
};
use serde_json::json;

use super::{AllBudgets, lock};
use crate::entity::budget_marks::{Column, Entity, Model};
use crate::entity::column::{Text, Word};
use crate::entity::reservations;
use crate::events::NewEvent;
use crate::reservations::RequestedAction;
use crate::tx::transaction;
use crate::{StoreError, events, spending};

const ANNOUNCED: &str = "stop_announced";
const STOPPED: &str = "stopped";

/// The result of a budget's review.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reviewed {
    /// How many events were sent.
    pub told: usize,
    /// Reservations under it to be ended, the oldest first.
    pub to_stop: Vec<ReservationId>,
}

/// The actions that are due for a budget.
#[derive(Debug, Default, PartialEq, Eq)]
struct Due {
    /// Marks to set, each with an event.
    marks: Vec<String>,
    /// An announced stop is withdrawn: the cap is no longer spent.
    withdrawn: bool,
    /// Running leases are to be ended.
    stop: bool,
}

/// Decides which actions are due when `spent` units are charged in a period with these marks.
fn due(budget: &Budget, spent: i128, marks: &[Model], now: DateTime<Utc>) -> Due {
    let is_set = |mark: &str| marks.iter().any(|row| row.mark == mark);
    let mut due = Due::default();
    for percent in &budget.terms.thresholds_percent {
        let mark = percent.to_string();
        if budget.has_reached(*percent, spent) && !is_set(&mark) {
            due.marks.push(mark);
        }
    }
    if !budget.terms.mode.stops() || !budget.has_reached(100, spent) {
        due.withdrawn = is_set(ANNOUNCED);
        return due;
    }
    let announced_at = marks.iter().find(|row| row.mark == ANNOUNCED);
    let grace = TimeDelta::seconds(i64::from(budget.terms.grace_seconds));
    if announced_at.is_none() {
        due.marks.push(ANNOUNCED.to_owned());
    }
    if announced_at.map_or(now, |row| row.at.at()) + grace <= now {
        due.stop = true;
        if !is_set(STOPPED) {
            due.marks.push(STOPPED.to_owned());
        }
    }
    due
}

impl AllBudgets<'_> {
    /// Reviews a budget. It reports thresholds that are reached. Once the cap of a budget that stops is spent
    /// it announces the end of running leases, and once the grace period is over it returns the reservations
    /// to end. The first replica to look sends each event, once in a period.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn review(
        &self,
        budget: &Budget,
        now: DateTime<Utc>,
    ) -> Result<Reviewed, StoreError> {
        let found = look(&self.store.read, budget, now).await?;
        if found == Due::default() {
            return Ok(Reviewed::default());
        }
        let told = if found.marks.is_empty() && !found.withdrawn {
            0
        } else {
            self.carry_out(budget.id, budget, now).await?
        };
        let to_stop = match found.stop {
            true => unended(&self.store.read, budget).await?,
            false => Vec::new(),
        };
        Ok(Reviewed { told, to_stop })
    }

    /// Checks again under the lock of the budget, sets the marks and sends their events.
    async fn carry_out(
        &self,
        id: BudgetId,
        budget: &Budget,
        now: DateTime<Utc>,
    ) -> Result<usize, StoreError> {
        transaction!(self.store, |tx| {
            let row = match lock(tx, budget.tenant_id, id).await {
                Err(StoreError::NotFound { .. }) => return Ok(0),
                row => row?,
            };
            let budget = Budget::try_from(row)?;
            let span = budget.terms.period.around(now);
            let due = look(tx, &budget, now).await?;
            if due.withdrawn {
                withdraw(tx, &budget, span).await?;
            }
            let spent = spent(tx, &budget, span).await?;
            let mut told = Vec::new();
            for mark in &due.marks {
                let row = Model {
                    budget_id: Text(budget.id),
                    period_start: Text(span.start.date_naive()),
                    mark: mark.clone(),
                    at: now.into(),
                };
                let keys = [Column::BudgetId, Column::PeriodStart, Column::Mark];
                Entity::insert(row.into_active_model())
                    .on_conflict(OnConflict::columns(keys).do_nothing().to_owned())
                    .exec_without_returning(tx)
                    .await?;
                told.push(event(&budget, span, mark, spent, now));
            }
            events::append(tx, budget.tenant_id, &told, now).await?;
            Ok(told.len())
        })
    }
}

async fn spent<C: ConnectionTrait>(
    db: &C,
    budget: &Budget,
    span: Span,
) -> Result<i128, StoreError> {
    spending::charged_within(db, budget.tenant_id, budget.project_id, span).await
}

async fn look<C: ConnectionTrait>(
    db: &C,
    budget: &Budget,
    now: DateTime<Utc>,
) -> Result<Due, StoreError> {
    let span = budget.terms.period.around(now);
    let marks = Entity::find()
        .filter(Column::BudgetId.eq(Text(budget.id)))
        .filter(Column::PeriodStart.eq(Text(span.start.date_naive())))
        .all(db)
        .await?;
    Ok(due(budget, spent(db, budget, span).await?, &marks, now))
}

async fn withdraw(tx: &DatabaseTransaction, budget: &Budget, span: Span) -> Result<(), StoreError> {
    Entity::delete_many()
        .filter(Column::BudgetId.eq(Text(budget.id)))
        .filter(Column::PeriodStart.eq(Text(span.start.date_naive())))
        .filter(Column::Mark.is_in([ANNOUNCED, STOPPED]))
        .exec(tx)
        .await?;
    Ok(())
}

/// Reservations under a budget whose end nobody has requested.
async fn unended<C: ConnectionTrait>(
    db: &C,
    budget: &Budget,
) -> Result<Vec<ReservationId>, StoreError> {
    use reservations::Column as Of;
    let wanted = Condition::all()
        .add(Of::TenantId.eq(Text(budget.tenant_id)))
        .add_option(
            budget
                .project_id
                .map(|project| Of::ProjectId.eq(Text(project))),
        )
        // A later start costs nothing yet; the cap holds it back when it is due.
        .add(Of::State.is_not_in(["scheduled", "releasing", "closed"]))
        .add(Of::Wish.eq(Word(RequestedAction::None)));
    let ids: Vec<Text<ReservationId>> = reservations::Entity::find()
        .select_only()
        .column(Of::Id)
        .filter(wanted)
        .order_by_asc(Of::Id)
        .into_tuple()
        .all(db)
        .await?;
    Ok(ids.into_iter().map(|id| id.0).collect())
}

fn event(budget: &Budget, span: Span, mark: &str, spent: i128, now: DateTime<Utc>) -> NewEvent {
    let mut data = json!({
        "budget_id": budget.id,
        "project_id": budget.project_id,
        "period": budget.terms.period,
        "period_start": span.start,
        "cap_usd": budget.terms.cap,
        "charged_usd": money(spent),
    });
    let kind = match mark {
        ANNOUNCED => {
            let grace = TimeDelta::seconds(i64::from(budget.terms.grace_seconds));
            data["stop_at"] = json!(now + grace);
            EventType::BudgetStopAnnounced
        }
        STOPPED => EventType::BudgetStopped,
        percent => {
            data["threshold_percent"] = json!(percent.parse::<u16>().ok());
            EventType::BudgetThresholdReached
        }
    };
    NewEvent {
        kind,
        reservation_id: None,
        data,
    }
}

#[cfg(test)]
mod tests {
    use market::ids::TenantId;
    use market::money::Money;
    use market::spending::{BudgetMode, BudgetPeriod, BudgetTerms};
    use uuid::Uuid;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000 + seconds, 0).expect("a moment")
    }

    fn budget(mode: BudgetMode) -> Budget {
        Budget {
            id: BudgetId::from_uuid(Uuid::from_u128(1)),
            tenant_id: TenantId::from_uuid(Uuid::from_u128(2)),
            project_id: None,
            terms: BudgetTerms {
                period: BudgetPeriod::Day,
                cap: Money::usd_units(100),
                mode,
                thresholds_percent: vec![50, 100],
                grace_seconds: 60,
            },
            created_at: at(0),
        }
    }

    fn marks(marks: &[(&str, i64)]) -> Vec<Model> {
        let row = |(mark, seconds): &(&str, i64)| Model {
            budget_id: Text(BudgetId::from_uuid(Uuid::from_u128(1))),
            period_start: Text(at(0).date_naive()),
            mark: (*mark).to_owned(),
            at: at(*seconds).into(),
        };
        marks.iter().map(row).collect()
    }

    #[test]
    fn a_threshold_is_due_once_and_a_stop_only_in_its_mode() {
        let notify = budget(BudgetMode::Notify);
        assert_eq!(due(&notify, 49, &[], at(0)), Due::default());
        assert_eq!(due(&notify, 50, &[], at(0)).marks, ["50"]);
        assert_eq!(
            due(&notify, 100, &marks(&[("50", 0)]), at(0)).marks,
            ["100"]
        );
        let all = marks(&[("50", 0), ("100", 0)]);
        assert_eq!(due(&notify, 900, &all, at(0)), Due::default());
        assert_eq!(
            due(&budget(BudgetMode::BlockNew), 900, &all, at(0)),
            Due::default()
        );
    }

    #[test]
    fn what_runs_is_ended_when_the_grace_is_over_and_not_before() {
        let stops = budget(BudgetMode::StopRunning);
        let told = [("50", 0), ("100", 0)];
        let announced = due(&stops, 100, &marks(&told), at(0));
        assert_eq!(
            (&*announced.marks, announced.stop),
            (&["stop_announced".to_owned()][..], false)
        );
        let waits = marks(&[told[0], told[1], (ANNOUNCED, 0)]);
        assert_eq!(due(&stops, 100, &waits, at(59)), Due::default());
        let over = due(&stops, 100, &waits, at(60));
        assert_eq!(
            (&*over.marks, over.stop),
            (&["stopped".to_owned()][..], true)
        );
        let stopped = marks(&[told[0], told[1], (ANNOUNCED, 0), (STOPPED, 60)]);
        let again = due(&stops, 100, &stopped, at(61));
        assert!(
            again.stop && again.marks.is_empty(),
            "what began since is ended too"
        );
        let raised = due(&stops, 99, &stopped, at(61));
        assert!(raised.withdrawn && !raised.stop);
    }

    #[test]
    fn without_grace_the_stop_follows_its_announcement_at_once() {
        let mut stops = budget(BudgetMode::StopRunning);
        stops.terms.grace_seconds = 0;
        let now = due(&stops, 100, &[], at(0));
        assert_eq!(now.marks, ["50", "100", ANNOUNCED, STOPPED]);
        assert!(now.stop);
    }
}
