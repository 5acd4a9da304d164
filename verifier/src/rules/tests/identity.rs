//! Whether every GPU on sale is recognised by its driver's name.

use market::gpu::product_names;

use super::changes::{Change, unnamed};
use super::*;
use crate::order::is_drivable;

/// The rule's finding for one GPU of a kind under a name.
fn found_of(gpu: Gpu, name: &str) -> Finding {
    let kind = Kind {
        gpu,
        gpus: 1,
        internode: Internode::None,
        ..kind()
    };
    let expected = expected_node(gpu, 1);
    let mut evidence = good();
    *claims(&mut evidence) = vec![GpuClaim {
        name: name.to_owned(),
        uuid: "GPU-0".to_owned(),
        memory_mib: expected.memory_mib,
        sm_count: gpu.spec().sm_count,
    }];
    *facts(&mut evidence) = shown(&kind);
    let order = order_for(expected, 0, Level::Standard, Mode::Real);
    let findings = findings(&evidence, &order, false);
    let identity = |found: &Finding| found.code == FindingCode::InventoryIdentity;
    findings.into_iter().find(identity).expect("judged")
}

#[test]
fn every_gpu_that_is_driven_is_known_by_a_name_of_its_driver() {
    for gpu in Gpu::all().filter(|gpu| is_drivable(*gpu)) {
        let names = product_names(gpu);
        assert!(!names.is_empty(), "no driver's name leads to {gpu}");
        for name in names {
            let found = found_of(gpu, &name);
            assert_eq!(found.outcome, Outcome::Met, "{gpu}: {}", found.note);
        }
    }
}

#[test]
fn a_card_of_the_other_size_under_the_same_name_is_another() {
    let gpu = |name| Gpu::parse(name).expect("known");
    let [small, large] = ["RTX-4060-Ti-8", "RTX-4060-Ti-16"].map(gpu);
    let claim = |memory_mib| GpuClaim {
        name: "NVIDIA GeForce RTX 4060 Ti".to_owned(),
        uuid: "GPU-0".to_owned(),
        memory_mib,
        sm_count: Some(34),
    };
    assert_eq!(named_gpu(&claim(8_188)), Some(small));
    assert_eq!(named_gpu(&claim(16_380)), Some(large));
}

#[test]
fn a_name_that_nobody_listed_is_let_pass_of_no_kind_whose_pci_id_is_unknown() {
    let name = "NVIDIA Graphics Device";
    for gpu in Gpu::all().filter(|gpu| is_drivable(*gpu)) {
        let expected = match gpu.spec().pci_device_ids.is_empty() {
            true => Outcome::Failed,
            false => Outcome::Warned,
        };
        assert_eq!(found_of(gpu, name).outcome, expected, "{gpu}");
    }
}

#[test]
fn a_name_that_nobody_listed_fails_beside_whatever_is_not_the_kinds_or_not_told() {
    let identity = [(FindingCode::InventoryIdentity, Outcome::Failed)];
    let others: [Change; 5] = [
        |e| gpu(e, 1).pci_id = None,
        |e| gpu(e, 1).pci_id = Some("10de:2331".to_owned()),
        |e| claims(e)[1].sm_count = None,
        |e| claims(e)[1].sm_count = Some(114),
        |e| claims(e)[1].memory_mib = 79_926,
    ];
    for (at, other) in others.into_iter().enumerate() {
        let (unmet, _) = after(|e| {
            unnamed(e);
            other(e);
        });
        assert_eq!(unmet, identity, "{at}");
    }
}
