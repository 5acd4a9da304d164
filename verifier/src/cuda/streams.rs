//! Streams through memory: their rates, and whether their results are right.
//!
//! A stream that does half of its work would only look fast. So written arrays are compared, after the clock
//! has stopped, with the results of other kernels or the driver's own copy on the same arrays. Read arrays
//! are compared with the sum of their parts.

use market::verification::TroubleKind;

use super::buffer::Argument;
use super::gpu::CudaGpu;
use super::variants::turn;
use super::{result, sys};
use crate::device::DeviceError;
use crate::probe::bandwidth::{MOST_ARRAYS, STREAM_ROUNDS, array_bytes, least_array_bytes};

/// The factor of the second array before it is added to the first.
const SCALE: u32 = 3;

/// Arrays of one size, one after the other in filled memory.
struct Arrays {
    first: sys::CUdeviceptr,
    /// Of each. Units: bytes.
    bytes: u64,
}

impl Arrays {
    const fn address(&self, number: u64) -> sys::CUdeviceptr {
        self.first + number * self.bytes
    }

    const fn vectors(&self) -> u64 {
        self.bytes / 16
    }
}

impl CudaGpu {
    /// Whether filled memory holds as many arrays as any rate needs, each larger than the cache.
    ///
    /// Errors: [`DeviceError`] with the missing amount.
    pub fn room_for_streams(&self) -> Result<(), DeviceError> {
        let (filled, least) = (self.filled()?.bytes, least_array_bytes(self.cache_bytes));
        if filled / MOST_ARRAYS >= least {
            return Ok(());
        }
        Err(DeviceError {
            gpu: self.gpu,
            kind: TroubleKind::OutOfMemory,
            what: format!(
                "rates of memory take {MOST_ARRAYS} arrays of {least} bytes, each 8 times its cache, \
                 and {filled} bytes are filled"
            ),
        })
    }

    fn arrays(&self, count: u64) -> Result<Arrays, DeviceError> {
        let memory = self.filled()?;
        Ok(Arrays {
            first: memory.address,
            bytes: array_bytes(memory.bytes, count, self.cache_bytes),
        })
    }

    /// Copies an array to another one. Units: 1e6 bytes per second, read plus written.
    pub fn copies(&mut self, sample: u32) -> Result<u64, DeviceError> {
        let arrays = self.arrays(2)?;
        let arguments = [
            Argument::from(arrays.address(0)),
            Argument::from(arrays.address(1)),
            Argument::from(arrays.vectors()),
            Argument::from(turn(self.drawn, arrays.vectors())),
        ];
        let grid = self.vector_grid(arrays.vectors());
        let elapsed_ms = self.written_in_rounds(sample, &arrays, |gpu| {
            gpu.launch("stream_copy", grid, &arguments)
        })?;
        let is = self.checksum(arrays.address(0), arrays.bytes / 4)?;
        if is != self.checksum(arrays.address(1), arrays.bytes / 4)? {
            return Err(self.wrong("a copy within its memory differs from its source"));
        }
        self.rate(2 * arrays.bytes * STREAM_ROUNDS, elapsed_ms)
    }

    /// Adds a multiple of an array to another one and writes a third, which is checked on the first
    /// sample: that takes a fifth of the rounds' time, and where many GPUs are slow there is not so much
    /// for each. Units: 1e6 bytes per second, read plus written.
    pub fn triads(&mut self, sample: u32) -> Result<u64, DeviceError> {
        let arrays = self.arrays(3)?;
        let [to, left, right] = [0, 1, 2].map(|number| arrays.address(number));
        let grid = self.vector_grid(arrays.vectors());
        let arguments = [
            Argument::from(to),
            Argument::from(left),
            Argument::from(right),
            Argument::from(SCALE),
            Argument::from(arrays.vectors()),
            Argument::from(turn(self.drawn, arrays.vectors())),
        ];
        let elapsed_ms = self.written_in_rounds(sample, &arrays, |gpu| {
            gpu.launch("stream_triad", grid, &arguments)
        })?;
        if sample == 0 {
            self.check_triad([to, left, right], &arrays)?;
        }
        self.rate(3 * arrays.bytes * STREAM_ROUNDS, elapsed_ms)
    }

