//! The facts from a node's system, apart from the driver: GPUs, host, network adapters, SSH host keys.
//!
//! All of them are claims of a machine that its owner controls. They are read from the kernel's files and not
//! from the driver's libraries, so that rules can compare the two. The host keys are worth as much as the
//! conversation that carries them: it runs under the one-time credential of the lease, and the report that
//! repeats them is signed.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use market::verification::{GpuCounts, HostFacts, PortFacts};

use crate::preloaded;

/// Where an SSH server keeps its host keys, under the root.
pub const SSH_FOLDER: &str = "etc/ssh";
/// Where Linux lists its adapters for RDMA, under the root.
pub const RDMA_FOLDER: &str = "sys/class/infiniband";

/// The most characters of a machine's name in a report.
const LONGEST_NAME: usize = 64;

/// The public host keys in this folder, without their comments, in the order of their files; none
/// where the server has not made them yet.
#[must_use]
pub fn ssh_host_keys(folder: &Path) -> Vec<String> {
    let is_key = |name: &&String| name.starts_with("ssh_host_") && name.ends_with("_key.pub");
    let read = |name: String| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        let mut words = text.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    };
    let names = names_in(folder);
    names
        .iter()
        .filter(is_key)
        .cloned()
        .filter_map(read)
        .collect()
}

/// The adapters that this folder lists, by name: `mlx5_2` before `mlx5_10`.
#[must_use]
pub fn nics(folder: &Path) -> Vec<String> {
    let mut names = names_in(folder);
    names.sort_by_key(|name| {
        let (kind, number) = name.rsplit_once('_').unwrap_or((name, ""));
        (kind.to_owned(), number.parse::<u32>().unwrap_or(0))
    });
    names
}

/// The facts from the system of this machine, whose files are under a root.
#[must_use]
pub fn facts(root: &Path) -> HostFacts {
    HostFacts {
        vcpus: vcpus(),
        memory_gib: memory_gib(root),
        preloaded: preloaded::libraries(root),
        ..facts_under(root)
    }
}

/// The files under a root, on GPUs and ports.
#[must_use]
pub fn facts_under(root: &Path) -> HostFacts {
    HostFacts {
        counts: GpuCounts {
            kernel: shown(root, "proc/driver/nvidia/gpus", |_| true),
            device_nodes: shown(root, "dev", is_gpu_node),
            ..GpuCounts::default()
        },
        pci_ids: pci_ids(&root.join("sys/bus/pci/devices")),
        hypervisor: hypervisor(root),
        machine: machine(root),
        ports: ports(&root.join(RDMA_FOLDER)),
        ..HostFacts::default()
    }
}

/// Whether a hypervisor runs the processors. Those of x86 report it themselves, Xen also in the kernel's
/// tree.
fn hypervisor(root: &Path) -> Option<bool> {
    let processors = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = processors.lines().find(|line| line.starts_with("flags"));
    match root.join("sys/hypervisor/type").exists() {
        true => Some(true),
        false => flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
    }
}

/// Maker and name of the machine, as its firmware reports them.
fn machine(root: &Path) -> Option<String> {
    let words = ["sys_vendor", "product_name"]
        .map(|file| fs::read_to_string(root.join("sys/class/dmi/id").join(file)));
    let words: Vec<String> = words.into_iter().flatten().collect();
    let name = words.iter().flat_map(|word| word.split_whitespace());
    let name = name.collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then(|| name.chars().take(LONGEST_NAME).collect())
}

/// The time by this host's clock. Units: ms since 1970 (UTC).
#[must_use]
pub fn clock_ms() -> Option<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Virtual CPUs that this process may use.
#[must_use]
pub fn vcpus() -> Option<u32> {
    let count = std::thread::available_parallelism().ok()?;
    u32::try_from(count.get()).ok()
}

