//! Copies within memory, timed.

use market::verification::BandwidthWork;

use crate::device::{Device, DeviceError};

/// The samples of one GPU. Units: 1e6 bytes per second, bytes read plus bytes written.
///
/// Errors: [`DeviceError`] when the device does not copy.
pub fn measure(device: &mut dyn Device, work: &BandwidthWork) -> Result<Vec<u64>, DeviceError> {
    (0..work.samples)
        .map(|sample| device.copy_mb_per_s(sample))
        .collect()
}
