//! The loaded program: its maps, its control programs, and where it is attached.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut, Xdp, XdpFlags};
use pathcall_program::{Application, ApplicationCounters, Counters, Endpoint, Size};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::Error;
use crate::group::Group;
use crate::layout::{self, APPLICATION_WORDS, ELEMENT_COUNTERS, Words};
use crate::packet::Packet;

/// The program, as it was compiled.
pub(crate) const SWITCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/switch.bpf.o"));
/// Applications that the program has room for (`bpf/tables.h`).
const APPLICATIONS_MAX: usize = 1024;
/// Widest row that the program takes.
const WIDTH_MAX: u32 = 256;
/// Places of a flow slot.
const PLACES: usize = 256;
/// Bytes of a place.
const PLACE_BYTES: usize = 16;
/// Registers that one reading shows (`bpf/control.h`).
const WINDOW: u32 = 4096;
/// Largest register array, bytes: what the verifier can bound.
const ARRAY_BYTES_MAX: usize = 1 << 29;

/// What the program is loaded with.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Register arrays.
    pub size: Size,
    /// UDP port of frames.
    pub data_port: u16,
    /// UDP port of frames that user space is to send on.
    pub slow_port: u16,
    /// Whether frames are routed; otherwise they leave as they are addressed, for tests.
    pub routed: bool,
}

/// How the program is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// Behind it, where every packet is in a buffer of its own already.
    Generic,
}

/// What became of a packet that [`Kernel::run`] was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    /// It goes out: addresses, frame.
    Out(Packet, Vec<u8>),
    /// User space is to send it on: its source port says how.
    Slow(Packet, Vec<u8>),
    /// It is none of the program's.
    Passed,
    /// It went no further.
    Dropped,
}

/// A row's registers but its lanes: `struct row` in `bpf/tables.h`, without its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Generation: open, committed, version.
    pub generation: [u32; 3],
    /// Round.
    pub round: u32,
    /// What contributions agree on.
    pub tag: u32,
    /// Who has contributed.
    pub workers: u64,
    /// The sticky mark.
    pub ecn: bool,
    /// `CntFwd`'s counter.
    pub count: u32,
    /// Lock: owner and its acquiring.
    pub lock: [u32; 2],
    /// How often it was granted.
    pub grants: u32,
    /// Ballot: length of its key.
    pub key_len: u32,
    /// Its key.
    pub key: [u8; 32],
    /// The server counts what comes.
    pub moved: bool,
    /// The server has recorded that the threshold was reached.
    pub decided: bool,
    /// Votes.
    pub votes: u32,
    /// How often it was cleared.
    pub ballot_round: u32,
}

/// A place of the repeat filter: number, generation, mask.
pub type Place = [u32; 3];

/// Element-wide counters, and those that only the kernel's program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Element {
    /// As the reference counts.
    pub counters: Counters,
    /// Frames with a wrong checksum.
    pub drop_checksum: u64,
    /// Frames left to user space.
    pub passed: u64,
    /// Frames that left by user space.
    pub slow: u64,
}

/// What is kept of an application.
#[derive(Debug, Clone, Copy)]
struct Installed {
    application: Application,
    /// Of its counters.
    index: u32,
}

/// The program in the kernel. Dropping it detaches it and frees its registers.
#[derive(Debug)]
pub struct Kernel {
    object: Object,
    links: Vec<Link>,
    /// Those that it is attached to, by number.
    pub(crate) interfaces: Vec<u32>,
    /// The address that frames for the element are sent to.
    pub(crate) own: Option<Ipv4Addr>,
    /// Whether changes wait until no frame admitted before is under way.
    routed: bool,
    applications: HashMap<u32, Installed>,
    pub(crate) endpoints: HashMap<u32, (Endpoint, SocketAddrV4)>,
    pub(crate) groups: HashMap<u32, Group>,
    free: Vec<u32>,
}

impl Kernel {
    /// Loads the program, attached to nothing.
    ///
    /// # Errors
    /// [`Error`]: no permission, no room, or what the kernel says.
    pub fn load(config: &Config) -> Result<Self, Error> {
        Self::load_object(SWITCH, config, 0)
    }

