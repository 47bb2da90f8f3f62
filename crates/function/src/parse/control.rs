//! Controls and their tables.

use super::{Parsed, Parser};
use crate::ast::{Annotation, Control, Expr, Key, Local, Table};
use crate::diag::{Diagnostic, Reported};
use crate::lex::Kind;

/// Properties of tables that the subset has not, and what to do instead.
const REFUSED: [(&str, &str); 7] = [
    ("implementation", "an action profile or selector: give each entry its action, or choose by a hash in a key"),
    ("counters", "a direct counter: count in the action, in a `counter` with the entry's index as argument"),
    ("meters", "a direct meter: keep time and bytes in a `register`"),
    ("support_timeout", "write `idle_timeout = milliseconds;`"),
    ("largest_priority_wins", "only ternary entries have priorities"),
    ("priority_delta", "only ternary entries have priorities"),
    ("psa_implementation", "this is v1model"),
];

impl Parser<'_> {
    /// `control name(…) { … apply { … } }`
    pub(super) fn control(&mut self) -> Parsed<Control> {
        self.step();
        let name = self.name("a control's name")?;
        self.is_type(&name);
        let params = self.params()?;
        let constructor = if self.is("(") { self.params()? } else { Vec::new() };
        let mut body = None;
        let well = self.sink.len();
        let locals = self.braced(|parser| {
            if parser.is("apply") && parser.ahead(1).kind.is("{") {
                let at = parser.step().at;
                let block = parser.block()?;
                if body.replace(block).is_some() {
                    return parser.fail(Diagnostic::new(at, "a second `apply`"));
                }
                return Ok(None);
            }
            let before = parser.at;
            let annotations = parser.annotations()?;
            if parser.is("action") {
                return Ok(Some(Local::Action(parser.action()?)));
            }
            if parser.is("table") {
                return Ok(Some(Local::Table(parser.table(annotations)?)));
            }
            if !parser.is("const") && !parser.begins_declaration() {
                return parser.unexpected("`action`, `table`, `apply` or a declaration");
            }
            parser.at = before;
            Ok(Some(Local::Stmt(parser.statement()?)))
        })?;
        let Some(body) = body else {
            // It may be there, in what could not be read.
            if self.sink.len() > well {
                return Err(Reported);
            }
            let wrong = Diagnostic::new(name.at, format!("control `{}` has no `apply`", name.text));
            return self.fail(wrong.hint("write `apply { }`, also if nothing is done"));
        };
        Ok(Control { name, params, constructor, locals: locals.into_iter().flatten().collect(), body })
    }

    fn table(&mut self, annotations: Vec<Annotation>) -> Parsed<Table> {
        self.step();
        let name = self.name("a table's name")?;
        let mut table = Table {
            annotations,
            name,
            keys: Vec::new(),
            actions: Vec::new(),
            default: None,
            entries: Vec::new(),
            size: None,
            idle_timeout: None,
        };
        self.braced(|parser| parser.property(&mut table))?;
        Ok(table)
    }

    fn property(&mut self, table: &mut Table) -> Parsed<()> {
        self.annotations()?;
        self.eat("const");
        let Kind::Name(word) = self.kind().clone() else { return self.unexpected("a table's property") };
        let at = self.step().at;
        if let Some((refused, hint)) = REFUSED.iter().find(|(refused, _)| *refused == &*word) {
            let wrong = Diagnostic::new(at, format!("table property `{refused}` is not in the subset")).hint(*hint);
            return self.fail(wrong);
        }
        self.expect("=")?;
        match &*word {
            "key" => table.keys = self.braced(Self::key)?,
            "actions" => {
                table.actions = self.braced(|parser| {
                    parser.annotations()?;
                    let action = parser.operand()?;
                    parser.expect(";")?;
                    Ok(action)
                })?;
            }
            "entries" => table.entries = self.braced(Self::entry)?,
            "default_action" => table.default = Some(self.value()?),
            "size" => table.size = Some(self.value()?),
            "idle_timeout" => table.idle_timeout = Some(self.value()?),
            word => {
                let wrong = Diagnostic::new(at, format!("no table property `{word}`"));
                let hint = "there are key, actions, default_action, entries, size, idle_timeout";
                return self.fail(wrong.hint(hint));
            }
        }
        Ok(())
    }

    fn value(&mut self) -> Parsed<Expr> {
        let value = self.expr()?;
        self.expect(";")?;
        Ok(value)
    }

    /// `hdr.ipv4.dst: lpm;`
    fn key(&mut self) -> Parsed<Key> {
        let expr = self.expr()?;
        self.expect(":")?;
        let kind = self.name("`exact` or `lpm`")?;
        let annotations = self.annotations()?;
        self.expect(";")?;
        Ok(Key { expr, kind, annotations })
    }

    /// `(0x0800, 1): forward(2);`
    fn entry(&mut self) -> Parsed<(Vec<Expr>, Expr)> {
        if self.is("priority") {
            let wrong = Diagnostic::new(self.here(), "priorities of entries are not in the subset");
            return self.fail(wrong.hint("entries of exact and lpm tables have none"));
        }
        let keys = self.keysets()?;
        self.expect(":")?;
        let action = self.operand()?;
        self.annotations()?;
        self.expect(";")?;
        Ok((keys, action))
    }
}
