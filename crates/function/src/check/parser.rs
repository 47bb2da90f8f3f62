//! Parsers: states, one for each way that header stacks may be filled; parsers that they use put in place.

use super::inline::extended;
use super::value::Val;
use super::{Checked, Checker, Instance, Instantiated, Item, Scope, Within};
use crate::ast;
use crate::diag::{Diagnostic, Reported};
use crate::ir::{self, HeaderId, State, StateId, Transition};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// States of one program.
const STATES_MAX: usize = 4096;
/// How deep parsers use one another.
const FRAMES_DEEP_MAX: usize = 16;

/// A state and how it is reached: each such pair becomes one state of the program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Reached {
    frame: usize,
    state: usize,
    /// Statements of it that have been done: a parser was applied, and is through.
    done: usize,
    /// That parser at work, whose end leads here.
    via: Option<usize>,
    fill: BTreeMap<HeaderId, u32>,
}

/// A parser at work.
struct Frame<'a> {
    parser: &'a ast::Parser,
    /// All but the top of the file.
    scopes: Vec<Scope<'a>>,
    path: String,
    /// Where it goes on after `accept`, with the variables of that state.
    back: Option<(Reached, Scope<'a>)>,
    depth: usize,
}

/// Parsers at work.
#[derive(Default)]
pub(super) struct Parsing<'a> {
    frames: Vec<Frame<'a>>,
    known: HashMap<Reached, StateId>,
    /// Reached, and not yet written.
    waiting: Vec<(Reached, StateId)>,
    states: Vec<State>,
}

