//! `broker bench`.

use serde_json::Value;
use store::Database;
use store::fixture::TestDatabase;

use super::{Ended, Place};
use crate::client::width::{WIDTHS, faults};
use crate::eventually::output_of;

#[test]
fn bench_http_measures_offers_and_plans_beside_their_floors() {
    let place = Place::new();
    let flags = ["--seconds", "1", "--connections", "2", "--offers", "70"];
    let ended = place.broker(["bench", "http", "--json"].iter().chain(&flags));
    let found = ended.json(0);
    assert_eq!(found["offers"], 70);
    assert_eq!(found["database"], "sqlite");
    let routes = found["routes"].as_array().expect("routes");
    assert_eq!(routes.len(), 2);
    for route in routes {
        for server in ["measured", "floor"] {
            let rate = route[server]["requests_per_second"].as_f64();
            assert!(rate.is_some_and(|rate| rate > 0.0), "{route}");
        }
        let ratio = route["rate_to_floor"].as_f64();
        assert!(ratio.is_some_and(|ratio| ratio > 0.0), "{route}");
        assert!(route["body_bytes"].as_u64() > Some(1_000), "{route}");
    }
}

#[test]
fn bench_neighbours_measures_a_tenants_plans_without_and_with_another_ones() {
    let flags = ["--json", "--seconds", "1", "--offers", "70"];
    let found = Place::new()
        .broker(["bench", "neighbours"].iter().chain(&flags))
        .json(0);
    assert_eq!(found["offers"], 70);
    for figure in [
        "idle_p50_ms",
        "idle_p99_ms",
        "busy_p50_ms",
        "busy_p99_ms",
        "neighbour_plans_per_second",
    ] {
        let above_zero = found[figure].as_f64().is_some_and(|figure| figure > 0.0);
        assert!(above_zero, "{figure} in {found}");
    }
    assert!(found["goal_ms"].as_f64() >= Some(50.0), "{found}");
}

#[test]
fn the_tables_of_bench_keep_to_the_terminal() {
    let place = Place::new();
    let http = [
        "http",
        "--seconds",
        "1",
        "--connections",
        "2",
        "--offers",
        "70",
    ];
    let reprice = ["match", "--reprice", "--seconds", "1", "--offers", "500"];
    let at = |width: usize, flags: &[&str]| {
        let mut bench = place.command(["bench"].iter().chain(flags));
        let ended = Ended::of(output_of(bench.env("COLUMNS", width.to_string())));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert!(ended.stdout.lines().count() > 4, "{ended:?}");
        assert_eq!(faults("bench", width, &ended.stdout), [""; 0]);
    };
    for flags in [&http[..], &reprice[..]] {
        // At once: what they measure is of no matter here.
        std::thread::scope(|scope| {
            for width in WIDTHS {
                scope.spawn(move || at(width, flags));
            }
        });
    }
}

/// The figures of a match, in the order in which they are named everywhere.
const MATCH_FIGURES: [&str; 13] = [
    "offers",
    "narrow_p50_us",
    "narrow_p99_us",
    "wide_p50_us",
    "wide_scan_p50_us",
    "gang_p50_us",
    "train_plan_p50_ms",
    "serve_plan_p50_ms",
    "serve_tails_p50_ms",
    "hybrid_plan_p50_ms",
    "scan_p50_us",
    "postgres_p50_us",
    "rss_mib",
];

fn check_match(found: &Value, offers: u64, without: &[&str]) {
    let named: Vec<_> = found.as_object().expect("an object").keys().collect();
    assert_eq!(named.len(), MATCH_FIGURES.len(), "{found}");
    assert_eq!(found["offers"], offers);
    for name in MATCH_FIGURES {
        let above_zero = found[name].as_f64().is_some_and(|figure| figure > 0.0);
        assert!(above_zero != without.contains(&name), "{name} in {found}");
    }
}

#[test]
fn bench_match_compares_its_answers_and_measures_each_size() {
    let place = Place::new();
    let ended = place.broker(["bench", "match", "--json", "--offers", "100,300"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let sizes: Vec<Value> = (ended.stdout.lines())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(sizes.len(), 2);
    for (found, offers) in sizes.iter().zip([100, 300]) {
        check_match(found, offers, &["postgres_p50_us"]);
    }
    assert!(
        ended.stderr.contains("TEST_DATABASE_URL names no server"),
        "{ended:?}"
    );
}

#[test]
fn bench_match_draws_its_market_from_price_lists() {
    let place = Place::new();
    let header = "provider,instance_type,gpu_name,gpu_count,vcpus,memory_gib,gpu_memory_mib,price_usd_hour,spot_usd_hour,region,zone";
    let row = "lambda,gpu_8x_h100_sxm5,H100,8,208,1800,81920,23.92,12.00,us-east-1,";
    let list = place.write("list.csv", &format!("{header}\n{row}\n"));
    let flags = [
        "bench",
        "match",
        "--offers",
        "100",
        "--json",
        "--pricesheets",
    ];
    let ended = place.broker(flags.iter().map(AsRef::as_ref).chain([list.as_os_str()]));
    check_match(&ended.json(0), 100, &["postgres_p50_us"]);
    let empty = place.write("empty.csv", &format!("{header}\n"));
    let ended = place.broker(flags.iter().map(AsRef::as_ref).chain([empty.as_os_str()]));
    assert_eq!(ended.status, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("hold no offer"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_match_asks_postgres_the_same_where_there_is_a_server() {
    let Some(database) = TestDatabase::postgres().await else {
        return;
    };
    let Database::Url(url) = &database.database else {
        panic!("a server has a URL");
    };
    let place = Place::new();
    let mut command = place.command(["bench", "match", "--json", "--offers", "100"]);
    let ended = Ended::of(output_of(command.env("TEST_DATABASE_URL", url)));
    check_match(&ended.json(0), 100, &[]);
    database.remove().await;
}

#[test]
fn bench_match_measures_searches_while_every_price_changes() {
    let place = Place::new();
    let flags = ["--reprice", "--seconds", "1", "--offers", "500"];
    let found = place
        .broker(["bench", "match", "--json"].iter().chain(&flags))
        .json(0);
    for name in [
        "idle_p50_us",
        "idle_p99_us",
        "busy_p50_us",
        "busy_p99_us",
        "patch_p50_ms",
    ] {
        assert!(
            found[name].as_f64().is_some_and(|figure| figure > 0.0),
            "{name} in {found}"
        );
    }
    assert!(found["swaps"].as_u64() > Some(1), "{found}");
}
