//! Control declarations and tables.

use super::{Parsed, Parser};
use crate::ast::{Annotation, Control, Expr, Key, Local, Table};
use crate::diag::{Diagnostic, Reported};
use crate::lex::TokenKind;

/// Table properties that the subset lacks, with the suggested replacement.
const REFUSED: [(&str, &str); 7] = [
    ("implementation", "instead of an action profile or selector, give each entry its action, or use a hash as a key"),
    ("counters", "instead of a direct counter, count in the action with a `counter` indexed by action data"),
    ("meters", "instead of a direct meter, store time and bytes in a `register`"),
    ("support_timeout", "write `idle_timeout = milliseconds;`"),
    ("largest_priority_wins", "only ternary entries have priorities"),
    ("priority_delta", "only ternary entries have priorities"),
    ("psa_implementation", "the architecture is v1model"),
];

impl Parser<'_> {
    /// Parses `control name(…) { … apply { … } }`.
    pub(super) fn parse_control(&mut self) -> Parsed<Control> {
        self.advance();
        let name = self.parse_name("a control name")?;
        self.add_type(&name);
        let params = self.parse_params()?;
        let constructor = if self.is("(") { self.parse_params()? } else { Vec::new() };
        let mut body = None;
        let well = self.sink.len();
        let locals = self.parse_braced(|parser| {
            if parser.is("apply") && parser.peek(1).kind.is("{") {
                let at = parser.advance().at;
                let block = parser.parse_block()?;
                if body.replace(block).is_some() {
                    return parser.fail(Diagnostic::new(at, "duplicate `apply`"));
                }
                return Ok(None);
            }
            let before = parser.at;
            let annotations = parser.parse_annotations()?;
            if parser.is("action") {
                return Ok(Some(Local::Action(parser.parse_action()?)));
            }
            if parser.is("table") {
                return Ok(Some(Local::Table(parser.parse_table(annotations)?)));
            }
            if !parser.is("const") && !parser.begins_declaration() {
                return parser.report_unexpected("`action`, `table`, `apply` or a declaration");
            }
            parser.at = before;
            Ok(Some(Local::Stmt(parser.parse_statement()?)))
        })?;
        let Some(body) = body else {
            // The `apply` block may be within the text that could not be parsed.
            if self.sink.len() > well {
                return Err(Reported);
            }
            let wrong = Diagnostic::new(name.at, format!("control `{}` has no `apply` block", name.text));
            return self.fail(wrong.hint("add an empty block: `apply { }`"));
        };
        Ok(Control { name, params, constructor, locals: locals.into_iter().flatten().collect(), body })
    }

    fn parse_table(&mut self, annotations: Vec<Annotation>) -> Parsed<Table> {
        self.advance();
        let name = self.parse_name("a table name")?;
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
        self.parse_braced(|parser| parser.parse_property(&mut table))?;
        Ok(table)
    }

    fn parse_property(&mut self, table: &mut Table) -> Parsed<()> {
        self.parse_annotations()?;
        self.eat("const");
        let TokenKind::Name(word) = self.kind().clone() else { return self.report_unexpected("a table property") };
        let at = self.advance().at;
        if let Some((refused, hint)) = REFUSED.iter().find(|(refused, _)| *refused == &*word) {
            let wrong = Diagnostic::new(at, format!("table property `{refused}` is not supported")).hint(*hint);
            return self.fail(wrong);
        }
        self.expect("=")?;
        match &*word {
            "key" => table.keys = self.parse_braced(Self::parse_key)?,
            "actions" => {
                table.actions = self.parse_braced(|parser| {
                    parser.parse_annotations()?;
                    let action = parser.parse_operand()?;
                    parser.expect(";")?;
                    Ok(action)
                })?;
            }
            "entries" => table.entries = self.parse_braced(Self::parse_entry)?,
            "default_action" => table.default = Some(self.parse_value()?),
            "size" => table.size = Some(self.parse_value()?),
            "idle_timeout" => table.idle_timeout = Some(self.parse_value()?),
            word => {
                let wrong = Diagnostic::new(at, format!("unknown table property `{word}`"));
                let hint = "available: key, actions, default_action, entries, size, idle_timeout";
                return self.fail(wrong.hint(hint));
            }
        }
        Ok(())
    }

    fn parse_value(&mut self) -> Parsed<Expr> {
        let value = self.parse_expr()?;
        self.expect(";")?;
        Ok(value)
    }

    /// Parses `hdr.ipv4.dst: lpm;`.
    fn parse_key(&mut self) -> Parsed<Key> {
        let expr = self.parse_expr()?;
        self.expect(":")?;
        let kind = self.parse_name("`exact` or `lpm`")?;
        let annotations = self.parse_annotations()?;
        self.expect(";")?;
        Ok(Key { expr, kind, annotations })
    }

    /// Parses `(0x0800, 1): forward(2);`.
    fn parse_entry(&mut self) -> Parsed<(Vec<Expr>, Expr)> {
        if self.is("priority") {
            let wrong = Diagnostic::new(self.current_span(), "priorities of entries are not supported");
            return self.fail(wrong.hint("entries of exact and lpm tables have no priority"));
        }
        let keys = self.parse_keysets()?;
        self.expect(":")?;
        let action = self.parse_operand()?;
        self.parse_annotations()?;
        self.expect(";")?;
        Ok((keys, action))
    }
}
