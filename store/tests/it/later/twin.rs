//! The naive twin of a tenant's reservations: plain rows, and the rules of later starts as plain sums over all
//! of them. No arithmetic of the store or of `market` is used here.

use std::cmp::Ordering;

use chrono::{DateTime, Datelike as _, Months, NaiveDate, NaiveTime, TimeDelta, Utc};
use market::demand::Window;
use market::ids::{LeaseId, ReservationId};
use market::quote::QuoteLine;
use market::reservation::{CloseReason as Why, ReservationState as State};
use market::spending::{InUse, Span, SpendingLimits};
use store::hold::NewReservation;

pub type Time = DateTime<Utc>;

/// What refuses something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Limit,
    Budget,
    FleetFollows { ordered: bool },
    Other,
}

pub type Verdict = Result<(), Refusal>;

/// A reservation: what was placed, with its present lines, start and end, and what became of it.
#[derive(Debug, Clone)]
pub struct Row {
    pub new: NewReservation,
    pub state: State,
    pub confirmed: bool,
    pub handed_off_at: Option<Time>,
    pub asked_end_at: Option<Time>,
    pub closed_at: Option<Time>,
    pub leases: Vec<LeaseId>,
    /// Events of a moved start and of a failed run.
    pub events: (usize, usize),
}

/// How far the end of a run is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Open,
    At(Time),
    Failed,
}

/// Until when capacity that is wanted from `start` on is waited for.
pub fn given_up(window: &Window, start: Time) -> Time {
    let latest = window.start_latest.unwrap_or(start + TimeDelta::days(1));
    window.end.map_or(latest, |end| end.min(latest))
}

pub fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    one.into_iter().chain(other).min()
}

fn gpus(line: &QuoteLine) -> i128 {
    i128::from(line.nodes) * i128::from(line.offer.gpus.as_whole().expect("whole GPUs"))
}

impl Row {
    pub fn of(new: NewReservation) -> Self {
        Self {
            new,
            state: State::Held,
            confirmed: false,
            handed_off_at: None,
            asked_end_at: None,
            closed_at: None,
            leases: Vec::new(),
            events: (0, 0),
        }
    }

    fn window(&self) -> &Window {
        self.new.demand.shared().window.expect("a window")
    }

