//! What controller and servers say to each other, as it travels: nothing that does not fit the function comes in.

use std::time::Duration;

use pathcall_function::ir::{ActionId, Entry, Match, Program, TableId};
use pathcall_function::live::{Task, Word};
use pathcall_function::place::Given;
use pathcall_function::scale::Version;
use pathcall_proto::v1::{
    BlockName, DrainTask, FunctionEntry, FunctionMatch, GiveTask, GroupBefore, GroupTask, LeaseTask, LeasedWord,
    LoadWord, RangesTask, ReturnTask, ServerTask, ServerWord, ValueRange, server_task, server_word,
};

/// What was said does not fit the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not fit the function")]
pub(crate) struct Unfit(&'static str);

/// As it travels.
#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "said where the element is"))]
pub(crate) fn task_out(task: Task) -> ServerTask {
    use server_task::Task as Out;
    let task = match task {
        Task::Lease { table, key, number } => {
            Out::Lease(LeaseTask { table: table.0, key: key.into_iter().map(number_out).collect(), number })
        }
        Task::Give(Given { number, turn, values }) => {
            let values = values.into_iter().map(number_out).collect();
            Out::Give(GiveTask { number, turn: turn.into(), values })
        }
        Task::Release(number) => Out::Release(number),
        Task::Group { version, buckets, old } => {
            let wide = |buckets: Vec<u16>| buckets.into_iter().map(u32::from).collect();
            let before = old.map(|(version, old)| GroupBefore { version: version.into(), buckets: wide(old) });
            Out::Group(GroupTask { version: version.into(), buckets: wide(buckets), before })
        }
        Task::Drain(idle) => Out::Drain(DrainTask { idle_ms: idle.map(|idle| idle.as_millis() as u64) }),
        Task::Ranges { partition, ranges } => {
            Out::Ranges(RangesTask { partition: partition as u32, ranges: ranges.into_iter().map(range_out).collect() })
        }
        Task::Return { partition, block, values } => Out::Return(ReturnTask {
            partition: partition as u32,
            block: block.into(),
            values: Some(range_out(values)),
        }),
    };
    ServerTask { task: Some(task) }
}

/// As a server of this function understands it.
pub(crate) fn task_in(program: &Program, task: ServerTask) -> Result<Task, Unfit> {
    use server_task::Task as In;
    Ok(match task.task.ok_or(Unfit("an empty task"))? {
        In::Lease(LeaseTask { table, key, number }) => {
            let keys = &mirrored(program, table)?.keys;
            let key = key.iter().map(|bytes| number_in(bytes)).collect::<Result<Vec<_>, _>>()?;
            let fits =
                key.len() == keys.len() && key.iter().zip(keys).all(|(value, key)| within(*value, key.expr.ty.width()));
            if !fits {
                return Err(Unfit("a key"));
            }
            Task::Lease { table: TableId(table), key, number }
        }
        In::Give(GiveTask { number, turn, values }) => {
            let values = values.iter().map(|bytes| number_in(bytes)).collect::<Result<Vec<_>, _>>()?;
            let registers: Vec<_> = program.registers.iter().filter(|register| register.mirrored).collect();
            if values.len() != registers.len() {
                return Err(Unfit("a number of values"));
            }
            Task::Give(Given { number, turn: narrow(turn, "a turn")?, values })
        }
        In::Release(number) => Task::Release(number),
        In::Group(GroupTask { version, buckets, before }) => {
            let old = before.map(|old| Ok((version_in(old.version)?, buckets_in(old.buckets)?))).transpose()?;
            Task::Group { version: version_in(version)?, buckets: buckets_in(buckets)?, old }
        }
        In::Drain(DrainTask { idle_ms }) => Task::Drain(idle_ms.map(Duration::from_millis)),
        In::Ranges(RangesTask { partition, ranges }) => {
            let ranges = ranges.iter().map(|range| range_in(program, partition, range)).collect::<Result<_, _>>()?;
            Task::Ranges { partition: partition as usize, ranges }
        }
        In::Return(ReturnTask { partition, block, values }) => {
            let values = range_in(program, partition, &values.ok_or(Unfit("a block without values"))?)?;
            Task::Return { partition: partition as usize, block: narrow(block, "a block")?, values }
        }
    })
}

fn version_in(version: u32) -> Result<Version, Unfit> {
    u8::try_from(version).map_err(|_| Unfit("a version"))
}

fn buckets_in(buckets: Vec<u32>) -> Result<Vec<u16>, Unfit> {
    buckets.into_iter().map(|bucket| narrow(bucket, "a bucket")).collect()
}

/// As it travels.
pub(crate) fn word_out(word: Word) -> ServerWord {
    use server_word::Word as Out;
    let word = match word {
        Word::Leased { number, entry } => Out::Leased(LeasedWord { number, entry: entry.map(entry_out) }),
        Word::Recall(number) => Out::Recall(number),
        Word::Taken(number) => Out::Taken(number),
        Word::Load { requests, flows, old_flows, version } => {
            Out::Load(LoadWord { requests, flows, old_flows, version: version.into() })
        }
        Word::Returned { partition, block } => {
            Out::Returned(BlockName { partition: partition as u32, block: block.into() })
        }
    };
    ServerWord { word: Some(word) }
}

/// As the controller of this function understands it.
#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "heard where the element is"))]
pub(crate) fn word_in(program: &Program, word: ServerWord) -> Result<Word, Unfit> {
    use server_word::Word as In;
    Ok(match word.word.ok_or(Unfit("an empty word"))? {
        In::Hello(_) => return Err(Unfit("a second hello")),
        In::Leased(LeasedWord { number, entry }) => {
            Word::Leased { number, entry: entry.map(|entry| entry_in(program, &entry)).transpose()? }
        }
        In::Recall(number) => Word::Recall(number),
        In::Taken(number) => Word::Taken(number),
        In::Load(LoadWord { requests, flows, old_flows, version }) => {
            if !requests.is_finite() || requests < 0.0 || old_flows > flows {
                return Err(Unfit("a load"));
            }
            let version = u8::try_from(version).map_err(|_| Unfit("a version"))?;
            Word::Load { requests, flows, old_flows, version }
        }
        In::Returned(BlockName { partition, block }) => {
            partition_of(program, partition)?;
            Word::Returned { partition: partition as usize, block: narrow(block, "a block")? }
        }
    })
}

fn entry_out(entry: Entry) -> FunctionEntry {
    let keys = entry.keys.into_iter();
    let keys = keys.map(|key| FunctionMatch { value: number_out(key.value), prefix_bits: key.prefix_bits.into() });
    let args = entry.args.into_iter().map(number_out).collect();
    FunctionEntry { keys: keys.collect(), action: entry.action.0, args }
}

/// An entry of some mirrored table.
#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "heard where the element is"))]
fn entry_in(program: &Program, entry: &FunctionEntry) -> Result<Entry, Unfit> {
    let keys = entry.keys.iter().map(|key| {
        Ok(Match { value: number_in(&key.value)?, prefix_bits: narrow(key.prefix_bits, "the length of a prefix")? })
    });
    let keys = keys.collect::<Result<Vec<_>, Unfit>>()?;
    let args = entry.args.iter().map(|bytes| number_in(bytes)).collect::<Result<Vec<_>, _>>()?;
    let action = ActionId(entry.action);
    let fits = |table: &pathcall_function::ir::Table| {
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
        return Err(Unfit("an entry"));
    }
    Ok(Entry { keys, action, args })
}

fn mirrored(program: &Program, table: u32) -> Result<&pathcall_function::ir::Table, Unfit> {
    program.tables.get(table as usize).filter(|table| table.mirrored).ok_or(Unfit("a table"))
}

fn partition_of(program: &Program, partition: u32) -> Result<(u128, u128), Unfit> {
    let found = program.partitions.get(partition as usize).ok_or(Unfit("a partition"))?;
    Ok((found.first, found.last))
}

#[cfg_attr(not(feature = "kernel"), allow(dead_code, reason = "said where the element is"))]
fn range_out((first, last): (u128, u128)) -> ValueRange {
    ValueRange { first: number_out(first), last: number_out(last) }
}

fn range_in(program: &Program, partition: u32, range: &ValueRange) -> Result<(u128, u128), Unfit> {
    let all = partition_of(program, partition)?;
    let (first, last) = (number_in(&range.first)?, number_in(&range.last)?);
    if first < all.0 || last > all.1 || first > last { Err(Unfit("a range")) } else { Ok((first, last)) }
}

fn within(value: u128, width: u16) -> bool {
    width >= 128 || value >> width == 0
}

fn narrow(value: u32, what: &'static str) -> Result<u16, Unfit> {
    u16::try_from(value).map_err(|_| Unfit(what))
}

fn number_out(value: u128) -> Vec<u8> {
    let zeros = value.leading_zeros() as usize / 8;
    value.to_be_bytes()[zeros..].to_vec()
}

fn number_in(bytes: &[u8]) -> Result<u128, Unfit> {
    let mut all = [0; 16];
    let from = all.len().checked_sub(bytes.len()).ok_or(Unfit("a number"))?;
    all[from..].copy_from_slice(bytes);
    Ok(u128::from_be_bytes(all))
}

#[cfg(test)]
mod tests {
    use pathcall_function::{Input, Sources, compile};

    use super::*;

    fn program() -> Program {
        let text = include_str!("../../../functions/snat.p4c").to_owned();
        compile(&mut Sources::default(), Input::Text { name: "snat.p4c".into(), text }).expect("a program")
    }

    fn out_table(program: &Program) -> TableId {
        let at = program.tables.iter().position(|table| table.name.ends_with("nat_out"));
        TableId(at.expect("its table") as u32)
    }

    #[test]
    fn tasks_come_as_they_were_said() {
        let program = program();
        let table = out_table(&program);
        let tasks = [
            Task::Lease { table, key: vec![0x0a00_0001, 65_535, 6], number: 7 },
            Task::Give(Given { number: 9, turn: 65_534, values: Vec::new() }),
            Task::Release(u32::MAX),
            Task::Group { version: 254, buckets: vec![0, 255, 65_535], old: None },
            Task::Group { version: 1, buckets: Vec::new(), old: Some((254, vec![7, 65_535])) },
            Task::Drain(None),
            Task::Drain(Some(Duration::from_millis(1500))),
            Task::Ranges { partition: 0, ranges: vec![(1024, 2047), (4096, 65_535)] },
            Task::Return { partition: 0, block: 63, values: (64_512, 65_535) },
        ];
        for task in tasks {
            assert_eq!(task_in(&program, task_out(task.clone())), Ok(task));
        }
    }

    #[test]
    fn words_come_as_they_were_said() {
        let program = program();
        let table = &program.tables[out_table(&program).0 as usize];
        let exact = |value, prefix_bits| Match { value, prefix_bits };
        let keys = vec![exact(0x0a00_0001, 32), exact(0, 16), exact(17, 8)];
        let entry = Entry { keys, action: table.actions[0], args: vec![0xc000_0201, 1024] };
        let words = [
            Word::Leased { number: 1, entry: Some(entry) },
            Word::Leased { number: 1, entry: None },
            Word::Recall(2),
            Word::Taken(3),
            Word::Load { requests: 0.5, flows: 2, old_flows: 1, version: 3 },
            Word::Returned { partition: 0, block: 4 },
        ];
        for word in words {
            assert_eq!(word_in(&program, word_out(word.clone())), Ok(word));
        }
    }

    #[test]
    fn what_does_not_fit_stays_outside() {
        let program = program();
        let table = out_table(&program);
        let lease = |key: Vec<u128>| task_out(Task::Lease { table, key, number: 0 });
        for wrong in [
            ServerTask::default(),
            lease(vec![1, 2]),
            lease(vec![1, 2, 256]),
            task_out(Task::Lease { table: TableId(1000), key: vec![], number: 0 }),
            task_out(Task::Ranges { partition: 1, ranges: vec![(1024, 1025)] }),
            task_out(Task::Ranges { partition: 0, ranges: vec![(0, 1025)] }),
            task_out(Task::Ranges { partition: 0, ranges: vec![(2000, 1999)] }),
            task_out(Task::Give(Given { number: 0, turn: 0, values: vec![1] })),
        ] {
            assert!(task_in(&program, wrong.clone()).is_err(), "{wrong:?}");
        }
        let load = |requests, flows, old_flows| Word::Load { requests, flows, old_flows, version: 0 };
        let keys = vec![Match { value: 0, prefix_bits: 33 }, Match { value: 0, prefix_bits: 16 }];
        let entry = Entry { keys, action: ActionId(0), args: Vec::new() };
        for wrong in [
            ServerWord::default(),
            word_out(load(f64::NAN, 0, 0)),
            word_out(load(-1.0, 0, 0)),
            word_out(load(0.0, 0, 1)),
            word_out(Word::Returned { partition: 1, block: 0 }),
            word_out(Word::Leased { number: 0, entry: Some(entry) }),
        ] {
            assert!(word_in(&program, wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
