//! The rules of names, read strictly, and the traps that they handle.

use std::collections::BTreeSet;

use regex::RegexBuilder;

use super::*;
use crate::gpu::FORM_UNKNOWN;

fn identity(seller: &str, sku: &str, name: &str, memory_mib: u64) -> String {
    let memory = Some(memory_mib).filter(|mib| *mib > 0);
    match resolve(seller, sku, Some(name), memory) {
        Resolution::Gpu { identity, .. } => identity.to_string(),
        Resolution::NotAGpu { .. } => "not a GPU".to_owned(),
        Resolution::Unknown { .. } => "unknown".to_owned(),
    }
}

fn product(name: &str) -> Option<&'static str> {
    match resolve_product_name(name) {
        ProductName::Of(identity) => identity.known().map(Gpu::name),
        _ => None,
    }
}

#[test]
fn every_rule_can_match_and_names_something_known() {
    for RuleRow {
        provider,
        sku_pattern,
        canonical,
        share_of_gpu_thousandths,
        why,
        source,
        ..
    } in rule_rows()
    {
        RegexBuilder::new(&sku_pattern)
            .case_insensitive(true)
            .build()
            .expect(&sku_pattern);
        let known = matches!(canonical.as_str(), "NOT-A-GPU" | "UNKNOWN")
            || canonical.ends_with(FORM_UNKNOWN)
            || Gpu::parse(&canonical).is_ok();
        assert!(known, "{provider} {sku_pattern}: {canonical}");
        assert!(
            share_of_gpu_thousandths.is_none_or(|n| GpuCount::from_thousandths(n).is_ok()),
            "{sku_pattern}"
        );
        assert!(
            !why.is_empty() && !source.is_empty(),
            "{provider} {sku_pattern}"
        );
        // Builds the provider's set of patterns, which proves that it builds.
        let _ = resolve(&provider, "", None, None);
    }
    assert_eq!(
        rule_rows().len(),
        include_str!("../../../data/gpu_rules.csv").lines().count() - 1
    );
}

#[test]
fn every_product_name_is_read_back_as_its_gpu() {
    for row in product_name_rows() {
        let expected = match row.canonical.as_str() {
            "OTHER" => ProductName::OfAnother,
            "UNKNOWN" => ProductName::Unknown,
            canonical => ProductName::Of(GpuIdentity::parse(canonical).expect(&row.name)),
        };
        assert!(
            matches!(expected, ProductName::Of(_)) || !row.why.is_empty(),
            "{}",
            row.name
        );
        for label in [row.name.clone(), row.name.replace(' ', "-")] {
            assert_eq!(resolve_product_name(&label), expected, "{label}");
        }
    }
}

#[test]
fn every_name_stands_once_and_has_a_source() {
    let mut names = BTreeSet::new();
    for row in product_name_rows().into_iter().chain(seller_name_rows()) {
        let once = names.insert(squeeze(&row.name));
        assert!(once, "{} is there twice", row.name);
        assert!(!row.source.is_empty(), "{}", row.name);
        let known = matches!(row.canonical.as_str(), "OTHER" | "UNKNOWN")
            || GpuIdentity::parse(&row.canonical).is_ok();
        assert!(known, "{}: {}", row.name, row.canonical);
    }
    let lines = |table: &str| table.lines().count() - 1;
    assert_eq!(names.len(), lines(PRODUCT_NAMES) + lines(SELLER_NAMES));
}

#[test]
fn cards_of_two_sizes_with_one_product_name_are_told_apart_by_their_memory() {
    let name = "NVIDIA GeForce RTX 4060 Ti";
    let family = GpuIdentity::parse("RTX-4060-Ti").expect("a family");
    assert_eq!(resolve_product_name(name), ProductName::Of(family));
    for (gpu, mib) in [("RTX-4060-Ti-8", 8_188), ("RTX-4060-Ti-16", 16_380)] {
        assert_eq!(identity("nobody", "x", name, mib), gpu);
        let gpu = Gpu::parse(gpu).expect("known");
        assert_eq!(product_names(gpu), [name]);
    }
}

#[test]
fn pci_id_233a_is_no_h100_nvl() {
    let carriers = |id: &str| {
        let carries = |gpu: &Gpu| gpu.spec().pci_device_ids.iter().any(|known| known == id);
        Gpu::all()
            .filter(carries)
            .map(Gpu::name)
            .collect::<Vec<_>>()
    };
    assert!(carriers("10de:233a").is_empty());
    assert_eq!(carriers("10de:2321"), ["H100-NVL"]);
    assert_eq!(
        carriers("10de:25b6"),
        ["A16", "A2"],
        "both: only the subsystem tells them apart"
    );
    assert_eq!(product("NVIDIA H800 NVL"), None);
}

