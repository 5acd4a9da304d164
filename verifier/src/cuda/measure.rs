//! Measurements by the GPU's own clock.

use std::time::Duration;

use super::buffer::{Buffer, Pinned};
use super::gpu::CudaGpu;
use super::{result, sys};
use crate::device::DeviceError;
use crate::probe::bandwidth::{HOST_COPY, HOST_ROUNDS};
use crate::probe::burn::LoadSample;
use crate::probe::gemm::SAMPLE_NS;

/// About how long products are computed before others are timed. Units: milliseconds.
const WARM_MS: f64 = SAMPLE_NS as f64 / 1e6;
/// How long a loaded GPU works between two samples. Units: milliseconds.
const LOOK_EVERY_MS: f64 = 200.0;

impl CudaGpu {
    /// Times the work that `work` starts. Units: milliseconds.
    pub fn timed(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        let begin = self.mark()?;
        work(self)?;
        let end = self.mark()?;
        self.between(begin, end)
    }

    /// Runs work once it is to be timed, for about as long as a sample of products lasts, but at most this
    /// often. The first run loads the kernel; the others bring clocks and power to a steady state.
    pub fn warm_up(
        &mut self,
        most: u32,
        work: impl Fn(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        work(self)?;
        let once_ms = self.timed(&work)?;
        let rounds = WARM_MS / once_ms.max(1e-3);
        let rounds = rounds.ceil().min(f64::from(most)) as u32;
        (1..rounds).try_for_each(|_| work(self))
    }

    /// Marks the current point in this GPU's work.
    pub fn mark(&self) -> Result<sys::CUevent, DeviceError> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let event = event.map_err(|error| self.error(error))?;
        // SAFETY: the event was just made.
        let marked = unsafe { result::event::record(event, result::stream::null()) };
        marked.map_err(|error| self.error(error))?;
        Ok(event)
    }

    /// Waits for two marks of this GPU's work and gives the time between them. It destroys the marks.
    /// Units: milliseconds.
    pub fn between(&self, begin: sys::CUevent, end: sys::CUevent) -> Result<f64, DeviceError> {
        // SAFETY, here and below: both events were made by `mark` and are destroyed once, at the end.
        unsafe { result::event::synchronize(end) }.map_err(|error| self.error(error))?;
        let elapsed = unsafe { result::event::elapsed(begin, end) };
        for event in [begin, end] {
            // A failure to free it loses nothing.
            let _ = unsafe { result::event::destroy(event) };
        }
        elapsed.map(f64::from).map_err(|error| self.error(error))
    }

    /// So many bytes in so long. Units: 1e6 bytes per second.
    pub fn rate(&self, bytes: u64, elapsed_ms: f64) -> Result<u64, DeviceError> {
        if elapsed_ms > 0.0 {
            Ok((bytes as f64 / elapsed_ms / 1e3) as u64)
        } else {
            Err(self.failed("its clock stands still"))
        }
    }

    /// Copies over the host link. Units: 1e6 bytes per second.
    pub fn host_copies(&mut self, to_host: bool) -> Result<u64, DeviceError> {
        let memory = self.filled()?;
        let (address, bytes) = (memory.address, memory.bytes.min(HOST_COPY));
        // Pinning takes longer than copying: it is done once for all samples.
        let kept = self.pinned.take_if(|pinned| pinned.bytes == bytes);
        let pinned = match kept {
            Some(pinned) => pinned,
            None => Pinned::new(bytes).map_err(|error| self.error(error))?,
        };
        let elapsed_ms = self.timed(|gpu| {
            for _ in 0..HOST_ROUNDS {
                // SAFETY: both sides hold this many bytes and live until the copies have been waited for. The
                // host's bytes are initialised from the start, and nothing else touches them.
                let copied = unsafe {
                    let stream = result::stream::null();
                    let host = pinned.address.cast::<u8>();
                    if to_host {
                        let to = std::slice::from_raw_parts_mut(host, pinned.bytes as usize);
                        result::memcpy_dtoh_async(to, address, stream)
                    } else {
                        let from = std::slice::from_raw_parts(host, pinned.bytes as usize);
                        result::memcpy_htod_async(address, from, stream)
                    }
                };
                copied.map_err(|error| gpu.error(error))?;
            }
            // While it carries data: an idle link trains to fewer lanes or a lower speed.
            gpu.host_link = gpu.managed.host_link().or(gpu.host_link);
            Ok(())
        })?;
        self.pinned = Some(pinned);
        self.rate(bytes * HOST_ROUNDS, elapsed_ms)
    }

    /// Computes a product of this many operations repeatedly until the time is over. It samples the GPU at
    /// each interval and compares the last product.
    pub fn load(
        &mut self,
        operations: f64,
        product: &Buffer,
        lasts: Duration,
        multiply: impl Fn(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<Vec<LoadSample>, DeviceError> {
        // The first run loads the kernel and raises the clocks.
        multiply(self)?;
        let once_ms = self.timed(&multiply)?;
        let rounds = (LOOK_EVERY_MS / once_ms.max(1e-3)).ceil().clamp(1.0, 1e4) as u32;
        let (mut looks, mut left_ms) = (Vec::new(), lasts.as_secs_f64() * 1e3);
        while left_ms > 0.0 {
            let mut sample = LoadSample::default();
            sample.elapsed_ms = self.timed(|gpu| {
                (0..rounds).try_for_each(|_| multiply(gpu))?;
                // While the work goes on: an idle GPU shows other clocks.
                gpu.managed.look(&mut sample);
                Ok(())
            })?;
            sample.sum = self.checksum(product.address, product.bytes / 4)?;
            sample.operations = operations * f64::from(rounds);
            // A clock that stands still must not make this endless.
            left_ms -= sample.elapsed_ms.max(1.0);
            looks.push(sample);
        }
        Ok(looks)
    }
}
