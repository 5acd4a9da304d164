//! The words of the market file are words of the broker: it could not verify a node that is described in
//! others.

use market::fabric::Internode;
use market::gpu::Gpu;
use simulator::Market;

#[test]
fn every_gpu_and_network_of_the_bundled_market_is_a_word_of_the_broker() {
    for row in Market::bundled().rows() {
        assert!(Gpu::parse(&row.gpu).is_ok(), "{} of {}", row.gpu, row.sku);
        let word = serde_json::Value::String(row.internode.clone());
        assert!(
            serde_json::from_value::<Internode>(word).is_ok(),
            "{}",
            row.internode
        );
    }
    for passed_off in ["H100-PCIe", "T4", "A10"] {
        assert!(Gpu::parse(passed_off).is_ok(), "{passed_off}");
    }
}
