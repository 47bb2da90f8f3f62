//! Single packets through the program, without a driver (`BPF_PROG_RUN`).

use std::net::SocketAddrV4;
use std::time::Duration;

use libbpf_rs::ProgramInput;
use pathcall_wire::{Base, FrameKind};

use crate::layout::{self, Words};
use crate::packet::{Packet, SLOW_CLONE, SLOW_MULTICAST};
use crate::{Error, KernelSwitch};

/// Result of [`KernelSwitch::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunResult {
    /// The packet leaves: addresses and frame.
    Out(Packet, Vec<u8>),
    /// User space forwards the packet, as its source port says.
    Slow(Packet, Vec<u8>),
    /// The packet is not for the program.
    Passed,
    /// The packet was dropped.
    Dropped,
}

impl KernelSwitch {
    /// Runs a packet through the program (`BPF_PROG_RUN`): for frames that arrived by another way, and for tests.
    /// `buffer` receives the output. Copies are made at interfaces only, so a packet that would be copied is
    /// [`RunResult::Slow`].
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn run(&self, packet: &[u8], buffer: &mut Vec<u8>) -> Result<RunResult, Error> {
        Ok(self.run_timed(packet, buffer)?.0)
    }

    /// [`Self::run`] with the program's time by the kernel's clock. Only one run at a time can be measured, because the
    /// kernel repeats a run on the result of the one before.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn run_timed(&self, packet: &[u8], buffer: &mut Vec<u8>) -> Result<(RunResult, Duration), Error> {
        let (action, took) = self.run_once(packet, buffer)?;
        let slow = |packet: &Packet, given: &[u8]| {
            Packet::parse(given).is_some_and(|(was, _)| was.to.port() != packet.to.port())
        };
        let ran = match (action, Packet::parse(buffer)) {
            (Action::Out, Some((addresses, frame))) => match self.to_be_copied(&addresses, frame) {
                Some(up) => RunResult::Slow(up, frame.to_vec()),
                None => RunResult::Out(addresses, frame.to_vec()),
            },
            (Action::Pass, Some((addresses, frame))) if slow(&addresses, packet) => {
                RunResult::Slow(addresses, frame.to_vec())
            }
            (Action::Pass, _) => RunResult::Passed,
            _ => RunResult::Dropped,
        };
        Ok((ran, took))
    }

    /// Addresses of a packet that the program marked to be copied and that is still addressed to the element, in the
    /// form that `hand_up` would have written (`bpf/egress.h`).
    fn to_be_copied(&self, addresses: &Packet, frame: &[u8]) -> Option<Packet> {
        let own = self.own_address.filter(|own| addresses.to == SocketAddrV4::new(*own, self.config.data_port))?;
        let request = Base::new_checked(frame).is_ok_and(|base| base.kind() == FrameKind::CloneRequest as u8);
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

/// Result of the program (`enum xdp_action`).
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
