//! Loaded switch program: its maps, its control programs, and its attachments.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};
use pathcall_program::{CloneSize, Endpoint, InstalledApplication, InstalledPool, Size};

use crate::attach::{attach_to, index_of};
use crate::group::Group;
use crate::layout::{self, APPLICATION_WORDS, POOL_WORDS, Words};
use crate::read::RowRegisters;
use crate::{AttachMode, Error};

/// Compiled object of the program.
pub(crate) const SWITCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/switch.bpf.o"));
/// Most applications (`bpf/tables.h`).
const APPLICATIONS_MAX: usize = 1024;
/// Most lanes of a row.
const WIDTH_MAX: u32 = 256;
/// Repeat-filter entries of a flow slot.
pub(crate) const PLACES: usize = 256;
/// Bytes of a repeat-filter entry.
const PLACE_BYTES: usize = 16;
/// Bytes of a fingerprint, and of a cloned request.
const FINGERPRINT_BYTES: usize = 24;
/// Most pools (`bpf/tables.h`).
pub(crate) const POOLS_MAX: usize = 64;
/// Least MTU for every frame of the default profile: `MAX_FRAME` with IPv4 and UDP headers.
const MTU_MIN: u32 = 1400;
/// Largest register array, bytes: the bound that the verifier accepts.
const ARRAY_BYTES_MAX: usize = 1 << 29;

/// Settings of the program.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Sizes of the register arrays.
    pub size: Size,
    /// Sizes of the register arrays for calls to pools.
    pub clones: CloneSize,
    /// UDP port of frames.
    pub data_port: u16,
    /// UDP port of frames that user space forwards.
    pub slow_port: u16,
    /// Whether frames are routed, and changes wait for frames in flight; without it, for tests, frames leave as
    /// addressed.
    pub routed: bool,
    /// Inline mode: whether frames addressed to endpoints are processed as well.
    pub inlined: bool,
}

/// Installed application.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelApplication {
    pub(crate) application: InstalledApplication,
    /// Index of its counters.
    pub(crate) index: u32,
}

/// Switch program in the kernel; its drop detaches the program and frees its registers.
#[derive(Debug)]
pub struct KernelSwitch {
    object: Object,
    links: Vec<Link>,
    /// Indices of the interfaces that the program is attached to.
    pub(crate) interfaces: Vec<u32>,
    /// Address of the element, to which frames are sent.
    pub(crate) own_address: Option<Ipv4Addr>,
    pub(crate) config: Config,
    pub(crate) applications: HashMap<u32, KernelApplication>,
    pub(crate) endpoints: HashMap<u32, (Endpoint, SocketAddrV4)>,
    pub(crate) groups: HashMap<u32, Group>,
    pub(crate) pools: HashMap<u32, KernelPool>,
    free: Vec<u32>,
}

/// Installed pool.
#[derive(Debug)]
pub(crate) struct KernelPool {
    pub(crate) pool: InstalledPool,
    pub(crate) place: u32,
    /// Entries of `pairs`: tables of interfaces for clones.
    pub(crate) paired: Vec<u32>,
}

impl KernelSwitch {
    /// Loads the program, attached to no interface.
    ///
    /// # Errors
    /// No permission, no room, or errors of the kernel.
    pub fn load(config: &Config) -> Result<Self, Error> {
        Self::load_object(SWITCH, config, 0)
    }

