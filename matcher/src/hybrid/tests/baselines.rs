//! Compares the baselines of a hybrid plan with every possible pair.

use market::offer::Availability;

use super::*;
use crate::plan::CandidateLine;

/// The cheaper fleet is where the transfer of weights costs money, and a short one is not worth it.
#[test]
fn nothing_is_saved_where_the_best_pair_stands_at_one_provider() {
    let supply = vec![
        standing(metal("fabric", "H100-SXM", "23.92"), "aws", "east"),
        standing(offer("near", "L40S", 1, "1.10"), "aws", "east"),
        standing(offer("far", "L40S", 1, "1.09"), "aws", "west"),
    ];
    let plan = plan(
        supply,
        &demand(json!({}), json!({"window": {"duration_hours": 1}})),
    );
    check(&plan);
    assert_eq!(skus(&plan, &hybrid(&plan).pairs[0]), ["fabric", "near"]);
    let one_provider = baseline(&plan, BaselineKind::OneProvider);
    assert_eq!(one_provider.saves_usd, Some(Money::usd_units(0)));
    assert_eq!(
        one_provider.way.as_ref().expect("a way").serve[0].sku,
        "near"
    );
}

/// The same in three regions, with few nodes of some, so that fleets of several offers are needed.
fn scarce_supply() -> impl Strategy<Value = Vec<Offer>> {
    let one = (
        prop::sample::select(vec!["aws", "lambda"]),
        prop::sample::select(vec![Some("east"), Some("west"), Some("north"), None]),
        prop::sample::select(vec![
            ("H100-SXM", 8_u32, true),
            ("L40S", 1, false),
            ("L40S", 4, false),
            ("A100-SXM-80", 8, true),
        ]),
        // Near each other, so that the way of the weights decides.
        100_i64..140,
        prop::option::of(1_u32..6),
    );
    prop::collection::vec(one, 2..7).prop_map(|all| {
        let each = all.into_iter().enumerate();
        each.map(|(at, (seller, region, (gpu, gpus, fabric), cents, free))| {
            let cents = cents * i64::from(gpus);
            let price = format!("{}.{:02}", cents / 100, cents % 100);
            let sku = format!("s{at}");
            let sold = if fabric {
                metal(&sku, gpu, &price)
            } else {
                offer(&sku, gpu, gpus, &price)
            };
            let mut sold = standing(sold, seller, "");
            sold.place.region = region.map(str::to_owned);
            // All runs can be had, so that there is mostly a pair.
            if let Some(free) = free.filter(|_| !fabric) {
                sold.availability = Availability::exactly(free);
            }
            sold
        })
        .collect()
    })
}

/// A provider's egress price for 1e9 bytes, split from the table by commas. Units: 1e-8 US dollars.
fn charged(seller: &ProviderId) -> i128 {
    let rows = include_str!("../../../data/egress.csv").lines().skip(1);
    let rows = rows.map(|row| {
        let mut cells = row.split(',');
        let (name, price) = (
            cells.next().expect("a name"),
            cells.next().expect("a price"),
        );
        (name, i128::from(crate::samples::usd(price).units()))
    });
    let rows: Vec<_> = rows.collect();
    let own = rows.iter().find(|(name, _)| *name == seller.as_str());
    let dearest = rows.iter().map(|(_, price)| *price).max().expect("rows");
    own.map_or(dearest, |(_, price)| *price)
}

