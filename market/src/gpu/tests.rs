use proptest::prelude::*;

use super::*;

#[test]
fn every_name_reads_back_as_what_it_was_written_from() {
    for gpu in Gpu::all() {
        assert_eq!(Gpu::parse(&gpu.to_string()), Ok(gpu));
        assert_eq!(gpu.to_string().parse(), Ok(GpuIdentity::Known(gpu)));
        assert_eq!(
            gpu.to_string().to_lowercase().parse(),
            Ok(GpuWanted::Exactly(gpu))
        );
    }
    for family in GpuFamily::all() {
        assert_eq!(GpuFamily::parse(&family.to_string()), Ok(family));
        let (offered, wanted) = (GpuIdentity::FamilyOnly(family), GpuWanted::Family(family));
        assert_eq!(offered.to_string().parse(), Ok(offered.clone()));
        assert_eq!(
            wanted.to_string().to_lowercase().parse(),
            Ok(wanted.clone())
        );
        let json = serde_json::to_string(&offered).expect("serialises");
        assert_eq!(
            serde_json::from_str::<GpuIdentity>(&json).expect("parses"),
            offered
        );
    }
    assert_eq!("ANY".parse(), Ok(GpuWanted::Any));
    assert_eq!(GpuWanted::Any.to_string(), "any");
}

#[test]
fn a_row_of_the_catalogue_survives_json() {
    let spec = Gpu::parse("H100-SXM").expect("in the catalogue").spec();
    let json = serde_json::to_string(spec).expect("serialises");
    assert_eq!(
        &serde_json::from_str::<GpuSpec>(&json).expect("parses"),
        spec
    );
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_ones() {
    let refusal = GpuWanted::parse("h100_sxm4").expect_err("no such card");
    assert_eq!(refusal.nearest.first(), Some(&"H100-SXM"));
    assert_eq!(refusal.nearest.len(), 3);
    assert!(refusal.to_string().contains("H100-SXM"), "{refusal}");
    assert_eq!(
        GpuWanted::parse("warp drive")
            .expect_err("no such name")
            .nearest,
        Vec::<&str>::new()
    );
    assert!(Gpu::parse("H100").is_err(), "a family is no GPU");
}

#[test]
fn edit_distance_counts_letters() {
    for (from, to, far) in [
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("kitten", "sitting", 3),
        ("ab", "ba", 2),
    ] {
        assert_eq!(edit_distance(from, to), far, "{from} {to}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_name_or_a_clear_refusal(text in "\\PC{0,60}", mib in proptest::option::of(any::<u64>())) {
        if let Ok(wanted) = GpuWanted::parse(&text) {
            prop_assert_eq!(wanted.to_string().parse(), Ok(wanted));
        }
        for seller in ["lambda", "vast", "*", "nobody"] {
            let _ = resolve(seller, &text, Some(&text), mib);
        }
    }
}

#[test]
fn a_name_that_is_both_means_the_gpu() {
    assert_eq!(
        "l40s".parse(),
        Ok(GpuWanted::Exactly(Gpu::parse("L40S").expect("known")))
    );
}