    /// Loads an object of the program; `mistake`: mistake of a test build (`bpf/planted.h`).
    pub(crate) fn load_object(object: &[u8], config: &Config, mistake: u32) -> Result<Self, Error> {
        let Size { rows, lanes, slots } = config.size;
        let array = |what, wanted: usize, bytes: usize| {
            let max = ARRAY_BYTES_MAX / bytes;
            if wanted <= max { Ok(wanted as u32 * bytes as u32) } else { Err(Error::Size { what, wanted, max }) }
        };
        let lane_bytes = array("lanes", lanes + WIDTH_MAX as usize, 4)?;
        let place_bytes = array("slots", slots, PLACES * PLACE_BYTES)?;
        array("rows", rows, size_of::<RowRegisters>())?;
        let CloneSize { pools, requests, filters, slots: fingerprints } = config.clones;
        if pools > POOLS_MAX {
            return Err(Error::Size { what: "pools", wanted: pools, max: POOLS_MAX });
        }
        let fingerprint_count =
            array("fingerprints", filters * fingerprints, FINGERPRINT_BYTES)? / FINGERPRINT_BYTES as u32;
        let request_count = array("cloned requests", requests, FINGERPRINT_BYTES)? / FINGERPRINT_BYTES as u32;

        // The caller reports errors, so libbpf prints nothing.
        libbpf_rs::set_print(None);
        let mut open =
            ObjectBuilder::default().open_memory(object).map_err(Error::kernel("reading the XDP program"))?;
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some("rows") => map.set_max_entries(rows.max(1) as u32),
                Some("filters") => map.set_max_entries(fingerprint_count.max(1)),
                Some("requests") => map.set_max_entries(request_count.max(1)),
                Some(".data.lanes") => map.set_value_size(lane_bytes),
                Some(".data.places") => map.set_value_size(place_bytes.max((PLACES * PLACE_BYTES) as u32)),
                Some(".rodata.config") => {
                    let port = |port: u16| u32::from(port.to_be());
                    let ports = port(config.data_port) | port(config.slow_port) << 16;
                    let ports = if cfg!(target_endian = "little") { ports } else { ports.rotate_left(16) };
                    let [rows, lanes, slots] = [rows, lanes, slots].map(|count| count as u32);
                    let [requests, filters, fingerprints] = [requests, filters, fingerprints].map(|count| count as u32);
                    let (routed, inlined) = (config.routed.into(), config.inlined.into());
                    let words =
                        Words::of(&[rows, lanes, slots, ports, routed, inlined, requests, filters, fingerprints]);
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
        let (applications, endpoints, groups, pools) = Default::default();
        let (links, interfaces, config) = (Vec::new(), Vec::new(), *config);
        Ok(Self { object, links, interfaces, own_address: None, config, applications, endpoints, groups, pools, free })
    }

    /// Attaches the program to an interface, in native mode if the driver supports it, else in generic mode, until this
    /// is dropped.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Occupied`], or errors of the kernel.
    pub fn attach(&mut self, interface: &str) -> Result<AttachMode, Error> {
        self.connect(interface)?;
        let (link, mode) = attach_to(&self.program("element")?, interface)?;
        self.links.push(link);
        Ok(mode)
    }

    /// Accepts frames of an interface to which a root program is attached, which calls this program.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Mtu`].
    pub fn connect(&mut self, interface: &str) -> Result<(), Error> {
        let mtu = std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu"));
        // If the system does not report the MTU, frames that do not fit are lost and counted at the interface.
        if let Some(mtu) = mtu.ok().and_then(|mtu| mtu.trim().parse().ok()).filter(|mtu| *mtu < MTU_MIN) {
            return Err(Error::Mtu { interface: interface.to_owned(), mtu, least: MTU_MIN });
        }
        self.interfaces.push(index_of(interface)?.cast_unsigned());
        Ok(())
    }

    /// Sets the address to which frames for the element are sent; without it no packet is a frame.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn set_element_address(&mut self, ip: Ipv4Addr) -> Result<(), Error> {
        self.own_address = Some(ip);
        self.put(".data.own", &0_u32.to_ne_bytes(), &ip.octets())
    }

    /// Installs an application, as accepted by [`pathcall_program::AdmissionTables::install`]. An application that is
    /// refused is removed.
    ///
    /// # Errors
    /// [`Error::Width`], [`Error::Applications`], or errors of the kernel.
    pub fn install(&mut self, application: &InstalledApplication) -> Result<(), Error> {
        let done = self.write_application(application);
        self.remove_on_error(application.gaid, done)
    }

