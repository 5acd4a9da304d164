//! The management library's facts about one GPU. All of them are claims, none is proved.

use market::verification::{FabricState, GpuFacts, HealthCounters, HostLink};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::device::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, RetirementCause, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlGpuFabricInfo_t};

use crate::probe::burn::{LoadSample, SlowedBy};

/// The most NVLink connections that any GPU has.
const MOST_LINKS: u32 = 18;
const MIB: u64 = 1 << 20;
/// `nvmlGpuFabricInfo_t::state`.
const FABRIC_STATES: [FabricState; 4] = [
    FabricState::NotSupported,
    FabricState::NotStarted,
    FabricState::InProgress,
    FabricState::Completed,
];

/// One GPU in the management library, from before its first use.
pub struct Managed {
    nvml: &'static Nvml,
    bus_id: String,
    used_memory_mib: Option<u32>,
    foreign_processes: Option<u32>,
    events: Option<EventSet<'static>>,
}

impl Managed {
    /// Opens the GPU at a PCI bus address and begins to listen for its errors.
    pub fn open(nvml: &'static Nvml, bus_id: &str) -> Result<Self, NvmlError> {
        let device = nvml.device_by_pci_bus_id(bus_id)?;
        let used = device.memory_info().ok().map(|memory| memory.used / MIB);
        let listen = || {
            let set = nvml.create_event_set().ok()?;
            device
                .register_events(EventTypes::CRITICAL_XID_ERROR, set)
                .ok()
        };
        Ok(Self {
            nvml,
            bus_id: bus_id.to_owned(),
            used_memory_mib: used.map(|mib| u32::try_from(mib).unwrap_or(u32::MAX)),
            foreign_processes: device.running_compute_processes_count().ok(),
            events: listen(),
        })
    }

