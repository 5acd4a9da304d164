use std::collections::BTreeSet;

use super::FAMILIES_OF_RULES;
use crate::gpu::names::rule_rows;
use crate::gpu::{FORM_UNKNOWN, Gpu};
use crate::table::squeeze;

#[test]
fn every_gpu_has_figures_that_can_be() {
    let mut names = BTreeSet::new();
    for gpu in Gpu::all() {
        let spec = gpu.spec();
        assert!(names.insert(squeeze(gpu.name())), "{gpu} is there twice");
        assert!(
            !spec.source.is_empty() && !spec.node_form.is_empty(),
            "{gpu}"
        );
        let rates = [
            spec.fp16_tflops_dense,
            spec.bf16_tflops_dense,
            spec.fp8_tflops_dense,
            spec.fp4_tflops_dense,
            spec.int8_tops_dense,
            spec.fp64_tflops_vector,
            spec.fp64_tflops_tensor,
        ];
        let sizes = [Some(spec.memory_gb), Some(spec.memory_bandwidth_gbps)];
        for figure in rates.into_iter().chain(sizes).flatten() {
            assert!(figure.is_finite() && figure > 0.0, "{gpu}: {figure}");
        }
        // Reported memory is below or about the marketed size: 1.10 covers GB against GiB.
        if let Some(mib) = spec.reported_memory_mib {
            let ratio = mib as f64 / 1024.0 / spec.memory_gb;
            assert!((0.85..=1.10).contains(&ratio), "{gpu}: {ratio}");
        }
        for id in &spec.pci_device_ids {
            let hex = |word: &str| word.len() == 4 && word.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(
                id.split_once(':')
                    .is_some_and(|(vendor, device)| hex(vendor) && hex(device)),
                "{gpu}: {id}"
            );
        }
    }
    assert_eq!(
        names.len(),
        include_str!("../../../data/gpus.csv").lines().count() - 1
    );
}

#[test]
fn the_corrections_of_the_figures_are_in() {
    let spec = |name| Gpu::parse(name).expect("in the catalogue").spec();
    assert_eq!(spec("A40").fp64_tflops_vector, Some(0.58));
    assert_eq!(spec("A10").fp64_tflops_vector, Some(0.49));
    assert_eq!(spec("RTX-A6000").fp64_tflops_vector, Some(0.6));
    assert_eq!(spec("L4").fp64_tflops_vector, Some(0.47));
    assert_eq!(spec("GH200-144").reported_memory_mib, Some(145_920));
    assert_eq!(spec("GB300").pci_device_ids, ["10de:31c2", "10de:31c3"]);
    assert_eq!(spec("B200-SXM").pci_device_ids, ["10de:2901", "10de:2909"]);
}

#[test]
fn the_families_that_only_rules_name_are_all_there() {
    let of_table: BTreeSet<String> = Gpu::all().map(|gpu| gpu.spec().family.clone()).collect();
    let left_open = rule_rows().into_iter().filter_map(|row| {
        let family = row.canonical.strip_suffix(FORM_UNKNOWN)?.to_owned();
        (!of_table.contains(&family)).then_some(family)
    });
    let left_open: BTreeSet<String> = left_open.collect();
    let named = FAMILIES_OF_RULES.iter().map(|family| (*family).to_owned());
    assert_eq!(left_open, named.collect());
}
