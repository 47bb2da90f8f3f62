//! Compilation of parser states.

use super::code::{Instruction, ValueId};
use super::compile::Compiler;
use crate::ir::{Binary, Keyset, StateId, Transition};

impl Compiler<'_> {
    /// Compiles the parser; returns its start.
    pub(super) fn compile_parser(&mut self) -> u32 {
        let mut starts = Vec::new();
        let mut jumps = Vec::new();
        for state in &self.program.parser.states {
            starts.push(self.position());
            self.compile_block(&state.body);
            self.patch_returns();
            self.used = 0;
            self.compile_transition(&state.next, &mut jumps);
        }
        let none = self.position();
        self.emit(Instruction::End);
        for (at, StateId(state)) in jumps {
            self.code.ops[at] = Instruction::Jump { to: starts[state as usize] };
        }
        starts.first().copied().unwrap_or(none)
    }

    fn compile_transition(&mut self, next: &Transition, jumps: &mut Vec<(usize, StateId)>) {
        match next {
            Transition::Accept => self.emit(Instruction::End),
            Transition::Reject(error) => self.emit(Instruction::Reject { error: *error }),
            Transition::To(state) => {
                jumps.push((self.code.ops.len(), *state));
                self.emit(Instruction::Jump { to: 0 });
            }
            Transition::Select { keys, cases } => {
                let keys: Vec<ValueId> = keys.iter().map(|key| self.compile_expr(key)).collect();
                let kept = self.used;
                for (values, to) in cases {
                    let mut misses = Vec::new();
                    for (key, value) in keys.iter().zip(values) {
                        self.used = kept;
                        self.jump_unless_match(*key, *value, &mut misses);
                    }
                    self.used = kept;
                    self.compile_transition(to, jumps);
                    self.patch_jumps(&misses);
                }
                self.emit(Instruction::Reject { error: super::NO_MATCH });
            }
        }
    }

    fn jump_unless_match(&mut self, key: ValueId, value: Keyset, misses: &mut Vec<usize>) {
        let mut unless = |this: &mut Self, op, left, right| {
            let right = this.new_constant(right);
            let to = this.new_temporary();
            this.emit(Instruction::Binary { op, to, left, right, width: 128, signed: false });
            misses.push(this.code.ops.len());
            this.emit(Instruction::JumpUnless { condition: to, to: 0 });
        };
        match value {
            Keyset::Any => {}
            Keyset::Mask(value, mask) => {
                let right = self.new_constant(mask);
                let to = self.new_temporary();
                self.emit(Instruction::Binary { op: Binary::And, to, left: key, right, width: 128, signed: false });
                unless(self, Binary::Eq, to, value & mask);
            }
            Keyset::Range(low, high) => {
                unless(self, Binary::Ge, key, low);
                unless(self, Binary::Le, key, high);
            }
        }
    }
}