#[test]
fn cut_and_generic_parts_are_not_taken_for_the_real_ones() {
    assert_eq!(
        resolve_product_name("NVIDIA GeForce RTX 4090 D"),
        ProductName::OfAnother
    );
    assert_eq!(
        resolve_product_name("NVIDIA Graphics Device"),
        ProductName::Unknown
    );
    assert_eq!(product("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"), None);
    assert_eq!(product("NVIDIA-H100-80GB-HBM3-SHARED"), None);
    assert_eq!(
        product("H100 SXM5 80GB"),
        None,
        "a seller's word, no driver's"
    );
    assert_eq!(
        product("NVIDIA H20-3e"),
        Some("H20-3e"),
        "the memory of an H200 is not enough"
    );
    assert_eq!(
        identity("vast", "1x-RTX_4090D-24-65536", "RTX4090", 24_564),
        "unknown"
    );
    assert_eq!(
        identity("alicloud", "ecs.gn8e-8xlarge", "GPU H-e", 144_384),
        "H20-3e"
    );
    assert_eq!(product("nvidia gh200 120gb"), Some("GH200-96"));
}

#[test]
fn a_bare_a100_is_what_its_seller_means() {
    assert_eq!(
        identity("gcp", "a2-highgpu-1g", "A100", 40_960),
        "A100-SXM-40"
    );
    assert_eq!(
        identity("gcp", "a2-ultragpu-8g", "A100-80GB", 81_920),
        "A100-SXM-80"
    );
    assert_eq!(
        identity("lambda", "gpu_8x_a100", "A100", 40_960),
        "A100-SXM-40"
    );
    assert_eq!(
        identity("lambda", "gpu_1x_a100", "A100", 40_960),
        "A100-PCIe-40"
    );
    assert_eq!(identity("nobody", "x", "A100", 81_920), "A100");
}

#[test]
fn nvl_is_a_card_and_nvlink_is_not() {
    assert_eq!(
        identity("azure", "Standard_NC40ads_H100_v5", "H100", 0),
        "H100-NVL"
    );
    assert_eq!(
        identity(
            "hyperstack",
            "n3-H100x8-NVLink",
            "H100-80G-PCIe-NVLink",
            81_920
        ),
        "H100-PCIe"
    );
    assert_eq!(
        identity("vast", "1x-H100_NVL-32-65536", "H100", 95_830),
        "H100-NVL"
    );
    assert_eq!(identity("oci", "BM.GPU.H100T.8", "H100", 0), "H100T");
}

#[test]
fn six_thousand_is_five_different_cards() {
    assert_eq!(
        identity("lambda", "gpu_1x_rtx6000", "RTX6000", 24_576),
        "Quadro-RTX-6000"
    );
    assert_eq!(
        identity("nebius", "gpu-rtx6000_1gpu", "RTX6000", 98_304),
        "RTX-PRO-6000-SE"
    );
    assert_eq!(
        identity("nobody", "x", "RTX 6000", 24_576),
        "Quadro-RTX-6000"
    );
    assert_eq!(identity("nobody", "x", "RTX 6000", 49_152), "RTX6000");
    assert_eq!(
        identity("nobody", "x", "RTX 6000 Ada", 49_152),
        "RTX-6000-Ada"
    );
    assert_eq!(identity("nobody", "x", "RTX-A6000", 49_152), "RTX-A6000");
    assert_eq!(
        identity("nobody", "x", "RTX PRO 6000", 97_887),
        "RTX-PRO-6000"
    );
}

#[test]
fn small_azure_sizes_are_fractions_whatever_their_catalogue_counts() {
    let share = |sku: &str| match resolve("azure", sku, None, None) {
        Resolution::Gpu { share_of_gpu, .. } => share_of_gpu.map(GpuCount::thousandths),
        other => panic!("{other:?}"),
    };
    for (size, thousandths) in [(4, 125), (8, 250), (16, 500), (32, 1_000)] {
        assert_eq!(share(&format!("Standard_NV{size}as_v4")), Some(thousandths));
    }
    assert_eq!(share("Standard_NV6ads_A10_v5"), Some(167));
    assert_eq!(share("Standard_NV36ads_A10_v5"), None);
}

#[test]
fn a_tpu_is_no_gpu_and_an_unheard_of_name_is_unknown() {
    assert_eq!(identity("gcp", "TPU-VM", "tpu-v5p-8", 0), "not a GPU");
    assert_eq!(identity("nobody", "x", "Warp 9000", 81_920), "unknown");
    assert_eq!(
        identity("alicloud", "ecs.poc-test.4xlarge", "", 0),
        "unknown"
    );
}

