//! Timed copies within memory, and how much is moved for a sample of any rate.

use market::verification::BandwidthWork;

use crate::device::{Device, DeviceError};

/// The size of an array that is streamed through for a rate, where 8 times the cache is less.
/// Units: bytes.
const STREAMED: u64 = 4 << 30;
/// An array is at least this many times the cache: part of a smaller one could stay in it between rounds.
const CACHES: u64 = 8;
/// The number of arrays of the rate that needs most.
pub const MOST_ARRAYS: u64 = 3;
/// How often memory is streamed through for one sample.
pub const STREAM_ROUNDS: u64 = 20;
/// The most that one host copy moves. Units: bytes.
pub const HOST_COPY: u64 = 256 << 20;
/// The rounds for one sample: GPUs are measured one by one, and eight of them on the slowest links must leave
/// time for the load.
pub const HOST_ROUNDS: u64 = 4;

/// The least size of an array. Units: bytes.
#[must_use]
pub const fn least_array_bytes(cache_bytes: u64) -> u64 {
    CACHES.saturating_mul(cache_bytes)
}

/// The size of each of this many arrays: 4 GiB or 8 times the cache, the larger of the two, but no more than
/// memory allows. Units: bytes.
#[must_use]
pub fn array_bytes(memory_bytes: u64, arrays: u64, cache_bytes: u64) -> u64 {
    let wanted = STREAMED.max(least_array_bytes(cache_bytes));
    wanted.min(memory_bytes / arrays.max(1)) / 16 * 16
}

