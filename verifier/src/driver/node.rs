//! A node whose GPUs are behind a driver.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use market::fabric::Internode;
use market::verification::{
    CollectiveAlgorithm, CollectiveRate, DeviceKind, DiagnosticFacts, Digest, DriverFacts, NcclId,
    NcclPart, NcclSum, NodeFacts, Step, StorageFacts, Trouble, TroubleKind,
};

use super::patience::{self, Patience};
use super::remote::{OPENING, RemoteDevice, Worker};
use super::{NoDriver, Survey};
use crate::device::{Device, DeviceError, NcclRate, Node, Surroundings, shortened};
use crate::host;
use crate::kernel_log;
use crate::probe::diagnostic;
use crate::probe::links::{LibraryWork, LinkRates, LinkWork};
use crate::probe::storage::{self, StorageWork};

/// A node's name, and its agent's driver.
#[derive(Debug, Clone)]
pub struct NodeIdentity {
    /// Its address at the provider.
    pub host: String,
    /// The kind of its devices.
    pub kind: DeviceKind,
    /// The hash of the kernels.
    pub kernels: Digest,
    /// Where the machine's `/proc`, `/sys`, `/dev` and `/etc` are.
    pub root: PathBuf,
    /// Which parts of the driver to wait for, and how long.
    pub patience: Patience,
}

/// The interface through which AMD's driver shows its GPUs, within the machine's root.
const AMD_DRIVER: &str = "dev/kfd";
/// The file that sets up NCCL for the whole machine, within its root, and the variable that names the network
/// interfaces it uses. Source: NCCL documentation, environment variables.
const NCCL_SET_UP: &str = "etc/nccl.conf";
const NCCL_INTERFACES: &str = "NCCL_SOCKET_IFNAME";
/// Makes it use a ring. Source: as above.
const NCCL_RING: (&str, &str) = ("NCCL_ALGO", "Ring");
/// How long the driver may take for the second count of its GPUs at the end.
const LAST_LOOK: Duration = Duration::from_secs(10);

impl NodeIdentity {
    /// The node when its driver shows nothing: it can only report that.
    #[must_use]
    pub fn without_gpus(&self, why: &NoDriver) -> Node {
        let trouble = Trouble {
            gpu: None,
            step: Step::Roots,
            kind: why.kind(),
            detail: shortened(&why.to_string()),
        };
        self.node(String::new(), Vec::new(), vec![trouble])
    }

    fn node(&self, driver: String, devices: Vec<Box<dyn Device>>, troubles: Vec<Trouble>) -> Node {
        Node {
            host: self.host.clone(),
            kind: self.kind,
            simulated: false,
            driver,
            vcpus: host::vcpus().unwrap_or(0),
            memory_gib: host::memory_gib(&self.root).unwrap_or(0),
            // Nothing on the node tells which network the provider attached it to.
            internode: Internode::Unknown,
            nics: host::nics(&self.root.join(host::RDMA_FOLDER)),
            ssh_host_keys: host::ssh_host_keys(&self.root.join(host::SSH_FOLDER)),
            devices,
            surroundings: None,
            troubles,
            slow_link_to: None,
        }
    }
}