#[test]
fn a_name_needs_its_memory_only_where_it_means_several_cards() {
    assert_eq!(identity("nobody", "x", "T4", 16_384), "T4");
    assert_eq!(identity("nobody", "x", "T4", 0), "T4");
    assert_eq!(identity("nobody", "x", "T4", 24_576), "unknown");
    assert_eq!(identity("nobody", "x", "RTX3060", 0), "unknown");
    assert_eq!(identity("nobody", "x", "RTX3060", 8_192), "RTX-3060-Ti");
    assert_eq!(identity("nobody", "x", "RTX-3060", 0), "RTX-3060");
    let Resolution::Unknown { why } = resolve("nobody", "x", Some("RTX3060"), None) else {
        panic!("two cards are sold under that name")
    };
    assert!(why.contains("RTX-3060 or RTX-3060-Ti"), "{why}");
    assert_eq!(identity("nobody", "x", "H100-SXM", 0), "H100-SXM");
    assert_eq!(
        identity("nobody", "x", "NVIDIA H100 80GB HBM3", 81_559),
        "H100-SXM"
    );
    assert_eq!(
        identity("nobody", "x", "H100-SXM", 40_960),
        "unknown",
        "half of it is no H100"
    );
    assert_eq!(identity("nobody", "x", "h100_sxm5_80gb", 0), "H100-SXM");
}

#[test]
fn a_providers_own_rule_goes_before_those_of_every_seller() {
    assert_eq!(
        identity("vast", "8x-H200-192-65536", "H200", 143_771),
        "H200-SXM"
    );
    assert_eq!(
        identity("nobody", "8x-H200-192-65536", "H200", 143_771),
        "H200"
    );
}

#[test]
fn case_does_not_matter_in_a_sku() {
    assert_eq!(identity("azure", "standard_nc4as_t4_V3", "", 0), "T4");
    assert_eq!(identity("verda", "1h100.80s.32v", "", 0), "H100-SXM");
}

#[test]
fn memory_is_the_same_within_eight_per_cent() {
    // 48 GiB are 49,152 MiB, and 8 % of that 3,932.16.
    for (mib, expected) in [
        (45_219, "unknown"),
        (45_220, "L40"),
        (53_084, "L40"),
        (53_085, "unknown"),
    ] {
        assert_eq!(identity("nobody", "x", "L40", mib), expected, "{mib}");
    }
}

#[test]
fn a_rule_says_which_it_was() {
    let Resolution::Gpu {
        rule, certainty, ..
    } = resolve("lambda", "gpu_8x_h100_sxm5", None, None)
    else {
        panic!("lambda names the form")
    };
    assert!(
        rule.starts_with("lambda ^gpu_[0-9]x_h100_sxm5$: form in the type name"),
        "{rule}"
    );
    assert_eq!(certainty, Certainty::High);
}

#[test]
fn the_words_of_the_live_interfaces_are_known() {
    for (description, mib, gpu) in [
        ("H100 (80 GB SXM5)", 81_920, "H100-SXM"),
        ("H100 (80 GB PCIe)", 81_920, "H100-PCIe"),
        ("A100 (40 GB PCIe)", 40_960, "A100-PCIe-40"),
        ("B200 (180 GB SXM6)", 184_320, "B200-SXM"),
        ("RTX 6000 (24 GB)", 24_576, "Quadro-RTX-6000"),
        ("Tesla V100 (16 GB)", 16_384, "V100"),
    ] {
        assert_eq!(
            identity("lambda", "gpu_16x_something_new", description, mib),
            gpu,
            "{description}"
        );
    }
    assert_eq!(
        identity("lambda", "gpu_8x_h100_sxm5", "H100 (80 GB SXM5)", 81_920),
        "H100-SXM"
    );
    assert_eq!(
        identity("lambda", "gpu_8x_h100_sxm5gdr", "H100 (80 GB SXM5)", 0),
        "H100-SXM"
    );
    assert_eq!(
        identity("lambda", "gpu_8x_v100", "Tesla V100 (16 GB)", 16_384),
        "V100-SXM2-16"
    );
    assert_eq!(
        identity("voltagepark", "bare-metal-infiniband", "h100-sxm5-80gb", 0),
        "H100-SXM"
    );
    assert_eq!(
        identity("voltagepark", "h100-sxm5-80gb", "h100-sxm5-80gb", 81_920),
        "H100-SXM"
    );
}
