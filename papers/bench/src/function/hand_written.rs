//! Hand-written SNAT for XDP (`bench/peers/snat.bpf.c`): the fast path of `functions/snat.p4c`.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};
use pathcall_xdp::function::{RepeatedRun, compile};

use super::frames::Flow;

const TEXT: &str = include_str!("../../peers/snat.bpf.c");

/// Loaded program, attached to no interface.
pub(crate) struct HandWrittenSnat(Object);

impl HandWrittenSnat {
    /// Loads the program, with the counters for placement if `accounted`; `ports` are the interface numbers of the
    /// element's two ports.
    pub(crate) fn load(accounted: bool, ports: [u32; 2]) -> Result<Self> {
        let text = if accounted { format!("#define ACCOUNTED\n{TEXT}") } else { TEXT.to_owned() };
        let object = ObjectBuilder::default().open_memory(&compile(&text)?)?.load()?;
        let hand = Self(object);
        for (port, interface) in (0u32..).zip(ports) {
            hand.put("ports", &port.to_ne_bytes(), &interface.to_ne_bytes())?;
        }
        Ok(hand)
    }

    /// Maps the packets of a flow to another flow.
    pub(crate) fn map(&self, number: u32, flow: &Flow, to: &Flow) -> Result<()> {
        let mut key = flow.src.to_be_bytes().to_vec();
        key.extend(flow.sport.to_be_bytes());
        key.extend([17, 0]);
        let mut value = to.src.to_be_bytes().to_vec();
        value.extend(to.sport.to_be_bytes());
        value.extend([0; 2]);
        let value_size = self.find("nat_out")?.value_size() as usize;
        if value_size > 12 {
            // Number and mode of the entry: in use.
            value.extend(number.to_ne_bytes());
            value.extend(1u32.to_ne_bytes());
        }
        value.resize(value_size, 0);
        self.put("nat_out", &key, &value)
    }

    /// Same as [`pathcall_xdp::function::XdpFunction::repeat`].
    pub(crate) fn repeat(&self, packet: &[u8], times: u32) -> Result<RepeatedRun> {
        let mut buffer = vec![0; packet.len() + 256];
        let input = ProgramInput {
            data_in: Some(packet),
            data_out: Some(&mut buffer),
            repeat: times,
            ..ProgramInput::default()
        };
        let ran = self.program()?.test_run(input)?;
        let (action, length, each) = (ran.return_value, ran.data.map_or(0, |data| data.len()), ran.duration);
        buffer.truncate(length);
        Ok(RepeatedRun { each, action, packet: buffer })
    }

    pub(crate) fn program(&self) -> Result<ProgramMut<'_>> {
        self.0.progs_mut().find(|program| program.name() == "snat").context("program `snat` not found")
    }

    fn find(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        self.0.maps().find(|map| map.name() == name).with_context(|| format!("no map {name}"))
    }

    fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.find(map)?.update(key, value, MapFlags::ANY)?)
    }
}
