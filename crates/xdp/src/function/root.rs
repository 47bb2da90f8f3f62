//! Root program (`bpf/root.bpf.c`): dispatches packets to the switch program and to functions, by a program array.
//!
//! ```text
//! interface ─▶ root ─┬─ frames ───────────▶ switch program
//!                    ├─ UDP port ─────────▶ function
//!                    ├─ EtherType ────────▶ function
//!                    └─ all others ───────▶ function, or the kernel
//! ```

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};

use super::{Error, XdpFunction, log};
use crate::attach::attach_to;
use crate::kernel::Config;
use crate::layout::Words;
use crate::{AttachMode, KernelSwitch};

/// Compiled object of the program.
const ROOT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/root.bpf.o"));
/// Most programs, including the switch program.
const PROGRAMS_MAX: u32 = 64;

/// Packets of a function, among those that are not frames of the switch program. The first matching rule in this order
/// applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PacketRule {
    /// UDP in IPv4, to this port.
    UdpPort(u16),
    /// Ethernet frames of this type.
    EtherType(u16),
    /// All other packets.
    All,
}

/// Reference to a switch program for root programs: the program, and what its frames are (address, ports, and in inline
/// mode its endpoints).
#[derive(Debug)]
pub struct SwitchProgramRef {
    program: OwnedFd,
    /// Frame description in the root program's layout.
    frames: Vec<u8>,
    endpoints: OwnedFd,
}

impl SwitchProgramRef {
    /// Reference to the program of `kernel`, which was loaded with `config` and has its address. Frames are processed
    /// as long as `kernel` lives.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn of(kernel: &KernelSwitch, config: &Config) -> Result<Self, crate::Error> {
        let system = |source| crate::Error::System { doing: "naming the switch program", source };
        let program = kernel.program("element")?.as_fd().try_clone_to_owned().map_err(system)?;
        let endpoints = kernel.map("endpoints")?.as_fd().try_clone_to_owned().map_err(system)?;
        let ports = [config.data_port.to_be_bytes(), config.slow_port.to_be_bytes()].concat();
        let own = kernel.own_address.map_or([0; 4], |ip| ip.octets());
        let frames = [&ports[..], &own, &u32::from(config.inlined).to_ne_bytes()].concat();
        Ok(Self { program, frames, endpoints })
    }
}

/// Root program in the kernel; its drop detaches it, but not its functions or the switch program.
#[derive(Debug)]
pub struct Root {
    object: Object,
    links: Vec<Link>,
    /// Used entries of the program array.
    used: u32,
}

impl Root {
    /// Loads the root program, attached to no interface and without programs to call.
    ///
    /// # Errors
    /// No permission, or errors of the kernel.
    pub fn load() -> Result<Self, Error> {
        let (loaded, _) = log::capture_log(|| ObjectBuilder::default().open_memory(ROOT)?.load());
        let object = loaded.map_err(crate::Error::kernel("loading the root XDP program"))?;
        Ok(Self { object, links: Vec::new(), used: 1 })
    }

    /// Passes frames to the switch program, which has to be loaded with the same `config`.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn carry_switch(&mut self, kernel: &KernelSwitch, config: &Config) -> Result<(), Error> {
        self.carry_program(&SwitchProgramRef::of(kernel, config)?)
    }

    /// [`Self::carry_switch`] for a switch program of another thread.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn carry_program(&mut self, switch: &SwitchProgramRef) -> Result<(), Error> {
        let first = 0_u32.to_ne_bytes();
        self.put("programs", &first, &switch.program.as_raw_fd().to_ne_bytes())?;
        self.put("endpoints", &first, &switch.endpoints.as_raw_fd().to_ne_bytes())?;
        self.put(".data.switch", &first, &switch.frames)
    }

    /// Passes packets that match these rules to a function.
    ///
    /// # Errors
    /// [`crate::Error::Size`] if there is no room, or errors of the kernel.
    pub fn carry(&mut self, function: &XdpFunction, rules: &[PacketRule]) -> Result<(), Error> {
        if self.used == PROGRAMS_MAX {
            let (wanted, max) = (self.used as usize, PROGRAMS_MAX as usize - 1);
            return Err(crate::Error::Size { what: "functions", wanted, max }.into());
        }
        let place = self.used.to_ne_bytes();
        self.put("programs", &place, &function.descriptor()?.to_ne_bytes())?;
        self.used += 1;
        for rule in rules {
            let words = match *rule {
                PacketRule::UdpPort(port) => [0, u32::from(port)],
                PacketRule::EtherType(kind) => [1, u32::from(kind)],
                PacketRule::All => [2, 0],
            };
            self.put("rules", Words::of(&words).bytes(), &place)?;
        }
        Ok(())
    }

    /// Attaches the root program to an interface.
    ///
    /// # Errors
    /// [`crate::Error::NoInterface`], [`crate::Error::Occupied`], or errors of the kernel.
    pub fn attach(&mut self, interface: &str) -> Result<AttachMode, Error> {
        let (link, mode) = attach_to(&self.program()?, interface)?;
        self.links.push(link);
        Ok(mode)
    }

    /// Runs a packet through the root program and the programs it calls; returns the result (`enum xdp_action`) and the
    /// packet.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn run(&self, packet: &[u8]) -> Result<(u32, Vec<u8>), Error> {
        let mut buffer = vec![0; packet.len() + 256];
        let input =
            ProgramInput { data_in: Some(packet), data_out: Some(&mut buffer), repeat: 1, ..Default::default() };
        let ran = self.program()?.test_run(input).map_err(crate::Error::kernel("running the root XDP program"))?;
        let (action, length) = (ran.return_value, ran.data.map_or(0, |data| data.len()));
        buffer.truncate(length);
        Ok((action, buffer))
    }

    fn program(&self) -> Result<ProgramMut<'_>, crate::Error> {
        self.object.progs_mut().find(|program| program.name() == "root").ok_or(crate::Error::Missing("root"))
    }

    fn put(&self, map: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let map = self.object.maps().find(|found| found.name() == map).ok_or(crate::Error::Missing(map))?;
        Ok(map.update(key, value, MapFlags::ANY).map_err(crate::Error::kernel("changing the root program's tables"))?)
    }
}
