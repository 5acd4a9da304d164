//! The agent's side of a GPU in another process.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use market::verification::{
    CollectiveRate, Digest, GpuClaim, GpuFacts, NcclId, NcclSum, OpenedBlock, TroubleKind, Word64,
};
use serde::de::DeserializeOwned;

use super::wire::{Frame, LastWords, Request};
use super::{NoDriver, Survey};
use crate::device::{Device, DeviceError, NcclRate, PatternCheck, Rate};
use crate::gemm::GemmInputs;
use crate::memory::Contents;
use crate::probe::burn::{BurnWork, Burned};
use crate::probe::links::{LibraryWork, LinkRates, LinkWork};
use crate::probe::memory::ProvedMemory;
use crate::tensor::{TensorRun, TensorWork};

/// The hidden command under which the agent starts itself for a GPU.
pub const WORKER_COMMAND: &str = "gpu-worker";
/// How long opening a GPU may take, its first contact with the fabric included.
pub(super) const OPENING: Duration = Duration::from_secs(90);

/// The message for a process that does not answer in time.
const GIVEN_UP: &str = "it did not finish in time and was given up";
/// How long an ended process may take to give back what it held, and how often it is looked at.
const ENDING: Duration = Duration::from_secs(3);
const ENDING_PAUSE: Duration = Duration::from_millis(5);

/// A process that serves one GPU.
pub struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<io::Result<Frame>>,
}

/// Why no answer came.
#[derive(Debug)]
enum Silence {
    /// The process ended or sent an invalid answer.
    Ended(String),
    /// The time is over.
    TimedOut,
}

impl Worker {
    /// Starts the agent's file once more, for a GPU.
    ///
    /// Errors: those of starting a process.
    pub fn start(agent: &Path) -> io::Result<Self> {
        Self::start_with(agent, &[])
    }

    /// The same, with additional environment variables.
    pub(super) fn start_with(agent: &Path, environment: &[(&str, &str)]) -> io::Result<Self> {
        let mut child = Command::new(agent)
            .arg(WORKER_COMMAND)
            // The order of the bus, in which the system shows them too.
            .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            // NCCL would write log lines among the answers where the machine's own settings enable them.
            .env_remove("NCCL_DEBUG")
            .env("NCCL_DEBUG_FILE", "/dev/null")
            // The algorithm is requested here; the machine's own choice does not apply.
            .env_remove("NCCL_ALGO")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(requests), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the process has no streams"));
        };
        let (sender, answers) = mpsc::channel();
        // The thread ends with the process, or with this one.
        std::thread::spawn(move || {
            loop {
                let frame = Frame::read(&mut output);
                let over = frame.is_err();
                if sender.send(frame).is_err() || over {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            requests,
            answers,
        })
    }

    /// Asks for a survey, which must come by then.
    ///
    /// Errors: [`NoDriver`].
    pub fn survey(&mut self, deadline: Instant) -> Result<Survey, NoDriver> {
        let refused = |kind, what: String| NoDriver::Refused {
            kind,
            what,
            may_come_up: false,
        };
        match self.call::<Result<Survey, NoDriver>>(&Request::Survey, deadline) {
            Ok((surveyed, _)) => surveyed,
            Err(Silence::TimedOut) => Err(refused(
                TroubleKind::TimedOut,
                "it did not answer in time".to_owned(),
            )),
            Err(Silence::Ended(why)) => Err(refused(TroubleKind::Driver, why)),
        }
    }

    /// Has it open all GPUs and measure their links, and gives the rates reported by the deadline; none if
    /// there are none.
    #[must_use]
    pub fn links(&mut self, work: &LinkWork, deadline: Instant) -> Option<LinkRates> {
        type Answer = Result<LinkRates, DeviceError>;
        self.send(&Request::Links(*work, left(deadline))).ok()?;
        let (nothing, mut all) = (LinkRates::default(), LinkRates::default());
        while let Ok((Ok(told), _)) = self.receive::<Answer>(deadline)
            && told != nothing
        {
            all.pairs.extend(told.pairs);
            all.collective = told.collective.or(all.collective);
        }
        (all != nothing).then_some(all)
    }

    /// Has it open all GPUs and run the vendor's library over them, and gives the rates reported by the
    /// deadline; none where the node lacks the library.
    #[must_use]
    pub fn library(&mut self, work: &LibraryWork, deadline: Instant) -> Vec<CollectiveRate> {
        type Answer = Result<Option<CollectiveRate>, DeviceError>;
        let mut all = Vec::new();
        let asked = self.send(&Request::Library(work.clone(), left(deadline)));
        while asked.is_ok()
            && let Ok((Ok(Some(told)), _)) = self.receive::<Answer>(deadline)
        {
            all.push(told);
        }
        all
    }

    /// The version of NCCL on the node; none where it has none, or does not answer by the deadline.
    #[must_use]
    pub fn nccl_version(&mut self, deadline: Instant) -> Option<u32> {
        let (version, _) = self.call(&Request::NcclVersion, deadline).ok()?;
        version
    }

    /// Has it make the id by which the GPUs of several nodes find each other.
    ///
    /// Errors: in words, also where it does not answer by the deadline.
    pub fn nccl_id(&mut self, deadline: Instant) -> Result<NcclId, String> {
        self.ask(&Request::NcclId, deadline)
    }

    /// Has it open GPUs and sum with those of other nodes.
    ///
    /// Errors: in words, also where it does not answer by the deadline.
    pub fn nccl_sum(&mut self, sum: &NcclSum, deadline: Instant) -> Result<NcclRate, String> {
        self.ask(&Request::NcclSum(*sum), deadline)
    }

    /// Requests work that one process does on several GPUs.
    fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        deadline: Instant,
    ) -> Result<T, String> {
        match self.call::<Result<T, DeviceError>>(request, deadline) {
            Ok((done, _)) => done.map_err(|error| error.to_string()),
            Err(Silence::TimedOut) => Err(GIVEN_UP.to_owned()),
            Err(Silence::Ended(why)) => Err(why),
        }
    }

