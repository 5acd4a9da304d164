//! Events 60 and 10 minutes before a reservation starts and ends, once for each moment: a start or an end that is
//! moved is announced again.

use chrono::{DateTime, TimeDelta, Utc};
use market::event::EventType;
use market::reservation::ReservationState;
use serde_json::json;
use store::change::{Change, ReservationNotice};
use store::reservations::Reservation;

use super::FulfilError;
use super::round::Round;

/// How long before a moment it is announced, the longest first. Units: minutes.
const MINUTES_BEFORE: [u32; 2] = [60, 10];

/// A start or an end, and the last notice of it.
type Moment = (DateTime<Utc>, Option<(DateTime<Utc>, u32)>);

impl Round<'_> {
    /// Announces the start and the end as far as they are due.
    pub(super) async fn remind(&mut self) -> Result<(), FulfilError> {
        let (now, known) = (self.now(), &self.reservation);
        let mut notices = known.notices.clone();
        let mut events = Vec::new();
        let mut say = |kind, at: DateTime<Utc>| {
            let left = (at - now).num_minutes();
            events.push(ReservationNotice {
                kind,
                details: vec![("at", json!(at)), ("minutes_left", json!(left))],
            });
        };
        let start = start_of(known).and_then(|start| due(known, start, now));
        if let Some(due) = start
            && !self.waits_for_its_run().await?
        {
            notices.start = Some(due);
            say(EventType::ReservationStartsSoon, due.0);
        }
        if let Some(due) = end_of(known).and_then(|end| due(known, end, now)) {
            notices.end = Some(due);
            say(EventType::ReservationEndsSoon, due.0);
        }
        if events.is_empty() {
            return Ok(());
        }
        let change = Change {
            events,
            notices: Some(notices),
            ..Change::default()
        };
        self.save(change).await
    }
}

/// When the next announcement of a reservation is due; `None` where none is.
pub(super) fn next(reservation: &Reservation, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let moments = [start_of(reservation), end_of(reservation)];
    let times = moments
        .into_iter()
        .flatten()
        .flat_map(|(at, _)| times_before(at));
    times.map(|(at, _)| at).filter(|at| *at > now).min()
}

fn times_before(at: DateTime<Utc>) -> impl Iterator<Item = (DateTime<Utc>, u32)> {
    let before = move |minutes| (at - TimeDelta::minutes(i64::from(minutes)), minutes);
    MINUTES_BEFORE.into_iter().map(before)
}

/// The start, until the hand-off.
fn start_of(reservation: &Reservation) -> Option<Moment> {
    use ReservationState as S;
    let waits = matches!(
        reservation.state,
        S::Scheduled | S::Confirmed | S::Provisioning | S::Replacing | S::HandingOff
    );
    let starts_at = reservation.starts_at.filter(|_| waits)?;
    Some((starts_at, reservation.notices.start))
}

/// The end of what is in use.
fn end_of(reservation: &Reservation) -> Option<Moment> {
    use ReservationState as S;
    let in_use = matches!(reservation.state, S::Active | S::Repairing);
    let ends_at = reservation.window_end.filter(|_| in_use)?;
    Some((ends_at, reservation.notices.end))
}

/// The announcement of a moment that is due: of several that are, the nearest. What was due before the
/// reservation was confirmed is skipped.
fn due(
    reservation: &Reservation,
    (at, last): Moment,
    now: DateTime<Utc>,
) -> Option<(DateTime<Utc>, u32)> {
    let confirmed_at = reservation.confirmed_at?;
    let is_due = |time: &DateTime<Utc>| *time <= now && *time >= confirmed_at;
    let times = times_before(at).filter(|(time, _)| is_due(time));
    let (_, minutes) = times.last().filter(|_| now < at)?;
    let was_told = last.is_some_and(|(of, before)| of == at && before <= minutes);
    (!was_told).then_some((at, minutes))
}
