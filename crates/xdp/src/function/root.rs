//! The root program (`bpf/root.bpf.c`): one element carries the switch program and functions, by a program array.
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
use crate::{Kernel, Mode};

/// The program, as it was compiled.
const ROOT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/root.bpf.o"));
/// Programs that there is room for, the switch program among them.
const PROGRAMS_MAX: u32 = 64;

/// Which packets a function gets, of those that are no frames of the switch program. The first that fits counts, in
/// this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// UDP in IPv4, to this port.
    UdpPort(u16),
    /// Ethernet frames of this type.
    EtherType(u16),
    /// All others.
    All,
}

/// A switch program that root programs may call, and which frames are its own: by its address and ports, and, if it
/// works on them in passing, by its endpoints.
#[derive(Debug)]
pub struct SwitchProgram {
    program: OwnedFd,
    /// As the root program has it.
    frames: Vec<u8>,
    endpoints: OwnedFd,
}

impl SwitchProgram {
    /// That of `kernel`, which was loaded with `config` and knows its own address. It works on frames for as long as
    /// `kernel` lives.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(kernel: &Kernel, config: &Config) -> Result<Self, crate::Error> {
        let system = |source| crate::Error::System { doing: "naming the switch program", source };
        let program = kernel.program("element")?.as_fd().try_clone_to_owned().map_err(system)?;
        let endpoints = kernel.map("endpoints")?.as_fd().try_clone_to_owned().map_err(system)?;
        let ports = [config.data_port.to_be_bytes(), config.slow_port.to_be_bytes()].concat();
        let own = kernel.own.map_or([0; 4], |ip| ip.octets());
        let frames = [&ports[..], &own, &u32::from(config.inlined).to_ne_bytes()].concat();
        Ok(Self { program, frames, endpoints })
    }
}

/// The root program in the kernel. Dropping it detaches it; its functions and the switch program live on.
#[derive(Debug)]
pub struct Root {
    object: Object,
    links: Vec<Link>,
    /// Places in the array that are taken.
    used: u32,
}

impl Root {
    /// Loads the root program, attached to nothing, with no program to call.
    ///
    /// # Errors
    /// No permission, or what the kernel says.
    pub fn load() -> Result<Self, Error> {
        let (loaded, _) = log::listen(|| ObjectBuilder::default().open_memory(ROOT)?.load());
        let object = loaded.map_err(crate::Error::kernel("loading the root XDP program"))?;
        Ok(Self { object, links: Vec::new(), used: 1 })
    }

    /// Has it call the switch program for frames. That has to be loaded with the same `config`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn carry_switch(&mut self, kernel: &Kernel, config: &Config) -> Result<(), Error> {
        self.carry_program(&SwitchProgram::of(kernel, config)?)
    }

    /// As [`Self::carry_switch`], where the switch program is another thread's.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn carry_program(&mut self, switch: &SwitchProgram) -> Result<(), Error> {
        let first = 0_u32.to_ne_bytes();
        self.put("programs", &first, &switch.program.as_raw_fd().to_ne_bytes())?;
        self.put("endpoints", &first, &switch.endpoints.as_raw_fd().to_ne_bytes())?;
        self.put(".data.switch", &first, &switch.frames)
    }

    /// Has it call a function for packets of these kinds.
    ///
    /// # Errors
    /// [`crate::Error::Size`] when there is no room, or what the kernel says.
    pub fn carry(&mut self, function: &XdpFunction, rules: &[Rule]) -> Result<(), Error> {
        if self.used == PROGRAMS_MAX {
            let (wanted, max) = (self.used as usize, PROGRAMS_MAX as usize - 1);
            return Err(crate::Error::Size { what: "functions", wanted, max }.into());
        }
        let place = self.used.to_ne_bytes();
        self.put("programs", &place, &function.descriptor()?.to_ne_bytes())?;
        self.used += 1;
        for rule in rules {
            let words = match *rule {
                Rule::UdpPort(port) => [0, u32::from(port)],
                Rule::EtherType(kind) => [1, u32::from(kind)],
                Rule::All => [2, 0],
            };
            self.put("rules", Words::of(&words).bytes(), &place)?;
        }
        Ok(())
    }

    /// Attaches it to an interface.
    ///
    /// # Errors
    /// [`crate::Error::NoInterface`], [`crate::Error::Occupied`], or what the kernel says.
    pub fn attach(&mut self, interface: &str) -> Result<Mode, Error> {
        let (link, mode) = attach_to(&self.program()?, interface)?;
        self.links.push(link);
        Ok(mode)
    }

    /// Takes a packet through it and what it calls: what that returned (`enum xdp_action`), and the packet then.
    ///
    /// # Errors
    /// What the kernel says.
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
