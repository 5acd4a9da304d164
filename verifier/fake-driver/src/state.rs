//! The driver's state in one process.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard};

use verifier::memory::Contents;

use crate::clocks::Clocks;
use crate::duty::Duty;
use crate::neighbours::{Neighbours, Use};
use crate::script::{Card, Script, VARIABLE};

const MIB: u64 = 1 << 20;
/// The change of its duty after which it publishes it to the others. Units: thousandths.
const TOLD_PERMILLE: u32 = 20;
/// Where the memory of a GPU begins.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;

/// Device memory, as far as it was touched.
pub struct Allocation {
    /// On which card.
    pub gpu: usize,
    pub bytes: u64,
    pub contents: Vec<u8>,
}

/// A product on the tensor units: where its inputs are, and its entries.
pub struct TensorProduct {
    pub inputs_at: [u64; 2],
    pub entries: Vec<u8>,
}

/// The driver.
pub struct State {
    pub script: Script,
    /// The status of initialisation, of the management library and of the compute library.
    pub init: (u32, u32),
    neighbours: Neighbours,
    /// The share of time in which it streams through memory.
    duty: Duty,
    /// The last published value of that. Units: thousandths.
    duty_told: u32,
    /// The GPU that this process uses.
    pub gpu: usize,
    /// Whether it has worked.
    pub worked: bool,
    /// The answer to every call once the GPU is lost or withdrawn.
    pub gone: Option<u32>,
    pub products: u32,
    /// The left matrices of a skipped chain, the first of which is computed.
    chain: Vec<Vec<u8>>,
    /// The addresses of the inputs and the product that belong together.
    pub product_at: Option<[u64; 3]>,
    /// The last product on the tensor units.
    pub tensor: Option<TensorProduct>,
    pub tensor_products: u32,
    /// The addresses of inputs on the tensor units whose products only keep the card busy.
    pub loads_at: Option<[u64; 2]>,
    pub xids_told: usize,
    pub functions: Vec<String>,
    allocations: BTreeMap<u64, Allocation>,
    next_address: u64,
    pub events: Vec<f64>,
    clocks: Clocks,
    /// The last contents of memory.
    pub filled_with: Option<Contents>,
    /// Their address.
    pub filled_at: Option<u64>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let path = std::env::var_os(VARIABLE).expect("the script's file is named");
    let neighbours = Neighbours::of(path.as_ref());
    let clocks = Clocks::beside(path.as_ref());
    let text = std::fs::read_to_string(&path).expect("the script can be read");
    let script: Script = serde_json::from_str(&text).expect("it is a script");
    let init = match script.before_up.is_empty() {
        true => None,
        false => script.before_up.get(earlier_processes(&path)).copied(),
    };
    Mutex::new(State {
        init: init.unwrap_or((0, script.init)),
        script,
        neighbours,
        duty: Duty::default(),
        duty_told: 0,
        gpu: 0,
        worked: false,
        gone: None,
        products: 0,
        chain: Vec::new(),
        product_at: None,
        tensor: None,
        tensor_products: 0,
        loads_at: None,
        xids_told: 0,
        functions: Vec::new(),
        allocations: BTreeMap::new(),
        next_address: FIRST_ADDRESS,
        events: Vec::new(),
        clocks,
        filled_with: None,
        filled_at: None,
    })
});

/// How many processes used the driver of the machine with this script before this one, which adds itself.
fn earlier_processes(script: &OsStr) -> usize {
    let count = Path::new(script).with_file_name("processes");
    let mut open = OpenOptions::new();
    let mut file = open.create(true).append(true).open(count).expect("a file");
    // Several begin at once: the position of this one's byte is unique.
    file.write_all(b".").expect("written");
    let end = file.stream_position().expect("a place");
    usize::try_from(end - 1).expect("few")
}

pub fn state() -> MutexGuard<'static, State> {
    STATE.lock().expect("nobody panics while holding it")
}

impl State {
    pub fn card(&self) -> &Card {
        &self.script.gpus[self.gpu]
    }

    /// The GPUs as the management library shows them.
    pub fn managed(&self) -> &[Card] {
        self.script.managed.as_ref().unwrap_or(&self.script.gpus)
    }

    /// The management library's number for the GPU with this compute number.
    pub fn managed_as(&self, gpu: usize) -> usize {
        let (managed, uuid) = (self.managed(), &self.script.gpus[gpu].uuid);
        let is_it = |card: &Card| card.uuid == *uuid;
        if managed.get(gpu).is_some_and(is_it) {
            return gpu;
        }
        managed.iter().position(is_it).unwrap_or(gpu)
    }

    fn usable_bytes(&self) -> u64 {
        let card = self.card();
        let mib = card.real_memory_mib.unwrap_or(card.memory_mib);
        // The driver reserves about a hundredth.
        (mib - mib / 100).saturating_sub(card.used_mib) * MIB
    }