impl<'a> Checker<'a> {
    /// The program's parser; its parameters are bound in a scope of their own.
    pub(super) fn parse(&mut self, parser: &'a ast::Parser, items: Vec<(ast::Name, Item<'a>)>) {
        self.used.insert(std::ptr::from_ref(parser).cast());
        self.within = Within::Parser;
        self.parsing = Some(Parsing::default());
        let (first, scopes) = self.apart(|checker| {
            checker.scoped(|checker| {
                checker.bind_all(items);
                checker.statements(&parser.locals);
                checker.scopes[1..].to_vec()
            })
        });
        self.frame(Frame { parser, scopes, path: self.path.clone(), back: None, depth: 0 });
        let entry = self.state_named(0, "start", parser.name.at, &BTreeMap::new());
        let start = match entry {
            Ok(transition) if first.is_empty() => Some(transition),
            Ok(transition) => {
                // What variables begin with is written once, before `start`, which states may come back to.
                self.with_parsing(|parsing| {
                    parsing.states.push(State { name: "begin".to_owned(), body: first, next: transition });
                });
                None
            }
            Err(Reported) => None,
        };
        while let Some((reached, id)) = self.with_parsing(|parsing| parsing.waiting.pop()) {
            let (body, next) = self.state(&reached);
            self.with_parsing(|parsing| {
                let state = &mut parsing.states[id.0 as usize];
                state.body = body;
                state.next = next;
            });
        }
        self.unreached(parser);
        if let Some(parsing) = self.parsing.take() {
            self.program.parser.states = in_order(parsing.states, start.is_none());
        }
        self.fill.clear();
    }

    fn with_parsing<T>(&mut self, work: impl FnOnce(&mut Parsing<'a>) -> T) -> T {
        work(self.parsing.get_or_insert_default())
    }

    fn frame(&mut self, frame: Frame<'a>) -> usize {
        self.with_parsing(|parsing| {
            parsing.frames.push(frame);
            parsing.frames.len() - 1
        })
    }

    /// One state: its statements and where to.
    fn state(&mut self, reached: &Reached) -> (ir::Block, Transition) {
        let (parser, scopes, path, resumed) = self.with_parsing(|parsing| {
            let frame = &parsing.frames[reached.frame];
            let resumed = reached.via.and_then(|via| parsing.frames[via].back.as_ref());
            (frame.parser, frame.scopes.clone(), frame.path.clone(), resumed.map(|(_, scope)| scope.clone()))
        });
        let state = &parser.states[reached.state];
        self.used.insert(std::ptr::from_ref(state).cast());
        self.scopes.truncate(1);
        self.scopes.extend(scopes);
        self.scopes.push(resumed.unwrap_or_default());
        self.path = path;
        self.fill = reached.fill.clone();
        let result = self.apart(|checker| {
            for (n, stmt) in state.body.iter().enumerate().skip(reached.done) {
                if let Some((instance, args)) = checker.applies_parser(stmt) {
                    return checker.enter(reached, n + 1, &instance, args, stmt.at);
                }
                let _told = checker.statement(stmt);
            }
            let fill = checker.fill.clone();
            match &state.transition {
                None => Ok(Transition::Reject(0)),
                Some(ast::Transition::To(name)) => checker.state_named(reached.frame, &name.text, name.at, &fill),
                Some(ast::Transition::Select { keys, cases, at }) => {
                    checker.select(keys, cases, *at, &mut |checker, name| {
                        checker.state_named(reached.frame, &name.text, name.at, &fill)
                    })
                }
            }
        });
        self.scopes.truncate(1);
        (result.0, result.1.unwrap_or(Transition::Reject(super::packet::STACK_OUT_OF_BOUNDS)))
    }

    /// `accept`, `reject`, or a state.
    fn state_named(
        &mut self,
        frame: usize,
        name: &str,
        at: ir::Span,
        fill: &BTreeMap<HeaderId, u32>,
    ) -> Checked<Transition> {
        let (parser, back) = self.with_parsing(|parsing| {
            let frame = &parsing.frames[frame];
            (frame.parser, frame.back.as_ref().map(|(back, _)| back.clone()))
        });
        let reached = match (name, back) {
            ("accept", None) => return Ok(Transition::Accept),
            ("accept", Some(back)) => Reached { fill: fill.clone(), via: Some(frame), ..back },
            ("reject", _) => return Ok(Transition::Reject(0)),
            _ => match parser.states.iter().position(|state| *state.name.text == *name) {
                Some(state) => Reached { frame, state, done: 0, via: None, fill: fill.clone() },
                None => {
                    let wrong = Diagnostic::new(at, format!("parser `{}` has no state `{name}`", parser.name.text));
                    let known = parser.states.iter().map(|state| &*state.name.text).collect();
                    return self.fail(match super::closest(name, known) {
                        Some(known) => wrong.hint(format!("there is `{known}`")),
                        None => wrong.hint("states are declared in the parser; `accept` and `reject` are built in"),
                    });
                }
            },
        };
        if let Some(id) = self.with_parsing(|parsing| parsing.known.get(&reached).copied()) {
            return Ok(Transition::To(id));
        }
        let name = extended(&self.frame_path(reached.frame), &self.state_name(&reached));
        let full = self.with_parsing(|parsing| parsing.states.len() >= STATES_MAX);
        if full {
            let wrong = format!("more than {STATES_MAX} states, once stacks are laid out");
            return self.fail(Diagnostic::new(at, wrong));
        }
        let name = {
            let path = std::mem::take(&mut self.path);
            let unique = self.unique(&name);
            self.path = path;
            unique
        };
        Ok(Transition::To(self.with_parsing(|parsing| {
            let id = StateId(parsing.states.len() as u32);
            parsing.states.push(State { name, body: Vec::new(), next: Transition::Reject(0) });
            parsing.known.insert(reached.clone(), id);
            parsing.waiting.push((reached, id));
            id
        })))
    }

    fn frame_path(&mut self, frame: usize) -> String {
        // The program's own parser gives its states no prefix.
        if frame == 0 { String::new() } else { self.with_parsing(|parsing| parsing.frames[frame].path.clone()) }
    }

    fn state_name(&mut self, reached: &Reached) -> String {
        self.with_parsing(|parsing| parsing.frames[reached.frame].parser.states[reached.state].name.text.to_string())
    }

    /// `parser.apply(args);`: on to its `start`; what follows is a state of its own.
    fn enter(
        &mut self,
        reached: &Reached,
        done: usize,
        instance: &Rc<Instance<'a>>,
        args: &[ast::Arg],
        at: ir::Span,
    ) -> Checked<Transition> {
        let Instantiated::Parser(parser) = instance.of else { return Err(Reported) };
        self.used.insert(std::ptr::from_ref(parser).cast());
        let depth = self.with_parsing(|parsing| parsing.frames[reached.frame].depth) + 1;
        if depth > FRAMES_DEEP_MAX {
            let wrong = format!("parsers apply one another more than {FRAMES_DEEP_MAX} deep");
            return self.fail(Diagnostic::new(at, wrong).hint("does one apply itself?"));
        }
        let bound = self.arguments_to(&parser.params, args, None, at)?;
        if !bound.copies_back.is_empty() {
            let wrong = Diagnostic::new(at, "arguments of a parser that lie in one another");
            return self.fail(wrong.hint("give each parameter storage of its own"));
        }
        let scope = self.scopes.last().cloned().unwrap_or_default();
        let before = self.path.clone();
        let path = extended(&before, &instance.name);
        self.path = path.clone();
        let constants: Vec<(Rc<str>, Val)> = instance.constants.clone();
        let scopes = self.elsewhere(1, |checker| {
            checker.bind_all(bound.items);
            checker.constants(&parser.constructor, &constants);
            checker.statements(&parser.locals);
            checker.scopes[1..].to_vec()
        });
        self.path = before;
        let fill = self.fill.clone();
        let back = Reached { frame: reached.frame, state: reached.state, done, via: None, fill: fill.clone() };
        let frame = self.frame(Frame { parser, scopes, path, back: Some((back, scope)), depth });
        self.state_named(frame, "start", parser.name.at, &fill)
    }

    /// States that no packet comes to are looked at all the same.
    fn unreached(&mut self, parser: &'a ast::Parser) {
        for state in 0..parser.states.len() {
            if !self.used.contains(&std::ptr::from_ref(&parser.states[state]).cast()) {
                let reached = Reached { frame: 0, state, done: 0, via: None, fill: BTreeMap::new() };
                self.checked_only(Within::Parser, |checker| drop(checker.state(&reached)));
                self.with_parsing(|parsing| parsing.waiting.clear());
            }
        }
    }
}

/// States with the first one first.
fn in_order(mut states: Vec<State>, begins: bool) -> Vec<State> {
    let Some(first) = begins.then(|| states.iter().position(|state| state.name == "begin")).flatten() else {
        return states;
    };
    states.swap(0, first);
    let (a, b) = (StateId(0), StateId(first as u32));
    let swap = |id: &mut StateId| {
        if *id == a {
            *id = b;
        } else if *id == b {
            *id = a;
        }
    };
    for state in &mut states {
        renumber(&mut state.next, &swap);
    }
    states
}

fn renumber(transition: &mut Transition, swap: &impl Fn(&mut StateId)) {
    match transition {
        Transition::To(id) => swap(id),
        Transition::Select { cases, .. } => cases.iter_mut().for_each(|(_, next)| renumber(next, swap)),
        Transition::Accept | Transition::Reject(_) => {}
    }
}