    pub fn is_later(&self) -> bool {
        self.new
            .lines
            .iter()
            .any(|line| line.rate_at_most.is_some())
    }

    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Releasing(_) | State::Closed(_))
    }

    pub fn is_ordered(&self) -> bool {
        !matches!(self.state, State::Held | State::Scheduled)
    }

    /// The state of the row once it is confirmed.
    pub fn confirmed(&self) -> State {
        if self.is_later() {
            State::Scheduled
        } else {
            State::Confirmed
        }
    }

    fn counts(&self, now: Time) -> bool {
        let has_lapsed = self.state == State::Held && self.new.hold_expires_at <= now;
        !self.state.is_closed() && !has_lapsed
    }

    /// Nodes on hold.
    fn nodes(&self) -> u64 {
        let nodes = self.new.lines.iter().map(|line| u64::from(line.nodes));
        if self.is_later() { 0 } else { nodes.sum() }
    }

    fn gpus(&self) -> u64 {
        let sum: i128 = self.new.lines.iter().map(gpus).sum();
        sum.try_into().expect("some GPUs")
    }

    /// What each line costs, or what all of a later start cost at most. Units: USD 1e-8 per hour.
    fn prices(&self) -> Vec<i128> {
        let price = |line: &QuoteLine| {
            let rate = line.rate_at_most.unwrap_or(line.rate);
            gpus(line) * i128::from(rate.money_per_gpu_hour().units())
        };
        let prices: Vec<i128> = self.new.lines.iter().map(price).collect();
        if !self.is_later() {
            return prices;
        }
        let ceiling = self.new.ceiling.as_ref().and_then(|most| most.usd_per_hour);
        let sum = prices.into_iter().sum();
        vec![ceiling.map_or(sum, |most| i128::from(most.units()).min(sum))]
    }

    fn longest(&self) -> Option<TimeDelta> {
        let hours = self.window().duration_hours?;
        Some(TimeDelta::hours(hours.get().into()))
    }

    pub fn end_if_handed_off(&self, at: Time) -> Option<Time> {
        let longest = self.longest();
        earliest(longest.map(|longest| at + longest), self.window().end)
    }

    fn latest_end(&self) -> Option<Time> {
        match (self.handed_off_at, self.new.window_end) {
            (Some(_), end) => end,
            (None, Some(given_up)) => self.end_if_handed_off(given_up),
            (None, None) => self.window().end,
        }
    }

    fn latest_given(&self) -> Option<Time> {
        earliest(self.window().start_latest, self.window().end)
    }

    fn begins(&self, now: Time) -> Time {
        self.new.starts_at.map_or(now, |start| start.max(now))
    }

    /// The most that it may cost within a span. Nothing is metered in these lives.
    fn cost_within(&self, span: Span, now: Time) -> i128 {
        if !self.counts(now) || self.is_over() {
            return 0;
        }
        let from = self
            .handed_off_at
            .unwrap_or(self.begins(now))
            .max(span.start);
        let end = earliest(self.latest_end(), self.asked_end_at);
        let mut time = end.map_or(span.end, |end| end.min(span.end)) - from;
        if let Some(longest) = self.longest().filter(|_| self.handed_off_at.is_none()) {
            time = time.min(longest);
        }
        let seconds = i128::from(time.num_seconds().max(0));
        self.prices()
            .into_iter()
            .map(|price| cost(price, seconds))
            .sum()
    }

    fn start_after(&self, end: Time) -> Time {
        let staging = self
            .new
            .follows
            .map_or(0, |follows| follows.staging_seconds);
        let ready = end + TimeDelta::seconds(staging);
        let wanted = self.window().start_earliest;
        wanted.map_or(ready, |start| start.max(ready))
    }
}

/// The cost of an hourly price, rounded half to even.
fn cost(units_per_hour: i128, seconds: i128) -> i128 {
    let product = units_per_hour * seconds;
    let (whole, rest) = (product / 3_600, product % 3_600);
    match (rest * 2).cmp(&3_600) {
        Ordering::Less => whole,
        Ordering::Equal => whole + whole % 2,
        Ordering::Greater => whole + 1,
    }
}

/// This month and those after it.
pub fn months(now: Time, count: u32) -> impl Iterator<Item = Span> {
    let day = NaiveDate::from_ymd_opt(now.year(), now.month(), 1).expect("a first");
    let first = move |after| {
        (day + Months::new(after))
            .and_time(NaiveTime::MIN)
            .and_utc()
    };
    (0..count).map(move |after| Span {
        start: first(after),
        end: first(after + 1),
    })
}

#[derive(Debug, Clone)]
pub struct Twin {
    pub now: Time,
    pub rows: Vec<Row>,
    pub limits: SpendingLimits,
    /// Of each month. Units: USD 1e-8.
    pub cap: i64,
}

impl Twin {
    /// What is in use at some time between these.
    fn in_use_between(&self, from: Time, until: Option<Time>, but: Option<usize>) -> InUse {
        let mut sum = InUse::default();
        for (number, row) in self.rows.iter().enumerate() {
            if !row.counts(self.now) || Some(number) == but {
                continue;
            }
            let is_held = row.state == State::Held;
            sum.reservations += 1;
            sum.open_holds += u64::from(is_held);
            sum.held_nodes += if is_held { row.nodes() } else { 0 };
            let start = row.new.starts_at.filter(|_| !row.is_ordered());
            let begins_later = start.is_some_and(|start| until.is_some_and(|end| start >= end));
            let is_past = |end: Time| from > self.now && end <= from;
            if !begins_later && !row.latest_end().is_some_and(is_past) {
                sum.gpus += row.gpus();
                sum.units_per_hour += row.prices().into_iter().sum::<i128>();
            }
        }
        sum
    }

