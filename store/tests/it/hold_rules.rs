//! Holds and cancellations cost nothing: rules that keep a tenant from locking out others, or from having
//! machines created for nothing.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use market::hold_rules::{REFUSED_AFTER, REMEMBERED_SECONDS, SHORT_AFTER, SHORT_SECONDS};
use market::ids::{OfferId, ProjectId, TenantId};
use market::lease::LeaseState;
use market::ledger::{Account, LedgerUnit, Posting, Transaction, TransactionKind};
use market::money::Currency;
use market::offer::{Availability, Offer};
use market::reservation::{CloseReason, ReservationState};
use market::spending::SpendingLimits;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use store::change::{Change, LeaseFacts, LeaseUpdate};
use store::commands::Command;
use store::fixture::{TestDatabase, for_each_database};
use store::limits::LimitsChange;
use store::reservations::{RequestedAction, Reservation};
use store::{Conflict, Store, StoreError};
use uuid::Uuid;

use crate::support::{
    at, claim, hold, new_reservation, offer, provider, provisioning, quote, quote_at, sell, tenant,
};

const HOLD_SECONDS: i64 = 900;

async fn close(store: &Store, held: &Reservation, why: CloseReason, now: DateTime<Utc>) {
    let closed = Command::Move(ReservationState::Closed(why));
    let mine = store.reservations().of(held.tenant_id);
    let done = mine.command(held.id, held.version, closed, now, None).await;
    done.expect("closed");
}

#[tokio::test]
async fn a_hold_on_much_of_an_offer_is_short() {
    for_each_database(async |store| {
        let counted = offer("counted", Availability::exactly(8));
        let bound = offer(
            "bound",
            Availability {
                at_least: true,
                ..Availability::exactly(8)
            },
        );
        let uncounted = offer("uncounted", Availability::PRESENT);
        sell(
            store,
            &[counted.clone(), bound.clone(), uncounted.clone()],
            at(0),
        )
        .await;
        let (acme, other) = (tenant(store, "acme").await, tenant(store, "other").await);
        let (usual, short) = (at(300), at(1 + SHORT_SECONDS));
        for (whose, offer, nodes, lapses) in [
            (acme, &counted, 3, usual),
            // Other tenants' holds do not count for it.
            (other, &counted, 3, usual),
            // With the three before it these are five of eight.
            (acme, &counted, 2, short),
            (acme, &bound, 7, usual),
            (acme, &uncounted, 1, short),
        ] {
            let held = hold(store, whose, offer, nodes, at(1))
                .await
                .expect("a hold");
            assert_eq!(held.hold_expires_at, lapses, "{nodes} of {}", offer.sku);
        }
    })
    .await;
}

#[tokio::test]
async fn whoever_lets_holds_go_unused_holds_for_a_short_time_and_then_waits() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(100));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let (acme, other) = (tenant(store, "acme").await, tenant(store, "other").await);
        for number in 0..REFUSED_AFTER {
            let now = at(5 * i64::try_from(number).expect("few"));
            let held = hold(store, acme, &offer, 1, now).await.expect("a hold");
            let short = held.hold_expires_at == now + TimeDelta::seconds(SHORT_SECONDS);
            assert_eq!(short, number >= SHORT_AFTER, "after {number}");
            close(store, &held, CloseReason::Cancelled, now).await;
        }
        let now = at(250);
        let refused = hold(store, acme, &offer, 1, now).await;
        let Err(StoreError::Conflict(Conflict::TooManyUnused {
            again_at,
            again_in_seconds,
        })) = refused
        else {
            panic!("{refused:?}")
        };
        // The first was cancelled at the beginning.
        assert_eq!(again_at, at(REMEMBERED_SECONDS));
        assert_eq!(
            i64::try_from(again_in_seconds),
            Ok(REMEMBERED_SECONDS - 250)
        );
        hold(store, other, &offer, 1, now)
            .await
            .expect("others hold");
        // A reservation that is confirmed in the same call does not wait.
        let quote = quote(store, acme.0, &offer, 1).await;
        let mut at_once = new_reservation(acme.1, &quote);
        at_once.confirmed_at_once = true;
        let mine = store.reservations().of(acme.0);
        let held = mine.place_hold(at_once, now, None).await.expect("a hold");
        assert_eq!(held.hold_expires_at, at(300));
        let later = quote_at(store, acme.0, &offer, 1, again_at).await;
        let later = new_reservation(acme.1, &later);
        mine.place_hold(later, again_at, None)
            .await
            .expect("a hold");
    })
    .await;
}

