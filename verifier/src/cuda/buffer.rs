//! Memory of the GPU and of its host, and the arguments of kernels.

use std::ffi::c_void;

use super::{DriverError, result, sys};

/// Device memory, freed with its owner.
#[derive(Debug)]
pub(super) struct Buffer {
    pub address: sys::CUdeviceptr,
    pub bytes: u64,
}

impl Buffer {
    pub fn new(bytes: u64) -> Result<Self, DriverError> {
        // SAFETY: a context is current, and what is allocated is used only through this.
        let address = unsafe { result::malloc_sync(bytes as usize) }?;
        Ok(Self { address, bytes })
    }

    pub fn zeroed(bytes: u64) -> Result<Self, DriverError> {
        let buffer = Self::new(bytes)?;
        buffer.clear()?;
        Ok(buffer)
    }

    /// Makes all of it zero.
    pub fn clear(&self) -> Result<(), DriverError> {
        // SAFETY: as many bytes as were allocated.
        unsafe { result::memset_d8_sync(self.address, 0, self.bytes as usize) }
    }

    /// The first values, of integers.
    pub fn read<T: Copy + Default>(&self, count: usize) -> Result<Vec<T>, DriverError> {
        self.read_from(0, count)
    }

    /// Values from a byte on, of integers.
    pub fn read_from<T: Copy + Default>(
        &self,
        offset: u64,
        count: usize,
    ) -> Result<Vec<T>, DriverError> {
        assert!(
            offset as usize + count * size_of::<T>() <= self.bytes as usize,
            "read within the buffer"
        );
        let mut values = vec![T::default(); count];
        // SAFETY: the buffer holds as many bytes there, and any bytes are integers.
        unsafe { result::memcpy_dtoh_sync(&mut values, self.address + offset) }?;
        Ok(values)
    }

    pub fn write<T: Copy>(&self, values: &[T]) -> Result<(), DriverError> {
        assert!(
            size_of_val(values) <= self.bytes as usize,
            "written within the buffer"
        );
        // SAFETY: the buffer holds as many bytes.
        unsafe { result::memcpy_htod_sync(self.address, values) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated here and is not used again. A failure leaves it allocated until
        // the process ends.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// Pinned host memory, initially zero and freed with its owner.
pub(super) struct Pinned {
    pub address: *mut c_void,
    pub bytes: u64,
}

impl Pinned {
    pub fn new(bytes: u64) -> Result<Self, DriverError> {
        // SAFETY: a context is current, and what is allocated is used only through this.
        let address = unsafe { result::malloc_host(bytes as usize, 0) }?;
        // SAFETY: as many bytes as were allocated, and nothing else refers to them.
        unsafe { address.cast::<u8>().write_bytes(0, bytes as usize) };
        Ok(Self { address, bytes })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: it was allocated here and is not used again.
        let _ = unsafe { result::free_host(self.address) };
    }
}

/// An argument of a kernel, in as many bytes as any of our kernels takes.
#[repr(align(16))]
#[derive(Clone, Copy)]
pub(super) struct Argument(pub [u8; 16]);

impl Argument {
    fn of(bytes: &[u8]) -> Self {
        let mut slot = [0; 16];
        slot[..bytes.len()].copy_from_slice(bytes);
        Self(slot)
    }
}

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self::of(&value.to_ne_bytes())
    }
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self::of(&value.to_ne_bytes())
    }
}

impl From<&Buffer> for Argument {
    fn from(buffer: &Buffer) -> Self {
        Self::from(buffer.address)
    }
}

impl From<crate::prf::Stream> for Argument {
    fn from(stream: crate::prf::Stream) -> Self {
        let bytes: Vec<u8> = stream
            .parameters()
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        Self::of(&bytes)
    }
}