    fn call<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        deadline: Instant,
    ) -> Result<(T, Vec<u8>), Silence> {
        self.send(request)?;
        self.receive(deadline)
    }

    fn send(&mut self, request: &Request) -> Result<(), Silence> {
        let frame = Frame::of(request, Vec::new()).map_err(|e| ended(&e))?;
        let mut bytes = Vec::new();
        frame.write(&mut bytes).map_err(|e| ended(&e))?;
        let sent = self.requests.write_all(&bytes);
        sent.map_err(|error| self.end(&error))
    }

    fn receive<T: DeserializeOwned>(&mut self, deadline: Instant) -> Result<(T, Vec<u8>), Silence> {
        match self.answers.recv_timeout(left(deadline)) {
            Ok(Ok(frame)) => match serde_json::from_slice(&frame.head) {
                Ok(head) => Ok((head, frame.body)),
                Err(error) => Err(match serde_json::from_slice(&frame.head) {
                    Ok(LastWords { crashed }) => ended(&format!("its process crashed: {crashed}")),
                    Err(_) => ended(&error),
                }),
            },
            Ok(Err(error)) => Err(self.end(&error)),
            Err(RecvTimeoutError::Timeout) => Err(Silence::TimedOut),
            Err(RecvTimeoutError::Disconnected) => Err(self.end(&"its streams closed")),
        }
    }

    fn end(&mut self, why: &dyn std::fmt::Display) -> Silence {
        let status = match self.child.try_wait() {
            Ok(Some(status)) => format!("its process ended ({status})"),
            _ => "its process ended".to_owned(),
        };
        Silence::Ended(format!("{status}: {why}"))
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn ended(why: &dyn std::fmt::Display) -> Silence {
    Silence::Ended(why.to_string())
}

impl Drop for Worker {
    /// Kills the process and waits a little for its end, so that the next user finds the GPU empty. A process
    /// that hangs in the kernel does not end.
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let ended = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && ended.elapsed() < ENDING {
            std::thread::sleep(ENDING_PAUSE);
        }
    }
}

/// A GPU in another process.
pub struct RemoteDevice {
    gpu: u32,
    worker: Option<Worker>,
    claim: GpuClaim,
    deadline: Instant,
    fallen: Option<DeviceError>,
}

