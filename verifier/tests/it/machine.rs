//! A machine whose driver is the fake one, and the unmodified agent on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fake_driver::script::{Card, Script, VARIABLE};
use market::attestation::Attestation;
use market::verification::{Level, VerificationOrder};
use tempfile::TempDir;
use verifier::order::Mode;

use crate::eventually::output_of;
use crate::stage::*;

/// A folder with the two libraries of the driver and its script.
pub struct Machine {
    pub folder: TempDir,
}

/// Where cargo leaves the library that the tests depend on.
fn fake_library() -> PathBuf {
    let tests = std::env::current_exe().expect("this test's file");
    let folder = tests.parent().expect("a folder");
    folder.join("libfake_driver.so")
}

impl Machine {
    pub fn new(script: &Script) -> Self {
        let machine = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            machine.install(name);
        }
        let script = serde_json::to_string(script).expect("json");
        std::fs::write(machine.path("script.json"), script).expect("written");
        machine
    }

    /// Installs a library of the vendor.
    pub fn install(&self, name: &str) {
        std::os::unix::fs::symlink(fake_library(), self.path(name)).expect("a link");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How long each of its GPUs has worked by their own clocks, over all processes. Units: milliseconds.
    pub fn clocks_ms(&self) -> BTreeMap<usize, f64> {
        clocks_in(self.folder.path())
    }

    /// As [`Self::clocks_ms`], for each process separately.
    pub fn clocks_of_each_process_ms(&self) -> Vec<BTreeMap<usize, f64>> {
        each_process_in(self.folder.path())
    }

    pub fn run(&self, order: &VerificationOrder, arguments: &[&str]) -> Output {
        let mut command = agent(Some(self.folder.path()));
        self.run_as(&mut command, order, arguments)
    }

    pub fn run_as(
        &self,
        command: &mut Command,
        order: &VerificationOrder,
        arguments: &[&str],
    ) -> Output {
        let path = self.path("order.json");
        std::fs::write(&path, serde_json::to_string(order).expect("json")).expect("written");
        command
            .env(VARIABLE, self.path("script.json"))
            .args(["--fabric-patience-seconds", "0", "--order"])
            .arg(path)
            .args(arguments);
        output_of(command)
    }

    /// Runs the agent on its own and gives the result.
    pub fn verify(&self, order: &VerificationOrder) -> Attestation {
        attestation(&self.run(order, &["--json"]))
    }
}

/// As [`Machine::clocks_ms`], for the machine with this folder.
pub fn clocks_in(folder: &Path) -> BTreeMap<usize, f64> {
    let mut worked = BTreeMap::new();
    for (gpu, ms) in each_process_in(folder).into_iter().flatten() {
        *worked.entry(gpu).or_default() += ms;
    }
    worked
}

fn each_process_in(folder: &Path) -> Vec<BTreeMap<usize, f64>> {
    let files = std::fs::read_dir(folder.join("clocks"));
    let paths = files
        .into_iter()
        .flatten()
        .map(|file| file.expect("a file"));
    // A file that is being written has another name.
    let written = paths.map(|file| file.path());
    written
        .filter(|path| path.extension().is_none())
        .map(|path| {
            let text = std::fs::read(path).expect("read");
            serde_json::from_slice(&text).expect("json")
        })
        .collect()
}

pub fn attestation(output: &Output) -> Attestation {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// `verifier run` with nothing in its environment but a folder of libraries.
pub fn agent(libraries: Option<&Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verifier"));
    command.env_clear().arg("run");
    if let Some(folder) = libraries {
        command.env("LD_LIBRARY_PATH", folder);
    }
    command
}

/// The most that a product of a real order's chain takes on an H200, which has the processor of an H100: it
/// finished the whole step with 247 of them in 4.0 s, of which half a second was start-up. With its tree each
/// takes 16 (`docs/calibration.md`). Units: milliseconds.
pub const PRODUCT_MS: f64 = 14.2;

pub fn order(gpus: u32, level: Level) -> VerificationOrder {
    let mut order = opening(gpus, level, Mode::Real).order;
    order.bandwidth.samples = 2;
    if level != Level::Quick {
        // Large enough that a load has a rate.
        (order.gemm.n, order.gemm.k) = (256, 256);
    }
    order
}

pub fn broken(change: impl FnOnce(&mut Card)) -> Script {
    let mut script = Script {
        gpus: (0..2).map(Card::h100).collect(),
        ..Script::default()
    };
    change(&mut script.gpus[1]);
    script
}

/// A system's files, as the agent reads them: this many ports of 400 Gb/s each.
pub fn system_with_ports(ports: u32) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for port in 0..ports {
        write_port(root.path(), port, "state", "4: ACTIVE\n");
        write_port(root.path(), port, "rate", "400 Gb/sec (4X NDR)\n");
        write_port(root.path(), port, "counters/link_downed", "1\n");
    }
    root
}

/// Writes one of the files of a port.
pub fn write_port(root: &Path, port: u32, file: &str, text: &str) {
    let folder = format!("sys/class/infiniband/mlx5_{port}/ports/1");
    let path = root.join(folder).join(file);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}
