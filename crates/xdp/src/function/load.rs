//! A loaded function: its maps, and where it is attached.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, ProgramMut, RingBuffer, RingBufferBuilder};
use pathcall_function::emit::xdp::{Emitted, Layout, Options, Storage, emit};
use pathcall_function::interp::table::Table;
use pathcall_function::ir::{Program, TableId};
use rustix::time::{ClockId, clock_gettime};

use super::grace::Grace;
use super::{Error, compile, log};
use crate::attach::{Mode, attach_to, index_of};

/// Longest packet that a test takes: one page less what the kernel keeps of it.
pub(super) const PACKET_MAX: usize = 3_500;
/// Ports that packets may leave by: 9 bits, without the one that means to drop.
const PORT_MAX: u16 = 510;
/// Interfaces of lower numbers are in the array of ways in: `WAYS` of prelude.h.
const WAYS: u32 = 4096;
/// The buffer that digests are in.
const DIGESTS: &str = "digests";
/// No port.
const NO_PORT: u32 = u32::MAX;

/// What a function is loaded with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Whether packets come by [`process`](pathcall_function::exec::Execution::process) instead of by interfaces.
    pub testing: bool,
    /// The port that means this machine: packets for it go up to the kernel.
    pub local_port: Option<u16>,
    /// Where a packet's values are held; `None`: in variables if compiler and verifier take them so, otherwise in a map.
    pub storage: Option<Storage>,
}

/// Why a packet was lost, or not told of: `enum lost` of the emitted program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Lost {
    /// The program said so.
    Dropped,
    /// No room for longer headers, or less than an Ethernet header left.
    NoRoom,
    /// It came by an interface that is no port.
    NoWayIn,
    /// A digest found the buffer full.
    DigestLost,
    /// Its parser moved by parts of a byte.
    OddBits,
    /// It came in once more too often.
    Recirculated,
}

impl Lost {
    /// All there are.
    pub const ALL: [Self; 6] =
        [Self::Dropped, Self::NoRoom, Self::NoWayIn, Self::DigestLost, Self::OddBits, Self::Recirculated];
}

/// A function in the kernel. Dropping it detaches it, and its memory is gone.
#[derive(Debug)]
pub struct XdpFunction {
    // Reads a map of the object: it goes first.
    pub(super) ring: Option<RingBuffer<'static>>,
    /// Records of the ring that nobody has asked for yet.
    pub(super) told: Rc<RefCell<Vec<Vec<u8>>>>,
    object: Object,
    links: Vec<Link>,
    emitted: Emitted,
    /// When the element started, on the kernel's clock.
    began_ns: u64,
    bytes: Vec<u8>,
    grace: Grace,
    /// What the tables hold: the kernel's maps hold the same.
    pub(super) tables: Vec<Table>,
    pub(super) buffer: Vec<u8>,
}