    pub fn in_use(&self) -> InUse {
        self.in_use_between(self.now, Some(self.now), None)
    }

    pub fn open_within(&self, span: Span) -> i128 {
        let cost = |row: &Row| row.cost_within(span, self.now);
        self.rows.iter().map(cost).sum()
    }

    fn check_limits(&self, used: InUse, row: &Row, [holds, nodes, one]: [u64; 3]) -> Verdict {
        let limits = &self.limits;
        let counts = [
            (limits.gpus, used.gpus, row.gpus()),
            (limits.open_holds, used.open_holds, holds),
            (limits.held_nodes, used.held_nodes, nodes),
            (limits.reservations, used.reservations, one),
        ];
        let is_passed = |(limit, used, more): (Option<u32>, u64, u64)| {
            more > 0 && limit.is_some_and(|most| used + more > u64::from(most))
        };
        let together = used.units_per_hour + row.prices().into_iter().sum::<i128>();
        let most = limits.usd_per_hour;
        let costs_more = most.is_some_and(|most| together > i128::from(most.units()));
        let is_refused = counts.into_iter().any(is_passed) || costs_more;
        if is_refused {
            Err(Refusal::Limit)
        } else {
            Ok(())
        }
    }

    /// Whether `more` fits under the cap of every month beside the rows that count.
    fn check_budget(&self, more: impl Fn(Span) -> i128, counts: impl Fn(usize) -> bool) -> Verdict {
        for month in months(self.now, 15) {
            let counted = (0..self.rows.len()).filter(|number| counts(*number));
            let cost = |number: usize| self.rows[number].cost_within(month, self.now);
            let (open, more) = (counted.map(cost).sum::<i128>(), more(month));
            if more > 0 && open + more > self.cap.into() {
                return Err(Refusal::Budget);
            }
        }
        Ok(())
    }

    /// How many holds ended unconfirmed within the last hour.
    pub fn unused(&self) -> usize {
        let ended = |row: &&Row| {
            let end = earliest(row.closed_at, Some(row.new.hold_expires_at)).expect("one");
            !row.confirmed && end <= self.now && end + TimeDelta::hours(1) > self.now
        };
        self.rows.iter().filter(ended).count()
    }

    pub fn number(&self, id: ReservationId) -> usize {
        let number = self.rows.iter().position(|row| row.new.id == id);
        number.expect("a row")
    }

    pub fn end_of(&self, run: usize) -> End {
        let run = &self.rows[run];
        match run.state {
            State::Closed(Why::Released | Why::WindowEnded)
            | State::Releasing(Why::Released | Why::WindowEnded)
                if run.handed_off_at.is_some() => {}
            State::Releasing(_) | State::Closed(_) => return End::Failed,
            _ if run.handed_off_at.is_none() => return End::Open,
            _ => {}
        }
        earliest(run.new.window_end, run.asked_end_at).map_or(End::Open, End::At)
    }

    pub fn place(&mut self, mut row: Row) -> Verdict {
        if let Some(follows) = row.new.follows {
            let run = self.number(follows.run);
            let behind = |other: &&Row| {
                let same = other
                    .new
                    .follows
                    .is_some_and(|other| other.run == follows.run);
                same && !other.state.is_closed()
            };
            let is_over = self.rows[run].is_over() || self.rows[run].asked_end_at.is_some();
            if is_over || self.rows.iter().filter(behind).count() >= 16 {
                return Err(Refusal::Other);
            }
            row.new.window_end = row.latest_given();
            if let End::At(end) = self.end_of(run) {
                let start = row.start_after(end);
                let latest = given_up(row.window(), start);
                if start >= latest {
                    return Err(Refusal::Other);
                }
                row.new.starts_at = Some(start);
                row.new.window_end = Some(latest);
            }
        }
        let holds = u64::from(!row.new.confirmed_at_once);
        let used = self.in_use_between(row.begins(self.now), row.latest_end(), None);
        self.check_limits(used, &row, [holds, row.nodes() * holds, 1])?;
        self.check_budget(|month| row.cost_within(month, self.now), |_| true)?;
        row.confirmed = row.new.confirmed_at_once;
        if row.confirmed {
            row.state = row.confirmed();
        } else if self.unused() >= 20 {
            return Err(Refusal::Other);
        } else if self.unused() >= 10 && !row.is_later() {
            let short = self.now + TimeDelta::minutes(2);
            row.new.hold_expires_at = row.new.hold_expires_at.min(short);
        }
        self.rows.push(row);
        Ok(())
    }

