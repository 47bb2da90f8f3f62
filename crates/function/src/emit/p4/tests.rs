//! The text is read back by our own front end, and does the same.

use std::path::Path;

use proptest::prelude::*;

use super::emit;
use crate::exec::{Count, Execution, Output, Reason, TableError};
use crate::fixtures::Tables;
use crate::interp::Interpreter;
use crate::ir::{ActionId, CounterId, Entry, Match, Program, RegisterId, TableId};
use crate::random::{Choices, Limits, first_difference, program, steps};
use crate::run::{Config, System};
use crate::serve::Outcome;
use crate::split::{Target, split};
use crate::{Input, Report, Sources, compile};
use bits::{BITS, check, packet};

#[path = "../../../tests/floats/bits.rs"]
mod bits;

const LIMITS: Limits = Limits { copies: true, generated: false };
/// Steps that a program is put through.
const STEPS: usize = 60;

fn read_back(text: &str) -> Result<Program, String> {
    let mut sources = Sources::default();
    let input = Input::Text { name: "random.p4".into(), text: text.into() };
    compile(&mut sources, input).map_err(|wrong| format!("{}\n{text}", Report(&wrong, &sources)))
}

/// An execution of the program that was read back, by the numbers of the one that was written.
struct Renumbered {
    inner: Interpreter,
    tables: Vec<u32>,
    actions: Vec<u32>,
    registers: Vec<u32>,
    counters: Vec<u32>,
}

impl Renumbered {
    fn of(program: &Program, again: &Program) -> Self {
        /// The numbers of things by their names: the text's are longer by the control that they stand in.
        fn numbers<'a>(
            of: impl Iterator<Item = &'a String>,
            again: impl Iterator<Item = &'a String> + Clone,
        ) -> Vec<u32> {
            let at = |name: &String| {
                let own = format!(".{}", super::names::clean(name));
                let found = again.clone().position(|other| format!(".{other}").ends_with(&own));
                // Actions that no table lists are gone, and nobody asks for them.
                found.map_or(u32::MAX, |at| at as u32)
            };
            of.map(at).collect()
        }
        Self {
            inner: Interpreter::new(again).expect("well-typed"),
            tables: numbers(program.tables.iter().map(|t| &t.name), again.tables.iter().map(|t| &t.name)),
            actions: numbers(program.actions.iter().map(|a| &a.name), again.actions.iter().map(|a| &a.name)),
            registers: numbers(program.registers.iter().map(|r| &r.name), again.registers.iter().map(|r| &r.name)),
            counters: numbers(program.counters.iter().map(|c| &c.name), again.counters.iter().map(|c| &c.name)),
        }
    }

    fn table(&self, table: TableId) -> TableId {
        TableId(self.tables[table.0 as usize])
    }

    fn action(&self, action: ActionId) -> ActionId {
        ActionId(self.actions[action.0 as usize])
    }

    fn entry(&self, entry: &Entry) -> Entry {
        Entry { action: self.action(entry.action), ..entry.clone() }
    }
}

