//! Other processes on the same cards, for as long as they are kept.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use market::verification::{Digest, GpuClaim, Pattern};

use super::super::measure::PATIENCE;
use crate::device::{Device, DeviceError};
use crate::driver::{RemoteDevice, Worker};
use crate::memory::Contents;

/// Processes that stream through the memory of each card.
const HOGS: u32 = 2;
/// What such a process streams through, at most. Units: bytes.
const HOG_BYTES: u64 = 64 << 20;
/// Of the memory, what is held. Units: percent.
const HELD_PERCENT: u64 = 30;

/// The processes. They end with this.
pub struct Guests {
    _holders: Vec<RemoteDevice>,
    over: Arc<AtomicBool>,
    hogs: Vec<JoinHandle<()>>,
}

impl Guests {
    /// Processes that each hold a part of a card's memory.
    ///
    /// Errors: why one does not, in words; here and below.
    pub fn holding(agent: &Path, claims: &[GpuClaim]) -> Result<Self, String> {
        let mut guests = Self::none();
        for (gpu, claim) in (0..).zip(claims) {
            let bytes = (u64::from(claim.memory_mib) << 20) * HELD_PERCENT / 100;
            guests._holders.push(filled(agent, gpu, bytes)?);
        }
        Ok(guests)
    }

    /// Processes that stream through memory until they end. They have begun when this returns.
    pub fn streaming(agent: &Path, claims: &[GpuClaim]) -> Result<Self, String> {
        let mut guests = Self::none();
        for (gpu, claim) in (0..).zip(claims) {
            let bytes = (u64::from(claim.memory_mib) << 20) / 16;
            for _ in 0..HOGS {
                let device = filled(agent, gpu, bytes.min(HOG_BYTES))?;
                guests.hogs.push(stream(device, Arc::clone(&guests.over))?);
            }
        }
        Ok(guests)
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
        self.over.store(true, Ordering::Relaxed);
        for hog in self.hogs.drain(..) {
            // One that crashed streams no longer either.
            let _ = hog.join();
        }
    }
}

/// A GPU in a process of its own, with so much of its memory filled.
fn filled(agent: &Path, gpu: u32, bytes: u64) -> Result<RemoteDevice, String> {
    let worker = Worker::start(agent).map_err(|why| format!("no other process starts: {why}"))?;
    let fill = |worker| -> Result<RemoteDevice, DeviceError> {
        let mut device = RemoteDevice::open(worker, gpu)?;
        device.set_deadline(Instant::now() + PATIENCE);
        let contents = Contents::derive(&Digest([0xA5; 32]), gpu, Pattern::Prf);
        device.fill(&contents, bytes / 32 * 32)?;
        Ok(device)
    };
    fill(worker).map_err(|why| format!("the other process: {why}"))
}

/// Copies within memory again and again, from before this returns.
fn stream(mut device: RemoteDevice, over: Arc<AtomicBool>) -> Result<JoinHandle<()>, String> {
    let (tell, begun) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut copied = device.copy_mb_per_s(0);
        // Whoever started this may have gone.
        let _ = tell.send(copied.clone());
        while copied.is_ok() && !over.load(Ordering::Relaxed) {
            device.set_deadline(Instant::now() + PATIENCE);
            copied = device.copy_mb_per_s(0);
        }
    });
    match begun.recv() {
        Ok(Ok(_)) => Ok(thread),
        Ok(Err(why)) => Err(format!("the other process does not stream: {why}")),
        Err(_) => Err("the other process does not stream".to_owned()),
    }
}