/// An order that its provider accepts and its tenant then cancels.
async fn cancelled_order(store: &Store, whose: (TenantId, ProjectId), offer: &Offer) {
    let (reservation, lease) = provisioning(store, whose, offer).await;
    let claimed = claim(store, reservation.id, at(4)).await;
    let accepted = LeaseUpdate {
        id: lease,
        from: LeaseState::Requested,
        to: LeaseState::Booting,
        facts: LeaseFacts {
            accepted_at: Some(at(4)),
            ..LeaseFacts::default()
        },
    };
    let change = Change {
        lease_updates: vec![accepted],
        ..Change::default()
    };
    let work = store.work();
    work.apply(&claimed.claim, &change, at(4))
        .await
        .expect("accepted");
    let mine = store.reservations().of(whose.0);
    let stands = mine.find(reservation.id).await.expect("reads");
    let stands = stands.expect("is there");
    let cancel = Command::RequestedAction(RequestedAction::Cancel);
    let done = mine.command(stands.id, stands.version, cancel, at(5), None);
    done.await.expect("noted");
    let cost = |account, amount| Posting {
        account,
        unit: LedgerUnit::Money(Currency::Usd),
        amount,
    };
    let billed = Transaction::try_new(
        market::ids::TransactionId::from_uuid(Uuid::now_v7()),
        format!("lease/{lease}/compensation"),
        TransactionKind::ProviderCost,
        at(6),
        vec![
            cost(Account::CogsCompensation(provider()), 7),
            cost(Account::Payable(provider()), -7),
        ],
    );
    let ledger = store.ledger();
    ledger
        .post(&[billed.expect("balanced")], at(6))
        .await
        .expect("posted");
}

#[tokio::test]
async fn whoever_cancels_orders_before_their_hand_off_confirms_nothing_for_a_while() {
    for_each_database(async |store| {
        let store = store.clone().with_default_limits(SpendingLimits {
            cancelled_orders: Some(2),
            ..SpendingLimits::default()
        });
        let offer = offer("a", Availability::exactly(100));
        sell(&store, std::slice::from_ref(&offer), at(0)).await;
        let (acme, other) = (tenant(&store, "acme").await, tenant(&store, "other").await);
        cancelled_order(&store, acme, &offer).await;
        cancelled_order(&store, acme, &offer).await;
        cancelled_order(&store, other, &offer).await;
        let confirm = async |held: &Reservation| {
            let mine = store.reservations().of(held.tenant_id);
            let confirm = Command::Move(ReservationState::Confirmed);
            mine.command(held.id, held.version, confirm, at(7), None).await
        };
        let held = hold(&store, acme, &offer, 1, at(6)).await.expect("a hold");
        let refused = confirm(&held).await;
        let again = at(5) + TimeDelta::hours(24);
        assert!(
            matches!(
                refused,
                Err(StoreError::Conflict(Conflict::TooManyCancelled { cancelled: 2, most: 2, again_at, .. }))
                    if again_at == again
            ),
            "{refused:?}"
        );
        let theirs = hold(&store, other, &offer, 1, at(6)).await.expect("a hold");
        confirm(&theirs).await.expect("one is let through");
        let more = LimitsChange {
            cancelled_orders: Some(Some(3)),
            ..LimitsChange::default()
        };
        let limits = store.limits().of(acme.0);
        limits.change(None, more, at(7), None).await.expect("set");
        confirm(&held).await.expect("its limit was raised");

        let lines = store.cancelled_orders().by_tenant(at(0), None).await;
        let lines = lines.expect("reads").into_iter();
        let lines: Vec<_> = lines.map(|line| (line.name, line.orders, line.cost_units)).collect();
        assert_eq!(lines, [("acme".to_owned(), 2, 14), ("other".to_owned(), 1, 7)]);
        let none = store.cancelled_orders().by_tenant(at(0), Some(at(5))).await;
        assert_eq!(none.expect("reads"), []);
    })
    .await;
}

