//! Packets through the program one by one, past the driver (`BPF_PROG_RUN`).

use std::net::SocketAddrV4;
use std::time::Duration;

use libbpf_rs::ProgramInput;
use pathcall_wire::{Base, Kind};

use crate::layout::{self, Words};
use crate::packet::{Packet, SLOW_CLONE, SLOW_MULTICAST};
use crate::{Error, Kernel};

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

impl Kernel {
    /// Takes a packet through the program (`BPF_PROG_RUN`): for frames that came by another way, and for
    /// tests. `buffer` is where it comes out. Copies are made at interfaces, which it does not come to: what the
    /// program would have copied is [`Ran::Slow`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run(&self, packet: &[u8], buffer: &mut Vec<u8>) -> Result<Ran, Error> {
        Ok(self.run_timed(packet, buffer)?.0)
    }

    /// The same, and how long the program took by the kernel's clock. Only one run at a time can be measured:
    /// the kernel gives each next one what the last has made of the packet.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run_timed(&self, packet: &[u8], buffer: &mut Vec<u8>) -> Result<(Ran, Duration), Error> {
        let (action, took) = self.run_once(packet, buffer)?;
        let slow = |packet: &Packet, given: &[u8]| {
            Packet::parse(given).is_some_and(|(was, _)| was.to.port() != packet.to.port())
        };
        let ran = match (action, Packet::parse(buffer)) {
            (Action::Out, Some((addresses, frame))) => match self.to_be_copied(&addresses, frame) {
                Some(up) => Ran::Slow(up, frame.to_vec()),
                None => Ran::Out(addresses, frame.to_vec()),
            },
            (Action::Pass, Some((addresses, frame))) if slow(&addresses, packet) => {
                Ran::Slow(addresses, frame.to_vec())
            }
            (Action::Pass, _) => Ran::Passed,
            _ => Ran::Dropped,
        };
        Ok((ran, took))
    }

    /// The addresses of a packet as `hand_up` would have left them (`bpf/egress.h`), if it is to be copied by `copy`: it
    /// is still addressed to the element, then.
    fn to_be_copied(&self, addresses: &Packet, frame: &[u8]) -> Option<Packet> {
        let own = self.own.filter(|own| addresses.to == SocketAddrV4::new(*own, self.config.data_port))?;
        let request = Base::new_checked(frame).is_ok_and(|base| base.kind() == Kind::CloneRequest as u8);
        let from = SocketAddrV4::new(*addresses.from.ip(), if request { SLOW_CLONE } else { SLOW_MULTICAST });
        Some(Packet { from, to: SocketAddrV4::new(own, self.config.slow_port), congested: false })
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
