//! Groups that the kernel copies multicasts to: those with every member behind an interface of its own.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ProgramInput, libbpf_sys};

use crate::layout::Words;
use crate::{Error, Kernel, Packet};

/// Members of a group that is copied to in the kernel (`GROUP_MAX` in `bpf/tables.h`).
const MEMBERS_MAX: usize = 64;

/// An application's group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    members: Vec<u32>,
    /// Those that have a member behind them in the kernel's tables.
    interfaces: Vec<u32>,
}

impl Group {
    pub(crate) fn has(&self, endpoint: u32) -> bool {
        self.members.contains(&endpoint)
    }
}

impl Kernel {
    /// Says who hears a multicast of the application: what [`pathcall_program::Tables::set_group`] has
    /// taken. Where two members are behind one interface, or the kernel knows no way to one, user space
    /// makes the copies.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_group(&mut self, gaid: u32, members: &[u32]) -> Result<(), Error> {
        self.groups.entry(gaid).or_default().members = members.to_vec();
        self.regroup(gaid)
    }

    /// Takes an endpoint out of all groups but that of its application.
    pub(crate) fn leave_groups(&mut self, endpoint: u32, but: Option<u32>) -> Result<(), Error> {
        let left = self.groups.iter_mut().filter(|(gaid, group)| Some(**gaid) != but && group.has(endpoint));
        let left: Vec<u32> = left
            .map(|(&gaid, group)| {
                group.members.retain(|member| *member != endpoint);
                gaid
            })
            .collect();
        // Each of them: where one fails, user space makes the copies.
        let mut done = Ok(());
        for gaid in left {
            done = done.and(self.regroup(gaid));
        }
        done
    }

    /// Leaves a group's copies to user space, and nothing by which the kernel made them.
    pub(crate) fn ungroup(&mut self, gaid: u32) -> Result<(), Error> {
        let (Some(index), Some(group)) = (self.index_of(gaid), self.groups.get(&gaid)) else { return Ok(()) };
        self.put("copied_here", &index.to_ne_bytes(), &0_u32.to_ne_bytes())?;
        if group.interfaces.is_empty() {
            return Ok(());
        }
        self.take("groups", &index.to_ne_bytes())?;
        for ifindex in &group.interfaces {
            self.take("group_members", Words::of(&[index, *ifindex]).bytes())?;
        }
        self.groups.entry(gaid).and_modify(|group| group.interfaces.clear());
        Ok(())
    }

    /// Has the kernel copy to a group, if it can.
    pub(crate) fn regroup(&mut self, gaid: u32) -> Result<(), Error> {
        self.ungroup(gaid)?;
        let (Some(index), Some(group)) = (self.index_of(gaid), self.groups.get(&gaid)) else { return Ok(()) };
        let Some(behind) = self.behind(&group.members)? else { return Ok(()) };

        let map = self.table_of(behind.keys().copied())?;
        if let Some(group) = self.groups.get_mut(&gaid) {
            group.interfaces = behind.keys().copied().collect();
        }
        for (&ifindex, &member) in &behind {
            self.put("group_members", Words::of(&[index, ifindex]).bytes(), &member.to_ne_bytes())?;
        }
        self.put("groups", &index.to_ne_bytes(), &map.as_fd().as_raw_fd().to_ne_bytes())?;
        self.put("copied_here", &index.to_ne_bytes(), &1_u32.to_ne_bytes())
    }

    /// A table of interfaces, by each of which a copy leaves.
    pub(crate) fn table_of(&self, interfaces: impl IntoIterator<Item = u32>) -> Result<MapHandle, Error> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let max = MEMBERS_MAX as u32;
        let map = MapHandle::create(MapType::DevmapHash, Some("interfaces"), 4, 8, max, &options);
        let map = map.map_err(Error::kernel("making a table of interfaces"))?;
        let copy = self.program("copy")?.as_fd().as_raw_fd().cast_unsigned();
        for ifindex in interfaces {
            let entered = map.update(&ifindex.to_ne_bytes(), Words::of(&[ifindex, copy]).bytes(), MapFlags::ANY);
            entered.map_err(Error::kernel("entering an interface"))?;
        }
        Ok(map)
    }

    /// The members by the interface that they are behind, if each has one of its own.
    fn behind(&self, members: &[u32]) -> Result<Option<HashMap<u32, u32>>, Error> {
        let Some(&ingress) = self.interfaces.first() else { return Ok(None) };
        let mut behind = HashMap::new();
        for &member in members {
            let Some((_, addr)) = self.endpoints.get(&member) else { return Ok(None) };
            let ifindex = self.way_of(ingress, *addr)?;
            if ifindex == 0 || behind.insert(ifindex, member).is_some() {
                return Ok(None);
            }
        }
        Ok((1..=MEMBERS_MAX).contains(&behind.len()).then_some(behind))
    }

    /// The interface by which the kernel sends to an address what came by another; 0 if it knows none.
    pub(crate) fn way_of(&self, ingress: u32, to: SocketAddrV4) -> Result<u32, Error> {
        let mut packet = Vec::new();
        let from = SocketAddrV4::new(self.own.unwrap_or(Ipv4Addr::UNSPECIFIED), 0);
        Packet { from, to, congested: false }.emit(&[], &mut packet);
        // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let mut context = Words::of(&[0, packet.len() as u32, 0, ingress, 0, 0]);
        let input =
            ProgramInput { data_in: Some(&packet), context_in: Some(context.bytes_mut()), ..ProgramInput::default() };
        let output = self.program("way_of")?.test_run(input).map_err(Error::kernel("asking for a way"))?;
        Ok(output.return_value)
    }
}
