use super::*;

fn gpu(name: &str) -> Gpu {
    Gpu::parse(name).expect("known")
}

/// A vendor's own table contained dead entries, a thousand times too low: they could not fail.
#[test]
fn every_floor_lies_between_two_fifths_and_the_whole_of_the_published_figure() {
    let mut floors = 0;
    for gpu in Gpu::all() {
        for metric in Metric::ALL {
            let published = metric.published(gpu.spec());
            let found = Floors::current().of(gpu, metric, None);
            assert_eq!(found.is_some(), published.is_some(), "{gpu} {metric:?}");
            let Some(published) = published else {
                continue;
            };
            // With unknown kernels, and with calibrated ones.
            let calibrated = Floors::current().best_of(gpu, metric);
            for found in [found, calibrated].into_iter().flatten() {
                assert_holds(found, published, &format!("{gpu} {metric:?}"));
                floors += 1;
            }
        }
    }
    assert!(floors > 800, "only {floors} floors were looked at");
}

fn assert_holds(found: Floor, published: u64, whose: &str) {
    let share = |figure: u64| figure as f64 / published as f64;
    let floor = share(found.floor);
    // Whole numbers are rounded down.
    assert!((0.399_9..1.15).contains(&floor), "{whose}: {floor}");
    assert!(found.ceiling >= published, "{whose}");
    if let Some(expected) = found.expected {
        let expected = share(expected);
        assert!((0.5..1.15).contains(&expected), "{whose}: {expected}");
        assert!(floor < expected, "{whose}");
    }
}

#[test]
fn no_floor_is_more_than_what_is_published_and_a_little() {
    let ours = Digest([7; 32]);
    let floor = |expected: u64| {
        let row = format!(
            "2,H100-SXM,hbm_copy,{ours},{expected},930,expected,calibrated,a card that shows more"
        );
        let table = Floors::read(&format!("{TABLE}{row}\n")).expect("readable");
        let found = table.of(gpu("H100-SXM"), Metric::HbmCopy, Some(&ours));
        found.expect("a floor").floor
    };
    assert_eq!(floor(3_350_000), 3_115_500);
    assert_eq!(floor(2 * 3_350_000), 3_852_500);
}

/// Link rates are sold as the sum of both directions and measured in one.
#[test]
fn links_are_held_against_one_direction() {
    let h100 = gpu("H100-SXM").spec();
    assert_eq!(Metric::GpuLink.published(h100), Some(450_000));
    assert_eq!(Metric::HostLink.published(h100), Some(63_016));
    let gh200 = gpu("GH200-96").spec();
    assert_eq!(Metric::HostLink.published(gh200), Some(450_000));
    assert_eq!(Metric::GpuLink.published(gpu("L40S").spec()), None);
}

#[test]
fn every_row_names_a_gpu_and_a_source_and_no_two_are_of_the_same() {
    let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
    let headers = reader.headers().expect("headers").clone();
    let source = headers
        .iter()
        .position(|header| header == "source")
        .expect("a source column");
    for record in reader.records() {
        assert!(!record.expect("readable")[source].is_empty());
    }
    let mut seen = std::collections::HashSet::new();
    for row in &Floors::current().rows {
        let known = row.gpu == "*" || Gpu::parse(&row.gpu).is_ok();
        assert!(known, "{}", row.gpu);
        assert!(seen.insert((&row.gpu, row.metric, &row.kernel)), "{row:?}");
        match row.calibration {
            Calibration::None => assert_eq!((row.expected, row.kernel.as_str()), (None, "*")),
            Calibration::Provisional => {
                assert!(row.expected.is_some() && row.kernel == "*", "{row:?}");
                assert_eq!(row.floor_of, FloorOf::Spec, "{row:?}");
            }
            Calibration::Calibrated => {
                assert!(row.expected.is_some(), "{row:?}");
                assert!(row.kernel.parse::<Digest>().is_ok(), "{row:?}");
                assert_eq!(row.floor_of, FloorOf::Expected, "{row:?}");
            }
        }
    }
}

#[test]
fn a_changed_table_has_another_version() {
    let changed = Floors::read(&TABLE.replace("550", "551")).expect("readable");
    assert_ne!(changed.version(), Floors::current().version());
    let rows = TABLE.lines().skip(1);
    let versions = rows.filter_map(|row| row.split(',').next()?.parse::<u32>().ok());
    let newest = versions.max().expect("a row");
    let named = Floors::current().version();
    assert!(named.starts_with(&format!("{newest}-")), "{named}");
}

#[test]
fn an_h100_must_copy_at_least_at_1842_gb_per_s() {
    let floor = Floors::current().of(gpu("H100-SXM"), Metric::HbmCopy, None);
    let floor = floor.expect("a floor");
    assert_eq!(floor.floor, 1_842_500);
    assert_eq!(floor.expected, Some(3_000_000));
    assert_eq!(floor.ceiling, 3_852_500);
}

#[test]
fn a_calibration_counts_for_its_own_kernel_only() {
    let ours = Digest([7; 32]);
    let row =
        format!("2,H100-SXM,hbm_copy,{ours},3000000,930,expected,calibrated,a known-good card");
    let table = Floors::read(&format!("{TABLE}{row}\n")).expect("readable");
    let floor = |kernel: Option<&Digest>| {
        let found = table.of(gpu("H100-SXM"), Metric::HbmCopy, kernel);
        found.map(|found| (found.floor, found.calibration))
    };
    assert_eq!(
        floor(Some(&ours)),
        Some((2_790_000, Calibration::Calibrated))
    );
    let loose = Some((1_842_500, Calibration::Provisional));
    assert_eq!(floor(Some(&Digest([8; 32]))), loose);
    assert_eq!(floor(None), loose);
}

/// Sums of larger buffers show higher rates (838 GB/s of 8 GiB on B200s, 723 of 1 GiB), and the agent sums 1
/// GiB.
#[test]
fn figures_of_sums_are_of_the_payload_that_the_agent_sums() {
    let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
    let rows = reader.records().map(|record| record.expect("readable"));
    let sums = rows.filter(|row| {
        row[2].starts_with("allreduce") && !row[4].is_empty() && &row[7] != "calibrated"
    });
    let mut figures = 0;
    for row in sums {
        assert!(row[8].contains(" 1 GiB, 8 GPUs"), "{row:?}");
        figures += 1;
    }
    assert!(figures > 3);
}
