//! Tables.

use super::types::Type;
use super::{Checked, Checker, PipelinePart};
use crate::ast::{self, ExprKind};
use crate::diag::Diagnostic;
use crate::ir::{self, ActionId, Match, MatchKind, SlotId, SourceSpan, StmtKind, TableEntry, TableId, TableKey};
use std::rc::Rc;

/// Default size of a table, entries.
const SIZE: u32 = 1024;
/// Largest size of a table, entries.
const SIZE_MAX: u32 = 1 << 28;
/// Longest idle timeout, ms.
const IDLE_MAX_MS: u32 = u32::MAX;

/// Table, with the names of its actions for `switch`.
pub(super) struct TableItem {
    pub id: TableId,
    pub name: Rc<str>,
    pub actions: Vec<Rc<str>>,
}

impl<'a> Checker<'a> {
    /// Declares a table.
    pub(super) fn declare_table(&mut self, table: &'a ast::Table) -> Checked<TableItem> {
        let name = &table.name;
        let keys = self.check_table_keys(&table.keys);
        let actions = self.check_table_actions(&table.actions);
        let (keys, (mut ids, mut names)) = (keys?, actions?);
        let default = match &table.default {
            Some(default) => Some(default),
            None => {
                if !names.iter().any(|name| &**name == "NoAction") {
                    ids.push(self.no_action_id(name.at)?);
                    names.push("NoAction".into());
                }
                None
            }
        };
        let item =
            TableItem { id: TableId(self.program.tables.len() as u32), name: Rc::clone(&name.text), actions: names };
        let default = match default {
            Some(default) => self.check_action_call(default, &item, &ids),
            None => {
                let place = item.actions.iter().position(|name| &**name == "NoAction").unwrap_or(0);
                Ok((ids[place], Vec::new()))
            }
        };
        let entries = self.check_entries(&table.entries, &keys, &item, &ids);
        let default = default?;
        let size = match &table.size {
            Some(size) => self.eval_count(size, "table size", SIZE_MAX)?,
            None if entries.is_empty() => SIZE,
            None => entries.len() as u32,
        };
        let idle_timeout_ms = match &table.idle_timeout {
            Some(idle) => Some(u64::from(self.eval_count(idle, "idle timeout (ms)", IDLE_MAX_MS)?)),
            None => None,
        };
        let mirrored = table.annotations.iter().any(|annotation| &*annotation.name.text == "mirrored");
        if mirrored && keys.is_empty() {
            let wrong = Diagnostic::new(name.at, "a mirrored table needs a key");
            self.report(wrong.hint("servers and element identify its entries by their keys"));
        }
        let full = self.unique_name(&name.text);
        let keys = keys.into_iter().map(|(key, _)| key).collect();
        self.program.tables.push(ir::Table {
            name: full,
            keys,
            actions: ids,
            default,
            entries,
            size,
            mirrored,
            idle_timeout_ms,
            at: name.at,
        });
        Ok(item)
    }

    fn check_table_keys(&mut self, keys: &[ast::Key]) -> Checked<Vec<(TableKey, Type)>> {
        let mut known: Vec<(TableKey, Type)> = Vec::new();
        for key in keys {
            let (written, value) = self.collect_block(|checker| {
                let value = checker.check_expr(&key.expr)?;
                checker.load_scalar(&value, key.expr.at)
            });
            let (ty, expr) = value?;
            if !written.is_empty() {
                let wrong = Diagnostic::new(key.expr.at, "a key cannot contain a call");
                return self.fail(wrong.hint("assign its result to a variable before `apply`"));
            }
            let kind = match &*key.kind.text {
                "exact" => MatchKind::Exact,
                "lpm" => MatchKind::Lpm,
                "ternary" | "range" | "optional" | "selector" => {
                    let wrong = Diagnostic::new(key.kind.at, format!("`{}` keys are not supported", key.kind.text));
                    return self.fail(wrong.hint("supported match kinds: `exact` and `lpm`; compare ranges with `if`"));
                }
                other => {
                    let wrong = Diagnostic::new(key.kind.at, format!("unknown match kind `{other}`"));
                    return self.fail(wrong.hint("available: `exact` and `lpm`"));
                }
            };
            if kind == MatchKind::Lpm && !matches!(ty.base(), Type::Bit(_)) {
                return self.fail(
                    Diagnostic::new(key.expr.at, format!("an `lpm` key cannot have type `{ty}`"))
                        .hint("its type must be `bit`"),
                );
            }
            if kind == MatchKind::Lpm && known.iter().any(|(key, _)| key.kind == kind) {
                let wrong = Diagnostic::new(key.expr.at, "more than one `lpm` key");
                return self.fail(wrong.hint("join the values with `++`, the exact ones first"));
            }
            let named = key.annotations.iter().find(|annotation| &*annotation.name.text == "name");
            let name = match named.and_then(|annotation| annotation.text.as_ref()) {
                Some(name) => name.to_string(),
                None => self.sources.slice(key.expr.at).to_owned(),
            };
            known.push((TableKey { expr, kind, name }, ty));
        }
        Ok(known)
    }

