use super::*;
use crate::ids::CommitmentId;
use uuid::Uuid;

fn at(hours: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::hours(hours)
}

fn scope(sku: Option<&str>, gpu: Option<&str>) -> OwnScope {
    OwnScope {
        sku: sku.map(str::to_owned),
        gpu: gpu.map(|name| Gpu::parse(name).expect("a GPU")),
        gpus: None,
        country: None,
        region: None,
    }
}

fn open(nodes: u32, hours_left: Option<i64>, expires: i64) -> OpenCommitment {
    OpenCommitment {
        commitment: Commitment {
            id: CommitmentId::from_uuid(Uuid::from_u128(1)),
            name: "contract 7".into(),
            provider: ProviderId::parse("acme").expect("an id"),
            scope: scope(Some("h100x8"), None),
            nodes,
            node_hours: None,
            price_per_node_hour: Money::usd_units(0),
            expires_at: at(expires),
            created_at: at(0),
        },
        nodes_left: nodes,
        node_seconds_left: hours_left.map(|hours| hours * 3_600),
    }
}

#[test]
fn a_scope_means_on_demand_nodes_of_its_thing_in_its_place_alone() {
    let gpu = GpuIdentity::parse("H100-SXM").expect("a GPU");
    let offer = OfferTraits {
        sku: "h100x8",
        gpu: &gpu,
        gpus: GpuCount::parse("8").expect("a count"),
        terms: Terms::OnDemand,
        country: Country::parse("DE").ok(),
        region: Some("eu-1"),
    };
    assert!(scope(Some("h100x8"), None).means(&offer));
    assert!(scope(None, Some("H100-SXM")).means(&offer));
    let narrow = OwnScope {
        gpus: Some(8),
        country: Country::parse("DE").ok(),
        region: Some("EU-1".into()),
        ..scope(None, Some("H100-SXM"))
    };
    assert!(narrow.means(&offer));
    for other in [
        OfferTraits {
            terms: Terms::Spot,
            ..offer
        },
        OfferTraits {
            gpus: GpuCount::parse("4").expect("a count"),
            ..offer
        },
        OfferTraits {
            country: None,
            ..offer
        },
        OfferTraits {
            region: None,
            ..offer
        },
    ] {
        assert!(!narrow.means(&other), "{other:?}");
    }
    assert!(!scope(Some("h100x4"), None).means(&offer));
    assert!(!scope(None, Some("A100-SXM-80")).means(&offer));
}

#[test]
fn hours_left_are_shared_among_the_nodes_and_end_with_the_commitment() {
    let now = at(0);
    assert_eq!(open(4, Some(100), 1_000).covers(4, now), Some(at(25)));
    assert_eq!(open(4, Some(100), 10).covers(4, now), Some(at(10)));
    assert_eq!(open(4, None, 10).covers(2, now), Some(at(10)));
    for (nodes, left, expires) in [(5, None, 10), (0, None, 10), (1, Some(0), 10), (1, None, 0)] {
        assert_eq!(open(4, left, expires).covers(nodes, now), None);
    }
}

#[test]
fn what_cannot_be_meant_is_refused_in_one_sentence() {
    let now = at(1);
    let good = open(4, None, 2).commitment;
    assert_eq!(good.check(now), Ok(()));
    let bad = [
        Commitment {
            nodes: 0,
            ..good.clone()
        },
        Commitment {
            node_hours: Some(0),
            ..good.clone()
        },
        Commitment {
            price_per_node_hour: Money::usd_units(-1),
            ..good.clone()
        },
        Commitment {
            expires_at: now,
            ..good.clone()
        },
        Commitment {
            scope: scope(None, None),
            ..good.clone()
        },
        Commitment {
            scope: scope(Some("x"), Some("L4")),
            ..good.clone()
        },
        Commitment {
            scope: scope(Some("a\nb"), None),
            ..good
        },
    ];
    for commitment in bad {
        let fault = commitment.check(now).expect_err("refused").to_string();
        assert!(!fault.contains('\n') && fault.len() < 120, "{fault}");
    }
}

#[test]
fn of_two_agreed_prices_the_first_that_holds_counts() {
    let price = |dollars: i64, until: Option<i64>| BookPrice {
        scope: scope(None, Some("H100-SXM")),
        rate: Rate::per_gpu_hour(Money::usd_units(dollars * 100_000_000)),
        valid_from: None,
        valid_until: until.map(at),
    };
    let own = OwnCapacity {
        commitments: Vec::new(),
        accounts: vec![ProviderAccount {
            id: ProviderAccountId::from_uuid(Uuid::from_u128(2)),
            name: "frame contract".into(),
            provider: ProviderId::parse("acme").expect("an id"),
            prices: vec![price(1, Some(5)), price(2, None)],
            created_at: at(0),
        }],
    };
    let gpu = GpuIdentity::parse("H100-SXM").expect("a GPU");
    let offer = OfferTraits {
        sku: "x",
        gpu: &gpu,
        gpus: GpuCount::parse("8").expect("a count"),
        terms: Terms::OnDemand,
        country: None,
        region: None,
    };
    let dollars = |provider: &str, now| {
        let provider = ProviderId::parse(provider).expect("an id");
        let found = own.book_price(&provider, &offer, now);
        found.map(|(_, price)| price.rate.money_per_gpu_hour().units() / 100_000_000)
    };
    assert_eq!(dollars("acme", at(4)), Some(1));
    assert_eq!(dollars("acme", at(5)), Some(2));
    assert_eq!(dollars("other", at(4)), None);
}
