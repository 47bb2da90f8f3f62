//! Parser in C: a label per state, a cursor, and a bounds check before each header.

use super::bits::load;
use super::plan::Plan;
use super::stmt::TOO_SHORT;
use super::{Emitter, Unsupported};
use crate::emit::visit;
use crate::ir::{Expr, ExprKind, HeaderId, Keyset, StateId, Transition};

/// `NoMatch` of P4_16's core errors.
const NO_MATCH: u16 = 2;
/// `HeaderTooShort`.
const HEADER_TOO_SHORT: u16 = 4;
/// `ParserInvalidArgument`.
const INVALID_ARGUMENT: u16 = 6;
/// `ParserTimeout`.
const TIMEOUT: u16 = 5;
/// Largest packet, bits.
const BITS_MAX: u32 = 8 * 4096;

impl Emitter<'_> {
    pub(super) fn emit_parser(&mut self) -> Result<(), Unsupported> {
        let program = self.plan.program;
        // A `return` or `exit` leaves only the state's body.
        self.exit = "parsed";
        self.parsing = true;
        let loops = self.plan.has_parser_cycle();
        if loops {
            self.write_line(&format!("bpf_iter_num_new(ROUNDS, 0, {});", crate::exec::PARSER_ROUNDS_MAX));
        }
        for (i, state) in program.parser.states.iter().enumerate() {
            self.begin_construct(
                format!("state {}", state.name),
                state.body.first().map_or_else(Default::default, |s| s.at),
            );
            self.write_line("");
            self.write_line(&format!("state_{i}:; /* {} */", comment(&state.name)));
            self.state = i as u32;
            self.emit_body(&state.body)?;
            self.write_braced("", |this| this.emit_transition(&state.next));
        }
        self.begin_construct("the parser's end", Default::default());
        self.write_line("");
        self.write_line("parsed:;");
        if loops {
            self.write_line("bpf_iter_num_destroy(ROUNDS);");
        }
        self.parsing = false;
        if let Some(slot) = self.plan.standard(crate::ir::StandardField::ParserError) {
            let line = format!("{} = error;", self.plan.slot(slot));
            self.write_line(&line);
        }
        Ok(())
    }

    fn emit_transition(&mut self, next: &Transition) {
        match next {
            Transition::Accept => self.write_line("goto parsed;"),
            Transition::Reject(error) => {
                self.write_line(&format!("error = {error};"));
                self.write_line("goto parsed;");
            }
            Transition::To(StateId(state)) => {
                // As in the interpreter, backward transitions are counted.
                if self.plan.has_parser_cycle() && *state <= self.state {
                    self.emit_parser_error("!bpf_iter_num_next(ROUNDS)", TIMEOUT);
                }
                self.write_line(&format!("goto state_{state};"));
            }
            Transition::Select { keys, cases } => {
                self.emit_bounds_check(&keys.iter().collect::<Vec<_>>());
                let label = self.new_label();
                for (i, key) in keys.iter().enumerate() {
                    self.emit_variable(&format!("on_{label}_{i}"), key);
                }
                for (values, to) in cases {
                    let conditions = values
                        .iter()
                        .enumerate()
                        .filter_map(|(i, value)| matches(&format!("on_{label}_{i}"), keys[i].ty.width(), *value));
                    let all = conditions.collect::<Vec<_>>().join(" && ");
                    if all.is_empty() {
                        self.emit_transition(to);
                        // Cases after `default` are unreachable.
                        return;
                    }
                    self.write_braced(&format!("if ({all})"), |this| this.emit_transition(to));
                }
                self.emit_transition(&Transition::Reject(NO_MATCH));
            }
        }
    }

    /// Emits the bounds check for lookaheads in these expressions.
    pub(super) fn emit_bounds_check(&mut self, exprs: &[&Expr]) {
        let mut needed = 0;
        for expr in exprs {
            visit::inside(expr, &mut |inside| {
                if let ExprKind::Lookahead { skip } = inside.kind {
                    needed = needed.max(skip + u32::from(inside.ty.width()));
                }
            });
        }
        if needed > 0 {
            self.emit_take(needed.div_ceil(8));
        }
    }

    /// Emits `at`, the cursor's address, with a bounds check for `bytes` bytes.
    fn emit_take(&mut self, bytes: u32) {
        let cur = self.plan.packet_variable("cur");
        self.write_line(&format!("at = PLACE({cur});"));
        self.emit_parser_error(&format!("at + {bytes} > end"), TOO_SHORT);
    }

    pub(super) fn emit_extract(&mut self, header: HeaderId, varbits: Option<&Expr>) {
        let plan = &self.plan.headers[header.0 as usize];
        let (bytes, most, apart) = (plan.bytes, plan.varbytes_max, plan.apart.clone());
        let (off, var) = (self.plan.header_offset(header), self.plan.varbit_bytes(header));
        let (label, cur) = (self.new_label(), self.plan.packet_variable("cur"));
        if let Some(varbits) = varbits {
            self.emit_bounds_check(&[varbits]);
            self.emit_variable(&format!("bits_{label}"), varbits);
            self.emit_parser_error(&format!("bits_{label} > {}", most * 8), HEADER_TOO_SHORT);
            self.emit_parser_error(&format!("bits_{label} & 7"), INVALID_ARGUMENT);
            self.emit_parser_error(&format!("{cur} + {bytes} + bits_{label} / 8 > length"), TOO_SHORT);
        }
        self.emit_take(bytes as u32);
        self.write_line(&format!("{off} = {cur};"));
        if !apart.is_empty() && self.plan.has_unique_dirty_bits() {
            let line = format!("{} &= ~{};", self.plan.packet_variable("dirty"), Plan::dirty_bit(header));
            self.write_line(&line);
        }
        for (slot, first) in apart {
            let line = format!("{} = {};", self.plan.slot(slot), load("at", first, self.plan.program.width(slot)));
            self.write_line(&line);
        }
        self.write_line(&format!("{cur} += {bytes};"));
        if varbits.is_some() {
            self.write_line(&format!("{var} = bits_{label} / 8;"));
            self.write_line(&format!("{cur} += bits_{label} / 8;"));
        } else if self.has_varbit(header) {
            self.write_line(&format!("{var} = 0;"));
        }
    }

    pub(super) fn emit_advance(&mut self, by: &Expr) {
        self.emit_bounds_check(&[by]);
        let (label, cur) = (self.new_label(), self.plan.packet_variable("cur"));
        self.emit_variable(&format!("bits_{label}"), by);
        let too_short = format!("bits_{label} > {BITS_MAX} || {cur} * 8 + (__u32)bits_{label} > length * 8");
        self.emit_parser_error(&too_short, TOO_SHORT);
        let loops = self.plan.has_parser_cycle();
        self.write_braced(&format!("if (bits_{label} & 7)"), |this| {
            if loops {
                this.write_line("bpf_iter_num_destroy(ROUNDS);");
            }
            this.write_line("return lose(ODD_BITS);");
        });
        self.write_line(&format!("{cur} = WITHIN({cur} + bits_{label} / 8);"));
    }
}

/// Condition for a key to match; `None` if all values match.
fn matches(key: &str, width: u16, value: Keyset) -> Option<String> {
    let number = |value| super::bits::number(value, width);
    let all = super::layout::mask(width);
    match value {
        Keyset::Any => None,
        Keyset::Mask(_, mask) if mask & all == 0 => None,
        Keyset::Mask(value, mask) if mask & all == all => Some(format!("{key} == {}", number(value))),
        Keyset::Mask(value, mask) => Some(format!("({key} & {}) == {}", number(mask & all), number(value & mask))),
        Keyset::Range(low, high) if low == high => Some(format!("{key} == {}", number(low))),
        Keyset::Range(low, high) => Some(format!("{key} >= {} && {key} <= {}", number(low), number(high))),
    }
}

/// Name that is safe within a C comment.
pub(super) fn comment(name: &str) -> String {
    name.replace("*/", "* /")
}