impl Execution for Renumbered {
    fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        self.inner.process(now_us, port, packet, out);
    }
    fn insert(&mut self, table: TableId, entry: &Entry) -> Result<(), TableError> {
        self.inner.insert(self.table(table), &self.entry(entry))
    }
    fn modify(&mut self, table: TableId, entry: &Entry) -> Result<(), TableError> {
        self.inner.modify(self.table(table), &self.entry(entry))
    }
    fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError> {
        self.inner.remove(self.table(table), keys)
    }
    fn set_default(&mut self, table: TableId, action: ActionId, args: &[u128]) -> Result<(), TableError> {
        self.inner.set_default(self.table(table), self.action(action), args)
    }
    fn take_used(&mut self, table: TableId, each: &mut dyn FnMut(&Entry)) {
        self.inner.take_used(self.table(table), each);
    }
    fn entries(&self, table: TableId) -> usize {
        self.inner.entries(self.table(table))
    }
    fn register(&self, register: RegisterId, index: u32) -> u128 {
        self.inner.register(RegisterId(self.registers[register.0 as usize]), index)
    }
    fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        self.inner.set_register(RegisterId(self.registers[register.0 as usize]), index, value);
    }
    fn counter(&self, counter: CounterId, index: u32) -> Count {
        self.inner.counter(CounterId(self.counters[counter.0 as usize]), index)
    }
    fn set_group(&mut self, group: u16, ports: &[(u16, u16)]) {
        self.inner.set_group(group, ports);
    }
    fn dropped(&self, reason: Reason) -> u64 {
        self.inner.dropped(reason)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_back_does_the_same(choices in prop::collection::vec(any::<u8>(), 0..1500)) {
        let (mut of_program, mut of_steps) = Choices::new(&choices).split(160);
        let program = program(&mut of_program, LIMITS);
        let steps = steps(&program, &mut of_steps, STEPS);
        let text = emit(&program).expect("all that the language has");
        let again = read_back(&text).map_err(TestCaseError::fail)?;
        let mut first = Interpreter::new(&program).expect("well-typed");
        let mut second = Renumbered::of(&program, &again);
        let found = first_difference(&program, &steps, &mut first, &mut second);
        prop_assert!(found.is_none(), "{}\n{text}", found.unwrap_or_default());
    }
}

/// What the compiler makes of the functions that come with the project is P4 as well.
#[test]
fn elements_of_functions_are_read_back() {
    for name in ["fib", "knock", "smooth", "snat", "trd"] {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../functions/");
        let mut sources = Sources::default();
        let whole = compile(&mut sources, Path::new(&format!("{path}{name}.p4c")));
        let whole = whole.unwrap_or_else(|wrong| panic!("{}", Report(&wrong, &sources)));
        let element = split(&whole, &Target { function: 1, ..Target::default() }).expect("a function").element;
        let text = emit(&element).unwrap_or_else(|unsayable| panic!("{name}: {unsayable}"));
        let again = read_back(&text).unwrap_or_else(|wrong| panic!("{wrong}"));
        let bytes: Vec<u8> = (0..4_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let steps = steps(&element, &mut Choices::new(&bytes), 200);
        let mut first = Interpreter::new(&element).expect("well-typed");
        let found = first_difference(&element, &steps, &mut first, &mut Renumbered::of(&element, &again));
        assert_eq!(found, None, "{name}");
    }
}

/// Floats that are no ordinary numbers, through P4 text that was read back (CLIP §IV-C).
#[test]
fn floats_are_their_bits_in_p4_text() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/floats.p4c");
    let mut sources = Sources::default();
    let whole = compile(&mut sources, Path::new(path)).unwrap_or_else(|wrong| panic!("{}", Report(&wrong, &sources)));
    let split = split(&whole, &Target { function: 1, ..Target::default() }).expect("a function");
    let again = read_back(&emit(&split.element).expect("can be said")).unwrap_or_else(|wrong| panic!("{wrong}"));
    let server = Tables::new(&whole, |_, request, response| {
        let [_, value, second] = request else { unreachable!("three parameters") };
        let number = f32::from_bits(*value as u32);
        let kinds = [number.is_nan(), number.is_infinite(), number <= 0.0, number > 0.0];
        let kind = kinds.iter().rev().fold(0, |all, one| all << 1 | u128::from(*one));
        response.copy_from_slice(&[*value, (number * 2.0).to_bits().into(), *second, kind]);
        Outcome::Respond
    });
    let element = Renumbered::of(&split.element, &again);
    let mut system = System::new(split, element, vec![server], 1, &Config::default(), |_| 10);
    system.advance(100_000, &mut |_| {});
    let mut before = 0;
    for (at, value) in BITS.into_iter().enumerate() {
        let mut left = Vec::new();
        let mut take = |output: Output<'_>| {
            if let Output::Packet { bytes, .. } = output {
                left.push(bytes.to_vec());
            }
        };
        system.process(101_000 + 100 * at as u64, 0, &packet(value), &mut take);
        system.finish(&mut take);
        check(value, before, &left);
        before = value;
    }
}
