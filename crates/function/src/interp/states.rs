//! States of a parser as code with jumps.

use super::code::{Op, V};
use super::compile::Compiler;
use crate::ir::{Binary, StateId, Transition, Value};

impl Compiler<'_> {
    /// The code of the parser; where it starts.
    pub(super) fn parser(&mut self) -> u32 {
        let mut starts = Vec::new();
        let mut jumps = Vec::new();
        for state in &self.program.parser.states {
            starts.push(self.here());
            self.block(&state.body);
            self.leave();
            self.used = 0;
            self.transition(&state.next, &mut jumps);
        }
        let none = self.here();
        self.emit(Op::End);
        for (at, StateId(state)) in jumps {
            self.code.ops[at] = Op::Jump { to: starts[state as usize] };
        }
        starts.first().copied().unwrap_or(none)
    }

    fn transition(&mut self, next: &Transition, jumps: &mut Vec<(usize, StateId)>) {
        match next {
            Transition::Accept => self.emit(Op::End),
            Transition::Reject(error) => self.emit(Op::Reject { error: *error }),
            Transition::To(state) => {
                jumps.push((self.code.ops.len(), *state));
                self.emit(Op::Jump { to: 0 });
            }
            Transition::Select { keys, cases } => {
                let keys: Vec<V> = keys.iter().map(|key| self.expr(key)).collect();
                let kept = self.used;
                for (values, to) in cases {
                    let mut misses = Vec::new();
                    for (key, value) in keys.iter().zip(values) {
                        self.used = kept;
                        self.unless_matches(*key, *value, &mut misses);
                    }
                    self.used = kept;
                    self.transition(to, jumps);
                    self.point_here(&misses);
                }
                self.emit(Op::Reject { error: super::NO_MATCH });
            }
        }
    }

    fn unless_matches(&mut self, key: V, value: Value, misses: &mut Vec<usize>) {
        let mut unless = |this: &mut Self, op, left, right| {
            let right = this.constant(right);
            let to = this.temporary();
            this.emit(Op::Binary { op, to, left, right, width: 128, signed: false });
            misses.push(this.code.ops.len());
            this.emit(Op::JumpUnless { condition: to, to: 0 });
        };
        match value {
            Value::Any => {}
            Value::Mask(value, mask) => {
                let right = self.constant(mask);
                let to = self.temporary();
                self.emit(Op::Binary { op: Binary::And, to, left: key, right, width: 128, signed: false });
                unless(self, Binary::Eq, to, value & mask);
            }
            Value::Range(low, high) => {
                unless(self, Binary::Ge, key, low);
                unless(self, Binary::Le, key, high);
            }
        }
    }
}