    /// Loads a build of the program; `mistake`: what one for tests does wrong (`bpf/planted.h`).
    pub(crate) fn load_object(object: &[u8], config: &Config, mistake: u32) -> Result<Self, Error> {
        let Size { rows, lanes, slots } = config.size;
        let array = |what, wanted: usize, bytes: usize| {
            let max = ARRAY_BYTES_MAX / bytes;
            if wanted <= max { Ok(wanted as u32 * bytes as u32) } else { Err(Error::Size { what, wanted, max }) }
        };
        let lane_bytes = array("lanes", lanes + WIDTH_MAX as usize, 4)?;
        let place_bytes = array("slots", slots, PLACES * PLACE_BYTES)?;
        array("rows", rows, size_of::<Row>())?;

        // What goes wrong is said once, by whoever called.
        libbpf_rs::set_print(None);
        let mut open =
            ObjectBuilder::default().open_memory(object).map_err(Error::kernel("reading the XDP program"))?;
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some("rows") => map.set_max_entries(rows.max(1) as u32),
                Some(".data.lanes") => map.set_value_size(lane_bytes),
                Some(".data.places") => map.set_value_size(place_bytes.max((PLACES * PLACE_BYTES) as u32)),
                Some(".rodata.config") => {
                    let port = |port: u16| u32::from(port.to_be());
                    let ports = port(config.data_port) | port(config.slow_port) << 16;
                    let ports = if cfg!(target_endian = "little") { ports } else { ports.rotate_left(16) };
                    let words = Words::of(&[rows as u32, lanes as u32, slots as u32, ports, config.routed.into()]);
                    let value = map.initial_value_mut().ok_or(Error::Missing("config"))?;
                    value[..words.bytes().len()].copy_from_slice(words.bytes());
                    Ok(())
                }
                Some(".rodata.planted") => {
                    let value = map.initial_value_mut().ok_or(Error::Missing("planted"))?;
                    value[..4].copy_from_slice(&mistake.to_ne_bytes());
                    Ok(())
                }
                _ => Ok(()),
            }
            .map_err(Error::kernel("sizing the XDP program's maps"))?;
        }
        let object = open.load().map_err(Error::kernel("loading the XDP program"))?;
        let free = (0..APPLICATIONS_MAX as u32).rev().collect();
        let (applications, endpoints, groups) = Default::default();
        let (links, interfaces, routed) = (Vec::new(), Vec::new(), config.routed);
        Ok(Self { object, links, interfaces, own: None, routed, applications, endpoints, groups, free })
    }

    /// Attaches the program to an interface, in its driver if that can, otherwise behind it. It stays
    /// there for as long as this lives.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Occupied`], or what the kernel says.
    pub fn attach(&mut self, interface: &str) -> Result<Mode, Error> {
        let ifindex = index_of(interface)?;
        let program = self.program("element")?;
        let query = |doing| Xdp::new(program.as_fd()).query(ifindex, XdpFlags::NONE).map_err(Error::kernel(doing));
        let before = query("asking what the interface carries")?;
        if before.prog_id != 0 {
            return Err(Error::Occupied { interface: interface.to_owned(), id: before.prog_id });
        }
        let link = program.attach_xdp(ifindex).map_err(Error::kernel("attaching the XDP program"))?;
        /// `XDP_ATTACHED_DRV`.
        const IN_DRIVER: u8 = 1;
        let native = query("asking how the program is attached")?.attach_mode == IN_DRIVER;
        self.links.push(link);
        self.interfaces.push(ifindex.cast_unsigned());
        Ok(if native { Mode::Native } else { Mode::Generic })
    }

    /// Says that frames to this address are for the element.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn own(&mut self, ip: Ipv4Addr) -> Result<(), Error> {
        self.own = Some(ip);
        self.put("own", &ip.octets(), &[1])
    }

    /// Installs an application: what [`pathcall_program::Tables::install`] has taken.
    ///
    /// # Errors
    /// [`Error::Width`], [`Error::Applications`], or what the kernel says.
    pub fn install(&mut self, application: &Application) -> Result<(), Error> {
        let gaid = application.gaid;
        if application.width > WIDTH_MAX {
            return Err(Error::Width { gaid, width: application.width, max: WIDTH_MAX });
        }
        let known = self.applications.get(&gaid).copied();
        let index = match known {
            Some(known) => known.index,
            None => {
                let index = self.free.pop().ok_or(Error::Applications(APPLICATIONS_MAX))?;
                self.zero_counters(index)?;
                index
            }
        };
        let same = known
            .is_some_and(|known| known.application == Application { owner: known.application.owner, ..*application });
        if !same {
            if known.is_some() {
                self.take("applications", &gaid.to_ne_bytes())?;
            }
            self.wait()?;
            self.reset_rows(application, true)?;
        }
        self.put("applications", &gaid.to_ne_bytes(), layout::application(application, index).bytes())?;
        self.applications.insert(gaid, Installed { application: *application, index });
        Ok(())
    }

    /// Takes an application out, with its endpoints; unknown ones are fine.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove(&mut self, gaid: u32) -> Result<(), Error> {
        self.ungroup(gaid)?;
        self.groups.remove(&gaid);
        let Some(installed) = self.applications.remove(&gaid) else { return Ok(()) };
        self.free.push(installed.index);
        self.take("applications", &gaid.to_ne_bytes())?;
        let endpoints = self.endpoints.values().filter(|(e, _)| e.gaid == gaid).map(|(e, _)| e.endpoint);
        let endpoints: Vec<u32> = endpoints.collect();
        endpoints.into_iter().try_for_each(|endpoint| self.remove_endpoint(endpoint))?;
        self.wait()
    }

    /// Zeroes an application's registers but for its generation; unknown ones are fine.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn reset(&mut self, gaid: u32) -> Result<(), Error> {
        match self.applications.get(&gaid).copied() {
            Some(installed) => self.reset_rows(&installed.application, false),
            None => Ok(()),
        }
    }

    /// Admits an endpoint, and says where it is: what [`pathcall_program::Tables::set_endpoint`] has taken.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_endpoint(&mut self, endpoint: &Endpoint, addr: SocketAddrV4) -> Result<(), Error> {
        let id = endpoint.endpoint.to_ne_bytes();
        self.leave_groups(endpoint.endpoint, Some(endpoint.gaid))?;
        let known = self.endpoints.get(&endpoint.endpoint).copied();
        if known.is_none_or(|(known, _)| known != *endpoint) {
            if self.endpoints.remove(&endpoint.endpoint).is_some() {
                self.take("endpoints", &id)?;
            }
            self.wait()?;
            let request = &mut Words::of(&[endpoint.slot_base, endpoint.slots]);
            self.control("reset_slots", request, "start slots anew")?;
        }
        self.put("endpoints", &id, layout::endpoint(endpoint, addr).bytes())?;
        self.endpoints.insert(endpoint.endpoint, (*endpoint, addr));
        match self.groups.get(&endpoint.gaid) {
            Some(group) if group.has(endpoint.endpoint) => self.regroup(endpoint.gaid),
            _ => Ok(()),
        }
    }

    /// Takes an endpoint out; unknown ones are fine.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), Error> {
        self.leave_groups(endpoint, None)?;
        match self.endpoints.remove(&endpoint) {
            Some(_) => self.take("endpoints", &endpoint.to_ne_bytes()),
            None => Ok(()),
        }
    }

    /// The index of an application's counters.
    pub(crate) fn index_of(&self, gaid: u32) -> Option<u32> {
        Some(self.applications.get(&gaid)?.index)
    }

    /// Whether the application is installed here.
    #[must_use]
    pub fn has(&self, gaid: u32) -> bool {
        self.applications.contains_key(&gaid)
    }

    /// Takes a packet through the program (`BPF_PROG_RUN`): for frames that came by another way, and for
    /// tests. `buffer` is where it comes out.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run(&self, packet: &[u8], buffer: &mut Vec<u8>) -> Result<Ran, Error> {
        let (action, _) = self.run_once(packet, buffer)?;
        let slow = |packet: &Packet, given: &[u8]| {
            Packet::parse(given).is_some_and(|(was, _)| was.to.port() != packet.to.port())
        };
        Ok(match (action, Packet::parse(buffer)) {
            (Action::Out, Some((addresses, frame))) => Ran::Out(addresses, frame.to_vec()),
            (Action::Pass, Some((addresses, frame))) if slow(&addresses, packet) => {
                Ran::Slow(addresses, frame.to_vec())
            }
            (Action::Pass, _) => Ran::Passed,
            _ => Ran::Dropped,
        })
    }

    /// As [`run`](Self::run); how long the program took, by the kernel's clock. Only one run at a time can be
    /// measured: the kernel gives each next one what the last has made of the packet.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn time(&self, packet: &[u8]) -> Result<Duration, Error> {
        Ok(self.run_once(packet, &mut Vec::new())?.1)
    }

    fn run_once(&self, packet: &[u8], buffer: &mut Vec<u8>) -> Result<(Action, Duration), Error> {
        buffer.clear();
        buffer.resize(packet.len(), 0);
        let program = self.program("element")?;
        let mut context = Words::of(&[0, packet.len() as u32, 0, 0, 0, 0]);
        let mut after = Words::of(&[0; 6]);
        let input = ProgramInput {
            data_in: Some(packet),
            data_out: Some(buffer),
            context_in: Some(context.bytes_mut()),
            context_out: Some(after.bytes_mut()),
            repeat: 1,
            ..ProgramInput::default()
        };
        let output = program.test_run(input).map_err(Error::kernel("running the XDP program"))?;
        let (action, duration) = (output.return_value, output.duration);
        let context = layout::words(output.context.ok_or(Error::Missing("context"))?);
        buffer.truncate((context[1] - context[0]) as usize);
        Ok((Action::of(action), duration))
    }

    /// Lane registers of an application's rows, `width` to a row.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_rows(&self, gaid: u32, row: u32, count: u32) -> Result<Vec<i32>, Error> {
        let Some(installed) = self.applications.get(&gaid) else { return Ok(Vec::new()) };
        let Application { lane_base, width, .. } = installed.application;
        let (first, count) = (lane_base + row * width, count * width);
        let mut lanes = Vec::with_capacity(count as usize);
        for at in (0..count).step_by(WINDOW as usize) {
            let part = WINDOW.min(count - at);
            let request = &mut Words::of(&[first + at, part]);
            self.control("read_lanes", request, "read lanes")?;
            lanes.extend(self.window(part)?.iter().map(|word| word.cast_signed()));
        }
        Ok(lanes)
    }

    /// The places of a flow slot.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_slot(&self, slot: u32) -> Result<Vec<Place>, Error> {
        let request = &mut Words::of(&[slot * PLACES as u32, PLACES as u32]);
        self.control("read_places", request, "read places")?;
        Ok(self.window(3 * PLACES as u32)?.as_chunks().0.to_vec())
    }

    /// A row, counted from the element's first.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_row(&self, row: u32) -> Result<Row, Error> {
        let bytes = self.get("rows", &row.to_ne_bytes(), MapFlags::LOCK)?;
        let w = layout::words(&bytes);
        let mut key = [0; 32];
        key.copy_from_slice(&bytes[56..88]);
        Ok(Row {
            generation: [w[1], w[2], w[3]],
            round: w[4],
            tag: w[5],
            workers: u64::from_ne_bytes(*bytes[24..].first_chunk().expect("a row")),
            ecn: w[8] != 0,
            count: w[9],
            lock: [w[10], w[11]],
            grants: w[12],
            key_len: w[13],
            key,
            moved: w[22] != 0,
            decided: w[23] != 0,
            votes: w[24],
            ballot_round: w[25],
        })
    }

    /// Element-wide counters.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counters(&self) -> Result<Element, Error> {
        let c: [u64; ELEMENT_COUNTERS] = layout::sums(&self.get_all("element_counters", 0)?);
        Ok(Element { counters: layout::element_counters(&c), drop_checksum: c[9], passed: c[10], slow: c[11] })
    }

    /// Every application with its counters, and when its last admitted frame came, on the clock of
    /// `CLOCK_BOOTTIME`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn applications(&self) -> Result<Vec<(Application, Option<Duration>, ApplicationCounters)>, Error> {
        let of = |installed: &Installed| {
            let processors = self.get_all("application_counters", installed.index)?;
            let c: [u64; APPLICATION_WORDS] = layout::sums(&processors);
            let last = processors
                .iter()
                .map(|one| layout::sums::<APPLICATION_WORDS>(std::slice::from_ref(one))[APPLICATION_WORDS - 1]);
            let last = last.max().filter(|ns| *ns > 0).map(Duration::from_nanos);
            Ok((installed.application, last, layout::application_counters(&c)))
        };
        self.applications.values().map(of).collect()
    }

    fn reset_rows(&self, application: &Application, generations: bool) -> Result<(), Error> {
        let Application { row_base, rows, lane_base, width, .. } = *application;
        let request = &mut Words::of(&[row_base, rows, lane_base, width, generations.into()]);
        self.control("reset_rows", request, "start rows anew")
    }

    fn zero_counters(&self, index: u32) -> Result<(), Error> {
        let map = self.map("application_counters")?;
        let zero = vec![vec![0; APPLICATION_WORDS * 8]; self.processors()?];
        map.update_percpu(&index.to_ne_bytes(), &zero, MapFlags::ANY).map_err(Error::kernel("zeroing counters"))
    }

    fn processors(&self) -> Result<usize, Error> {
        libbpf_rs::num_possible_cpus().map_err(Error::kernel("counting processors"))
    }

    /// Returns when no frame is under way any more that was admitted by what the tables held before.
    fn wait(&self) -> Result<(), Error> {
        if !self.routed {
            return Ok(());
        }
        let inner = self.map("nothing")?.as_fd().as_raw_fd();
        self.put("grace", &0_u32.to_ne_bytes(), &inner.to_ne_bytes())
    }

    /// Runs a control program; it says 0 when it has done what it was asked to.
    fn control(&self, name: &'static str, request: &mut Words, what: &'static str) -> Result<(), Error> {
        let input = ProgramInput { context_in: Some(request.bytes_mut()), ..ProgramInput::default() };
        let output = self.program(name)?.test_run(input).map_err(Error::kernel("running a control program"))?;
        if output.return_value == 0 { Ok(()) } else { Err(Error::Refused(what)) }
    }

    fn window(&self, words: u32) -> Result<Vec<u32>, Error> {
        let bytes = self.get("window", &0_u32.to_ne_bytes(), MapFlags::ANY)?;
        Ok(layout::words(&bytes[..words as usize * 4]))
    }

    pub(crate) fn program(&self, name: &'static str) -> Result<ProgramMut<'_>, Error> {
        self.object.progs_mut().find(|program| program.name() == name).ok_or(Error::Missing(name))
    }

    fn map(&self, name: &'static str) -> Result<Map<'_>, Error> {
        self.object.maps().find(|map| map.name() == name).ok_or(Error::Missing(name))
    }

    pub(crate) fn put(&self, map: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.map(map)?.update(key, value, MapFlags::ANY).map_err(Error::kernel("changing a table"))
    }

    pub(crate) fn take(&self, map: &'static str, key: &[u8]) -> Result<(), Error> {
        self.map(map)?.delete(key).map_err(Error::kernel("changing a table"))
    }

    fn get(&self, map: &'static str, key: &[u8], flags: MapFlags) -> Result<Vec<u8>, Error> {
        let value = self.map(map)?.lookup(key, flags).map_err(Error::kernel("reading a table"))?;
        value.ok_or(Error::Missing(map))
    }

    fn get_all(&self, map: &'static str, index: u32) -> Result<Vec<Vec<u8>>, Error> {
        let value = self.map(map)?.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
        value.map_err(Error::kernel("reading counters"))?.ok_or(Error::Missing(map))
    }
}

/// What the program returns (`enum xdp_action`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Drop,
    Pass,
    Out,
}

impl Action {
    fn of(action: u32) -> Self {
        match action {
            2 => Self::Pass,
            3 | 4 => Self::Out,
            _ => Self::Drop,
        }
    }
}

fn index_of(interface: &str) -> Result<i32, Error> {
    let system = |source: rustix::io::Errno| Error::System { doing: "asking for an interface", source: source.into() };
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(system)?;
    match netdevice::name_to_index(&any, interface) {
        Ok(index) => Ok(index as i32),
        Err(error) if io::Error::from(error).kind() == io::ErrorKind::PermissionDenied => Err(Error::Permission),
        Err(_) => Err(Error::NoInterface(interface.to_owned())),
    }
}