/// The total of a pair, from prices, hours and places alone. Units: 1e-8 US dollars.
fn whole(run: &Candidate, fleet: &Candidate, weights: i128, seconds: i128) -> i128 {
    let [trains] = run.lines.as_slice() else {
        panic!("a run of several offers")
    };
    let cost = |line: &CandidateLine, seconds: i128| {
        let gpus = i128::from(line.offer.gpus.as_whole().expect("whole"));
        let rate = half_even(i128::from(line.offer.price_per_node_hour.units()), gpus);
        half_even(rate * gpus * i128::from(line.nodes) * seconds, 3_600)
    };
    let hours = run.facts.run_hours.expect("hours");
    let trained = (hours * f64::from(run.gpus()) * 3_600.0).ceil() as i128;
    let gpus = i128::from(trains.offer.gpus.as_whole().expect("whole"));
    let rate = half_even(i128::from(trains.offer.price_per_node_hour.units()), gpus);
    let mut total = half_even(rate * trained, 3_600);
    let mut sites = Vec::new();
    let mut waits = 0;
    for line in &fleet.lines {
        let of = |offer: &Offer| (offer.provider.clone(), offer.place.region.clone());
        let (site, own) = (of(&line.offer), of(&trains.offer));
        let known = |(site, id): &(_, _)| {
            *id == line.offer.offer_id
                || (*site == of(&line.offer) && line.offer.place.region.is_some())
        };
        if !sites.iter().any(known) {
            let itself = line.offer.offer_id == trains.offer.offer_id;
            if itself || (site == own && site.1.is_some()) {
                waits += (weights + 1_249_999_999) / 1_250_000_000;
            } else {
                waits += (weights + 624_999_999) / 625_000_000;
                total += half_even(charged(&own.0) * weights, 1_000_000_000);
            }
            sites.push((site, line.offer.offer_id));
        }
        total += cost(line, seconds);
    }
    total += cost(trains, waits);
    total
}

/// The candidates of a half of a demand among these offers alone.
fn half_of(demand: &HybridDemand, half: Half, offers: Vec<Offer>) -> Vec<Candidate> {
    let options = SearchOptions {
        limit: 50,
        ..SearchOptions::default()
    };
    let found = search(
        &snapshot(offers),
        &demand.half(half),
        &Held::new(),
        now(),
        &options,
    );
    found.expect("a half").candidates
}

/// The best of all runs on each offer with the best fleets of every choice of offers.
fn best_by_force(demand: &HybridDemand, offers: &[Offer], weights: i128) -> Option<i128> {
    let seconds = i128::from(demand.serve.shared().window?.duration_hours?.get()) * 3_600;
    let fleets: Vec<_> = (1_u32..1 << offers.len())
        .flat_map(|choice| {
            let some = (0..offers.len()).filter(|at| choice >> at & 1 == 1);
            let some = some.map(|at| offers[at].clone()).collect();
            half_of(demand, Half::Serve, some)
        })
        .collect();
    let runs = half_of(demand, Half::Train, offers.to_vec());
    let pairs = runs.iter().flat_map(|run| {
        fleets
            .iter()
            .map(move |fleet| whole(run, fleet, weights, seconds))
    });
    pairs.min()
}

proptest! {
    /// Every run with every fleet that any choice of a provider's offers makes.
    #[test]
    fn the_baselines_are_the_cheapest_of_all_pairs_that_can_be_made(
        supply in scarce_supply(), hours in prop::sample::select(vec![1_u32, 20, 720]),
    ) {
        let demand = demand(
            json!({}),
            json!({"window": {"duration_hours": hours}, "requests_per_second": 40}),
        );
        // Fewer candidates than offers are kept.
        let options = SearchOptions { limit: 1, ..SearchOptions::default() };
        let whole_demand = Demand::Hybrid(Box::new(demand.clone()));
        let plan = search(&snapshot(supply.clone()), &whole_demand, &Held::new(), now(), &options);
        let plan = plan.expect("a plan");
        check_if_met(&plan);
        let weights = i128::from(hybrid(&plan).weights_bytes);
        let told = |kind| {
            let way = baseline(&plan, kind).way.as_ref();
            way.map(|way| i128::from(way.bill.total_usd.units()))
        };
        let at = |seller: &str| {
            let of = supply.iter().filter(|offer| offer.provider == provider(seller));
            best_by_force(&demand, &of.cloned().collect::<Vec<_>>(), weights)
        };
        let one_provider = [at("aws"), at("lambda")].into_iter().flatten().min();
        prop_assert_eq!(told(BaselineKind::OneProvider), one_provider);
        let on_one = supply.iter().filter_map(|one| best_by_force(&demand, std::slice::from_ref(one), weights));
        let one_shape = on_one.min();
        prop_assert_eq!(told(BaselineKind::OneShape), one_shape);
    }
}
