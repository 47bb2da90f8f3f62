//! A program where it can run: in the kernel, or, if that can't do what it says, as a whole in user space.

use pathcall_function::emit::xdp::{Unsupported, unsupported};
use pathcall_function::exec::{Count, Execution, Output, Reason, TableError};
use pathcall_function::interp::Interpreter;
use pathcall_function::ir::{ActionId, CounterId, Entry, Match, Program, RegisterId, TableId};

use super::{Config, Error, XdpFunction};

/// A program that runs. Which of both it is, its packets do not tell.
#[derive(Debug)]
pub enum Anywhere {
    /// In the kernel.
    Kernel(Box<XdpFunction>),
    /// In user space, and what of it the kernel can't do.
    UserSpace(Box<Interpreter>, Vec<Unsupported>),
}

impl Anywhere {
    /// Loads a program into the kernel, or makes it ready in user space if it has what XDP can't do. All of it then: a
    /// packet that was handed over alone would find other tables and registers, and others would overtake it.
    ///
    /// # Errors
    /// As [`XdpFunction::load`], but for [`Error::Unsupported`]; or the program can't be run at all.
    pub fn load(program: &Program, config: &Config) -> Result<Self, Error> {
        let lacking = unsupported(program);
        if lacking.is_empty() {
            return Ok(Self::Kernel(Box::new(XdpFunction::load(program, config)?)));
        }
        Ok(Self::UserSpace(Box::new(Interpreter::new(program)?), lacking))
    }

    fn execution(&self) -> &dyn Execution {
        match self {
            Self::Kernel(kernel) => &**kernel,
            Self::UserSpace(interpreter, _) => &**interpreter,
        }
    }

    fn execution_mut(&mut self) -> &mut dyn Execution {
        match self {
            Self::Kernel(kernel) => &mut **kernel,
            Self::UserSpace(interpreter, _) => &mut **interpreter,
        }
    }
}

impl Execution for Anywhere {
    fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        self.execution_mut().process(now_us, port, packet, out);
    }

    fn insert(&mut self, table: TableId, entry: &Entry) -> Result<(), TableError> {
        self.execution_mut().insert(table, entry)
    }

    fn modify(&mut self, table: TableId, entry: &Entry) -> Result<(), TableError> {
        self.execution_mut().modify(table, entry)
    }

    fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError> {
        self.execution_mut().remove(table, keys)
    }

    fn set_default(&mut self, table: TableId, action: ActionId, args: &[u128]) -> Result<(), TableError> {
        self.execution_mut().set_default(table, action, args)
    }

    fn take_used(&mut self, table: TableId, each: &mut dyn FnMut(&Entry)) {
        self.execution_mut().take_used(table, each);
    }

    fn entries(&self, table: TableId) -> usize {
        self.execution().entries(table)
    }

    fn register(&self, register: RegisterId, index: u32) -> u128 {
        self.execution().register(register, index)
    }

    fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        self.execution_mut().set_register(register, index, value);
    }

    fn counter(&self, counter: CounterId, index: u32) -> Count {
        self.execution().counter(counter, index)
    }

    fn set_group(&mut self, group: u16, ports: &[(u16, u16)]) {
        self.execution_mut().set_group(group, ports);
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.execution().dropped(reason)
    }
}
