//! A random life under caps: at every step the sums are those of all charges, and no cap is exceeded.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use market::ids::{ProjectId, ReservationId, TenantId};
use market::offer::Offer;
use market::reservation::{CloseReason, ReservationState};
use market::spending::{BudgetMode, BudgetPeriod};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use store::commands::Command;
use store::fixture::for_each_database;
use store::reservations::Reservation;
use store::{Store, StoreError};

use super::running::{Running, hand_off};
use super::{budget, hold_until, terms};
use crate::limits::{plenty, second_project};
use crate::support::{at, tenant};

/// A tenant that holds, uses and ends at random.
struct Life<'a> {
    store: &'a Store,
    offer: Offer,
    whose: [(TenantId, ProjectId); 2],
    now: DateTime<Utc>,
    held: Vec<Reservation>,
    running: Vec<Running>,
    refused: usize,
    extended: usize,
}

impl Life<'_> {
    async fn step(&mut self, random: &mut StdRng) {
        self.now += TimeDelta::seconds(random.random_range(0..250));
        let now = self.now;
        self.held.retain(|held| held.hold_expires_at > now);
        match random.random_range(0..7) {
            0..=1 => {
                let whose = *self.whose.choose(random).expect("some");
                let nodes = random.random_range(1..4);
                let month = (now, BudgetPeriod::Month.around(now).end);
                match hold_until(self.store, whose, &self.offer, nodes, month).await {
                    Err(StoreError::BudgetExceeded(_)) => self.refused += 1,
                    held => self
                        .held
                        .push(held.expect("nothing else stands in its way")),
                }
            }
            2 if !self.held.is_empty() => {
                let held = self.held.swap_remove(0);
                let cancel = Command::Move(ReservationState::Closed(CloseReason::Cancelled));
                let mine = self.store.reservations().of(held.tenant_id);
                mine.command(held.id, held.version, cancel, now, None)
                    .await
                    .expect("cancelled");
            }
            3 if !self.held.is_empty() => {
                let held = self.held.swap_remove(0);
                let hours = random.random_range(0..60);
                let end = (hours > 0).then(|| now + TimeDelta::hours(hours));
                let lease = hand_off(self.store, &held, &self.offer, end, now).await;
                self.running.push(Running {
                    reservation: held,
                    lease,
                    end,
                    metered_to: now,
                    gpu_seconds: 0,
                });
            }
            4 if !self.running.is_empty() => {
                let ended = self.running.swap_remove(0);
                ended.close(self.store, now).await;
            }
            5 if !self.running.is_empty() => self.extend(random).await,
            _ => {
                for running in &mut self.running {
                    running.meter(self.store, now).await;
                }
            }
        }
    }

    async fn extend(&mut self, random: &mut StdRng) {
        let (store, now) = (self.store, self.now);
        let which = random.random_range(0..self.running.len());
        let running = &mut self.running[which];
        let Some(end) = running.end.filter(|end| *end > now) else {
            return;
        };
        let later = end + TimeDelta::hours(random.random_range(1..100));
        let mine = store.reservations().of(running.reservation.tenant_id);
        let id = running.reservation.id;
        let read = mine.find(id).await.expect("reads").expect("is there");
        let command = Command::Extend(later);
        match mine.command(id, read.version, command, now, None).await {
            Err(StoreError::BudgetExceeded(_)) => self.refused += 1,
            done => {
                done.expect("extended");
                running.end = Some(later);
                self.extended += 1;
            }
        }
    }

    /// The committed sum of this month, recomputed from every charge and from this test's own record.
    async fn naively(&self, project: Option<ProjectId>) -> i128 {
        let month = BudgetPeriod::Month.around(self.now);
        let of = |id: ProjectId| project.is_none_or(|own| own == id);
        let charges = self.store.charges().of(self.whose[0].0);
        let charges = charges
            .between(month.start, month.end)
            .await
            .expect("reads");
        let charged: i128 = charges
            .iter()
            .filter(|charge| of(charge.project_id))
            .map(|charge| i128::from(charge.amount.units()))
            .sum();
        let mut gpu_seconds: HashMap<ReservationId, i64> = HashMap::new();
        for charge in &charges {
            *gpu_seconds.entry(charge.usage.reservation_id).or_default() +=
                charge.usage.gpu_seconds();
        }
        let held = self
            .held
            .iter()
            .filter(|held| of(held.project_id))
            .map(|held| {
                let seconds = (month.end - self.now).num_seconds();
                let gpus = i64::from(8 * held.lines[0].nodes);
                let cost = held.lines[0].rate.cost_of(gpus * seconds);
                i128::from(cost.expect("it fits").units())
            });
        let running = self
            .running
            .iter()
            .filter(|running| of(running.reservation.project_id))
            .map(|running| {
                let end = running.end.map_or(month.end, |end| end.min(month.end));
                let seconds = (end - running.metered_to).num_seconds().max(0);
                let used = gpu_seconds.get(&running.reservation.id).copied();
                let used = used.unwrap_or(0);
                let all = used + i64::from(running.gpus()) * seconds;
                i128::from(running.cost(all) - running.cost(used))
            });
        charged + held.sum::<i128>() + running.sum::<i128>()
    }
}

#[tokio::test]
async fn at_every_step_of_a_random_life_no_cap_is_passed_and_the_sums_are_those_of_all_charges() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        for seed in 0..3 {
            let (acme, first) = tenant(store, &format!("acme-{seed}")).await;
            let second = second_project(store, acme).await;
            // A node costs about 5400 dollars for the nine days that are left of the month.
            let caps = [
                (None, 4_000_000_000_000_i64),
                (Some(second), 1_500_000_000_000),
            ];
            for (project, cap) in caps {
                let terms = terms(BudgetPeriod::Month, cap, BudgetMode::BlockNew);
                budget(store, acme, project, terms).await;
            }
            let mut life = Life {
                store,
                offer: offer.clone(),
                whose: [(acme, first), (acme, second)],
                now: at(1),
                held: Vec::new(),
                running: Vec::new(),
                refused: 0,
                extended: 0,
            };
            let mut random = StdRng::seed_from_u64(seed);
            for step in 0..80 {
                life.step(&mut random).await;
                let spending = store.spending().of(acme).read(life.now).await;
                let spending = spending.expect("reads");
                let month = BudgetPeriod::Month.around(life.now);
                for (project, cap) in caps {
                    let committed =
                        spending.charged(project, month) + spending.open_within(project, month);
                    let place = format!("seed {seed}, step {step}, {project:?}");
                    assert_eq!(committed, life.naively(project).await, "{place}");
                    assert!(committed <= i128::from(cap), "{place}: {committed}");
                }
                for project in [None, Some(first), Some(second)] {
                    let summed = store.spending().of(acme).in_use(project, life.now).await;
                    let summed = summed.expect("sums");
                    assert_eq!(
                        summed,
                        spending.in_use(project, life.now),
                        "seed {seed}, step {step}"
                    );
                }
            }
            assert!(life.refused > 0, "seed {seed} met no cap");
            eprintln!("{} refused, {} extended", life.refused, life.extended);
        }
    })
    .await;
}