    fn write_application(&mut self, application: &InstalledApplication) -> Result<(), Error> {
        let gaid = application.gaid;
        if application.width > WIDTH_MAX {
            return Err(Error::Width { gaid, width: application.width, max: WIDTH_MAX });
        }
        let known = self.applications.get(&gaid).copied();
        let index = match known {
            Some(known) => known.index,
            None => {
                let index = *self.free.last().ok_or(Error::Applications(APPLICATIONS_MAX))?;
                self.zero_counters(index)?;
                self.free.pop();
                self.applications.insert(gaid, KernelApplication { application: *application, index });
                index
            }
        };
        let same = known.is_some_and(|known| {
            known.application == InstalledApplication { owner: known.application.owner, ..*application }
        });
        if !same {
            if known.is_some() {
                self.delete("applications", &gaid.to_ne_bytes())?;
            }
            self.wait()?;
            self.reset_rows(application, true)?;
        }
        self.put("applications", &gaid.to_ne_bytes(), layout::application(application, index).bytes())?;
        self.applications.insert(gaid, KernelApplication { application: *application, index });
        Ok(())
    }

    /// Removes an application or a pool with its endpoints; unknown ids are ignored. An entry that the kernel fails to
    /// remove stays known, so that the removal can be repeated.
    ///
    /// # Errors
    /// The first error of the kernel.
    pub fn remove(&mut self, gaid: u32) -> Result<(), Error> {
        let known = self.has(gaid);
        let mut done = self.remove_group_copies(gaid).map(|()| drop(self.groups.remove(&gaid)));
        done = done.and(self.remove_pool(gaid));
        if let Some(KernelApplication { index, .. }) = self.applications.get(&gaid).copied() {
            let taken = self.delete("applications", &gaid.to_ne_bytes());
            if taken.is_ok() {
                self.applications.remove(&gaid);
                self.free.push(index);
            }
            done = done.and(taken);
        }
        let endpoints = self.endpoints.values().filter(|(e, _)| e.gaid == gaid).map(|(e, _)| e.endpoint);
        for endpoint in endpoints.collect::<Vec<u32>>() {
            done = done.and(self.remove_endpoint(endpoint));
        }
        if known { done.and(self.wait()) } else { done }
    }

    /// Removes an application or pool whose change failed half-way.
    pub(crate) fn remove_on_error(&mut self, gaid: u32, done: Result<(), Error>) -> Result<(), Error> {
        done.inspect_err(|_| {
            // The error of the change is reported, not that of the removal.
            let _ = self.remove(gaid);
        })
    }