    /// Computes the same in steps, by other kernels: words wrap, so that both are exact.
    fn check_triad(
        &mut self,
        [to, left, right]: [sys::CUdeviceptr; 3],
        arrays: &Arrays,
    ) -> Result<(), DeviceError> {
        let is = self.checksum(to, arrays.bytes / 4)?;
        self.driver_copy(to, left, arrays)?;
        let arguments = [
            Argument::from(to),
            Argument::from(right),
            Argument::from(arrays.vectors()),
            Argument::from(0_u64),
        ];
        let grid = self.stream_grid(arrays.vectors());
        for _ in 0..SCALE {
            self.launch("ring_add", grid, &arguments)?;
        }
        if is == self.checksum(to, arrays.bytes / 4)? {
            return Ok(());
        }
        Err(self.wrong("the sum of two arrays in its memory is wrong"))
    }

    /// Reads an array. Units: 1e6 bytes per second.
    pub fn reads(&mut self, sample: u32) -> Result<u64, DeviceError> {
        let arrays = self.arrays(1)?;
        let sums = self.zeroed(16)?;
        let read = |gpu: &mut Self, from: u64, vectors: u64, sum: u64| {
            let arguments = [
                Argument::from(from),
                Argument::from(vectors),
                Argument::from(turn(gpu.drawn, vectors)),
                Argument::from(sum),
            ];
            gpu.launch("stream_read", gpu.stream_grid(vectors), &arguments)
        };
        let (from, vectors) = (arrays.address(0), arrays.vectors());
        let once = |gpu: &mut Self| read(gpu, from, vectors, sums.address);
        let rounds = STREAM_ROUNDS + u64::from(self.wake(sample, once)?);
        let elapsed_ms = self.rounds(once)?;
        // In two parts, neither of which is half of the whole.
        let part = vectors / 3;
        read(self, from, part, sums.address + 8)?;
        read(self, from + 16 * part, vectors - part, sums.address + 8)?;
        self.wait()?;
        let sums = sums.read::<u64>(2).map_err(|error| self.error(error))?;
        if sums[0] != sums[1].wrapping_mul(rounds) {
            return Err(
                self.wrong("the sum of an array read from its memory is not that of its parts")
            );
        }
        self.rate(arrays.bytes * STREAM_ROUNDS, elapsed_ms)
    }

    /// Times the rounds of work that writes the first array, which is empty when the clock starts.
    fn written_in_rounds(
        &mut self,
        sample: u32,
        arrays: &Arrays,
        once: impl Fn(&mut Self) -> Result<(), DeviceError> + Copy,
    ) -> Result<f64, DeviceError> {
        self.wake(sample, once)?;
        // SAFETY: the array lies within the filled buffer, which lives on.
        let cleared =
            unsafe { result::memset_d8_sync(arrays.address(0), 0, arrays.bytes as usize) };
        cleared.map_err(|error| self.error(error))?;
        self.rounds(once)
    }

    /// Does one round before those of the first sample, which loads the kernel and raises the clocks. Gives
    /// whether it did.
    fn wake(
        &mut self,
        sample: u32,
        once: impl Fn(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<bool, DeviceError> {
        if sample == 0 {
            once(self)?;
        }
        Ok(sample == 0)
    }

    /// Times the rounds of a stream.
    fn rounds(
        &mut self,
        once: impl Fn(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        self.timed(|gpu| (0..STREAM_ROUNDS).try_for_each(|_| once(gpu)))
    }

    fn driver_copy(
        &mut self,
        to: sys::CUdeviceptr,
        from: sys::CUdeviceptr,
        arrays: &Arrays,
    ) -> Result<(), DeviceError> {
        let stream = result::stream::null();
        // SAFETY: both arrays lie within the buffer, which lives until the copies have been waited for.
        let copied = unsafe { result::memcpy_dtod_async(to, from, arrays.bytes as usize, stream) };
        copied.map_err(|error| self.error(error))
    }

    fn wrong(&self, what: &str) -> DeviceError {
        DeviceError {
            gpu: self.gpu,
            kind: TroubleKind::WrongResult,
            what: what.to_owned(),
        }
    }
}
