//! Other processes on the same cards, for as long as they are kept.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use market::verification::{Digest, GpuClaim, Pattern};

use super::super::measure::PATIENCE;
use crate::device::{Device, DeviceError};
use crate::driver::{RemoteDevice, Worker};
use crate::median;
use crate::memory::Contents;

/// Processes that stream through the memory of each card.
const HOGS: u32 = 2;
/// Of the memory, what such a process streams through: beyond any cache, and there is room for all.
const HOG_SHARE: u64 = 16;
/// How long it streams before it looks whether it is over.
const HOG_STRETCH: Duration = Duration::from_millis(500);
/// Of the memory, what is held. Units: percent.
const HELD_PERCENT: u64 = 30;

/// The processes. They end with this.
pub struct Guests {
    _holders: Vec<RemoteDevice>,
    over: Arc<AtomicBool>,
    hogs: Vec<JoinHandle<Option<u64>>>,
}

impl Guests {
    /// Processes that each hold a part of a card's memory.
    ///
    /// Errors: why one does not, in words; here and below.
    pub fn holding(agent: &Path, root: &Path, gpus: &[(u32, &GpuClaim)]) -> Result<Self, String> {
        let mut guests = Self::none();
        for &(gpu, claim) in gpus {
            let bytes = (u64::from(claim.memory_mib) << 20) * HELD_PERCENT / 100;
            guests._holders.push(filled(agent, root, gpu, bytes)?);
        }
        Ok(guests)
    }

    /// Processes that stream through memory until they end. They have begun when this returns.
    pub fn streaming(agent: &Path, root: &Path, gpus: &[(u32, &GpuClaim)]) -> Result<Self, String> {
        let mut guests = Self::none();
        for &(gpu, claim) in gpus {
            let bytes = (u64::from(claim.memory_mib) << 20) / HOG_SHARE;
            for _ in 0..HOGS {
                let device = filled(agent, root, gpu, bytes)?;
                guests.hogs.push(stream(device, Arc::clone(&guests.over))?);
            }
        }
        Ok(guests)
    }

    /// Has those that stream end, and gives the rate of each while all of them did. Units: 1e6 bytes per
    /// second.
    pub fn rates(mut self) -> Vec<u64> {
        self.end()
    }

    fn end(&mut self) -> Vec<u64> {
        self.over.store(true, Ordering::Relaxed);
        // One that crashed streams no longer either.
        let ended = self.hogs.drain(..).map(|hog| hog.join().ok().flatten());
        ended.flatten().collect()
    }

    fn none() -> Self {
        Self {
            _holders: Vec::new(),
            over: Arc::new(AtomicBool::new(false)),
            hogs: Vec::new(),
        }
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        self.end();
    }
}

/// A GPU in a process of its own, with so much of its memory filled.
fn filled(agent: &Path, root: &Path, gpu: u32, bytes: u64) -> Result<RemoteDevice, String> {
    let worker = Worker::start(agent).map_err(|why| format!("no other process starts: {why}"))?;
    let fill = |worker| -> Result<RemoteDevice, DeviceError> {
        let mut device = RemoteDevice::open(worker, gpu, root)?;
        device.set_deadline(Instant::now() + PATIENCE);
        let contents = Contents::derive(&Digest([0xA5; 32]), gpu, Pattern::Prf);
        device.fill(&contents, bytes / 32 * 32)?;
        Ok(device)
    };
    fill(worker).map_err(|why| format!("the other process: {why}"))
}

/// Streams through memory again and again, from before this returns. The thread gives the middle rate.
fn stream(
    mut device: RemoteDevice,
    over: Arc<AtomicBool>,
) -> Result<JoinHandle<Option<u64>>, String> {
    let (tell, begun) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut rates = Vec::new();
        let mut streamed = device.stream(HOG_STRETCH);
        // Whoever started this may have gone.
        let _ = tell.send(streamed.clone());
        while let Ok(Some(rate)) = streamed {
            rates.push(rate);
            if over.load(Ordering::Relaxed) {
                break;
            }
            device.set_deadline(Instant::now() + PATIENCE);
            streamed = device.stream(HOG_STRETCH);
        }
        median::lower(&rates)
    });
    match begun.recv() {
        Ok(Ok(Some(_))) => Ok(thread),
        Ok(Err(why)) => Err(format!("the other process does not stream: {why}")),
        Ok(Ok(None)) | Err(_) => Err("the other process does not stream".to_owned()),
    }
}