impl XdpFunction {
    /// Compiles and loads a program, attached to nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::Refused`] and [`Error::Compiler`] say what of the program can't be; or there is
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
        let emitted = emit(program, Options { storage })?;
        Self::load_text(program, config, emitted)
    }

    /// Loads a program by the C that it was emitted as, or one that differs from it: tests plant mistakes so.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_text(program: &Program, config: &Config, emitted: Emitted) -> Result<Self, Error> {
        let bytes = compile(&emitted.text)?;
        let doing = "loading the function's XDP program";
        let began_ns = now_ns();
        let (loaded, said) = log::listen(|| {
            let mut open = ObjectBuilder::default().open_memory(&bytes)?;
            for mut map in open.maps_mut().filter(|map| map.name() == ".rodata.config") {
                let Some(value) = map.initial_value_mut() else { continue };
                let local = config.local_port.map_or(NO_PORT, u32::from);
                value[..4].copy_from_slice(&u32::from(config.testing).to_ne_bytes());
                value[4..8].copy_from_slice(&local.to_ne_bytes());
                value[8..16].copy_from_slice(&began_ns.to_ne_bytes());
            }
            open.load()
        });
        let object = loaded.map_err(|error| match log::refusal(&emitted, &said) {
            Some(refused) => Error::Refused(Box::new(refused)),
            None => crate::Error::kernel(doing)(error).into(),
        })?;
        let told = Rc::new(RefCell::new(Vec::new()));
        let ring = ring(&object, &told)?;
        let tables = (0..program.tables.len() as u32).map(|id| Table::new(program, TableId(id)));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let (links, buffer, grace) = (Vec::new(), Vec::new(), Grace::new()?);
        let function = Self { grace, ring, told, object, links, emitted, began_ns, bytes, tables, buffer };
        for (id, table) in program.tables.iter().enumerate() {
            function.put_default(TableId(id as u32), table.default.0, &table.default.1)?;
            table.entries.iter().try_for_each(|entry| function.put_entry(TableId(id as u32), entry))?;
        }
        Ok(function)
    }

    /// Attaches the function to an interface, which becomes this port.
    ///
    /// # Errors
    /// [`crate::Error::NoInterface`], [`crate::Error::Occupied`], [`Error::Port`], or what the kernel says.
    pub fn attach(&mut self, interface: &str, port: u16) -> Result<Mode, Error> {
        self.connect(interface, port)?;
        let (link, mode) = attach_to(&self.program()?, interface)?;
        self.links.push(link);
        Ok(mode)
    }

    /// Says which port an interface is, without attaching to it: packets leave by it, or come by a root program.
    ///
    /// # Errors
    /// [`crate::Error::NoInterface`], [`Error::Port`], or what the kernel says.
    pub fn connect(&mut self, interface: &str, port: u16) -> Result<(), Error> {
        if port > PORT_MAX {
            return Err(Error::Port(port));
        }
        let index = index_of(interface)?.cast_unsigned();
        let ways = if index < WAYS { "ways" } else { "far_ways" };
        self.put("ports", &u32::from(port).to_ne_bytes(), &index.to_ne_bytes())?;
        self.put(ways, &index.to_ne_bytes(), &(u32::from(port) + 1).to_ne_bytes())
    }

    /// The time that packets from interfaces come with: microseconds since the function was loaded.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        now_ns().saturating_sub(self.began_ns) / 1000
    }

    /// Readable when there is something for [`Self::tell`]; none: the program has no digests.
    ///
    /// # Errors
    /// What the system says.
    pub fn digests_ready(&self) -> Result<Option<OwnedFd>, Error> {
        let Some(map) = self.object.maps().find(|map| map.name() == DIGESTS) else { return Ok(None) };
        let own = map.as_fd().try_clone_to_owned();
        own.map(Some).map_err(|source| Error::System { doing: "waiting for digests", source })
    }

    /// How many packets were lost for a reason, or digests.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn lost(&self, why: Lost) -> Result<u64, Error> {
        Ok(self.sums::<1>("lost", why as u32)?[0])
    }

    /// The C that runs.
    #[must_use]
    pub fn emitted(&self) -> &Emitted {
        &self.emitted
    }

    /// Instructions by construct, the most first, as the compiler wrote them.
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

    /// Returns when no packet is under way that came before the call.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self) -> Result<(), Error> {
        self.grace.wait()
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.emitted.layout
    }

    /// The program that a packet from an interface runs first.
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

    /// The sums over processors of a cell of 64-bit words; 0 beyond the end.
    pub(super) fn sums<const N: usize>(&self, map: &str, index: u32) -> Result<[u64; N], Error> {
        let value = self.map(map)?.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(crate::Error::kernel("reading a function's counters"))?;
        Ok(value.map_or([0; N], |processors| crate::layout::sums(&processors)))
    }

    /// The number by which the kernel's maps of programs know this one.
    pub(super) fn descriptor(&self) -> Result<i32, crate::Error> {
        Ok(self.program()?.as_fd().as_raw_fd())
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The reader of digests, if the program has any.
fn ring(object: &Object, told: &Rc<RefCell<Vec<Vec<u8>>>>) -> Result<Option<RingBuffer<'static>>, Error> {
    let Some(map) = object.maps().find(|map| map.name() == DIGESTS) else { return Ok(None) };
    let failed = crate::Error::kernel("reading digests");
    let told = Rc::clone(told);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&map, move |record: &[u8]| {
            told.borrow_mut().push(record.to_vec());
            0
        })
        .map_err(&failed)?;
    Ok(Some(builder.build().map_err(&failed)?))
}