impl RemoteDevice {
    /// Opens a GPU in a process, on a machine whose `/sys` is under a root.
    ///
    /// Errors: [`DeviceError`] when it does not open within its time.
    pub fn open(worker: Worker, gpu: u32, root: &Path) -> Result<Self, DeviceError> {
        let mut device = Self {
            gpu,
            worker: Some(worker),
            claim: GpuClaim {
                name: String::new(),
                uuid: String::new(),
                memory_mib: 0,
                sm_count: None,
            },
            deadline: Instant::now() + OPENING,
            fallen: None,
        };
        let root = root.to_owned();
        device.claim = device.ask(&Request::Open { gpu, root })?;
        Ok(device)
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, DeviceError> {
        Ok(self.ask_for_bytes(request)?.0)
    }

    fn ask_for_bytes<T: DeserializeOwned>(
        &mut self,
        request: &Request,
    ) -> Result<(T, Vec<u8>), DeviceError> {
        if let Some(error) = &self.fallen {
            return Err(error.clone());
        }
        let Some(worker) = &mut self.worker else {
            return Err(self.fall(TroubleKind::Driver, "its process is gone".to_owned()));
        };
        match worker.call::<Result<T, DeviceError>>(request, self.deadline) {
            Ok((Ok(value), body)) => Ok((value, body)),
            Ok((Err(error), _)) => Err(DeviceError {
                gpu: self.gpu,
                ..error
            }),
            Err(Silence::TimedOut) => Err(self.fall(TroubleKind::TimedOut, GIVEN_UP.to_owned())),
            Err(Silence::Ended(why)) => Err(self.fall(TroubleKind::Driver, why)),
        }
    }

    /// Gives the GPU up: all later calls return the same error.
    fn fall(&mut self, kind: TroubleKind, what: String) -> DeviceError {
        self.worker = None;
        let error = DeviceError {
            gpu: self.gpu,
            kind,
            what,
        };
        self.fallen = Some(error.clone());
        error
    }
}

impl Device for RemoteDevice {
    fn claim(&self) -> GpuClaim {
        self.claim.clone()
    }

    fn multiply(&mut self, inputs: &GemmInputs) -> Result<Word64, DeviceError> {
        self.ask(&Request::Multiply(*inputs))
    }

    fn row_sums(&mut self) -> Result<Vec<Word64>, DeviceError> {
        let ((), bytes) = self.ask_for_bytes(&Request::RowSums)?;
        Ok(values(&bytes, word))
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<Vec<i32>>, DeviceError> {
        let ((), bytes) = self.ask_for_bytes(&Request::ReadRows(rows.to_vec()))?;
        let read = values(&bytes, i32::from_le_bytes);
        let columns = read.len() / rows.len().max(1);
        Ok(read.chunks(columns.max(1)).map(<[i32]>::to_vec).collect())
    }

    fn allocatable_mib(&mut self) -> Result<u32, DeviceError> {
        self.ask(&Request::Allocatable)
    }

    fn fill(&mut self, contents: &Contents, bytes: u64) -> Result<u64, DeviceError> {
        let contents = *contents;
        self.ask(&Request::Fill { contents, bytes })
    }

    fn compare(&mut self, contents: &Contents) -> Result<PatternCheck, DeviceError> {
        self.ask(&Request::Compare(*contents))
    }

    fn invert(&mut self, contents: &Contents, down: bool) -> Result<PatternCheck, DeviceError> {
        let contents = *contents;
        self.ask(&Request::Invert { contents, down })
    }

    fn digest_blocks(
        &mut self,
        block_bytes: u32,
        key: &Digest,
    ) -> Result<Vec<Word64>, DeviceError> {
        let key = *key;
        let ((), bytes) = self.ask_for_bytes(&Request::Digests { block_bytes, key })?;
        Ok(values(&bytes, word))
    }

    fn prove(
        &mut self,
        block_bytes: u32,
        key: &Digest,
        threads: usize,
    ) -> Result<ProvedMemory, DeviceError> {
        let root = self.ask(&Request::Prove {
            block_bytes,
            key: *key,
            threads,
        })?;
        Ok(ProvedMemory::OnDevice(root))
    }

    fn open_blocks(&mut self, blocks: &[u64]) -> Result<Vec<OpenedBlock>, DeviceError> {
        self.ask(&Request::OpenBlocks(blocks.to_vec()))
    }

    fn room_for_streams(&mut self) -> Result<(), DeviceError> {
        self.ask(&Request::RoomForStreams)
    }

    fn copy_mb_per_s(&mut self, sample: u32) -> Result<u64, DeviceError> {
        self.ask(&Request::Copy { sample })
    }

    fn rate_mb_per_s(&mut self, rate: Rate, sample: u32) -> Result<Option<u64>, DeviceError> {
        self.ask(&Request::Rate { rate, sample })
    }

    fn tensor_products(&mut self, work: &TensorWork) -> Result<Option<TensorRun>, DeviceError> {
        self.ask(&Request::Tensor(*work))
    }

    fn burn(&mut self, work: &BurnWork) -> Result<Option<Burned>, DeviceError> {
        self.ask(&Request::Burn(*work))
    }

    fn observe(&mut self) -> Result<GpuFacts, DeviceError> {
        self.ask(&Request::Observe)
    }

    fn xids(&mut self) -> Result<Option<Vec<u32>>, DeviceError> {
        self.ask(&Request::Xids)
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        self.ask(&Request::Release)
    }

    fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }
}

fn word(bytes: [u8; 8]) -> Word64 {
    Word64(u64::from_le_bytes(bytes))
}

fn values<T, const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|chunk| value(*chunk))
        .collect()
}