    pub fn free_bytes(&self) -> u64 {
        let others: u64 = self.neighbours.on(self.gpu).iter().map(|n| n.bytes).sum();
        self.usable_bytes()
            .saturating_sub(self.taken_bytes() + others)
    }

    fn taken_bytes(&self) -> u64 {
        let here = self.allocations.values().filter(|a| a.gpu == self.gpu);
        here.map(|a| a.bytes).sum()
    }

    /// The use by other processes of a card at a position of the management library.
    pub fn neighbours_on(&self, managed: usize) -> Vec<Use> {
        let there = (0..self.script.gpus.len()).filter(|gpu| self.managed_as(*gpu) == managed);
        there.flat_map(|gpu| self.neighbours.on(gpu)).collect()
    }

    /// Publishes this process's use to the others.
    pub fn show(&mut self) {
        let does = Use {
            gpu: self.gpu,
            bytes: self.taken_bytes(),
            streams_permille: self.duty.permille(),
        };
        self.duty_told = does.streams_permille;
        self.neighbours.tell(does);
    }

    /// Streams through memory. Another process that does so on this card takes as much of its rate, for the
    /// share of time in which it has work.
    pub fn stream_bytes(&mut self, bytes: u64) {
        let others = self.neighbours.on(self.gpu);
        let others: u32 = others.iter().map(|other| other.streams_permille).sum();
        let rate = self.card().copy_mb_per_s / (1.0 + f64::from(others) / 1e3);
        let began_ms = self.now_ms();
        self.move_bytes(bytes, rate);
        self.duty.work(self.now_ms() - began_ms);
        self.tell_duty();
    }

    /// The process has waited for all of its work.
    pub fn waited(&mut self) {
        self.duty.pause();
        self.tell_duty();
    }

    fn tell_duty(&mut self) {
        if self.duty.permille().abs_diff(self.duty_told) >= TOLD_PERMILLE {
            self.show();
        }
    }

    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        if bytes > self.free_bytes() {
            return None;
        }
        let address = self.next_address;
        self.next_address += bytes.next_multiple_of(2 * MIB);
        let contents = Vec::new();
        let allocation = Allocation {
            gpu: self.gpu,
            bytes,
            contents,
        };
        self.allocations.insert(address, allocation);
        self.show();
        Some(address)
    }

    pub fn free(&mut self, address: u64) -> bool {
        let freed = self.allocations.remove(&address).is_some();
        self.show();
        freed
    }

    /// `bytes` of memory from an address on; none outside of allocations.
    pub fn memory(&mut self, address: u64, bytes: u64) -> Option<&mut [u8]> {
        let (base, allocation) = self.allocations.range_mut(..=address).next_back()?;
        let start = address - base;
        let end = start.checked_add(bytes)?;
        if end > allocation.bytes {
            return None;
        }
        if allocation.contents.len() < end as usize {
            allocation.contents.resize(end as usize, 0);
        }
        allocation.contents.get_mut(start as usize..end as usize)
    }

    /// Advances the time by that of moving this many bytes.
    pub fn move_bytes(&mut self, bytes: u64, mb_per_s: f64) {
        self.pass_ms(bytes as f64 / mb_per_s / 1e3);
    }

    /// Whether a product is one of a chain, other than the first, that is requested for the first time.
    pub fn is_skipped(&mut self, left: &[u8]) -> bool {
        let is_new = self.chain.iter().all(|known| known != left);
        if is_new {
            self.chain.push(left.to_vec());
        }
        is_new && self.chain.len() > 1
    }

    /// Advances the time by that of a product, given for a card that poses as one GPU and has not faded.
    pub fn pass_product(&mut self, ms: f64) {
        let card = self.card();
        let faded = f64::from(card.fades_permille) * self.now_ms() / 1e6;
        self.pass_ms(ms * f64::from(card.shown_as) * (1.0 + faded));
    }

    /// Advances the time on the card in use.
    pub fn pass_ms(&mut self, ms: f64) {
        self.clocks.pass_ms(self.gpu, ms);
    }

    pub fn now_ms(&self) -> f64 {
        self.clocks.now_ms(self.gpu)
    }

    /// Moves bytes from an address to the card in use: over the link where they are another card's. Gives
    /// whether they are.
    pub fn fetch_bytes(&mut self, from: u64, bytes: u64) -> bool {
        let holds = self.allocations.range(..=from).next_back();
        let is_other = holds.is_some_and(|(_, allocation)| allocation.gpu != self.gpu);
        if is_other {
            let rate = self.card().link_mb_per_s;
            self.move_bytes(bytes, rate);
        } else {
            self.stream_bytes(2 * bytes);
        }
        is_other
    }
}
