//! Loaded function: its maps, and its attachments.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, ProgramMut, RingBuffer, RingBufferBuilder};
use pathcall_p4::emit::xdp::{EmitOptions, Emitted, MapLayouts, Storage, emit};
use pathcall_p4::interp::table::MatchTable;
use pathcall_p4::ir::{Program, TableId};
use rustix::time::{ClockId, clock_gettime};

use super::grace_period::GracePeriod;
use super::{Error, compile, log};
use crate::attach::{AttachMode, attach_to, index_of};

/// Longest packet of a test run: one page less the kernel's overhead.
pub(super) const PACKET_MAX: usize = 3_500;
/// Largest output port: 9 bits, without the drop port.
const PORT_MAX: u16 = 510;
/// Interfaces with an index below this are in the array of ingress ports: `WAYS` of prelude.h.
const WAYS: u32 = 4096;
/// Ring buffer of the digests.
const DIGESTS: &str = "digests";
/// No port.
const NO_PORT: u32 = u32::MAX;

/// Settings of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Whether packets come from [`process`](pathcall_p4::exec::Execution::process) instead of from interfaces.
    pub testing: bool,
    /// Port that stands for this machine: its packets go to the kernel's stack.
    pub local_port: Option<u16>,
    /// Storage of a packet's values; `None`: variables if compiler and verifier accept them, else a map.
    pub storage: Option<Storage>,
}

/// Reason of a lost packet or digest: `enum lost` of the emitted program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum LossReason {
    /// The program dropped the packet.
    Dropped,
    /// No room for longer headers, or less than an Ethernet header left.
    NoRoom,
    /// The packet arrived by an interface that is not a port.
    NoWayIn,
    /// The ring buffer had no room for a digest.
    DigestLost,
    /// The parser advanced by part of a byte.
    OddBits,
    /// The packet was recirculated too often.
    Recirculated,
}

impl LossReason {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Dropped, Self::NoRoom, Self::NoWayIn, Self::DigestLost, Self::OddBits, Self::Recirculated];
}

/// Function in the kernel; its drop detaches it and frees its memory.
#[derive(Debug)]
pub struct XdpFunction {
    // Dropped first, because it reads a map of the object.
    pub(super) ring: Option<RingBuffer<'static>>,
    /// Records of the ring buffer that were not returned yet.
    pub(super) records: Rc<RefCell<Vec<Vec<u8>>>>,
    object: Object,
    links: Vec<Link>,
    emitted: Emitted,
    /// Start of the function, by the kernel's clock.
    started_ns: u64,
    bytes: Vec<u8>,
    grace: GracePeriod,
    /// Content of the tables, the same as in the kernel's maps.
    pub(super) tables: Vec<MatchTable>,
    pub(super) buffer: Vec<u8>,
}

impl XdpFunction {
    /// Compiles and loads a program, attached to no interface.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::Refused`] and [`Error::Compiler`] name the unsupported construct; or there is
    /// no compiler or no permission.
    pub fn load(program: &Program, config: &Config) -> Result<Self, Error> {
        let first = config.storage.unwrap_or_else(|| Storage::of(program));
        match Self::load_as(program, config, first) {
            Err(refused @ (Error::Compiler { .. } | Error::Refused(_))) => {
                match first.next().filter(|_| config.storage.is_none()) {
                    Some(next) => Self::load_as(program, config, next),
                    None => Err(refused),
                }
            }
            loaded => loaded,
        }
    }

    fn load_as(program: &Program, config: &Config, storage: Storage) -> Result<Self, Error> {
        let emitted = emit(program, EmitOptions { storage })?;
        Self::load_text(program, config, emitted)
    }

    /// Loads a program from the emitted C, or from a modified text in which a test has planted a mistake.
    ///
    /// # Errors
    /// Errors of [`load`](Self::load).
    pub fn load_text(program: &Program, config: &Config, emitted: Emitted) -> Result<Self, Error> {
        let bytes = compile(&emitted.text)?;
        let doing = "loading the function's XDP program";
        let started_ns = now_ns();
        let (loaded, log_text) = log::capture_log(|| {
            let mut open = ObjectBuilder::default().open_memory(&bytes)?;
            for mut map in open.maps_mut().filter(|map| map.name() == ".rodata.config") {
                let Some(value) = map.initial_value_mut() else { continue };
                let local = config.local_port.map_or(NO_PORT, u32::from);
                value[..4].copy_from_slice(&u32::from(config.testing).to_ne_bytes());
                value[4..8].copy_from_slice(&local.to_ne_bytes());
                value[8..16].copy_from_slice(&started_ns.to_ne_bytes());
            }
            open.load()
        });
        let object = loaded.map_err(|error| match log::refusal(&emitted, &log_text) {
            Some(refused) => Error::Refused(Box::new(refused)),
            None => crate::Error::kernel(doing)(error).into(),
        })?;
        let records = Rc::new(RefCell::new(Vec::new()));
        let ring = ring(&object, &records)?;
        let tables = (0..program.tables.len() as u32).map(|id| MatchTable::new(program, TableId(id)));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let (links, buffer, grace) = (Vec::new(), Vec::new(), GracePeriod::new()?);
        let function = Self { grace, ring, records, object, links, emitted, started_ns, bytes, tables, buffer };
        for (id, table) in program.tables.iter().enumerate() {
            function.put_default(TableId(id as u32), table.default.0, &table.default.1)?;
            table.entries.iter().try_for_each(|entry| function.put_entry(TableId(id as u32), entry))?;
        }
        Ok(function)
    }

