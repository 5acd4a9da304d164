//! What others than the agent show beside a calibration: the vendor's libraries and a framework.

use std::io::Read;
use std::net::TcpListener;

use fake_driver::script::{Card, Script};
use serde_json::Value;

use crate::calibration::{Calibrated, LEAST, command, one, run};
use crate::calibration_script::program;
use crate::eventually::{PATIENCE, eventually, output_of};
use crate::machine::Machine;

/// Several samples of a product that is no multiple of any tile.
const SIZES: [&str; 6] = ["--samples", "3", "--products", "4", "--product", "130"];

#[test]
fn what_the_vendors_libraries_show_stands_beside_the_kernels() {
    let bare = run(&Machine::new(&one(|_| {})), &SIZES, (0, 0));
    let page = bare.text("calibration.md");
    assert!(
        page.contains("| Bf16 by cuBLASLt | not installed |"),
        "{page}"
    );
    assert!(page.contains("| NCCL | not installed |"), "{page}");

    let machine = Machine::new(&one(|_| {}));
    machine.install("libcublasLt.so.12");
    machine.install("libnccl.so.2");
    let done = run(&machine, &SIZES, (0, 0));
    let json = done.json();
    let gpu = &json["gpus"][0];
    assert_eq!(gpu["collective_library"], "libnccl.so.2 2.28.9");
    let ways = [
        "algorithm 1 cluster 3",
        "algorithm 1 cluster 3, fast accumulation",
    ];
    for ((at, rated), way) in [(0, 798_000.0), (1, 1_290_000.0)].into_iter().zip(ways) {
        let runs = gpu["tensor"][at]["library"].as_array().expect("runs");
        assert_eq!(runs.len(), 3);
        for run in runs {
            assert_eq!(run["library"], "libcublasLt.so.12 120901", "{run}");
            // The favourite is slower.
            assert_eq!(run["way"], way, "{run}");
            let gflops = run["gflops"].as_f64().expect("a rate");
            assert!((gflops / rated - 1.0).abs() < 0.01, "{run}");
        }
    }
    let page = done.text("calibration.md");
    assert!(page.contains("the kernel shows 0.6"), "{page}");
}

#[test]
fn a_library_that_refuses_fast_sums_is_measured_all_the_same_and_says_so() {
    let machine = Machine::new(&Script {
        sums_fast: false,
        ..one(|_| {})
    });
    machine.install("libcublasLt.so.12");
    let json = run(&machine, &LEAST, (0, 0)).json();
    let ways = [
        (798_000.0, "algorithm 1 cluster 3"),
        (
            1_290_000.0 / 1.25,
            "algorithm 1 cluster 3, fast accumulation refused: 7",
        ),
    ];
    for (at, (rated, way)) in ways.into_iter().enumerate() {
        let run = &json["gpus"][0]["tensor"][at]["library"][0];
        assert_eq!(run["way"], way, "{run}");
        let gflops = run["gflops"].as_f64().expect("a rate");
        assert!((gflops / rated - 1.0).abs() < 0.01, "{run}");
    }
}

#[test]
fn a_library_that_fails_is_said_and_ends_nothing() {
    let machine = Machine::new(&Script {
        library: 1,
        ..one(|_| {})
    });
    machine.install("libcublasLt.so.12");
    let done = run(&machine, &SIZES, (0, 0));
    assert_eq!(done.output.status.code(), Some(1), "{}", done.said());
    let json = done.json();
    let gpu = &json["gpus"][0];
    assert_eq!(gpu["stopped"], Value::Null);
    let run = &gpu["tensor"][0]["library"][0];
    assert_eq!(run["outcome"], "failed");
    assert_eq!(run["why"], "cublasLtCreate answered 1");
    assert!(
        gpu["burned"]["dwell_bad_words"] == 0,
        "the load came after it"
    );
    assert_eq!(json["goals"][1]["reached"], "not_measured");
    let page = done.text("calibration.md");
    assert!(
        page.contains("cuBLASLt failed: cublasLtCreate answered 1"),
        "{page}"
    );
}

#[test]
fn what_a_framework_copies_is_the_peer_of_the_kernels_copies() {
    let machine = Machine::new(&one(|_| {}));
    let bare = run(&machine, &LEAST, (0, 0));
    assert_eq!(
        bare.json()["gpus"][0]["framework"]["outcome"],
        "not_installed"
    );
    let page = bare.text("calibration.md");
    assert!(
        page.contains("the driver's copy stands in for it"),
        "{page}"
    );
    assert!(
        page.contains("- GPU 0: copies by a framework: none is"),
        "{page}"
    );

    let programs = tempfile::tempdir().expect("a folder");
    let said = r#"{"outcome": "measured", "framework": "torch 2", "mb_per_s": [4000000]}"#;
    // It is asked for this GPU, with half of the memory that is filled, for one sample.
    program(
        programs.path(),
        "python3",
        &format!(
            "#!/bin/sh\n[ \"$CUDA_VISIBLE_DEVICES\" = {} ] && [ \"$3 $4\" = \"1048576 1\" ] && \
             echo '{said}'\n",
            Card::h100(0).uuid
        ),
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let output = output_of(
        command(&machine, folder.path())
            .args(LEAST)
            .args(["--part", "measure"])
            .env("PATH", path),
    );
    let done = Calibrated { output, folder };
    assert_eq!(
        done.json()["gpus"][0]["framework"]["mb_per_s"][0],
        4_000_000
    );
    assert_eq!(done.json()["goals"][0]["reached"], "missed");
    let page = done.text("calibration.md");
    assert!(
        page.contains("torch 2: 4000000; the kernel shows 0.7"),
        "{page}"
    );
}

#[test]
fn a_library_that_takes_its_process_with_it_is_one_result() {
    let machine = Machine::new(&Script {
        library: -1,
        ..one(|_| {})
    });
    machine.install("libcublasLt.so.12");
    let done = run(&machine, &LEAST, (0, 0));
    let json = done.json();
    let gpu = &json["gpus"][0];
    assert_eq!(gpu["stopped"], Value::Null, "{}", done.said());
    let runs = gpu["tensor"][0]["library"].as_array().expect("runs");
    assert_eq!(runs[0]["outcome"], "failed");
    let why = runs[0]["why"].as_str().expect("why");
    assert!(why.starts_with("its process ended"), "{why}");
    assert_eq!(gpu["burned"]["dwell_bad_words"], 0);
}

#[test]
fn a_framework_ends_with_the_agent_that_asked_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let packages = tempfile::tempdir().expect("a folder");
    let torch = format!(
        "import socket, time\n\
         agent = socket.create_connection((\"127.0.0.1\", {port}))\n\
         agent.sendall(b\"begun\")\n\
         time.sleep(60)\n\
         agent.sendall(b\" and gone on\")\n"
    );
    std::fs::write(packages.path().join("torch.py"), torch).expect("written");
    let machine = Machine::new(&one(|_| {}));
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = command(&machine, folder.path())
        .args(LEAST)
        .args(["--part", "measure"])
        .env("PYTHONPATH", packages.path())
        .spawn()
        .expect("started");
    listener.set_nonblocking(true).expect("set");
    let (mut framework, _) = eventually("the import", || listener.accept().ok());
    framework.set_nonblocking(false).expect("set");
    framework.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut begun = [0; 5];
    framework.read_exact(&mut begun).expect("it says so");
    agent.kill().expect("ended");
    agent.wait().expect("waited for");
    let mut more = Vec::new();
    // Its end may show as a reset of the connection.
    let _ = framework.read_to_end(&mut more);
    assert_eq!(String::from_utf8_lossy(&more), "");
}
