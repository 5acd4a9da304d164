use serde_json::json;

use super::*;
use crate::perf::chip::Chip;
use market::gpu::Gpu;

fn query(first_token_ms: f64, per_token_ms: f64) -> ServeQuery {
    let demand = serde_json::from_value(json!({
        "model": "Llama 3.1 8B", "requests_per_second": 10, "input_tokens": 900, "output_tokens": 300,
        "latency": {"first_token_ms": first_token_ms, "per_token_ms": per_token_ms},
    }));
    ServeQuery::of_realtime(&demand.expect("a demand")).expect("a query")
}

#[test]
fn a_copy_that_is_known_without_a_limit_is_the_one_within_it() {
    let (mut limited, mut refused) = (0, 0);
    for first_token_ms in [40.0, 120.0, 250.0, 1_000.0] {
        for per_token_ms in [8.0, 50.0] {
            let query = query(first_token_ms, per_token_ms);
            for spec in Gpu::all().map(Gpu::spec) {
                let Some(chip) = Chip::of_spec(spec) else {
                    continue;
                };
                for (gpus, network_ms) in [(1, 0), (1, 35), (2, 35), (4, 90), (8, 90), (8, 240)] {
                    let network_seconds = f64::from(network_ms) / 1e3;
                    let alone = (query.work).replica(query.constants, &chip, gpus, network_seconds);
                    let known = query.replica(&chip, spec, gpus, network_seconds);
                    assert_eq!(known, alone, "{} {gpus} {network_ms}", spec.canonical);
                    let patient = query.patient.borrow()[&(spec.canonical.as_str(), gpus)];
                    limited += usize::from(known.is_ok() && known != patient);
                    refused += usize::from(known.is_err() && patient.is_ok());
                }
            }
        }
    }
    // Some are smaller for the limit, and some none.
    assert!(limited > 20 && refused > 20, "{limited} {refused}");
}