    fn check_table_actions(&mut self, actions: &[ast::Expr]) -> Checked<(Vec<ActionId>, Vec<Rc<str>>)> {
        let (mut ids, mut names) = (Vec::new(), Vec::<Rc<str>>::new());
        for expr in actions {
            let (action, args, name) = self.resolve_action(expr)?;
            if names.contains(&name) {
                return self.fail(Diagnostic::new(expr.at, format!("duplicate action `{name}`")));
            }
            ids.push(self.add_table_action(&action, args, expr.at)?);
            names.push(name);
        }
        Ok((ids, names))
    }

    /// Default action of a table that declares none.
    fn no_action_id(&mut self, at: SourceSpan) -> Checked<ActionId> {
        match self.lookup("NoAction") {
            Some(super::Item::Action(action)) => self.add_table_action(&action, &[], at),
            _ => self.report_unknown(at, "NoAction", "action"),
        }
    }

    fn check_entries(
        &mut self,
        entries: &[(Vec<ast::Expr>, ast::Expr)],
        keys: &[(TableKey, Type)],
        item: &TableItem,
        ids: &[ActionId],
    ) -> Vec<TableEntry> {
        let mut known = Vec::new();
        for (values, action) in entries {
            let entry = self.check_entry(values, action, keys, item, ids);
            known.extend(entry);
        }
        known
    }

    fn check_entry(
        &mut self,
        values: &[ast::Expr],
        action: &ast::Expr,
        keys: &[(TableKey, Type)],
        item: &TableItem,
        ids: &[ActionId],
    ) -> Checked<TableEntry> {
        if values.len() != keys.len() {
            let wrong = format!("expected {} keys, found {}", keys.len(), values.len());
            return self.fail(Diagnostic::new(action.at, wrong));
        }
        let mut matches = Vec::new();
        for (value, (key, ty)) in values.iter().zip(keys) {
            matches.push(self.check_match(value, key.kind, ty)?);
        }
        let (action, args) = self.check_action_call(action, item, ids)?;
        Ok(TableEntry { keys: matches, action, args })
    }

    fn check_match(&mut self, value: &ast::Expr, kind: MatchKind, ty: &Type) -> Checked<Match> {
        let width = ty.scalar().map_or(1, |ty| ty.width());
        match (&value.kind, kind) {
            (ExprKind::Any, MatchKind::Lpm) => Ok(Match { value: 0, prefix_bits: 0 }),
            (ExprKind::Mask(of, mask), MatchKind::Lpm) => {
                let (bits, mask) = (self.eval_bits(of, ty)?, self.eval_bits(mask, ty)?);
                let prefix_bits = mask.count_ones() as u16;
                let whole = super::num::mask(width) & !super::num::mask(width - prefix_bits);
                if mask != if prefix_bits == 0 { 0 } else { whole } {
                    return self.fail(
                        Diagnostic::new(value.at, "the mask is not a prefix")
                            .hint("the high bits of a prefix are 1, the others 0"),
                    );
                }
                Ok(Match { value: bits & mask, prefix_bits })
            }
            (ExprKind::Any | ExprKind::Mask(..) | ExprKind::Range(..), _) => {
                let wrong = Diagnostic::new(value.at, "an exact key can match only one value");
                self.fail(wrong.hint("write an entry for each value"))
            }
            _ => Ok(Match { value: self.eval_bits(value, ty)?, prefix_bits: width }),
        }
    }

    /// Checks `table.apply();`.
    pub(super) fn emit_apply(&mut self, table: &TableItem, args: &[ast::Arg], at: SourceSpan) -> Checked<()> {
        self.emit_apply_with(table, args, None, None, at)
    }

    pub(super) fn emit_apply_with(
        &mut self,
        table: &TableItem,
        args: &[ast::Arg],
        hit: Option<SlotId>,
        action: Option<SlotId>,
        at: SourceSpan,
    ) -> Checked<()> {
        let [] = self.expect_arguments(args, &format!("{}.apply()", table.name), at)?;
        if self.in_action
            || !matches!(self.within, PipelinePart::Ingress | PipelinePart::Egress)
            || !self.results.is_empty()
        {
            let wrong = Diagnostic::new(at, format!("table `{}` cannot be applied here", table.name));
            return self
                .fail(wrong.hint("apply tables in the `apply` block of ingress, egress or a control that they use"));
        }
        self.emit(StmtKind::Apply { table: table.id, hit, action }, at);
        Ok(())
    }
}
