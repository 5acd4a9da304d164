//! The steps of a life, at random.

use std::num::NonZeroU32;

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::{Ceiling, Demand, Window};
use market::ids::{LeaseId, QuoteId, ReservationId};
use market::lease::LeaseState;
use market::money::{Money, Rate};
use market::quote::{Follows, Quote, QuoteLine};
use market::reservation::{CloseReason as Why, ReservationState as State};
use market::spending::SpendingLimits;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use store::StoreError;
use store::change::{Change, LeaseFacts, LeaseUpdate, NewLease, ReservationMove, WindowEnd};
use store::commands::Command;
use store::hold::NewReservation;
use store::limits::LimitsChange;
use store::reservations::{RequestedAction, Reservation};
use store::start::NewStart;
use uuid::Uuid;

use super::life::{Life, terms};
use super::twin::{End, Row, earliest, given_up};
use crate::support::{claim, new_reservation};

impl Life<'_> {
    pub(super) async fn step(&mut self) {
        let pause = match self.random.random_range(0..8) {
            0 => self.hours(1, 40),
            1..=2 => self.hours(0, 3),
            _ => self.minutes(0, 10),
        };
        self.twin.now += pause;
        let steps = self.log.len();
        while self.log.len() == steps {
            match self.random.random_range(0..100) {
                0..=13 => self.place(true).await,
                14..=18 => self.place(false).await,
                19..=21 => self.place_pair().await,
                22..=39 => self.confirm().await,
                40..=41 => self.cancel().await,
                42..=53 => self.start().await,
                54..=81 => self.work().await,
                82 => {
                    let (ordered, cancel) = (State::Provisioning, RequestedAction::Cancel);
                    self.ask_for_end("ask to cancel", ordered, cancel).await;
                }
                83..=84 => {
                    let release = RequestedAction::Release;
                    self.ask_for_end("release", State::Active, release).await;
                }
                85 => {
                    let runs = |row: &Row| row.state == State::Active && row.asked_end_at.is_none();
                    if let Some(number) = self.pick(runs) {
                        let failed = State::Releasing(Why::RepairImpossible);
                        self.go("fail", number, failed).await;
                    }
                }
                86..=96 => self.extend().await,
                97 => self.change_limits().await,
                _ => self.change_budget().await,
            }
        }
        self.compare().await;
    }

    /// Leaves so many holds unused within an hour that further ones are short.
    pub(super) async fn leave_unused(&mut self) {
        while self.twin.unused() < 10 {
            self.place(false).await;
            self.compare().await;
            self.cancel().await;
            self.compare().await;
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn minutes(&mut self, from: i64, to: i64) -> TimeDelta {
        TimeDelta::seconds(self.random.random_range(from * 60..to * 60))
    }

    fn hours(&mut self, from: i64, to: i64) -> TimeDelta {
        self.minutes(from * 60, to * 60)
    }

    /// One of the rows that satisfy this; mostly one that a fleet waits for.
    fn pick(&mut self, which: impl Fn(&Row) -> bool) -> Option<usize> {
        let twin = &self.twin;
        let which = |number: &usize| which(&twin.rows[*number]);
        let all: Vec<_> = (0..twin.rows.len()).filter(which).collect();
        let followed = |number: &usize| !twin.waiting_for(*number).is_empty();
        let followed: Vec<_> = all.iter().copied().filter(followed).collect();
        let is_any = followed.is_empty() || self.random.random_range(0..3) == 0;
        let among = if is_any { all } else { followed };
        among.choose(&mut self.random).copied()
    }

    /// A random reservation, held from now on.
    async fn draft(&mut self, is_later: bool, follows: Option<ReservationId>) -> NewReservation {
        let now = self.twin.now;
        let mut sold = vec![(0, self.random.random_range(1..=48))];
        if self.chance(30) {
            sold.push((1, self.random.random_range(1..=2)));
        }
        let mut lines = Vec::new();
        for (line, (which, nodes)) in (0..).zip(sold) {
            let units = self.random.random_range(100_000_000..400_000_000);
            let most = units * self.random.random_range(90..150) / 100;
            lines.push(QuoteLine {
                line,
                offer: self.offers[which].clone(),
                nodes,
                rate: rate(units),
                rate_at_most: is_later.then_some(rate(most)),
                half: None,
                covered: None,
            });
        }
        let days = if self.chance(40) { 60 } else { 3 };
        let from = match is_later {
            true => now + TimeDelta::seconds(1) + self.hours(0, days * 24),
            false => now,
        };
        let is_wanted = is_later && (follows.is_none() || self.chance(50));
        let mut window = Window {
            start_earliest: is_wanted.then_some(from),
            start_latest: self.chance(40).then(|| from + self.hours(1, 72)),
            ..Window::default()
        };
        match self.random.random_range(0..10) {
            0..=4 => window.duration_hours = NonZeroU32::new(self.random.random_range(1..300)),
            5..=7 => window.end = Some(from + self.hours(2, 500)),
            _ => {}
        }
        let waits = is_later || window.duration_hours.is_some();
        let ceiling = self.random.random_range(10_000_000_000..20_000_000_000);
        let ceiling = Ceiling {
            usd_per_gpu_hour: None,
            usd_per_hour: Some(Money::usd_units(ceiling)),
        };
        let quote = self.quote(lines);
        self.insert(&quote).await;
        let mut new = new_reservation(self.whose.1, &quote);
        new.ceiling = self.chance(30).then_some(ceiling);
        new.starts_at = is_later.then_some(from);
        new.window_end = match waits {
            true => Some(given_up(&window, from)),
            false => earliest(window.start_latest, window.end),
        };
        new.follows = follows.map(|run| Follows {
            run,
            staging_seconds: self.random.random_range(0..7_200),
        });
        new.hold_expires_at = now + self.minutes(5, if is_later { 2_880 } else { 60 });
        new.confirmed_at_once = self.chance(20);
        if let Demand::Gpus(gpus) = &mut new.demand {
            gpus.window = Some(window);
        }
        new
    }

    fn quote(&self, lines: Vec<QuoteLine>) -> Quote {
        Quote {
            id: QuoteId::from_uuid(Uuid::now_v7()),
            plan_id: self.plan,
            lines,
            starts_at: None,
            follows: None,
            created_at: self.twin.now,
            expires_at: self.twin.now + TimeDelta::minutes(10),
        }
    }

    async fn insert(&self, quote: &Quote) {
        let quotes = self.store.quotes().of(self.whose.0);
        quotes.insert(quote, None).await.expect("a quote");
    }

    async fn place(&mut self, is_later: bool) {
        let run = match is_later && self.chance(60) {
            true if self.chance(10) => self.pick(|_| true),
            true => self.pick(|row| !row.is_over() && row.asked_end_at.is_none()),
            false => None,
        };
        let run = run.map(|run| self.twin.rows[run].new.id);
        let new = self.draft(is_later, run).await;
        let mine = self.store.reservations().of(self.whose.0);
        let placed = mine.place_hold(new.clone(), self.twin.now, None).await;
        self.placed += usize::from(is_later && placed.is_ok());
        let step = if is_later { "place later" } else { "place" };
        let number = self.twin.rows.len();
        self.check(step, number, placed, |twin| twin.place(Row::of(new)));
    }

    async fn place_pair(&mut self) {
        let run = self.draft(false, None).await;
        let mut fleet = self.draft(true, Some(run.id)).await;
        let pair = [run.clone(), fleet.clone()];
        let mine = self.store.reservations().of(self.whose.0);
        let placed = mine.place_pair(pair, self.twin.now, None).await;
        self.placed += usize::from(placed.is_ok());
        let number = self.twin.rows.len();
        self.check("place pair", number, placed, |twin| {
            twin.place(Row::of(run))?;
            let lapses_at = twin.rows[number].new.hold_expires_at;
            fleet.hold_expires_at = fleet.hold_expires_at.min(lapses_at);
            twin.place(Row::of(fleet))
        });
    }

    async fn command(&self, number: usize, command: Command) -> Result<Reservation, StoreError> {
        let (id, now) = (self.twin.rows[number].new.id, self.twin.now);
        let read = self.read.iter().find(|read| read.id == id);
        let version = read.expect("it is open").version;
        let mine = self.store.reservations().of(self.whose.0);
        mine.command(id, version, command, now, None).await
    }

    /// A worker's step of a row, and of its leases.
    async fn go(&mut self, step: &str, number: usize, to: State) {
        let (row, now) = (&self.twin.rows[number], self.twin.now);
        let stands = match row.handed_off_at {
            Some(_) => LeaseState::HandedOff,
            None => LeaseState::Requested,
        };
        let mut facts = LeaseFacts::default();
        let mut change = Change {
            reservation: Some(ReservationMove {
                from: row.state,
                to,
            }),
            holds_released: true,
            ..Change::default()
        };
        let (from, then) = match to {
            State::Active => {
                facts.accepted_at = Some(now);
                facts.handed_off_at = Some(now);
                let end = row.end_if_handed_off(now);
                change.window_end = end.map_or(WindowEnd::Open, WindowEnd::At);
                (LeaseState::Requested, LeaseState::HandedOff)
            }
            State::Releasing(_) => (stands, LeaseState::Releasing),
            _ => (LeaseState::Releasing, LeaseState::Gone),
        };
        let update = |id: &LeaseId| LeaseUpdate {
            id: *id,
            from,
            to: then,
            facts: facts.clone(),
        };
        change.lease_updates = row.leases.iter().map(update).collect();
        if to == State::Provisioning {
            change.new_leases = row.new.lines.iter().map(lease).collect();
        }
        let requested: Vec<_> = change.new_leases.iter().map(|lease| lease.id).collect();
        let claimed = claim(self.store, row.new.id, now).await;
        let applied = self.store.work().apply(&claimed.claim, &change, now).await;
        self.check(step, number, applied, |twin| {
            twin.change(number, |row, now| {
                row.state = to;
                row.leases.extend(requested);
                match to {
                    State::Active => {
                        row.new.window_end = row.end_if_handed_off(now);
                        row.handed_off_at = Some(now);
                    }
                    State::Closed(_) => row.closed_at = Some(now),
                    _ => {}
                }
            })
        });
    }

    async fn start(&mut self) {
        let (twin, now) = (self.twin.clone(), self.twin.now);
        let any = self.chance(50);
        let Some(number) = self.pick(|row| {
            let is_soon = row.new.starts_at <= Some(now + TimeDelta::days(4));
            // The broker orders no fleet whose run has an open end.
            let run = row.new.follows.map(|follows| twin.number(follows.run));
            let waits = run.is_some_and(|run| twin.end_of(run) == End::Open);
            row.state == State::Scheduled && is_soon && !waits && (any || run.is_some())
        }) else {
            return;
        };
        let new = &twin.rows[number].new;
        let percent = match self.chance(50) {
            true => 100,
            false => self.random.random_range(50..100),
        };
        let mut quote = self.quote(new.lines.clone());
        for line in &mut quote.lines {
            line.rate = rate(line.rate.money_per_gpu_hour().units() * percent / 100);
            line.rate_at_most = None;
        }
        match percent {
            100 => quote.id = new.quote_id,
            _ => self.insert(&quote).await,
        }
        let (claimed, nothing) = (claim(self.store, new.id, now).await, Change::default());
        let start = NewStart {
            ssh_public_keys: vec!["ssh-ed25519 AAAA".to_owned()],
            starts_at: new.starts_at,
            quote: quote.clone(),
            gang: false,
            verification: new.verification,
        };
        let work = self.store.work();
        let started = work.start(&claimed.claim, &start, now).await;
        let given_back = work.apply(&claimed.claim, &nothing, now).await;
        given_back.expect("given back");
        self.check("start", number, started, |twin| {
            twin.start(number, quote.lines)
        });
        let run = new.follows.map(|follows| twin.number(follows.run));
        let run = run.filter(|run| can_extend(&twin.rows[*run], now));
        if let Some(run) = run.filter(|_| self.chance(90)) {
            self.extend_run(run).await;
        }
    }

    async fn extend(&mut self) {
        let now = self.twin.now;
        if let Some(number) = self.pick(|row| can_extend(row, now)) {
            self.extend_run(number).await;
        }
    }

    async fn extend_run(&mut self, number: usize) {
        let end = self.twin.rows[number].new.window_end.expect("an end");
        let end = end + self.hours(1, 48);
        let answer = self.command(number, Command::Extend(end)).await;
        self.check("extend", number, answer, |twin| twin.extend(number, end));
    }

    /// Asks for the end of a row that is in use, or of one that is being ordered.
    async fn ask_for_end(&mut self, step: &str, state: State, action: RequestedAction) {
        let can_ask = |row: &Row| row.state == state && row.asked_end_at.is_none();
        if let Some(number) = self.pick(can_ask) {
            let answer = self.command(number, Command::RequestedAction(action)).await;
            self.check(step, number, answer, |twin| {
                twin.change(number, |row, now| row.asked_end_at = Some(now))
            });
        }
    }

    async fn confirm(&mut self) {
        let now = self.twin.now;
        let can_confirm = |row: &Row| row.state == State::Held && row.new.hold_expires_at > now;
        if let Some(number) = self.pick(can_confirm) {
            let to = self.twin.rows[number].confirmed();
            let answer = self.command(number, Command::Move(to)).await;
            self.check("confirm", number, answer, |twin| twin.confirm(number));
        }
    }

    async fn cancel(&mut self) {
        let is_early = |row: &Row| !row.is_ordered() || row.state == State::Confirmed;
        if let Some(number) = self.pick(is_early) {
            let to = State::Closed(Why::Cancelled);
            let answer = self.command(number, Command::Move(to)).await;
            self.check("cancel", number, answer, |twin| {
                twin.change(number, |row, now| {
                    (row.state, row.closed_at) = (to, Some(now));
                })
            });
        }
    }

    /// The next step that a worker would take.
    async fn work(&mut self) {
        let now = self.twin.now;
        let next = |row: &Row| {
            let waits = row.new.starts_at > Some(now);
            let is_asked = row.asked_end_at.is_some();
            let is_over = row.new.window_end.is_some_and(|end| end <= now);
            let has_lapsed = row.new.hold_expires_at <= now;
            Some(match row.state {
                State::Held if has_lapsed => ("lapse", State::Closed(Why::Expired)),
                State::Scheduled if is_over => ("miss", State::Closed(Why::NoCapacity)),
                State::Confirmed if is_over => ("give up", State::Closed(Why::NoCapacity)),
                State::Confirmed => ("request", State::Provisioning),
                State::Provisioning if is_asked => ("cancelled", State::Releasing(Why::Cancelled)),
                State::Active if is_asked => ("released", State::Releasing(Why::Released)),
                State::Provisioning | State::Active if is_over => {
                    ("window ended", State::Releasing(Why::WindowEnded))
                }
                State::Provisioning if !waits => ("hand off", State::Active),
                State::Releasing(why) => ("gone", State::Closed(why)),
                _ => return None,
            })
        };
        if let Some(number) = self.pick(|row| next(row).is_some()) {
            let (step, to) = next(&self.twin.rows[number]).expect("a step");
            self.go(step, number, to).await;
        }
    }

    async fn change_limits(&mut self) {
        let mut some = |from: u32, to: u32| {
            let most = self.random.random_range(from..to);
            (self.random.random_range(0..3) > 0).then_some(most)
        };
        let dollars = |dollars: u32| Money::usd_units(i64::from(dollars) * 100_000_000);
        let limits = SpendingLimits {
            gpus: some(60, 600),
            usd_per_hour: some(200, 2_000).map(dollars),
            open_holds: some(3, 15),
            held_nodes: some(20, 200),
            reservations: some(8, 40),
            cancelled_orders: None,
        };
        let change = LimitsChange {
            gpus: Some(limits.gpus),
            usd_per_hour: Some(limits.usd_per_hour),
            open_holds: Some(limits.open_holds),
            held_nodes: Some(limits.held_nodes),
            reservations: Some(limits.reservations),
            cancelled_orders: None,
        };
        let all = self.store.limits().of(self.whose.0);
        let changed = all.change(None, change, self.twin.now, None).await;
        self.check("limits", limits, changed, |twin| {
            twin.limits = limits;
            Ok(())
        });
    }

    async fn change_budget(&mut self) {
        let cap = self.random.random_range(10..600) * 100_000_000_000;
        let (id, old) = (self.budget.id, &self.budget.terms);
        let budgets = self.store.budgets().of(self.whose.0);
        let changed = budgets.change(id, old, terms(cap), None).await;
        self.budget = changed.expect("changed");
        self.check("budget", cap, Ok(()), |twin| {
            twin.cap = cap;
            Ok(())
        });
        if self.chance(50) {
            self.confirm().await;
        }
    }
}

fn can_extend(row: &Row, now: DateTime<Utc>) -> bool {
    let ends_later = row.new.window_end > Some(now);
    row.state == State::Active && row.asked_end_at.is_none() && ends_later
}

fn rate(units: i64) -> Rate {
    Rate::per_gpu_hour(Money::usd_units(units))
}

fn lease(line: &QuoteLine) -> NewLease {
    NewLease {
        id: LeaseId::from_uuid(Uuid::now_v7()),
        line: line.line,
        offer: line.offer.clone(),
        nodes: line.nodes,
        node_base: line.line * 100,
        replaces: None,
    }
}