    /// Zeroes an application's registers except its generation; unknown ids are ignored. Frames are not admitted
    /// meanwhile, so that none finds only some of the rows zeroed.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn reset(&mut self, gaid: u32) -> Result<(), Error> {
        let Some(KernelApplication { application, index }) = self.applications.get(&gaid).copied() else {
            return Ok(());
        };
        self.delete("applications", &gaid.to_ne_bytes())?;
        let done = self.wait().and_then(|()| self.reset_rows(&application, false));
        self.put("applications", &gaid.to_ne_bytes(), layout::application(&application, index).bytes())?;
        done
    }

    /// Admits an endpoint at an address, as accepted by [`pathcall_program::AdmissionTables::set_endpoint`].
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn set_endpoint(&mut self, endpoint: &Endpoint, addr: SocketAddrV4) -> Result<(), Error> {
        let id = endpoint.endpoint.to_ne_bytes();
        self.leave_groups(endpoint.endpoint, Some(endpoint.gaid))?;
        let known = self.endpoints.get(&endpoint.endpoint).copied();
        if known.is_none_or(|(known, _)| known != *endpoint) {
            self.delete_endpoint(endpoint.endpoint)?;
            self.wait()?;
            let request = &mut Words::of(&[endpoint.slot_base, endpoint.slots]);
            self.control("reset_slots", request, "reset flow slots")?;
        }
        let server = self.server_of(endpoint);
        self.put("endpoints", &id, layout::endpoint(endpoint, addr, server).bytes())?;
        self.endpoints.insert(endpoint.endpoint, (*endpoint, addr));
        if server > 0 {
            self.enter_server(endpoint, known.is_none_or(|(known, _)| known != *endpoint))?;
        }
        match self.groups.get(&endpoint.gaid) {
            Some(group) if group.has(endpoint.endpoint) => self.update_group_copies(endpoint.gaid),
            _ => Ok(()),
        }
    }

    /// Removes an endpoint; unknown ids are ignored.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), Error> {
        let left = self.leave_groups(endpoint, None);
        left.and(self.delete_endpoint(endpoint))
    }

    fn delete_endpoint(&mut self, endpoint: u32) -> Result<(), Error> {
        if self.endpoints.contains_key(&endpoint) {
            self.delete("endpoints", &endpoint.to_ne_bytes())?;
            self.endpoints.remove(&endpoint);
        }
        Ok(())
    }

    /// Index of an application's counters.
    pub(crate) fn index_of(&self, gaid: u32) -> Option<u32> {
        Some(self.applications.get(&gaid)?.index)
    }

    /// Whether the application is installed.
    #[must_use]
    pub fn has(&self, gaid: u32) -> bool {
        self.applications.contains_key(&gaid) || self.pools.contains_key(&gaid)
    }

    fn reset_rows(&self, application: &InstalledApplication, generations: bool) -> Result<(), Error> {
        let InstalledApplication { row_base, rows, lane_base, width, .. } = *application;
        let request = &mut Words::of(&[row_base, rows, lane_base, width, generations.into()]);
        self.control("reset_rows", request, "reset rows")
    }

    pub(crate) fn zero_pool_counters(&self, place: u32) -> Result<(), Error> {
        let zero = vec![vec![0; POOL_WORDS * 8]; self.processors()?];
        let map = self.map("pool_counters")?;
        map.update_percpu(&place.to_ne_bytes(), &zero, MapFlags::ANY).map_err(Error::kernel("zeroing counters"))
    }

    fn zero_counters(&self, index: u32) -> Result<(), Error> {
        let map = self.map("application_counters")?;
        let zero = vec![vec![0; APPLICATION_WORDS * 8]; self.processors()?];
        map.update_percpu(&index.to_ne_bytes(), &zero, MapFlags::ANY).map_err(Error::kernel("zeroing counters"))
    }

    fn processors(&self) -> Result<usize, Error> {
        libbpf_rs::num_possible_cpus().map_err(Error::kernel("counting processors"))
    }

    /// Waits until no frame is in flight that was admitted by the tables before the last change.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        if !self.config.routed {
            return Ok(());
        }
        let inner = self.map("nothing")?.as_fd().as_raw_fd();
        self.put("grace", &0_u32.to_ne_bytes(), &inner.to_ne_bytes())
    }

    /// Runs a control program, which returns 0 on success.
    pub(crate) fn control(&self, name: &'static str, request: &mut Words, what: &'static str) -> Result<(), Error> {
        let input = ProgramInput { context_in: Some(request.bytes_mut()), ..ProgramInput::default() };
        let output = self.program(name)?.test_run(input).map_err(Error::kernel("running a control program"))?;
        if output.return_value == 0 { Ok(()) } else { Err(Error::Refused(what)) }
    }

    pub(crate) fn program(&self, name: &'static str) -> Result<ProgramMut<'_>, Error> {
        self.object.progs_mut().find(|program| program.name() == name).ok_or(Error::Missing(name))
    }

    pub(crate) fn map(&self, name: &'static str) -> Result<Map<'_>, Error> {
        self.object.maps().find(|map| map.name() == name).ok_or(Error::Missing(name))
    }

    pub(crate) fn put(&self, map: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.map(map)?.update(key, value, MapFlags::ANY).map_err(Error::kernel("changing a table"))
    }

    /// Removes an entry of a map; a missing entry is ignored.
    pub(crate) fn delete(&self, map: &'static str, key: &[u8]) -> Result<(), Error> {
        match self.map(map)?.delete(key) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            done => done.map_err(Error::kernel("changing a table")),
        }
    }

    pub(crate) fn get(&self, map: &'static str, key: &[u8], flags: MapFlags) -> Result<Vec<u8>, Error> {
        let value = self.map(map)?.lookup(key, flags).map_err(Error::kernel("reading a table"))?;
        value.ok_or(Error::Missing(map))
    }

    pub(crate) fn get_all(&self, map: &'static str, index: u32) -> Result<Vec<Vec<u8>>, Error> {
        let value = self.map(map)?.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
        value.map_err(Error::kernel("reading counters"))?.ok_or(Error::Missing(map))
    }
}