    pub fn confirm(&mut self, number: usize) -> Verdict {
        let row = &self.rows[number];
        let is_no_hold = |other: usize| self.rows[other].state != State::Held;
        self.check_budget(|month| row.cost_within(month, self.now), is_no_hold)?;
        let row = &mut self.rows[number];
        (row.confirmed, row.state) = (true, row.confirmed());
        Ok(())
    }

    /// Orders a scheduled row at frozen rates.
    pub fn start(&mut self, number: usize, lines: Vec<QuoteLine>) -> Verdict {
        let mut row = self.rows[number].clone();
        row.new.lines = lines;
        let used = self.in_use_between(row.begins(self.now), row.latest_end(), Some(number));
        self.check_limits(used, &row, [0; 3])?;
        let cost = |month| row.cost_within(month, self.now);
        self.check_budget(cost, |other| other != number)?;
        row.state = State::Confirmed;
        self.rows[number] = row;
        Ok(())
    }

    pub fn extend(&mut self, number: usize, end: Time) -> Verdict {
        for fleet in self.waiting_for(number) {
            let fleet = &self.rows[fleet];
            let (ordered, start) = (fleet.is_ordered(), fleet.start_after(end));
            let is_late = match fleet.state {
                State::Held => false,
                State::Scheduled => fleet.latest_given().is_some_and(|latest| start >= latest),
                _ => fleet.new.starts_at.is_some_and(|latest| start > latest),
            };
            if is_late {
                return Err(Refusal::FleetFollows { ordered });
            }
        }
        let (old, mut new) = (&self.rows[number], self.rows[number].clone());
        new.new.window_end = Some(end);
        let more = |month| new.cost_within(month, self.now) - old.cost_within(month, self.now);
        self.check_budget(more, |_| true)?;
        self.change(number, |row, _| row.new.window_end = Some(end))
    }

    /// Changes a row, and moves the fleets behind it if its end is another by that.
    pub fn change(&mut self, run: usize, change: impl FnOnce(&mut Row, Time)) -> Verdict {
        let before = self.end_of(run);
        change(&mut self.rows[run], self.now);
        let end = self.end_of(run);
        if end == before {
            return Ok(());
        }
        for fleet in self.waiting_for(run) {
            let fleet = &mut self.rows[fleet];
            let (before, is_ordered) = (fleet.new.starts_at.expect("a start"), fleet.is_ordered());
            let start = match end {
                End::Open => continue,
                End::At(end) if is_ordered => fleet.start_after(end).min(before),
                End::At(end) => fleet.start_after(end),
                End::Failed if is_ordered => before,
                End::Failed => {
                    let later = before.max(self.now + TimeDelta::hours(1));
                    let latest = fleet.latest_given();
                    if latest.is_some_and(|latest| latest <= later) {
                        before
                    } else {
                        later
                    }
                }
            };
            fleet.events.0 += usize::from(start != before);
            fleet.events.1 += usize::from(end == End::Failed && fleet.state != State::Held);
            fleet.new.starts_at = Some(start);
            if !is_ordered {
                fleet.new.window_end = Some(given_up(fleet.window(), start));
            }
        }
        Ok(())
    }

    pub fn waiting_for(&self, run: usize) -> Vec<usize> {
        let run = self.rows[run].new.id;
        let waits = |row: &Row| {
            let follows = row.new.follows.is_some_and(|follows| follows.run == run);
            follows && !row.is_over() && row.handed_off_at.is_none()
        };
        let waits = |number: &usize| waits(&self.rows[*number]);
        (0..self.rows.len()).filter(waits).collect()
    }
}