/// Opens all GPUs, each in a process of its own: the agent's file, started once more.
///
/// A GPU that does not open is among the node's troubles.
/// Errors: [`NoDriver`].
pub fn open_node(agent: &Path, identity: NodeIdentity) -> Result<Node, NoDriver> {
    let look = || match survey(agent, OPENING) {
        Err(NoDriver::Missing(_)) if identity.root.join(AMD_DRIVER).exists() => {
            Err(NoDriver::UnsupportedVendor)
        }
        surveyed => surveyed,
    };
    let mut told = None;
    let wait = |why: &NoDriver, pause| {
        if told.as_ref() != Some(why) {
            eprintln!("Waiting: {why}");
            told = Some(why.clone());
        }
        std::thread::sleep(pause);
    };
    let (surveyed, waited) = patience::survey(identity.patience, look, wait);
    let survey = surveyed?;
    let root = identity.root.as_path();
    let opened: Vec<Result<RemoteDevice, DeviceError>> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..survey.usable)
            .map(|gpu| (gpu, scope.spawn(move || open(agent, gpu, root))))
            .collect();
        let crashed = |gpu| DeviceError {
            gpu,
            kind: TroubleKind::Driver,
            what: "its worker crashed".to_owned(),
        };
        opening
            .into_iter()
            .map(|(gpu, handle)| handle.join().map_err(|_| crashed(gpu))?)
            .collect()
    });
    let mut devices: Vec<Box<dyn Device>> = Vec::new();
    let mut troubles: Vec<Trouble> = Vec::new();
    for result in opened {
        match result {
            Ok(device) => devices.push(Box::new(device)),
            Err(error) => troubles.push(error.trouble(Step::Roots)),
        }
    }
    let mut node = identity.node(survey.version.clone(), devices, troubles);
    node.surroundings = Some(Box::new(DriverSurroundings {
        agent: agent.to_owned(),
        kernels: identity.kernels,
        root: identity.root,
        survey,
        waited,
        logged: None,
        nccl: None,
        over: Vec::new(),
    }));
    Ok(node)
}

fn survey(agent: &Path, patience: Duration) -> Result<Survey, NoDriver> {
    let mut worker = Worker::start(agent).map_err(|error| NoDriver::Refused {
        kind: TroubleKind::Driver,
        what: format!("the agent cannot start itself once more: {error}"),
        may_come_up: false,
    })?;
    worker.survey(Instant::now() + patience)
}

/// The driver's survey at the end. None where it could not be started, or did not answer in time: a slow
/// answer on a busy machine does not mean that a GPU is gone.
fn last_look(agent: &Path, patience: Duration) -> Option<Survey> {
    let mut worker = Worker::start(agent).ok()?;
    match worker.survey(Instant::now() + patience) {
        Err(why) if why.kind() == TroubleKind::TimedOut => None,
        // A driver that no longer starts shows no GPU.
        surveyed => Some(surveyed.unwrap_or_default()),
    }
}

fn open(agent: &Path, gpu: u32, root: &Path) -> Result<RemoteDevice, DeviceError> {
    let worker = Worker::start(agent).map_err(|error| DeviceError {
        gpu,
        kind: TroubleKind::Driver,
        what: format!("its process does not start: {error}"),
    })?;
    RemoteDevice::open(worker, gpu, root)
}

/// The driver's facts about the node as a whole.
struct DriverSurroundings {
    agent: PathBuf,
    kernels: Digest,
    root: PathBuf,
    survey: Survey,
    /// How long the agent waited for the driver.
    waited: Duration,
    /// The number of the last record of the kernel's log at the beginning, where that can be read.
    logged: Option<u64>,
    /// The process to which the GPUs of other nodes connect by this id, or have connected.
    nccl: Option<(NcclId, Worker)>,
    /// The interfaces over which other nodes reach this one.
    over: Vec<String>,
}

impl DriverSurroundings {
    /// A process in which NCCL meets other nodes. By default NCCL tries all interfaces of the host, also
    /// those that other nodes cannot reach. It gets a list of interfaces, unless the node's owner set one.
    fn apart(&self) -> Result<Worker, String> {
        let is_set_up = self.root.join(NCCL_SET_UP).exists()
            || std::env::var_os(NCCL_INTERFACES).is_some()
            || self.over.is_empty();
        let started = match is_set_up {
            true => Worker::start(&self.agent),
            false => {
                // These exact names, not all with this prefix.
                let exactly = format!("={}", self.over.join(","));
                Worker::start_with(&self.agent, &[(NCCL_INTERFACES, &exactly)])
            }
        };
        started.map_err(|error| format!("its process does not start: {error}"))
    }
}

impl Surroundings for DriverSurroundings {
    fn before(&mut self) -> NodeFacts {
        let mut host = host::facts(&self.root);
        host.counts.nvml = self.survey.managed;
        host.counts.cuda = Some(self.survey.usable);
        let log = kernel_log::xids(&self.root, None);
        self.logged = log.as_ref().map(|log| log.last);
        NodeFacts {
            xid_history_visible: Some(log.is_some()),
            xid_history: log.map_or_else(Vec::new, |log| log.xids),
            kernels: Some(self.kernels),
            host,
            driver: DriverFacts {
                kernel_version: host::kernel_driver_version(&self.root),
                cuda_version: self.survey.cuda_version,
                libraries: self.survey.libraries.clone(),
                waited_s: (!self.waited.is_zero()).then(|| patience::seconds(self.waited)),
            },
            ..NodeFacts::default()
        }
    }