/// The next action of a tenant.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Hold { offer: usize, nodes: u32 },
    Confirm,
    Cancel,
}

/// The actions, each with its tenant and the seconds since the action before it.
fn schedule(random: &mut StdRng) -> Vec<(usize, i64, Deed)> {
    // Sometimes one tenant does everything, for long enough to meet every rule.
    let is_long = random.random_bool(0.01);
    let whose = is_long.then(|| random.random_range(0..8));
    let deeds = if is_long {
        60
    } else {
        random.random_range(2..7)
    };
    let deed = |random: &mut StdRng| match random.random_range(0..10) {
        0..5 => Deed::Hold {
            offer: random.random_range(0..2),
            nodes: random.random_range(1..6),
        },
        5 => Deed::Confirm,
        _ => Deed::Cancel,
    };
    let next = |random: &mut StdRng| {
        let who = whose.unwrap_or_else(|| random.random_range(0..8));
        (who, random.random_range(0..90), deed(random))
    };
    (0..deeds).map(|_| next(random)).collect()
}

/// How many schedules are run: more with HOLD_SCHEDULES, which `cargo xtask holds` sets.
fn schedules() -> u32 {
    let set = std::env::var("HOLD_SCHEDULES").ok();
    set.map_or(2_000, |set| set.parse().expect("a number"))
}

/// Counts the holds of each of these offers and tenants, independently of the code under test.
struct Tally {
    live: Vec<Reservation>,
    unused: BTreeMap<TenantId, Vec<DateTime<Utc>>>,
}

impl Tally {
    /// Releases lapsed holds, as the worker does when their time has come.
    async fn lapse(&mut self, store: &Store, now: DateTime<Utc>) {
        let (lapsed, live) = std::mem::take(&mut self.live)
            .into_iter()
            .partition(|held| held.state == ReservationState::Held && held.hold_expires_at <= now);
        self.live = live;
        for held in lapsed {
            let held: Reservation = held;
            close(store, &held, CloseReason::Expired, now).await;
            let unused = self.unused.entry(held.tenant_id).or_default();
            unused.push(held.hold_expires_at);
        }
    }

    fn nodes(&self, of: impl Fn(&Reservation) -> bool) -> u32 {
        let lines = self
            .live
            .iter()
            .filter(|held| of(held))
            .flat_map(|held| &held.lines);
        lines.map(|line| line.nodes).sum()
    }

    fn waiting(&self, tenant: TenantId) -> impl Iterator<Item = &Reservation> {
        let held = ReservationState::Held;
        self.live
            .iter()
            .filter(move |one| one.tenant_id == tenant && one.state == held)
    }

    fn lately(&self, tenant: TenantId, now: DateTime<Utc>) -> usize {
        let since = now - TimeDelta::seconds(REMEMBERED_SECONDS);
        let unused = self.unused.get(&tenant).into_iter().flatten();
        unused.filter(|at| **at > since).count()
    }
}

const COUNTS: [u32; 2] = [12, 40];
const OPEN_HOLDS: u32 = 3;
const HELD_NODES: u32 = 8;

fn on(offer: OfferId) -> impl Fn(&Reservation) -> bool {
    move |held| held.lines.iter().any(|line| line.offer.offer_id == offer)
}

