//! Tables.

use super::types::Type;
use super::{Checked, Checker, Within};
use crate::ast::{self, ExprKind};
use crate::diag::Diagnostic;
use crate::ir::{self, ActionId, Entry, Key, Match, MatchKind, SlotId, Span, StmtKind, TableId};
use std::rc::Rc;

/// Entries of a table that does not say how many.
const SIZE: u32 = 1024;
/// The largest table.
const SIZE_MAX: u32 = 1 << 28;
/// The longest time without a match, milliseconds.
const IDLE_MAX_MS: u32 = u32::MAX;

/// A table, and its actions as `switch` names them.
pub(super) struct TableItem {
    pub id: TableId,
    pub name: Rc<str>,
    pub actions: Vec<Rc<str>>,
}

impl<'a> Checker<'a> {
    /// Declares a table.
    pub(super) fn table(&mut self, table: &'a ast::Table) -> Checked<TableItem> {
        let name = &table.name;
        let keys = self.keys(&table.keys);
        let actions = self.table_actions(&table.actions);
        let (keys, (mut ids, mut names)) = (keys?, actions?);
        let default = match &table.default {
            Some(default) => Some(default),
            None => {
                if !names.iter().any(|name| &**name == "NoAction") {
                    ids.push(self.no_action(name.at)?);
                    names.push("NoAction".into());
                }
                None
            }
        };
        let item =
            TableItem { id: TableId(self.program.tables.len() as u32), name: Rc::clone(&name.text), actions: names };
        let default = match default {
            Some(default) => self.action_call(default, &item, &ids),
            None => {
                let place = item.actions.iter().position(|name| &**name == "NoAction").unwrap_or(0);
                Ok((ids[place], Vec::new()))
            }
        };
        let entries = self.entries(&table.entries, &keys, &item, &ids);
        let default = default?;
        let size = match &table.size {
            Some(size) => self.count(size, "a table's size", SIZE_MAX)?,
            None if entries.is_empty() => SIZE,
            None => entries.len() as u32,
        };
        let idle_timeout_ms = match &table.idle_timeout {
            Some(idle) => Some(u64::from(self.count(idle, "a table's idle time-out (milliseconds)", IDLE_MAX_MS)?)),
            None => None,
        };
        let mirrored = table.annotations.iter().any(|annotation| &*annotation.name.text == "mirrored");
        if mirrored && keys.is_empty() {
            let wrong = Diagnostic::new(name.at, "a mirrored table without a key");
            self.tell(wrong.hint("servers and element share its entries by their keys"));
        }
        let full = self.unique(&name.text);
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

    fn keys(&mut self, keys: &[ast::Key]) -> Checked<Vec<(Key, Type)>> {
        let mut known: Vec<(Key, Type)> = Vec::new();
        for key in keys {
            let (written, value) = self.apart(|checker| {
                let value = checker.expr(&key.expr)?;
                checker.scalar(&value, key.expr.at)
            });
            let (ty, expr) = value?;
            if !written.is_empty() {
                let wrong = Diagnostic::new(key.expr.at, "a key that calls something");
                return self.fail(wrong.hint("put its result into a variable before `apply`"));
            }
            let kind = match &*key.kind.text {
                "exact" => MatchKind::Exact,
                "lpm" => MatchKind::Lpm,
                "ternary" | "range" | "optional" | "selector" => {
                    let wrong = Diagnostic::new(key.kind.at, format!("`{}` keys are not in the subset", key.kind.text));
                    return self.fail(wrong.hint("tables match `exact` and `lpm`; compare ranges by `if`"));
                }
                other => {
                    let wrong = Diagnostic::new(key.kind.at, format!("no match kind `{other}`"));
                    return self.fail(wrong.hint("there are `exact` and `lpm`"));
                }
            };
            if kind == MatchKind::Lpm && !matches!(ty.base(), Type::Bit(_)) {
                return self
                    .fail(Diagnostic::new(key.expr.at, format!("a prefix of a `{ty}`")).hint("it is of a `bit`"));
            }
            if kind == MatchKind::Lpm && known.iter().any(|(key, _)| key.kind == kind) {
                let wrong = Diagnostic::new(key.expr.at, "a second `lpm` key");
                return self.fail(wrong.hint("a table has one at most: join the values by `++`, the exact ones first"));
            }
            let named = key.annotations.iter().find(|annotation| &*annotation.name.text == "name");
            let name = match named.and_then(|annotation| annotation.text.as_ref()) {
                Some(name) => name.to_string(),
                None => self.sources.slice(key.expr.at).to_owned(),
            };
            known.push((Key { expr, kind, name }, ty));
        }
        Ok(known)
    }

    fn table_actions(&mut self, actions: &[ast::Expr]) -> Checked<(Vec<ActionId>, Vec<Rc<str>>)> {
        let (mut ids, mut names) = (Vec::new(), Vec::<Rc<str>>::new());
        for expr in actions {
            let (action, args, name) = self.action_named(expr)?;
            if names.contains(&name) {
                return self.fail(Diagnostic::new(expr.at, format!("action `{name}` a second time")));
            }
            ids.push(self.table_action(&action, args, expr.at)?);
            names.push(name);
        }
        Ok((ids, names))
    }

    /// What a table without a default does on a miss.
    fn no_action(&mut self, at: Span) -> Checked<ActionId> {
        match self.lookup("NoAction") {
            Some(super::Item::Action(action)) => self.table_action(&action, &[], at),
            _ => self.unknown(at, "NoAction", "action"),
        }
    }

    fn entries(
        &mut self,
        entries: &[(Vec<ast::Expr>, ast::Expr)],
        keys: &[(Key, Type)],
        item: &TableItem,
        ids: &[ActionId],
    ) -> Vec<Entry> {
        let mut known = Vec::new();
        for (values, action) in entries {
            let entry = self.entry(values, action, keys, item, ids);
            known.extend(entry);
        }
        known
    }

    fn entry(
        &mut self,
        values: &[ast::Expr],
        action: &ast::Expr,
        keys: &[(Key, Type)],
        item: &TableItem,
        ids: &[ActionId],
    ) -> Checked<Entry> {
        if values.len() != keys.len() {
            let wrong = format!("expected {} keys, found {}", keys.len(), values.len());
            return self.fail(Diagnostic::new(action.at, wrong));
        }
        let mut matches = Vec::new();
        for (value, (key, ty)) in values.iter().zip(keys) {
            matches.push(self.matched(value, key.kind, ty)?);
        }
        let (action, args) = self.action_call(action, item, ids)?;
        Ok(Entry { keys: matches, action, args })
    }

    fn matched(&mut self, value: &ast::Expr, kind: MatchKind, ty: &Type) -> Checked<Match> {
        let width = ty.scalar().map_or(1, |ty| ty.width());
        match (&value.kind, kind) {
            (ExprKind::Any, MatchKind::Lpm) => Ok(Match { value: 0, prefix_bits: 0 }),
            (ExprKind::Mask(of, mask), MatchKind::Lpm) => {
                let (bits, mask) = (self.known(of, ty)?, self.known(mask, ty)?);
                let prefix_bits = mask.count_ones() as u16;
                let whole = super::num::mask(width) & !super::num::mask(width - prefix_bits);
                if mask != if prefix_bits == 0 { 0 } else { whole } {
                    return self
                        .fail(Diagnostic::new(value.at, "a mask that is no prefix").hint("its highest bits are 1"));
                }
                Ok(Match { value: bits & mask, prefix_bits })
            }
            (ExprKind::Any | ExprKind::Mask(..) | ExprKind::Range(..), _) => {
                let wrong = Diagnostic::new(value.at, "an exact key matches one value");
                self.fail(wrong.hint("write an entry for each value"))
            }
            _ => Ok(Match { value: self.known(value, ty)?, prefix_bits: width }),
        }
    }

    /// `table.apply();`
    pub(super) fn apply_table(&mut self, table: &TableItem, args: &[ast::Arg], at: Span) -> Checked<()> {
        self.apply_with(table, args, None, None, at)
    }

    pub(super) fn apply_with(
        &mut self,
        table: &TableItem,
        args: &[ast::Arg],
        hit: Option<SlotId>,
        action: Option<SlotId>,
        at: Span,
    ) -> Checked<()> {
        let [] = self.arguments(args, &format!("{}.apply()", table.name), at)?;
        if self.in_action || !matches!(self.within, Within::Ingress | Within::Egress) || !self.results.is_empty() {
            let wrong = Diagnostic::new(at, format!("table `{}` is applied here", table.name));
            return self.fail(wrong.hint("tables are applied in `apply` of ingress, egress and the controls they use"));
        }
        self.emit(StmtKind::Apply { table: table.id, hit, action }, at);
        Ok(())
    }
}
