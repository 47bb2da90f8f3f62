//! Groups whose multicasts the kernel copies: those with every member behind an interface of its own.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ProgramInput, libbpf_sys};

use crate::layout::Words;
use crate::{Error, KernelSwitch, Packet};

/// Most members of a group that the kernel copies to (`GROUP_MAX` in `bpf/tables.h`).
const MEMBERS_MAX: usize = 64;

/// Group of an application.
#[derive(Debug, Default)]
pub(crate) struct Group {
    members: Vec<u32>,
    /// Interfaces with a member behind them in the kernel's tables.
    interfaces: Vec<u32>,
}

impl Group {
    pub(crate) fn has(&self, endpoint: u32) -> bool {
        self.members.contains(&endpoint)
    }
}

impl KernelSwitch {
    /// Sets the group of an application, as accepted by [`pathcall_program::AdmissionTables::set_group`]. If two
    /// members are behind one interface, or the kernel has no route to a member, user space makes the copies.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn set_group(&mut self, gaid: u32, members: &[u32]) -> Result<(), Error> {
        self.groups.entry(gaid).or_default().members = members.to_vec();
        self.update_group_copies(gaid)
    }

    /// Removes an endpoint from all groups except that of its application.
    pub(crate) fn leave_groups(&mut self, endpoint: u32, but: Option<u32>) -> Result<(), Error> {
        let left = self.groups.iter_mut().filter(|(gaid, group)| Some(**gaid) != but && group.has(endpoint));
        let left: Vec<u32> = left
            .map(|(&gaid, group)| {
                group.members.retain(|member| *member != endpoint);
                gaid
            })
            .collect();
        // All groups are tried: if one fails, user space makes the copies.
        let mut done = Ok(());
        for gaid in left {
            done = done.and(self.update_group_copies(gaid));
        }
        done
    }

    /// Leaves a group's copies to user space, and removes the tables by which the kernel made them.
    pub(crate) fn remove_group_copies(&mut self, gaid: u32) -> Result<(), Error> {
        let (Some(index), Some(group)) = (self.index_of(gaid), self.groups.get(&gaid)) else { return Ok(()) };
        self.put("copied_here", &index.to_ne_bytes(), &0_u32.to_ne_bytes())?;
        if group.interfaces.is_empty() {
            return Ok(());
        }
        self.delete("groups", &index.to_ne_bytes())?;
        for ifindex in &group.interfaces {
            self.delete("group_members", Words::of(&[index, *ifindex]).bytes())?;
        }
        self.groups.entry(gaid).and_modify(|group| group.interfaces.clear());
        Ok(())
    }

    /// Makes a group's copies in the kernel, if possible.
    pub(crate) fn update_group_copies(&mut self, gaid: u32) -> Result<(), Error> {
        self.remove_group_copies(gaid)?;
        let (Some(index), Some(group)) = (self.index_of(gaid), self.groups.get(&gaid)) else { return Ok(()) };
        let Some(by_interface) = self.members_by_interface(&group.members)? else { return Ok(()) };

        let map = self.create_interface_table(by_interface.keys().copied())?;
        if let Some(group) = self.groups.get_mut(&gaid) {
            group.interfaces = by_interface.keys().copied().collect();
        }
        for (&ifindex, &member) in &by_interface {
            self.put("group_members", Words::of(&[index, ifindex]).bytes(), &member.to_ne_bytes())?;
        }
        self.put("groups", &index.to_ne_bytes(), &map.as_fd().as_raw_fd().to_ne_bytes())?;
        self.put("copied_here", &index.to_ne_bytes(), &1_u32.to_ne_bytes())
    }

    /// Creates a table of interfaces; a copy leaves by each of them.
    pub(crate) fn create_interface_table(&self, interfaces: impl IntoIterator<Item = u32>) -> Result<MapHandle, Error> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let max = MEMBERS_MAX as u32;
        let map = MapHandle::create(MapType::DevmapHash, Some("interfaces"), 4, 8, max, &options);
        let map = map.map_err(Error::kernel("creating a table of interfaces"))?;
        let copy = self.program("copy")?.as_fd().as_raw_fd().cast_unsigned();
        for ifindex in interfaces {
            let entered = map.update(&ifindex.to_ne_bytes(), Words::of(&[ifindex, copy]).bytes(), MapFlags::ANY);
            entered.map_err(Error::kernel("adding an interface to a table"))?;
        }
        Ok(map)
    }

    /// Members by interface, if each member has an interface of its own.
    fn members_by_interface(&self, members: &[u32]) -> Result<Option<HashMap<u32, u32>>, Error> {
        let Some(&ingress) = self.interfaces.first() else { return Ok(None) };
        let mut by_interface = HashMap::new();
        for &member in members {
            let Some((_, addr)) = self.endpoints.get(&member) else { return Ok(None) };
            let ifindex = self.egress_interface(ingress, *addr)?;
            if ifindex == 0 || by_interface.insert(ifindex, member).is_some() {
                return Ok(None);
            }
        }
        Ok((1..=MEMBERS_MAX).contains(&by_interface.len()).then_some(by_interface))
    }

    /// Interface by which the kernel forwards to an address what arrived by `ingress`; 0 if there is no route.
    pub(crate) fn egress_interface(&self, ingress: u32, to: SocketAddrV4) -> Result<u32, Error> {
        let mut packet = Vec::new();
        let from = SocketAddrV4::new(self.own_address.unwrap_or(Ipv4Addr::UNSPECIFIED), 0);
        Packet { from, to, congested: false }.emit(&[], &mut packet);
        // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let mut context = Words::of(&[0, packet.len() as u32, 0, ingress, 0, 0]);
        let input =
            ProgramInput { data_in: Some(&packet), context_in: Some(context.bytes_mut()), ..ProgramInput::default() };
        let output = self.program("way_of")?.test_run(input).map_err(Error::kernel("looking up a route"))?;
        Ok(output.return_value)
    }
}
