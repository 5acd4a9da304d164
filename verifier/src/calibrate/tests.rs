use super::*;
use crate::floors::Floors;
use crate::reference::NodeDescription;

const SMALL: Size = Size {
    memory_bytes: 1 << 20,
    block_bytes: 4_096,
    samples: 3,
    n: 32,
    timed: 1,
    checked: 2,
    burn: Duration::ZERO,
};

fn measured(bad_words: u32) -> Calibration {
    let description = serde_json::json!({
        "schema": "simulated-node-1", "node_index": 0, "host": "127.0.0.1", "gpu": "H100-SXM",
        "gpus": 2, "memory_mib": 81_559, "vcpus": 8, "memory_gib": 64,
        "uuids": ["GPU-0", "GPU-1"], "driver": "580.65", "internode": "none",
        "bad_words": bad_words,
    });
    let description = NodeDescription::parse(&description.to_string()).expect("a node");
    Calibration::measure(&mut description.node(), Digest([7; 32]), SMALL).expect("measured")
}

#[test]
fn a_good_card_gives_rows_that_the_floors_take() {
    let mut calibration = measured(0);
    assert_eq!(floors(&calibration, 3), Err(NoReference::Simulated));
    calibration.simulated = false;
    assert_eq!(floors(&calibration, 3), Err(NoReference::Shortened));
    calibration.size = Size::FULL;
    let rows = floors(&calibration, 3).expect("rows");
    let head = "version,gpu,metric,kernel,expected,floor_permille,floor_of,calibration,source\n";
    let floors = Floors::read(&format!("{head}{rows}")).expect("a table");
    let gpu = Gpu::parse("H100-SXM").expect("known");
    for metric in [
        Metric::HbmCopy,
        Metric::HostLink,
        Metric::Gemm16Bit,
        Metric::GemmFp8,
    ] {
        let floor = floors
            .of(gpu, metric, Some(&calibration.kernels))
            .expect("a floor");
        let expected = floor.expected.expect("a figure");
        assert!(
            floor.floor < expected && floor.floor > expected * 8 / 10,
            "{floor:?}"
        );
    }
    assert_eq!(rows.lines().count(), 6);
}

#[test]
fn a_card_with_wrong_results_gives_no_floor() {
    assert!(matches!(
        floors(&measured(3), 3),
        Err(NoReference::Memory { gpu: 0, bad_words }) if bad_words > 0
    ));
    let mut unsteady = measured(0);
    unsteady.gpus[1].tensor[1].different = 1;
    assert_eq!(floors(&unsteady, 3), Err(NoReference::Unsteady { gpu: 1 }));
    let mut inexact = measured(0);
    inexact.gpus[0].tensor[0].checksum = Some(Word64(1));
    assert_eq!(floors(&inexact, 3), Err(NoReference::Inexact { gpu: 0 }));
    let page = page(&inexact);
    assert!(page.contains("No floor follows from it"), "{page}");
}

#[test]
fn a_calibration_of_which_any_part_is_smaller_gives_no_floor() {
    assert!(Size::FULL.is_full());
    let shortened: [fn(&mut Size); 7] = [
        |size| size.memory_bytes -= 1,
        |size| size.block_bytes -= 1,
        |size| size.samples -= 1,
        |size| size.n -= 1,
        |size| size.timed -= 1,
        |size| size.checked -= 1,
        |size| size.burn -= Duration::from_millis(1),
    ];
    for shorten in shortened {
        let mut size = Size::FULL;
        shorten(&mut size);
        assert!(!size.is_full(), "{size:?}");
    }
}

#[test]
fn the_middle_of_samples_is_the_lower_one_of_two() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[5]), Some(5));
    assert_eq!(median(&[9, 1, 5, 7]), Some(5));
}