/// Host memory, GiB, rounded to the nearest: the kernel reserves some of the installed memory.
#[must_use]
pub fn memory_gib(root: &Path) -> Option<u32> {
    memory_of(&fs::read_to_string(root.join("proc/meminfo")).ok()?)
}

fn memory_of(meminfo: &str) -> Option<u32> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    u32::try_from((kib + (1 << 19)) >> 20).ok()
}

/// The version of the driver's kernel module.
#[must_use]
pub fn kernel_driver_version(root: &Path) -> Option<String> {
    driver_version_of(&fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?)
}

fn driver_version_of(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    let line = text
        .lines()
        .find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find(is_version).map(str::to_owned)
}

/// The processors nearest to a device of the PCI bus, whose address is as the management library writes it
/// (`00000000:01:00.0`); none where the system does not report them.
#[must_use]
pub fn cpus_near(root: &Path, bus_id: &str) -> Vec<usize> {
    // The system writes the domain in four digits.
    let place = bus_id.to_lowercase();
    let place = place.strip_prefix("0000").unwrap_or(&place);
    let file = root.join("sys/bus/pci/devices").join(place);
    let list = fs::read_to_string(file.join("local_cpulist")).unwrap_or_default();
    cpus_of(&list)
}

/// `0-3,8` as the system lists processors.
fn cpus_of(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// `nvidia0` and its like; `nvidiactl` and `nvidia-uvm` are no GPUs.
fn is_gpu_node(name: &str) -> bool {
    name.strip_prefix("nvidia")
        .is_some_and(|number| number.parse::<u32>().is_ok())
}

/// How many GPUs a folder shows; none where it shows no GPU at all, which is how containers hide it.
fn shown(root: &Path, folder: &str, is_gpu: fn(&str) -> bool) -> Option<u32> {
    let names = names_in(&root.join(folder));
    let count = names.iter().filter(|name| is_gpu(name)).count();
    u32::try_from(count).ok().filter(|count| *count > 0)
}

/// The ids of the display and compute devices of the two makers of GPUs; none where none is shown.
fn pci_ids(folder: &Path) -> Option<Vec<String>> {
    const MAKERS: [&str; 2] = ["10de", "1002"];
    // Display controllers and processing accelerators; bridges and sound are other classes.
    const CLASSES: [&str; 2] = ["03", "12"];
    let names = names_in(folder);
    let id = |name: &String| {
        let hex = |file: &str| {
            let text = fs::read_to_string(folder.join(name).join(file)).ok()?;
            Some(text.trim().trim_start_matches("0x").to_lowercase())
        };
        let (class, vendor) = (hex("class")?, hex("vendor")?);
        let is_gpu =
            CLASSES.iter().any(|gpu| class.starts_with(gpu)) && MAKERS.contains(&vendor.as_str());
        is_gpu.then(|| Some(format!("{vendor}:{}", hex("device")?)))?
    };
    let ids: Vec<String> = names.iter().filter_map(id).collect();
    (!ids.is_empty()).then_some(ids)
}

/// The ports of all adapters for RDMA; none where no such adapter is visible.
fn ports(folder: &Path) -> Option<Vec<PortFacts>> {
    let mut ports = Vec::new();
    for nic in nics(folder) {
        let all = folder.join(&nic).join("ports");
        for number in names_in(&all) {
            let read = |file: &str| fs::read_to_string(all.join(&number).join(file)).ok();
            let first_number = |text: String| text.split_whitespace().next()?.parse().ok();
            ports.push(PortFacts {
                name: format!("{nic}/{number}"),
                active: read("state").is_some_and(|state| state.contains("ACTIVE")),
                rate_gbps: read("rate").and_then(first_number),
                downs: read("counters/link_downed").and_then(|text| text.trim().parse().ok()),
                downs_grown: None,
            });
        }
    }
    (!ports.is_empty()).then_some(ports)
}

/// Records how often each port went down since an earlier reading. A port that is down now, or gone, went
/// down at least once, regardless of its counter.
pub fn note_downs(earlier: &mut HostFacts, now: &HostFacts) {
    let later = now.ports.as_deref().unwrap_or_default();
    for port in earlier.ports.iter_mut().flatten() {
        let again = later.iter().find(|later| later.name == port.name);
        port.downs_grown = again.and_then(|again| again.downs?.checked_sub(port.downs?));
        if port.active && !again.is_some_and(|again| again.active) {
            port.active = false;
            port.downs_grown = Some(port.downs_grown.unwrap_or(0).max(1));
        }
        if let Some(again) = again {
            port.rate_gbps = port.rate_gbps.min(again.rate_gbps);
        }
    }
}

/// The names in a folder, sorted; none where it cannot be read.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_near_a_gpu_are_those_that_the_system_lists_for_its_place() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("sys/bus/pci/devices/0000:a1:00.0");
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("local_cpulist"), "2-4,11\n").expect("written");
        assert_eq!(cpus_near(root.path(), "00000000:A1:00.0"), [2, 3, 4, 11]);
        assert!(cpus_near(root.path(), "00000000:02:00.0").is_empty());
        assert!(cpus_of("").is_empty() && cpus_of("x-2").is_empty());
    }

    #[test]
    fn host_keys_are_read_without_comments_and_private_halves_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        write("ssh_host_rsa_key.pub", "ssh-rsa BBBB root@node\n");
        write("ssh_host_ed25519_key.pub", "ssh-ed25519 AAAA root@node\n");
        write("ssh_host_ed25519_key", "PRIVATE");
        write("ssh_host_ecdsa_key.pub", "\n");
        write("sshd_config", "Port 22");
        assert_eq!(
            ssh_host_keys(folder.path()),
            ["ssh-ed25519 AAAA", "ssh-rsa BBBB"]
        );
        assert!(ssh_host_keys(&folder.path().join("nowhere")).is_empty());
    }

    #[test]
    fn adapters_are_ordered_by_their_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["mlx5_10", "mlx5_2", "mlx5_0"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        assert_eq!(nics(folder.path()), ["mlx5_0", "mlx5_2", "mlx5_10"]);
    }

    /// A folder of files with these contents.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("written");
        }
        root
    }

    #[test]
    fn gpus_are_counted_by_kernel_device_nodes_and_pci_ids() {
        let root = tree(&[
            (
                "proc/driver/nvidia/gpus/0000:18:00.0/information",
                "Model: H100",
            ),
            (
                "proc/driver/nvidia/gpus/0000:2a:00.0/information",
                "Model: H100",
            ),
            ("dev/nvidia0", ""),
            ("dev/nvidia1", ""),
            ("dev/nvidiactl", ""),
            ("dev/nvidia-uvm", ""),
            ("sys/bus/pci/devices/0000:18:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:18:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:18:00.0/device", "0x2330\n"),
            ("sys/bus/pci/devices/0000:19:00.0/class", "0x068000\n"),
            ("sys/bus/pci/devices/0000:19:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:19:00.0/device", "0x22a3\n"),
            ("sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n"),
            ("sys/bus/pci/devices/0000:00:02.0/vendor", "0x1af4\n"),
            ("sys/bus/pci/devices/0000:00:02.0/device", "0x1050\n"),
        ]);
        let facts = facts_under(root.path());
        assert_eq!(
            (facts.counts.kernel, facts.counts.device_nodes),
            (Some(2), Some(2))
        );
        assert_eq!(facts.pci_ids, Some(vec!["10de:2330".to_owned()]));
        let hidden = facts_under(&root.path().join("nowhere"));
        assert_eq!(hidden, HostFacts::default());
    }

    #[test]
    fn a_hypervisor_shows_in_the_processors_flags_or_the_kernels_tree_and_a_machine_has_a_name() {
        let shown = |files: &[(&str, &str)]| {
            let facts = facts_under(tree(files).path());
            (facts.hypervisor, facts.machine)
        };
        let vm = (
            "proc/cpuinfo",
            "processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n",
        );
        let whole = ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu lahf_lm\n");
        let maker = ("sys/class/dmi/id/sys_vendor", "QEMU\n");
        let name = (
            "sys/class/dmi/id/product_name",
            "Standard PC (Q35 +  ICH9, 2009)\n",
        );
        let called = Some("QEMU Standard PC (Q35 + ICH9, 2009)".to_owned());
        assert_eq!(shown(&[vm, maker, name]), (Some(true), called));
        assert_eq!(
            shown(&[whole, ("sys/class/dmi/id/sys_vendor", "\n")]),
            (Some(false), None)
        );
        assert_eq!(
            shown(&[whole, ("sys/hypervisor/type", "xen\n")]).0,
            Some(true)
        );
        // Arm has no such flag.
        let arm = ("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
        assert_eq!(shown(&[arm]).0, None);
    }

    #[test]
    fn ports_are_read_with_state_and_rate_and_a_link_that_fell_is_noticed() {
        let port = |downs: &'static str| {
            [
                ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
                (
                    "sys/class/infiniband/mlx5_0/ports/1/rate",
                    "400 Gb/sec (4X NDR)\n",
                ),
                (
                    "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed",
                    downs,
                ),
                ("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n"),
            ]
        };
        let mut before = facts_under(tree(&port("3\n")).path());
        let after = facts_under(tree(&port("5\n")).path());
        note_downs(&mut before, &after);
        let ports = before.ports.expect("ports");
        assert_eq!(
            (ports[0].name.as_str(), ports[0].active),
            ("mlx5_0/1", true)
        );
        assert_eq!((ports[0].rate_gbps, ports[0].downs), (Some(400), Some(3)));
        assert_eq!(ports[0].downs_grown, Some(2));
        assert!(!ports[1].active && ports[1].downs_grown.is_none());
    }

    #[test]
    fn a_port_that_is_no_longer_what_it_was_is_noticed_without_its_counter() {
        let port = |nic: u32, gbps: u32, active| PortFacts {
            name: format!("mlx5_{nic}/1"),
            active,
            rate_gbps: Some(gbps),
            downs: None,
            downs_grown: None,
        };
        let host = |ports: Option<Vec<PortFacts>>| HostFacts {
            ports,
            ..HostFacts::default()
        };
        let after = |now: HostFacts| {
            let all = (0..4).map(|nic| port(nic, 400, nic < 3)).collect();
            let mut before = host(Some(all));
            note_downs(&mut before, &now);
            let shown = |port: &PortFacts| (port.active, port.rate_gbps, port.downs_grown);
            before
                .ports
                .expect("ports")
                .iter()
                .map(shown)
                .collect::<Vec<_>>()
        };
        let now = [port(0, 400, true), port(1, 400, false), port(2, 100, true)];
        assert_eq!(
            after(host(Some(now.to_vec()))),
            [
                (true, Some(400), None),
                (false, Some(400), Some(1)),
                (true, Some(100), None),
                (false, Some(400), None),
            ],
            "the last one was down before, and is gone"
        );
        let gone = (false, Some(400), Some(1));
        assert_eq!(after(host(None))[..3], [gone; 3]);
    }

    #[test]
    fn versions_and_memory_are_read_from_what_kernels_write() {
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n";
        let old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19\nGCC version: 12.2.0\n";
        assert_eq!(driver_version_of(open).as_deref(), Some("580.65.06"));
        assert_eq!(driver_version_of(old).as_deref(), Some("535.129.03"));
        assert_eq!(driver_version_of("GCC version: 12.2.0"), None);
        assert_eq!(
            memory_of("MemTotal:       2113568148 kB\nMemFree: 1 kB\n"),
            Some(2_016)
        );
        assert_eq!(memory_of("MemFree: 1 kB"), None);
    }
}