/// One schedule: after each action nothing is oversold and nobody exceeds the rules, and nothing that the
/// rules allow is refused.
async fn live_through(
    store: &Store,
    offers: &[Offer],
    tenants: &[(TenantId, ProjectId)],
    begins: DateTime<Utc>,
    schedule: Vec<(usize, i64, Deed)>,
) {
    let mut tally = Tally {
        live: Vec::new(),
        unused: BTreeMap::new(),
    };
    let mut now = begins;
    for (who, later, deed) in schedule {
        now += TimeDelta::seconds(later);
        tally.lapse(store, now).await;
        let whose = tenants[who];
        let mine = store.reservations().of(whose.0);
        match deed {
            Deed::Hold { offer, nodes } => {
                let offer = &offers[offer];
                let count = offer.availability.nodes.expect("counted");
                let quote = quote_at(store, whose.0, offer, nodes, now).await;
                let mut new = new_reservation(whose.1, &quote);
                new.hold_expires_at = now + TimeDelta::seconds(HOLD_SECONDS);
                let fits = tally.nodes(on(offer.offer_id)) + nodes <= count;
                let waiting = tally.waiting(whose.0).count();
                let of_tenant = tally.nodes(|held| {
                    held.tenant_id == whose.0 && held.state == ReservationState::Held
                });
                let within = waiting < OPEN_HOLDS as usize && of_tenant + nodes <= HELD_NODES;
                let unused = tally.lately(whose.0, now);
                let here = on(offer.offer_id);
                let much = 2
                    * (nodes
                        + tally.nodes(|held| {
                            here(held)
                                && held.tenant_id == whose.0
                                && held.state == ReservationState::Held
                        }))
                    > count;
                match mine.place_hold(new, now, None).await {
                    Ok(held) => {
                        assert!(fits && within && unused < REFUSED_AFTER);
                        let short = much || unused >= SHORT_AFTER;
                        let stands = if short { SHORT_SECONDS } else { HOLD_SECONDS };
                        assert_eq!(held.hold_expires_at, now + TimeDelta::seconds(stands));
                        tally.live.push(held);
                    }
                    Err(StoreError::OutOfStock { .. }) => assert!(!fits),
                    Err(StoreError::LimitExceeded(_)) => assert!(!within),
                    Err(StoreError::Conflict(Conflict::TooManyUnused { .. })) => {
                        assert!(unused >= REFUSED_AFTER);
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            Deed::Confirm => {
                let Some(held) = tally.waiting(whose.0).next().cloned() else {
                    continue;
                };
                let confirm = Command::Move(ReservationState::Confirmed);
                let confirmed = mine.command(held.id, held.version, confirm, now, None);
                let confirmed = confirmed.await.expect("confirmed");
                tally.live.retain(|one| one.id != held.id);
                tally.live.push(confirmed);
            }
            Deed::Cancel => {
                let of_mine = tally.live.iter().find(|held| held.tenant_id == whose.0);
                let Some(held) = of_mine.cloned() else {
                    continue;
                };
                close(store, &held, CloseReason::Cancelled, now).await;
                tally.live.retain(|one| one.id != held.id);
                if held.state == ReservationState::Held {
                    tally.unused.entry(whose.0).or_default().push(now);
                }
            }
        }
        for offer in offers {
            let held = tally.nodes(on(offer.offer_id));
            assert!(
                held <= offer.availability.nodes.expect("counted"),
                "oversold"
            );
        }
    }
    let held = store.catalog().held_nodes().await.expect("reads");
    for offer in offers {
        let stands = held.get(&offer.offer_id).copied().unwrap_or(0);
        assert_eq!(stands, tally.nodes(on(offer.offer_id)), "{}", offer.sku);
    }
    for held in tally.live {
        close(store, &held, CloseReason::Cancelled, now).await;
    }
    assert!(store.ledger().check().await.expect("reads").is_balanced());
}

#[tokio::test]
async fn no_schedule_of_holds_confirms_cancels_and_lapses_oversells_or_passes_the_rules() {
    let test = TestDatabase::sqlite().await;
    let store = test.store.clone().with_default_limits(SpendingLimits {
        open_holds: Some(OPEN_HOLDS),
        held_nodes: Some(HELD_NODES),
        ..SpendingLimits::default()
    });
    let offers = COUNTS.map(|count| offer(&count.to_string(), Availability::exactly(count)));
    sell(&store, &offers, at(0)).await;
    let mut tenants = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        tenants.push(tenant(&store, name).await);
    }
    for number in 0..schedules() {
        let schedule = schedule(&mut StdRng::seed_from_u64(number.into()));
        eprintln!("schedule {number}: {schedule:?}");
        // Far enough from the one before that nothing of it still counts.
        let begins = at(100_000 * i64::from(number));
        live_through(&store, &offers, &tenants, begins, schedule).await;
    }
    test.remove().await;
}
