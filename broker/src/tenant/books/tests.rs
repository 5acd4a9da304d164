use chrono::{DateTime, TimeDelta};
use market::credit::Credit;
use market::demand::DemandKind;
use market::ids::{ApiKeyId, CreditId, LeaseId, ProjectId, ProviderId, TransactionId, UsageId};
use market::ledger::{Posting, Transaction, TransactionKind, sums};
use market::tags::{Attribution, Tags};
use market::usage::{Charge, UsageRecord};
use pricing::meter::{RunningTotal, Sale};
use pricing::postings::{charge_transaction, credit_transaction};
use proptest::prelude::*;
use store::ledger::{AccountBalance, LedgerCheck};
use uuid::Uuid;

use super::*;

fn tenant() -> TenantId {
    TenantId::from_uuid(Uuid::from_u128(1))
}

fn provider() -> ProviderId {
    ProviderId::parse("lambda").expect("a provider")
}

fn new_id() -> TransactionId {
    TransactionId::from_uuid(Uuid::now_v7())
}

/// Charges for slices of these lengths on eight GPUs, one after the other.
fn charges(lengths: &[i64]) -> Vec<Charge> {
    let rate = Rate::per_gpu_hour(Money::usd_units(299_000_007));
    let mut total = RunningTotal::start(rate);
    let mut from = DateTime::UNIX_EPOCH;
    let charge = |seconds: &i64| {
        let to = from + TimeDelta::seconds(*seconds);
        let usage = UsageRecord {
            id: UsageId::from_uuid(Uuid::now_v7()),
            reservation_id: ReservationId::from_uuid(Uuid::from_u128(2)),
            lease_id: LeaseId::from_uuid(Uuid::from_u128(3)),
            line: 0,
            gpus: 8,
            from,
            to,
        };
        from = to;
        let sale = Sale {
            tenant_id: tenant(),
            project_id: ProjectId::from_uuid(Uuid::from_u128(4)),
            provider: provider(),
            gpu: "H100-SXM".into(),
            workload: DemandKind::Train,
            tags: Tags::new(),
            attribution: Attribution::default(),
        };
        total.charge(usage, sale).expect("a charge")
    };
    lengths.iter().map(charge).collect()
}

fn credit(units: i64) -> Credit {
    Credit::try_new(
        CreditId::from_uuid(Uuid::now_v7()),
        tenant(),
        Money::usd_units(units),
        "late".into(),
        ApiKeyId::from_uuid(Uuid::from_u128(5)),
        DateTime::UNIX_EPOCH,
    )
    .expect("a credit")
}

/// A provider's cost, booked correctly.
fn cost(units: i64) -> Transaction {
    let usd = LedgerUnit::Money(market::money::Currency::Usd);
    let legs = vec![
        Posting::debit(Account::CogsCompensation(provider()), usd, units),
        Posting::credit(Account::Payable(provider()), usd, units),
    ];
    Transaction::try_new(
        new_id(),
        "lease".into(),
        TransactionKind::ProviderCost,
        DateTime::UNIX_EPOCH,
        legs,
    )
    .expect("balances")
}

/// The ledger of these charges and credits with these postings.
fn books(charges: Vec<Charge>, credits: Vec<Credit>, postings: &[Posting]) -> Books {
    let mut balances = Balances::new();
    for posting in postings {
        *balances
            .entry((posting.account.clone(), posting.unit))
            .or_default() += i128::from(posting.amount);
    }
    Books {
        check: LedgerCheck {
            totals: sums(postings),
            ..LedgerCheck::default()
        },
        balances: balances
            .into_iter()
            .map(|((account, unit), amount)| AccountBalance {
                account,
                unit,
                amount,
            })
            .collect(),
        charges,
        credits,
    }
}

fn post(charges: &[Charge], credits: &[Credit]) -> Vec<Posting> {
    let charged = charges
        .iter()
        .map(|charge| charge_transaction(charge, new_id()).expect("balances"));
    let credited = credits
        .iter()
        .map(|credit| credit_transaction(credit, new_id()).expect("balances"));
    charged
        .chain(credited)
        .chain([cost(1_000)])
        .flat_map(|transaction| transaction.postings().to_vec())
        .collect()
}

fn places(books: &Books) -> Vec<String> {
    let found = differences(books).expect("within 64 bits");
    found.into_iter().map(|one| one.what).collect()
}

#[test]
fn a_charge_that_was_never_posted_is_found_in_every_account_it_belongs_to() {
    let all = charges(&[61, 3_599]);
    let postings = post(&all[..1], &[]);
    let found = places(&books(all, Vec::new(), &postings));
    let reservation = ReservationId::from_uuid(Uuid::from_u128(2));
    for account in [
        format!("account receivable/{} in USD", tenant()),
        "account revenue/usage in USD".into(),
        "account used in GPU_SECONDS".into(),
        format!("account delivered/{reservation} in GPU_SECONDS"),
    ] {
        assert!(found.contains(&account), "{account}: {found:?}");
    }
    assert_eq!(found.len(), 4);
}

#[test]
fn a_charge_of_another_amount_than_its_use_costs_is_found() {
    let mut all = charges(&[61, 3_599]);
    let amount = all[1].amount;
    all[1].amount = Money::usd_units(amount.units() + 1);
    let postings = post(&all, &[]);
    let found = differences(&books(all, Vec::new(), &postings)).expect("within 64 bits");
    assert!(
        found[0].what.starts_with("charges of line 0 of rsv_"),
        "{found:?}"
    );
    // Eight GPUs for 3660 seconds at 2.99000007 an hour.
    assert_eq!(found[0].expected, "24.31866724");
}

#[test]
fn a_credit_without_postings_and_a_payable_without_cost_are_found() {
    let postings = post(&[], &[]);
    let found = places(&books(Vec::new(), vec![credit(500)], &postings));
    assert_eq!(
        found,
        [
            format!("account receivable/{} in USD", tenant()),
            format!("account credits/{} in USD", tenant()),
        ]
    );
    let usd = LedgerUnit::Money(market::money::Currency::Usd);
    let odd = [
        Posting::debit(Account::RevenueUsage, usd, 5),
        Posting::credit(Account::Payable(provider()), usd, 5),
    ];
    assert_eq!(
        places(&books(Vec::new(), Vec::new(), &odd)),
        [
            "account revenue/usage in USD",
            "account payable/lambda in USD"
        ]
    );
}

#[test]
fn a_posting_without_its_other_side_is_found() {
    let lost = &post(&charges(&[60]), &[])[..1];
    let found = places(&books(charges(&[60]), Vec::new(), lost));
    assert!(
        found.contains(&"all postings in USD".to_owned()),
        "{found:?}"
    );
}

proptest! {
    #[test]
    fn what_was_booked_as_it_happened_is_found_right(
        lengths in proptest::collection::vec(1_i64..100_000, 0..12),
        credits in proptest::collection::vec(1_i64..1_000_000_000, 0..4),
    ) {
        let charges = charges(&lengths);
        let credits: Vec<_> = credits.into_iter().map(credit).collect();
        let postings = post(&charges, &credits);
        prop_assert_eq!(differences(&books(charges, credits, &postings)), Ok(Vec::new()));
    }
}