    fn links(&mut self, work: &LinkWork, deadline: Instant) -> Option<LinkRates> {
        Worker::start(&self.agent).ok()?.links(work, deadline)
    }

    fn library(&mut self, work: &LibraryWork, deadline: Instant) -> Vec<CollectiveRate> {
        let started = match work.algorithm {
            CollectiveAlgorithm::NcclRing => Worker::start_with(&self.agent, &[NCCL_RING]),
            CollectiveAlgorithm::NcclDefault | CollectiveAlgorithm::OwnRing => {
                Worker::start(&self.agent)
            }
        };
        let rates = started.map(|mut worker| worker.library(work, deadline));
        rates.unwrap_or_default()
    }

    fn nccl_part(&mut self, over: &[String], deadline: Instant) -> Option<NcclPart> {
        over.clone_into(&mut self.over);
        let version = Worker::start(&self.agent).ok()?.nccl_version(deadline)?;
        let gpus = self.survey.usable;
        Some(NcclPart { version, gpus })
    }

    fn nccl_id(&mut self, deadline: Instant) -> Result<NcclId, String> {
        // One sum after the other: two hold no memory at once.
        self.nccl = None;
        let mut worker = self.apart()?;
        let id = worker.nccl_id(deadline)?;
        // The other nodes connect to this process, which must be one of theirs.
        self.nccl = Some((id, worker));
        Ok(id)
    }

    fn nccl_sum(&mut self, sum: &NcclSum, deadline: Instant) -> Result<NcclRate, String> {
        // NCCL's resources stay in their process, so each sum has one of its own.
        let made = self.nccl.take().filter(|(id, _)| *id == sum.id);
        let mut worker = match made {
            Some((_, worker)) => worker,
            None => self.apart()?,
        };
        let rate = worker.nccl_sum(sum, deadline)?;
        // Another node may still wait for the last data from this one: the process stays until all have
        // finished.
        self.nccl = Some((sum.id, worker));
        Ok(rate)
    }

    fn storage(&mut self, work: &StorageWork, deadline: Instant) -> Option<StorageFacts> {
        storage::measured(work, deadline)
    }

    fn diagnostic(&mut self, run: &str, deadline: Instant) -> Option<DiagnosticFacts> {
        diagnostic::said_by(diagnostic::TOOL.as_ref(), run, deadline)
    }

    fn listen(&mut self, facts: &mut NodeFacts) {
        if let Some(log) = self
            .logged
            .and_then(|last| kernel_log::xids(&self.root, Some(last)))
        {
            facts.xids_logged = log.xids;
        }
    }

    fn after(&mut self, facts: &mut NodeFacts) {
        let now = host::facts(&self.root);
        host::note_downs(&mut facts.host, &now);
        let mut counts = now.counts;
        facts.recount = last_look(&self.agent, LAST_LOOK).map(|survey| {
            counts.nvml = survey.managed;
            counts.cuda = Some(survey.usable);
            counts
        });
        // The last fact of all: the report is sent now.
        facts.host.clock_ms = host::clock_ms();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    #[test]
    fn a_last_look_that_is_not_answered_in_time_or_not_taken_counts_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(last_look(&folder.path().join("none"), LAST_LOOK), None);
        let silent = folder.path().join("silent");
        let mut open = OpenOptions::new();
        let mut file = open
            .write(true)
            .create(true)
            .mode(0o755)
            .open(&silent)
            .expect("made");
        file.write_all(b"#!/bin/sh\nexec sleep 30\n")
            .expect("written");
        drop(file);
        assert_eq!(last_look(&silent, Duration::from_millis(50)), None);
    }

    #[test]
    fn a_last_look_that_ends_with_the_driver_counts_no_gpu() {
        let ended = last_look(Path::new("/bin/true"), LAST_LOOK);
        assert_eq!(ended, Some(Survey::default()));
    }
}
