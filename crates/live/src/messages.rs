//! Encoding of the control messages between controller and servers; decoding checks that a message fits the function.

use std::time::Duration;

use pathcall_netfn::live::{ServerCommand, ServerMessage};
use pathcall_netfn::place::EntryValues;
use pathcall_netfn::scale::Version;
use pathcall_p4::ir::{ActionId, Match, Program, TableEntry, TableId};
use pathcall_proto::v1::{
    BlockId, DrainTask, FunctionEntry, FunctionMatch, GroupTask, LeaseReply, LeaseTask, LoadReport, PreviousGroup,
    RangesTask, ReturnBlockTask, ServerReport, ServerTask, StoreTask, ValueRange, server_report, server_task,
};

/// Error of a message that does not fit the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not fit the function")]
pub(crate) struct MessageError(&'static str);

/// Encodes a command of the controller.
#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "used by the element only"))]
pub(crate) fn encode_command(task: ServerCommand) -> ServerTask {
    use server_task::Task as Out;
    let task = match task {
        ServerCommand::Lease { table, key, number } => {
            Out::Lease(LeaseTask { table: table.0, key: key.into_iter().map(encode_number).collect(), number })
        }
        ServerCommand::Store(EntryValues { number, turn, values }) => {
            let values = values.into_iter().map(encode_number).collect();
            Out::Store(StoreTask { number, turn: turn.into(), values })
        }
        ServerCommand::Release(number) => Out::Release(number),
        ServerCommand::Group { version, buckets, old } => {
            let wide = |buckets: Vec<u16>| buckets.into_iter().map(u32::from).collect();
            let previous = old.map(|(version, old)| PreviousGroup { version: version.into(), buckets: wide(old) });
            Out::Group(GroupTask { version: version.into(), buckets: wide(buckets), previous })
        }
        ServerCommand::Drain(idle) => Out::Drain(DrainTask { idle_ms: idle.map(|idle| idle.as_millis() as u64) }),
        ServerCommand::Ranges { partition, ranges } => Out::Ranges(RangesTask {
            partition: partition as u32,
            ranges: ranges.into_iter().map(encode_range).collect(),
        }),
        ServerCommand::ReturnBlock { partition, block, values } => Out::ReturnBlock(ReturnBlockTask {
            partition: partition as u32,
            block: block.into(),
            values: Some(encode_range(values)),
        }),
    };
    ServerTask { task: Some(task) }
}

/// Decodes a command for a server of this function.
pub(crate) fn decode_command(program: &Program, task: ServerTask) -> Result<ServerCommand, MessageError> {
    use server_task::Task as In;
    Ok(match task.task.ok_or(MessageError("an empty command"))? {
        In::Lease(LeaseTask { table, key, number }) => {
            let keys = &mirrored_table(program, table)?.keys;
            let key = key.iter().map(|bytes| decode_number(bytes)).collect::<Result<Vec<_>, _>>()?;
            let fits =
                key.len() == keys.len() && key.iter().zip(keys).all(|(value, key)| within(*value, key.expr.ty.width()));
            if !fits {
                return Err(MessageError("a key"));
            }
            ServerCommand::Lease { table: TableId(table), key, number }
        }
        In::Store(StoreTask { number, turn, values }) => {
            let values = values.iter().map(|bytes| decode_number(bytes)).collect::<Result<Vec<_>, _>>()?;
            let registers: Vec<_> = program.registers.iter().filter(|register| register.mirrored).collect();
            if values.len() != registers.len() {
                return Err(MessageError("a number of values"));
            }
            ServerCommand::Store(EntryValues { number, turn: narrow(turn, "a turn")?, values })
        }
        In::Release(number) => ServerCommand::Release(number),
        In::Group(GroupTask { version, buckets, previous }) => {
            let old =
                previous.map(|old| Ok((decode_version(old.version)?, decode_buckets(old.buckets)?))).transpose()?;
            ServerCommand::Group { version: decode_version(version)?, buckets: decode_buckets(buckets)?, old }
        }
        In::Drain(DrainTask { idle_ms }) => ServerCommand::Drain(idle_ms.map(Duration::from_millis)),
        In::Ranges(RangesTask { partition, ranges }) => {
            let ranges =
                ranges.iter().map(|range| decode_range(program, partition, range)).collect::<Result<_, _>>()?;
            ServerCommand::Ranges { partition: partition as usize, ranges }
        }
        In::ReturnBlock(ReturnBlockTask { partition, block, values }) => {
            let values = decode_range(program, partition, &values.ok_or(MessageError("a block without values"))?)?;
            ServerCommand::ReturnBlock { partition: partition as usize, block: narrow(block, "a block")?, values }
        }
    })
}

fn decode_version(version: u32) -> Result<Version, MessageError> {
    u8::try_from(version).map_err(|_| MessageError("a version"))
}

fn decode_buckets(buckets: Vec<u32>) -> Result<Vec<u16>, MessageError> {
    buckets.into_iter().map(|bucket| narrow(bucket, "a bucket")).collect()
}

/// Encodes a message of a server.
pub(crate) fn encode_message(message: ServerMessage) -> ServerReport {
    use server_report::Report as Out;
    let report = match message {
        ServerMessage::Leased { number, entry } => Out::Lease(LeaseReply { number, entry: entry.map(encode_entry) }),
        ServerMessage::Recall(number) => Out::Recall(number),
        ServerMessage::Stored(number) => Out::Stored(number),
        ServerMessage::Load { requests, flows, old_flows, version } => {
            Out::Load(LoadReport { requests, flows, old_flows, version: version.into() })
        }
        ServerMessage::ReturnedBlock { partition, block } => {
            Out::ReturnedBlock(BlockId { partition: partition as u32, block: block.into() })
        }
    };
    ServerReport { report: Some(report) }
}

/// Decodes a message for the controller of this function.
#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "used by the element only"))]
pub(crate) fn decode_message(program: &Program, report: ServerReport) -> Result<ServerMessage, MessageError> {
    use server_report::Report as In;
    Ok(match report.report.ok_or(MessageError("an empty message"))? {
        In::Hello(_) => return Err(MessageError("a second hello")),
        In::Lease(LeaseReply { number, entry }) => {
            ServerMessage::Leased { number, entry: entry.map(|entry| decode_entry(program, &entry)).transpose()? }
        }
        In::Recall(number) => ServerMessage::Recall(number),
        In::Stored(number) => ServerMessage::Stored(number),
        In::Load(LoadReport { requests, flows, old_flows, version }) => {
            if !requests.is_finite() || requests < 0.0 || old_flows > flows {
                return Err(MessageError("a load"));
            }
            let version = u8::try_from(version).map_err(|_| MessageError("a version"))?;
            ServerMessage::Load { requests, flows, old_flows, version }
        }
        In::ReturnedBlock(BlockId { partition, block }) => {
            partition_of(program, partition)?;
            ServerMessage::ReturnedBlock { partition: partition as usize, block: narrow(block, "a block")? }
        }
    })
}

fn encode_entry(entry: TableEntry) -> FunctionEntry {
    let keys = entry.keys.into_iter();
    let keys = keys.map(|key| FunctionMatch { value: encode_number(key.value), prefix_bits: key.prefix_bits.into() });
    let args = entry.args.into_iter().map(encode_number).collect();
    FunctionEntry { keys: keys.collect(), action: entry.action.0, args }
}

/// Decodes an entry of some mirrored table.
#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "used by the element only"))]
fn decode_entry(program: &Program, entry: &FunctionEntry) -> Result<TableEntry, MessageError> {
    let keys = entry.keys.iter().map(|key| {
        Ok(Match { value: decode_number(&key.value)?, prefix_bits: narrow(key.prefix_bits, "the length of a prefix")? })
    });
    let keys = keys.collect::<Result<Vec<_>, MessageError>>()?;
    let args = entry.args.iter().map(|bytes| decode_number(bytes)).collect::<Result<Vec<_>, _>>()?;
    let action = ActionId(entry.action);
    let fits = |table: &pathcall_p4::ir::Table| {
        let widths: Vec<u16> = table.keys.iter().map(|key| key.expr.ty.width()).collect();
        let key_fits = |(key, width): (&Match, u16)| key.prefix_bits <= width && within(key.value, width);
        let params = program.actions.get(action.0 as usize).map(|action| action.params.len());
        table.mirrored
            && table.actions.contains(&action)
            && keys.len() == widths.len()
            && keys.iter().zip(widths).all(key_fits)
            && params == Some(args.len())
    };
    if !program.tables.iter().any(fits) {
        return Err(MessageError("an entry"));
    }
    Ok(TableEntry { keys, action, args })
}

fn mirrored_table(program: &Program, table: u32) -> Result<&pathcall_p4::ir::Table, MessageError> {
    program.tables.get(table as usize).filter(|table| table.mirrored).ok_or(MessageError("a table"))
}

fn partition_of(program: &Program, partition: u32) -> Result<(u128, u128), MessageError> {
    let found = program.partitions.get(partition as usize).ok_or(MessageError("a partition"))?;
    Ok((found.first, found.last))
}

#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "used by the element only"))]
fn encode_range((first, last): (u128, u128)) -> ValueRange {
    ValueRange { first: encode_number(first), last: encode_number(last) }
}

fn decode_range(program: &Program, partition: u32, range: &ValueRange) -> Result<(u128, u128), MessageError> {
    let all = partition_of(program, partition)?;
    let (first, last) = (decode_number(&range.first)?, decode_number(&range.last)?);
    if first < all.0 || last > all.1 || first > last { Err(MessageError("a range")) } else { Ok((first, last)) }
}

fn within(value: u128, width: u16) -> bool {
    width >= 128 || value >> width == 0
}

fn narrow(value: u32, what: &'static str) -> Result<u16, MessageError> {
    u16::try_from(value).map_err(|_| MessageError(what))
}

fn encode_number(value: u128) -> Vec<u8> {
    let zeros = value.leading_zeros() as usize / 8;
    value.to_be_bytes()[zeros..].to_vec()
}

fn decode_number(bytes: &[u8]) -> Result<u128, MessageError> {
    let mut all = [0; 16];
    let from = all.len().checked_sub(bytes.len()).ok_or(MessageError("a number"))?;
    all[from..].copy_from_slice(bytes);
    Ok(u128::from_be_bytes(all))
}

#[cfg(test)]
mod tests {
    use pathcall_p4::{Input, Sources, compile};

    use super::*;

    fn program() -> Program {
        let text = include_str!("../../../functions/snat.p4c").to_owned();
        compile(&mut Sources::default(), Input::Text { name: "snat.p4c".into(), text }).expect("a program")
    }

    fn out_table(program: &Program) -> TableId {
        let at = program.tables.iter().position(|table| table.name.ends_with("nat_out"));
        TableId(at.expect("the table nat_out") as u32)
    }

    #[test]
    fn command_encoding_round_trips() {
        let program = program();
        let table = out_table(&program);
        let tasks = [
            ServerCommand::Lease { table, key: vec![0x0a00_0001, 65_535, 6], number: 7 },
            ServerCommand::Store(EntryValues { number: 9, turn: 65_534, values: Vec::new() }),
            ServerCommand::Release(u32::MAX),
            ServerCommand::Group { version: 254, buckets: vec![0, 255, 65_535], old: None },
            ServerCommand::Group { version: 1, buckets: Vec::new(), old: Some((254, vec![7, 65_535])) },
            ServerCommand::Drain(None),
            ServerCommand::Drain(Some(Duration::from_millis(1500))),
            ServerCommand::Ranges { partition: 0, ranges: vec![(1024, 2047), (4096, 65_535)] },
            ServerCommand::ReturnBlock { partition: 0, block: 63, values: (64_512, 65_535) },
        ];
        for task in tasks {
            assert_eq!(decode_command(&program, encode_command(task.clone())), Ok(task));
        }
    }

    #[test]
    fn message_encoding_round_trips() {
        let program = program();
        let table = &program.tables[out_table(&program).0 as usize];
        let exact = |value, prefix_bits| Match { value, prefix_bits };
        let keys = vec![exact(0x0a00_0001, 32), exact(0, 16), exact(17, 8)];
        let entry = TableEntry { keys, action: table.actions[0], args: vec![0xc000_0201, 1024] };
        let words = [
            ServerMessage::Leased { number: 1, entry: Some(entry) },
            ServerMessage::Leased { number: 1, entry: None },
            ServerMessage::Recall(2),
            ServerMessage::Stored(3),
            ServerMessage::Load { requests: 0.5, flows: 2, old_flows: 1, version: 3 },
            ServerMessage::ReturnedBlock { partition: 0, block: 4 },
        ];
        for word in words {
            assert_eq!(decode_message(&program, encode_message(word.clone())), Ok(word));
        }
    }

    #[test]
    fn invalid_messages_are_rejected() {
        let program = program();
        let table = out_table(&program);
        let lease = |key: Vec<u128>| encode_command(ServerCommand::Lease { table, key, number: 0 });
        for wrong in [
            ServerTask::default(),
            lease(vec![1, 2]),
            lease(vec![1, 2, 256]),
            encode_command(ServerCommand::Lease { table: TableId(1000), key: vec![], number: 0 }),
            encode_command(ServerCommand::Ranges { partition: 1, ranges: vec![(1024, 1025)] }),
            encode_command(ServerCommand::Ranges { partition: 0, ranges: vec![(0, 1025)] }),
            encode_command(ServerCommand::Ranges { partition: 0, ranges: vec![(2000, 1999)] }),
            encode_command(ServerCommand::Store(EntryValues { number: 0, turn: 0, values: vec![1] })),
        ] {
            assert!(decode_command(&program, wrong.clone()).is_err(), "{wrong:?}");
        }
        let load = |requests, flows, old_flows| ServerMessage::Load { requests, flows, old_flows, version: 0 };
        let keys = vec![Match { value: 0, prefix_bits: 33 }, Match { value: 0, prefix_bits: 16 }];
        let entry = TableEntry { keys, action: ActionId(0), args: Vec::new() };
        for wrong in [
            ServerReport::default(),
            encode_message(load(f64::NAN, 0, 0)),
            encode_message(load(-1.0, 0, 0)),
            encode_message(load(0.0, 0, 1)),
            encode_message(ServerMessage::ReturnedBlock { partition: 1, block: 0 }),
            encode_message(ServerMessage::Leased { number: 0, entry: Some(entry) }),
        ] {
            assert!(decode_message(&program, wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
