//! `broker bench`.

use super::Place;

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
