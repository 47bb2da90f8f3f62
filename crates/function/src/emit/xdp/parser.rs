//! The parser in C: a label for each state, a cursor, and a check of the packet's end before each header.

use super::bits::load;
use super::plan::Plan;
use super::stmt::TOO_SHORT;
use super::{Emitter, Unsupported};
use crate::emit::walk;
use crate::ir::{Expr, ExprKind, HeaderId, StateId, Transition, Value};

/// `NoMatch` of P4_16's core errors.
const NO_MATCH: u16 = 2;
/// `HeaderTooShort`.
const HEADER_TOO_SHORT: u16 = 4;
/// `ParserInvalidArgument`.
const INVALID_ARGUMENT: u16 = 6;
/// `ParserTimeout`.
const TIMEOUT: u16 = 5;
/// Bits that a packet may have.
const BITS_MAX: u32 = 8 * 4096;

impl Emitter<'_> {
    pub(super) fn parser(&mut self) -> Result<(), Unsupported> {
        let program = self.plan.program;
        // A `return` or an `exit` leaves the state's body for nowhere else.
        self.exit = "parsed";
        self.parsing = true;
        let loops = self.plan.loops();
        if loops {
            self.line(&format!("bpf_iter_num_new(ROUNDS, 0, {});", crate::exec::PARSER_ROUNDS_MAX));
        }
        for (i, state) in program.parser.states.iter().enumerate() {
            self.construct(format!("state {}", state.name), state.body.first().map_or_else(Default::default, |s| s.at));
            self.line("");
            self.line(&format!("state_{i}:; /* {} */", comment(&state.name)));
            self.state = i as u32;
            self.body(&state.body)?;
            self.braced("", |this| this.transition(&state.next));
        }
        self.construct("the parser's end", Default::default());
        self.line("");
        self.line("parsed:;");
        if loops {
            self.line("bpf_iter_num_destroy(ROUNDS);");
        }
        self.parsing = false;
        if let Some(slot) = self.plan.standard(crate::ir::Standard::ParserError) {
            let line = format!("{} = error;", self.plan.slot(slot));
            self.line(&line);
        }
        Ok(())
    }

    fn transition(&mut self, next: &Transition) {
        match next {
            Transition::Accept => self.line("goto parsed;"),
            Transition::Reject(error) => {
                self.line(&format!("error = {error};"));
                self.line("goto parsed;");
            }
            Transition::To(StateId(state)) => {
                // As the interpreter counts: what goes back.
                if self.plan.loops() && *state <= self.state {
                    self.fail("!bpf_iter_num_next(ROUNDS)", TIMEOUT);
                }
                self.line(&format!("goto state_{state};"));
            }
            Transition::Select { keys, cases } => {
                self.look_ahead(&keys.iter().collect::<Vec<_>>());
                let label = self.label();
                for (i, key) in keys.iter().enumerate() {
                    self.variable(&format!("on_{label}_{i}"), key);
                }
                for (values, to) in cases {
                    let conditions = values
                        .iter()
                        .enumerate()
                        .filter_map(|(i, value)| matches(&format!("on_{label}_{i}"), keys[i].ty.width(), *value));
                    let all = conditions.collect::<Vec<_>>().join(" && ");
                    if all.is_empty() {
                        self.transition(to);
                        // What follows is never looked at.
                        return;
                    }
                    self.braced(&format!("if ({all})"), |this| this.transition(to));
                }
                self.transition(&Transition::Reject(NO_MATCH));
            }
        }
    }

    /// Makes sure that what these expressions look ahead at is there.
    pub(super) fn look_ahead(&mut self, exprs: &[&Expr]) {
        let mut needed = 0;
        for expr in exprs {
            walk::inside(expr, &mut |inside| {
                if let ExprKind::Lookahead { skip } = inside.kind {
                    needed = needed.max(skip + u32::from(inside.ty.width()));
                }
            });
        }
        if needed > 0 {
            self.take(needed.div_ceil(8));
        }
    }

    /// Makes `at` the cursor's place, with so many bytes behind it.
    fn take(&mut self, bytes: u32) {
        let cur = self.plan.held("cur");
        self.line(&format!("at = PLACE({cur});"));
        self.fail(&format!("at + {bytes} > end"), TOO_SHORT);
    }

    pub(super) fn extract(&mut self, header: HeaderId, varbits: Option<&Expr>) {
        let plan = &self.plan.headers[header.0 as usize];
        let (bytes, most, apart) = (plan.bytes, plan.varbytes_max, plan.apart.clone());
        let (off, var) = (self.plan.off(header), self.plan.var(header));
        let (label, cur) = (self.label(), self.plan.held("cur"));
        if let Some(varbits) = varbits {
            self.look_ahead(&[varbits]);
            self.variable(&format!("bits_{label}"), varbits);
            self.fail(&format!("bits_{label} > {}", most * 8), HEADER_TOO_SHORT);
            self.fail(&format!("bits_{label} & 7"), INVALID_ARGUMENT);
            self.fail(&format!("{cur} + {bytes} + bits_{label} / 8 > length"), TOO_SHORT);
        }
        self.take(bytes as u32);
        self.line(&format!("{off} = {cur};"));
        if !apart.is_empty() && self.plan.tells_dirt() {
            let line = format!("{} &= ~{};", self.plan.held("dirty"), Plan::dirt(header));
            self.line(&line);
        }
        for (slot, first) in apart {
            let line = format!("{} = {};", self.plan.slot(slot), load("at", first, self.plan.program.width(slot)));
            self.line(&line);
        }
        self.line(&format!("{cur} += {bytes};"));
        if varbits.is_some() {
            self.line(&format!("{var} = bits_{label} / 8;"));
            self.line(&format!("{cur} += bits_{label} / 8;"));
        } else if self.has_varbit(header) {
            self.line(&format!("{var} = 0;"));
        }
    }

    pub(super) fn advance(&mut self, by: &Expr) {
        self.look_ahead(&[by]);
        let (label, cur) = (self.label(), self.plan.held("cur"));
        self.variable(&format!("bits_{label}"), by);
        let too_short = format!("bits_{label} > {BITS_MAX} || {cur} * 8 + (__u32)bits_{label} > length * 8");
        self.fail(&too_short, TOO_SHORT);
        let loops = self.plan.loops();
        self.braced(&format!("if (bits_{label} & 7)"), |this| {
            if loops {
                this.line("bpf_iter_num_destroy(ROUNDS);");
            }
            this.line("return lose(ODD_BITS);");
        });
        self.line(&format!("{cur} = WITHIN({cur} + bits_{label} / 8);"));
    }
}

/// The condition under which a key has a value that matches; none if all do.
fn matches(key: &str, width: u16, value: Value) -> Option<String> {
    let number = |value| super::bits::number(value, width);
    let all = super::layout::mask(width);
    match value {
        Value::Any => None,
        Value::Mask(_, mask) if mask & all == 0 => None,
        Value::Mask(value, mask) if mask & all == all => Some(format!("{key} == {}", number(value))),
        Value::Mask(value, mask) => Some(format!("({key} & {}) == {}", number(mask & all), number(value & mask))),
        Value::Range(low, high) if low == high => Some(format!("{key} == {}", number(low))),
        Value::Range(low, high) => Some(format!("{key} >= {} && {key} <= {}", number(low), number(high))),
    }
}

/// A name that may stand in a comment.
pub(super) fn comment(name: &str) -> String {
    name.replace("*/", "* /")
}
