use std::collections::BTreeMap;

use market::ids::{ApiKeyId, CreditId, TenantId};
use market::ledger::sums;
use market::money::{Currency, divide_half_even};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::meter::RunningTotal;
use crate::samples::{at, id_counter, sale, usage, usd};

const USD: LedgerUnit = LedgerUnit::Money(Currency::Usd);

fn life(times: (i64, Option<i64>, Option<i64>, i64)) -> LeaseLife {
    LeaseLife {
        lease_id: LeaseId::from_uuid(Uuid::from_u128(5)),
        provider: ProviderId::parse("lambda").expect("a provider"),
        price_per_node_hour: usd("23.92"),
        covered: None,
        nodes: 2,
        started_at: at(times.0),
        handed_off_at: times.1.map(at),
        use_ended_at: times.2.map(at),
        gone_at: at(times.3),
        failed: false,
    }
}

/// The balance of each account after these transactions.
fn balances(transactions: &[Transaction]) -> BTreeMap<String, i64> {
    let mut balances = BTreeMap::new();
    for posting in transactions.iter().flat_map(Transaction::postings) {
        *balances.entry(posting.account.to_string()).or_insert(0) += posting.amount;
    }
    balances
}

fn book(lease: &LeaseLife) -> Vec<Transaction> {
    provider_cost(lease, id_counter()).expect("a life in order")
}

#[test]
fn while_a_commitment_pays_its_provider_is_owed_what_is_left_to_pay() {
    let hours = |hours: i64| hours * 3_600;
    let uncovered = life((0, Some(hours(1)), Some(hours(4)), hours(5)));
    let covered = LeaseLife {
        covered: Some((usd("1.00"), at(hours(3)))),
        ..uncovered.clone()
    };
    let cogs = |life: &LeaseLife| {
        let held = balances(&book(life));
        (held["cogs/pre_handoff/lambda"], held["cogs/usage/lambda"])
    };
    let (node, paid) = (usd("23.92").units(), usd("1.00").units());
    assert_eq!(cogs(&uncovered), (2 * node * 2, 2 * node * 3));
    // An hour before the hand-off and two of three in use are covered; the rest is not.
    assert_eq!(cogs(&covered), (2 * (paid + node), 2 * (2 * paid + node)));
}

#[test]
fn a_charge_books_money_and_gpu_seconds_against_each_other() {
    let mut total = RunningTotal::start(Rate::per_gpu_hour(usd("2.99")));
    let charge = total.charge(usage(8, 0, 3_600), sale()).expect("a charge");
    let booked = charge_transaction(&charge, id_counter()()).expect("balances");
    assert_eq!(
        booked.idempotency_key(),
        format!("charge/{}", charge.usage.id)
    );
    assert_eq!(booked.effective_at(), at(3_600));
    let amounts = balances(std::slice::from_ref(&booked));
    let tenant = charge.tenant_id;
    assert_eq!(
        amounts[&format!("receivable/{tenant}")],
        usd("23.92").units()
    );
    assert_eq!(amounts["revenue/usage"], -usd("23.92").units());
    assert_eq!(amounts["used"], 28_800);
    assert_eq!(
        amounts[&format!("delivered/{}", charge.usage.reservation_id)],
        -28_800
    );
}

// S65
#[test]
fn a_lease_that_was_never_handed_off_is_all_compensation() {
    let booked = book(&life((0, None, None, 1_800)));
    let amounts = balances(&booked);
    assert_eq!(amounts["cogs/compensation/lambda"], usd("23.92").units());
    assert_eq!(amounts["payable/lambda"], -usd("23.92").units());
    assert_eq!(amounts.len(), 2);
}

#[test]
fn what_a_lease_that_failed_costs_is_claimed_back_and_owed_all_the_same() {
    let failed = |times| LeaseLife {
        failed: true,
        ..life(times)
    };
    let booked = book(&failed((0, None, None, 1_800)));
    let amounts = balances(&booked);
    assert_eq!(amounts["disputed/lambda"], usd("23.92").units());
    assert_eq!(amounts["payable/lambda"], -usd("23.92").units());
    assert_eq!(amounts["cogs/compensation/lambda"], 0);
    assert_eq!(amounts.len(), 3);
    // Time that a tenant had is paid for.
    let served = book(&failed((0, Some(900), Some(4_500), 4_590)));
    assert!(!balances(&served).contains_key("disputed/lambda"));
    assert_eq!(book(&failed((7, None, None, 7))), []);
}