    /// Attaches the function to an interface, which becomes this port.
    ///
    /// # Errors
    /// [`crate::Error::NoInterface`], [`crate::Error::Occupied`], [`Error::Port`], or errors of the kernel.
    pub fn attach(&mut self, interface: &str, port: u16) -> Result<AttachMode, Error> {
        self.connect(interface, port)?;
        let (link, mode) = attach_to(&self.program()?, interface)?;
        self.links.push(link);
        Ok(mode)
    }

    /// Makes an interface a port without attaching to it: packets leave by it, or arrive by a root program.
    ///
    /// # Errors
    /// [`crate::Error::NoInterface`], [`Error::Port`], or errors of the kernel.
    pub fn connect(&mut self, interface: &str, port: u16) -> Result<(), Error> {
        if port > PORT_MAX {
            return Err(Error::Port(port));
        }
        let index = index_of(interface)?.cast_unsigned();
        let ways = if index < WAYS { "ways" } else { "far_ways" };
        self.put("ports", &u32::from(port).to_ne_bytes(), &index.to_ne_bytes())?;
        self.put(ways, &index.to_ne_bytes(), &(u32::from(port) + 1).to_ne_bytes())
    }

    /// Current time of packets from interfaces: microseconds since the function was loaded.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        now_ns().saturating_sub(self.started_ns) / 1000
    }

    /// File descriptor that is readable when there are digests for [`Self::take_digests`]; `None` if the program has no
    /// digests.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn digests_ready(&self) -> Result<Option<OwnedFd>, Error> {
        let Some(map) = self.object.maps().find(|map| map.name() == DIGESTS) else { return Ok(None) };
        let own = map.as_fd().try_clone_to_owned();
        own.map(Some).map_err(|source| Error::System { doing: "waiting for digests", source })
    }

    /// Number of packets or digests lost for a reason.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn lost(&self, why: LossReason) -> Result<u64, Error> {
        Ok(self.sums::<1>("lost", why as u32)?[0])
    }

    /// Emitted C of the function.
    #[must_use]
    pub fn emitted(&self) -> &Emitted {
        &self.emitted
    }

    /// Instructions by construct, most first, before the kernel's own translation.
    ///
    /// # Errors
    /// If the object has no line numbers.
    pub fn cost(&self) -> Result<Vec<(String, u32)>, Error> {
        let lines = crate::cost::by_line(&self.bytes).ok_or(crate::Error::Missing("line numbers"))?;
        let mut constructs = std::collections::BTreeMap::<&str, u32>::new();
        for (line, count) in lines {
            let what = self.emitted.origin(line).map_or("common functions", |origin| &origin.what);
            *constructs.entry(what).or_default() += count;
        }
        let mut all: Vec<_> = constructs.into_iter().map(|(what, count)| (what.to_owned(), count)).collect();
        all.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
        Ok(all)
    }

    /// Waits until no packet is in flight that arrived before the call.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn wait(&self) -> Result<(), Error> {
        self.grace.wait()
    }

    pub(super) fn layout(&self) -> &MapLayouts {
        &self.emitted.layout
    }

    /// Program that a packet from an interface runs first.
    pub(super) fn program(&self) -> Result<ProgramMut<'_>, crate::Error> {
        self.object.progs_mut().find(|program| program.name() == "function").ok_or(crate::Error::Missing("function"))
    }

    pub(super) fn map(&self, name: &str) -> Result<Map<'_>, crate::Error> {
        self.object.maps().find(|map| map.name() == name).ok_or(crate::Error::Missing("map of that name"))
    }

    pub(super) fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let done = self.map(map)?.update(key, value, MapFlags::ANY);
        Ok(done.map_err(crate::Error::kernel("changing a function's memory"))?)
    }

    pub(super) fn get(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let found = self.map(map)?.lookup(key, MapFlags::ANY);
        Ok(found.map_err(crate::Error::kernel("reading a function's memory"))?)
    }

    /// Sums over processors of a cell of 64-bit words; 0 beyond the end.
    pub(super) fn sums<const N: usize>(&self, map: &str, index: u32) -> Result<[u64; N], Error> {
        let value = self.map(map)?.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(crate::Error::kernel("reading a function's counters"))?;
        Ok(value.map_or([0; N], |processors| crate::layout::sums(&processors)))
    }

    /// File descriptor of the program, for maps of programs.
    pub(super) fn descriptor(&self) -> Result<i32, crate::Error> {
        Ok(self.program()?.as_fd().as_raw_fd())
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Reader of the digests, if the program has any.
fn ring(object: &Object, records: &Rc<RefCell<Vec<Vec<u8>>>>) -> Result<Option<RingBuffer<'static>>, Error> {
    let Some(map) = object.maps().find(|map| map.name() == DIGESTS) else { return Ok(None) };
    let failed = crate::Error::kernel("reading digests");
    let records = Rc::clone(records);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&map, move |record: &[u8]| {
            records.borrow_mut().push(record.to_vec());
            0
        })
        .map_err(&failed)?;
    Ok(Some(builder.build().map_err(&failed)?))
}