    fn device(&self) -> Result<Device<'static>, NvmlError> {
        self.nvml.device_by_pci_bus_id(self.bus_id.as_str())
    }

    /// Whether the GPU is gone from the bus.
    pub fn is_lost(&self) -> bool {
        let answer = self.device().and_then(|device| device.memory_info());
        matches!(answer, Err(NvmlError::GpuLost))
    }

    /// Product name, id and memory in MiB.
    pub fn claim(&self) -> Result<(String, String, u32), NvmlError> {
        let device = self.device()?;
        let mib = device.memory_info()?.total / MIB;
        let mib = u32::try_from(mib).unwrap_or(u32::MAX);
        Ok((device.name()?, device.uuid()?, mib))
    }

    /// The current host link; it is narrower when idle.
    pub fn host_link(&self) -> Option<HostLink> {
        let device = self.device().ok()?;
        Some(HostLink {
            generation: device.current_pcie_link_gen().ok()?,
            width: device.current_pcie_link_width().ok()?,
        })
    }

    /// Samples a loaded GPU.
    pub fn look(&self, sample: &mut LoadSample) {
        let Ok(device) = self.device() else {
            return;
        };
        let reasons = device.current_throttle_reasons().ok();
        sample.slowed = reasons.map(|reasons| SlowedBy {
            hw_slowdown: reasons.contains(ThrottleReasons::HW_SLOWDOWN),
            thermal: reasons.intersects(
                ThrottleReasons::HW_THERMAL_SLOWDOWN | ThrottleReasons::SW_THERMAL_SLOWDOWN,
            ),
            power_brake: reasons.contains(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
        });
        sample.power_w = device
            .power_usage()
            .ok()
            .map(|milliwatts| milliwatts / 1_000);
        sample.temperature_c = device.temperature(TemperatureSensor::Gpu).ok();
        sample.sm_mhz = device.clock_info(Clock::SM).ok();
    }

    /// The temperature at which it slows itself.
    pub fn slowdown_temperature_c(&self) -> Option<u32> {
        let device = self.device().ok()?;
        device
            .temperature_threshold(TemperatureThreshold::Slowdown)
            .ok()
    }

    /// The errors that were reported since it was opened.
    pub fn xids(&self) -> Option<Vec<u32>> {
        let events = self.events.as_ref()?;
        let mut xids = Vec::new();
        loop {
            match events.wait(0) {
                // An error without a number is reported as zero.
                Ok(event) => xids.extend(event.event_data.map(|xid| match xid {
                    XidError::Value(number) => u32::try_from(number).unwrap_or(u32::MAX),
                    XidError::Unknown => 0,
                })),
                Err(NvmlError::Timeout) => return Some(xids),
                // A lost GPU ends the listening; errors received before count.
                Err(NvmlError::GpuLost) => return Some(xids),
                Err(_) => return None,
            }
        }
    }

    /// Its current state; the counters are in `health_before`.
    pub fn facts(&self) -> Result<GpuFacts, NvmlError> {
        let device = self.device()?;
        let watts = |milliwatts: u32| milliwatts / 1_000;
        let pci_id = device.pci_info().ok().map(|pci| {
            let (vendor, part) = (pci.pci_device_id & 0xffff, pci.pci_device_id >> 16);
            format!("{vendor:04x}:{part:04x}")
        });
        let links: Option<Vec<bool>> = links(&device);
        let active = links.map(|links| links.into_iter().filter(|up| *up).count() as u32);
        Ok(GpuFacts {
            pci_id,
            bus_id: Some(self.bus_id.clone()),
            serial: device.serial().ok(),
            mig_enabled: is_in_slices(&device),
            ecc_enabled: device
                .is_ecc_enabled()
                .ok()
                .map(|ecc| ecc.currently_enabled),
            power_limit_w: device.enforced_power_limit().ok().map(watts),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            nvlinks_active: active,
            fabric: self.fabric(&device),
            used_memory_mib: self.used_memory_mib,
            foreign_processes: self.foreign_processes,
            health_before: self.health(&device),
            ..GpuFacts::default()
        })
    }

    fn health(&self, device: &Device<'_>) -> HealthCounters {
        let ecc = |kind, counter| device.total_ecc_errors(kind, counter).ok();
        let retired = [
            RetirementCause::MultipleSingleBitEccErrors,
            RetirementCause::DoubleBitEccError,
        ]
        .map(|cause| device.retired_pages(cause).ok().map(|pages| pages.len()));
        let rows = self.remapped_rows(device);
        HealthCounters {
            ecc_corrected: ecc(MemoryError::Corrected, EccCounter::Volatile),
            ecc_uncorrected: ecc(MemoryError::Uncorrected, EccCounter::Volatile),
            ecc_uncorrected_lifetime: ecc(MemoryError::Uncorrected, EccCounter::Aggregate),
            remapped_rows: rows.map(|rows| rows.corrected + rows.uncorrected),
            remap_pending: rows.map(|rows| rows.pending),
            remap_failed: rows.map(|rows| rows.failed),
            retired_pages: retired[0]
                .zip(retired[1])
                .map(|(single, double)| (single + double) as u32),
            retirement_pending: device.are_pages_pending_retired().ok(),
            pcie_replays: device.pcie_replay_counter().ok().map(u64::from),
            nvlink_errors: link_errors(device),
        }
    }

    /// The wrapper has no call for the fabric.
    fn fabric(&self, device: &Device<'_>) -> Option<FabricState> {
        let call = self.nvml.lib().nvmlDeviceGetGpuFabricInfo.as_ref().ok()?;
        // SAFETY: a structure of integers may be all zeros.
        let mut info: nvmlGpuFabricInfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the handle belongs to this library, which stays loaded, and `info` has the form that this
        // version of the call fills.
        let status = unsafe { call(handle(device), &raw mut info) };
        if status != 0 {
            return None;
        }
        match FABRIC_STATES.get(info.state as usize)? {
            FabricState::Completed if info.status != 0 => Some(FabricState::Failed),
            state => Some(*state),
        }
    }

    /// The wrapper has no call for remapped rows.
    fn remapped_rows(&self, device: &Device<'_>) -> Option<RemappedRows> {
        let call = self.nvml.lib().nvmlDeviceGetRemappedRows.as_ref().ok()?;
        let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
        // SAFETY: the handle belongs to this library, which stays loaded, and the call writes four integers.
        let status = unsafe {
            call(
                handle(device),
                &raw mut corrected,
                &raw mut uncorrected,
                &raw mut pending,
                &raw mut failed,
            )
        };
        (status == 0).then_some(RemappedRows {
            corrected,
            uncorrected,
            pending: pending != 0,
            failed: failed != 0,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct RemappedRows {
    corrected: u32,
    uncorrected: u32,
    pending: bool,
    failed: bool,
}

fn handle(device: &Device<'_>) -> nvmlDevice_t {
    // SAFETY: it is used while the library is loaded, and only to ask.
    unsafe { device.handle() }
}

/// Whether it is set up in slices; none where that cannot be read. A GPU whose set-up is unknown to the
/// library is whole, as is one whose firmware does not support slices.
fn is_in_slices(device: &Device<'_>) -> Option<bool> {
    match device.mig_mode() {
        Err(NvmlError::NotSupported) => Some(false),
        mode => mode.ok().map(|mode| mode.current != 0),
    }
}

/// Which links are up; none where the library knows of no links.
fn links(device: &Device<'_>) -> Option<Vec<bool>> {
    let states: Vec<bool> = (0..MOST_LINKS)
        .map_while(|link| device.link_wrapper_for(link).is_active().ok())
        .collect();
    (!states.is_empty()).then_some(states)
}

fn link_errors(device: &Device<'_>) -> Option<u64> {
    let counters = [
        ErrorCounter::DlReplay,
        ErrorCounter::DlRecovery,
        ErrorCounter::DlCrcFlit,
    ];
    let of = |link: u32| -> Option<u64> {
        let link = device.link_wrapper_for(link);
        counters
            .iter()
            .map(|counter| link.error_counter(*counter).ok())
            .sum()
    };
    let links = links(device)?.len() as u32;
    (0..links).map(of).sum()
}