#[test]
fn a_lease_that_served_is_split_at_the_handoff_and_at_the_release() {
    let booked = book(&life((0, Some(900), Some(4_500), 4_590)));
    let amounts = balances(&booked);
    assert_eq!(amounts["cogs/usage/lambda"], usd("47.84").units());
    // 900 seconds before the hand-off and 90 after the release.
    assert_eq!(amounts["cogs/pre_handoff/lambda"], usd("13.156").units());
    let keys: Vec<_> = booked.iter().map(Transaction::idempotency_key).collect();
    let lease = LeaseId::from_uuid(Uuid::from_u128(5));
    assert_eq!(
        keys,
        ["before_handoff", "use", "after_use"].map(|part| format!("lease/{lease}/{part}"))
    );
}

#[test]
fn a_part_without_a_second_is_not_booked() {
    let booked = book(&life((0, Some(0), None, 3_600)));
    assert_eq!(booked.len(), 1);
    assert_eq!(balances(&booked)["cogs/usage/lambda"], usd("47.84").units());
    assert_eq!(book(&life((7, None, None, 7))), []);
}

#[test]
fn times_that_do_not_follow_each_other_are_refused() {
    for times in [
        (10, None, None, 9),
        (10, Some(9), None, 20),
        (0, Some(10), Some(9), 20),
        (0, Some(10), Some(20), 19),
    ] {
        let refusal = provider_cost(&life(times), id_counter());
        assert!(
            matches!(refusal, Err(PriceError::TimesOutOfOrder(_))),
            "{times:?}"
        );
    }
}

fn credit(units: i64) -> Credit {
    Credit::try_new(
        CreditId::from_uuid(Uuid::from_u128(6)),
        TenantId::from_uuid(Uuid::from_u128(4)),
        Money::usd_units(units),
        "the second node came late".into(),
        ApiKeyId::from_uuid(Uuid::from_u128(7)),
        at(60),
    )
    .expect("a credit")
}

proptest! {
    #[test]
    fn a_credit_takes_from_what_the_tenant_owes_what_we_bear(units in 1_i64..100_000_000_000_000) {
        let credit = credit(units);
        let booked = credit_transaction(&credit, id_counter()()).expect("balances");
        prop_assert_eq!(sums(booked.postings()), BTreeMap::from([(USD, 0)]));
        prop_assert_eq!(booked.idempotency_key(), format!("credit/{}", credit.id));
        prop_assert_eq!((booked.kind(), booked.effective_at()), (TransactionKind::Credit, at(60)));
        let amounts = balances(std::slice::from_ref(&booked));
        let tenant = credit.tenant_id;
        prop_assert_eq!(amounts[&format!("receivable/{tenant}")], -units);
        prop_assert_eq!(amounts[&format!("credits/{tenant}")], units);
        prop_assert_eq!(amounts.len(), 2);
    }

    #[test]
    fn the_parts_of_a_life_sum_to_one_rounding_of_the_whole(
        price in 1_i64..100_000_000_000,
        nodes in 1_u32..600,
        parts in (0_i64..1_000_000, 0_i64..1_000_000, 0_i64..1_000_000),
        served in any::<bool>(),
    ) {
        let (handoff, ended) = (parts.0, parts.0 + parts.1);
        let gone = ended + parts.2;
        let mut lease = life((0, Some(handoff), Some(ended), gone));
        if !served {
            lease.handed_off_at = None;
        }
        lease.price_per_node_hour = Money::usd_units(price);
        lease.nodes = nodes;
        let booked = book(&lease);
        for transaction in &booked {
            prop_assert_eq!(sums(transaction.postings()), BTreeMap::from([(USD, 0)]));
        }
        let exact = i128::from(price) * i128::from(nodes) * i128::from(gone);
        let owed = balances(&booked).get("payable/lambda").copied().unwrap_or(0);
        prop_assert_eq!(i128::from(-owed), divide_half_even(exact, 3_600));
    }
}