/// The samples of one GPU. Units: 1e6 bytes per second, bytes read plus bytes written.
///
/// Errors: [`DeviceError`] when the device does not copy, copies wrongly, or lacks memory for any rate.
pub fn measure(device: &mut dyn Device, work: &BandwidthWork) -> Result<Vec<u64>, DeviceError> {
    device.room_for_streams()?;
    (0..work.samples)
        .map(|sample| device.copy_mb_per_s(sample))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use market::gpu::Gpu;
    use market::verification::{Level, Pattern, VerificationOrder};

    use super::*;
    use crate::agent::for_gpus;
    use crate::deadlines::{fill_ms, pass_ms};
    use crate::floors::{Floors, Metric};
    use crate::order::{Mode, expected_node, is_drivable, order_for};
    use crate::probe::burn;
    use crate::probe::gemm::{CHECKED, SAMPLE_NS};
    use crate::tensor::Format;

    /// The time to move bytes at the rate below which the GPU would fail; where it has no floor, at the
    /// lowest floor of all GPUs.
    fn at_floor(gpu: Gpu, metric: Metric, bytes: u64) -> Duration {
        let floor_of = |gpu| Floors::current().of(gpu, metric, None);
        let lowest = || {
            Gpu::all()
                .filter_map(floor_of)
                .map(|floor| floor.floor)
                .min()
        };
        let floor = floor_of(gpu).map(|floor| floor.floor).or_else(lowest);
        Duration::from_secs_f64(bytes as f64 / 1e6 / floor.expect("a floor") as f64)
    }

    #[test]
    fn an_array_is_larger_than_any_cache_and_fits_into_memory() {
        const GIB: u64 = 1 << 30;
        // Caches of 50 MiB and of 1 GiB, which no GPU has yet.
        assert_eq!(array_bytes(78 * GIB, 3, 50 << 20), 4 * GIB);
        assert_eq!(array_bytes(78 * GIB, 3, GIB), 8 * GIB);
        assert_eq!(array_bytes(15 * GIB, 3, GIB), 5 * GIB);
        assert_eq!(array_bytes(1_000, 3, 16), 320);
        assert_eq!(least_array_bytes(50 << 20), 400 << 20);
    }

    #[test]
    fn no_real_order_streams_through_arrays_of_less_than_a_gibibyte() {
        for gpu in Gpu::all() {
            let order = order_for(expected_node(gpu, 1), 0, Level::Quick, Mode::Real);
            let bytes = array_bytes(order.memory.pattern_bytes, MOST_ARRAYS, 0);
            assert!(bytes >= 1 << 30, "{gpu}: {bytes}");
        }
    }

    /// How much is moved for the samples of a rate, in arrays: the rounds, one before those of the first
    /// sample, and the checks. A copy clears one array and reads two. A sum of two arrays clears one, and its
    /// first array is read, copied to, added to three times and read again. A read is done once more.
    const fn moved(metric: Metric, samples: u64) -> u64 {
        let rounds = STREAM_ROUNDS * samples + 1;
        match metric {
            Metric::HbmCopy => 2 * rounds + 3 * samples,
            Metric::HbmTriad => 3 * rounds + samples + 1 + 2 + 3 * 3 + 1,
            _ => rounds + samples,
        }
    }

    /// All rates of a node, at their floors. When all GPUs copy at once, each gets its part of one GPU's
    /// link.
    fn rates(order: &VerificationOrder) -> Duration {
        let (gpu, gpus) = (order.expected.gpu, order.expected.gpus);
        let streams = [
            (Metric::HbmCopy, 2),
            (Metric::HbmRead, 1),
            (Metric::HbmTriad, 3),
        ];
        let samples = u64::from(order.bandwidth.samples);
        let streamed: Duration = streams
            .into_iter()
            .map(|(metric, arrays)| {
                let bytes = array_bytes(order.memory.pattern_bytes, arrays, 0);
                at_floor(gpu, metric, bytes * moved(metric, samples))
            })
            .sum();
        let link = at_floor(gpu, Metric::HostLink, HOST_COPY * HOST_ROUNDS * samples);
        // In, out, and in together.
        streamed + link * gpus * 3 + products(order)
    }

    /// The products whose rates are measured, at their floors.
    fn products(order: &VerificationOrder) -> Duration {
        let gpu = order.expected.gpu;
        let (n, k) = (order.gemm.n, order.gemm.k);
        let operations = 2 * u64::from(n) * u64::from(n) * u64::from(k);
        let of = |(format, metric): (Format, Metric)| {
            let is_rated = format.is_rated_on(&gpu.spec().compute_capability);
            // Thousands of operations are to 1e9 as bytes are to 1e6 bytes.
            let once = at_floor(gpu, metric, operations / 1_000);
            // One product first, then those of a sample, twice: the first time untimed; and the checked ones.
            let sample = once + 2 * once.max(Duration::from_nanos(SAMPLE_NS)) + once * CHECKED;
            is_rated.then_some(sample * order.bandwidth.samples)
        };
        let formats = [
            (Format::Bf16, Metric::Gemm16Bit),
            (Format::Fp8, Metric::GemmFp8),
        ];
        formats.into_iter().filter_map(of).sum()
    }

    /// Memory filled and compared by each pattern but the last, which is filled and then hashed: as long as
    /// the deadlines assume, which for the slow fill is much longer than reading takes.
    fn passes(order: &VerificationOrder) -> Duration {
        let (gpu, bytes) = (order.expected.gpu, order.memory.pattern_bytes);
        let (last, before) = order.memory.passes.split_last().expect("passes");
        assert_eq!(*last, Pattern::Slow, "others are read back, too");
        let before_ms: u64 = before.iter().map(|pass| pass_ms(gpu, *pass, bytes)).sum();
        let filled = Duration::from_millis(before_ms + fill_ms(gpu, *last, bytes));
        filled + at_floor(gpu, Metric::HbmRead, bytes)
    }

    /// Eight of these have no time for a load where every step takes its limit: ten multiprocessors fill
    /// memory, and nobody has published the read rates of good ones.
    const WITHOUT_TIME_FOR_EIGHT: [&str; 2] = ["A16", "A2"];

    /// That one GPU takes less than a minute is no budget but a goal: the slow fill is reckoned here as slowly as
    /// it may go.
    #[test]
    fn the_slowest_gpus_that_pass_have_time_for_the_whole_standard_level() {
        let driven = |gpu: &Gpu| is_drivable(*gpu);
        for (gpu, gpus) in Gpu::all()
            .filter(driven)
            .flat_map(|gpu| [(gpu, 1), (gpu, 8)])
        {
            let order = order_for(expected_node(gpu, gpus), 0, Level::Standard, Mode::Real);
            let (passes, rates) = (passes(&order), rates(&order));
            let whole = Duration::from_millis(order.deadlines.whole_ms);
            // The time of the passes counts against all steps together.
            let left = whole.checked_sub(passes).expect("time is left");
            let left_ms = u64::try_from(left.as_millis()).expect("so many");
            let allowed = for_gpus(order.deadlines.report_ms.min(left_ms));
            let load = burn::lasts(Level::Standard, allowed.saturating_sub(rates));
            let load = load.expect("a load");
            let said = format!("{gpus} x {gpu}: passes {passes:?}, rates {rates:?}, load {load:?}");
            // The load is sampled five times a second.
            let has_time = load >= Duration::from_secs(4);
            let is_known = gpus == 8 && WITHOUT_TIME_FOR_EIGHT.contains(&&*gpu.to_string());
            assert_eq!(has_time, !is_known, "{said}");
            assert!(!has_time || rates + load < allowed, "{said}");
            assert!(!has_time || passes + rates + load < whole, "{said}");
        }
    }

    #[test]
    fn a_deep_load_lasts_as_long_as_it_should() {
        for gpu in Gpu::all() {
            let order = order_for(expected_node(gpu, 8), 0, Level::Deep, Mode::Real);
            let left = for_gpus(order.deadlines.report_ms).saturating_sub(rates(&order));
            let load = burn::lasts(Level::Deep, left);
            assert_eq!(load, Some(Duration::from_secs(15 * 60)), "{gpu}");
        }
    }
}
