//! Parsers: lowering to states, one for each combination of fill levels of the header stacks; sub-parsers are inlined.

use super::inline::join_path;
use super::value::Val;
use super::{Checked, Checker, Instance, Instantiated, Item, PipelinePart, Scope};
use crate::ast;
use crate::diag::{Diagnostic, Reported};
use crate::ir::{self, HeaderId, ParserState, StateId, Transition};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Largest number of states of a program.
const STATES_MAX: usize = 4096;
/// Largest nesting depth of sub-parsers.
const FRAMES_DEEP_MAX: usize = 16;

/// Source state with its context; each distinct pair is lowered to one state of the program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ReachedState {
    frame: usize,
    state: usize,
    /// Number of its statements that precede this state, if an applied sub-parser splits the source state.
    done: usize,
    /// Frame of the sub-parser whose `accept` leads here.
    via: Option<usize>,
    fill: BTreeMap<HeaderId, u32>,
}

/// Activation of a parser.
struct Frame<'a> {
    parser: &'a ast::Parser,
    /// Scopes without the top level.
    scopes: Vec<Scope<'a>>,
    path: String,
    /// Continuation after `accept`, with the variables of that state.
    back: Option<(ReachedState, Scope<'a>)>,
    depth: usize,
}

/// Work list of the lowering of parsers.
#[derive(Default)]
pub(super) struct ParserLowering<'a> {
    frames: Vec<Frame<'a>>,
    known: HashMap<ReachedState, StateId>,
    /// States reached, but not yet lowered.
    waiting: Vec<(ReachedState, StateId)>,
    states: Vec<ParserState>,
}

impl<'a> Checker<'a> {
    /// Lowers the program's parser; its parameters are bound in a scope of their own.
    pub(super) fn lower_parser(&mut self, parser: &'a ast::Parser, items: Vec<(ast::Name, Item<'a>)>) {
        self.used.insert(std::ptr::from_ref(parser).cast());
        self.within = PipelinePart::Parser;
        self.parsing = Some(ParserLowering::default());
        let (first, scopes) = self.collect_block(|checker| {
            checker.with_scope(|checker| {
                checker.bind_all(items);
                checker.check_statements(&parser.locals);
                checker.scopes[1..].to_vec()
            })
        });
        self.add_frame(Frame { parser, scopes, path: self.path.clone(), back: None, depth: 0 });
        let entry = self.resolve_state(0, "start", parser.name.at, &BTreeMap::new());
        let start = match entry {
            Ok(transition) if first.is_empty() => Some(transition),
            Ok(transition) => {
                // Initial values are emitted once, before `start`, as a transition may lead back to `start`.
                self.with_parsing(|parsing| {
                    parsing.states.push(ParserState { name: "begin".to_owned(), body: first, next: transition });
                });
                None
            }
            Err(Reported) => None,
        };
        while let Some((reached, id)) = self.with_parsing(|parsing| parsing.waiting.pop()) {
            let (body, next) = self.lower_state(&reached);
            self.with_parsing(|parsing| {
                let state = &mut parsing.states[id.0 as usize];
                state.body = body;
                state.next = next;
            });
        }
        self.check_unreached_states(parser);
        if let Some(parsing) = self.parsing.take() {
            self.program.parser.states = order_states(parsing.states, start.is_none());
        }
        self.fill.clear();
    }

    fn with_parsing<T>(&mut self, work: impl FnOnce(&mut ParserLowering<'a>) -> T) -> T {
        work(self.parsing.get_or_insert_default())
    }

    fn add_frame(&mut self, frame: Frame<'a>) -> usize {
        self.with_parsing(|parsing| {
            parsing.frames.push(frame);
            parsing.frames.len() - 1
        })
    }

    /// Lowers one state: statements and transition.
    fn lower_state(&mut self, reached: &ReachedState) -> (ir::Block, Transition) {
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
        let result = self.collect_block(|checker| {
            for (n, stmt) in state.body.iter().enumerate().skip(reached.done) {
                if let Some((instance, args)) = checker.applied_parser(stmt) {
                    return checker.enter_parser(reached, n + 1, &instance, args, stmt.at);
                }
                let _told = checker.check_statement(stmt);
            }
            let fill = checker.fill.clone();
            match &state.transition {
                None => Ok(Transition::Reject(0)),
                Some(ast::Transition::To(name)) => checker.resolve_state(reached.frame, &name.text, name.at, &fill),
                Some(ast::Transition::Select { keys, cases, at }) => {
                    checker.check_select(keys, cases, *at, &mut |checker, name| {
                        checker.resolve_state(reached.frame, &name.text, name.at, &fill)
                    })
                }
            }
        });
        self.scopes.truncate(1);
        (result.0, result.1.unwrap_or(Transition::Reject(super::packet::STACK_OUT_OF_BOUNDS)))
    }

    /// Target of a transition: `accept`, `reject` or a state.
    fn resolve_state(
        &mut self,
        frame: usize,
        name: &str,
        at: ir::SourceSpan,
        fill: &BTreeMap<HeaderId, u32>,
    ) -> Checked<Transition> {
        let (parser, back) = self.with_parsing(|parsing| {
            let frame = &parsing.frames[frame];
            (frame.parser, frame.back.as_ref().map(|(back, _)| back.clone()))
        });
        let reached = match (name, back) {
            ("accept", None) => return Ok(Transition::Accept),
            ("accept", Some(back)) => ReachedState { fill: fill.clone(), via: Some(frame), ..back },
            ("reject", _) => return Ok(Transition::Reject(0)),
            _ => match parser.states.iter().position(|state| *state.name.text == *name) {
                Some(state) => ReachedState { frame, state, done: 0, via: None, fill: fill.clone() },
                None => {
                    let wrong = Diagnostic::new(at, format!("parser `{}` has no state `{name}`", parser.name.text));
                    let known = parser.states.iter().map(|state| &*state.name.text).collect();
                    return self.fail(match super::closest_name(name, known) {
                        Some(known) => wrong.hint(format!("did you mean `{known}`?")),
                        None => wrong.hint("states are declared in the parser; `accept` and `reject` are built in"),
                    });
                }
            },
        };
        if let Some(id) = self.with_parsing(|parsing| parsing.known.get(&reached).copied()) {
            return Ok(Transition::To(id));
        }
        let name = join_path(&self.frame_path(reached.frame), &self.state_name(&reached));
        let full = self.with_parsing(|parsing| parsing.states.len() >= STATES_MAX);
        if full {
            let wrong = format!("more than {STATES_MAX} states after expansion of header stacks");
            return self.fail(Diagnostic::new(at, wrong));
        }
        let name = {
            let path = std::mem::take(&mut self.path);
            let unique = self.unique_name(&name);
            self.path = path;
            unique
        };
        Ok(Transition::To(self.with_parsing(|parsing| {
            let id = StateId(parsing.states.len() as u32);
            parsing.states.push(ParserState { name, body: Vec::new(), next: Transition::Reject(0) });
            parsing.known.insert(reached.clone(), id);
            parsing.waiting.push((reached, id));
            id
        })))
    }

    fn frame_path(&mut self, frame: usize) -> String {
        // States of the main parser have no prefix.
        if frame == 0 { String::new() } else { self.with_parsing(|parsing| parsing.frames[frame].path.clone()) }
    }

    fn state_name(&mut self, reached: &ReachedState) -> String {
        self.with_parsing(|parsing| parsing.frames[reached.frame].parser.states[reached.state].name.text.to_string())
    }

    /// Lowers `parser.apply(args);` to a transition to the sub-parser's `start`; the remaining statements become a
    /// state.
    fn enter_parser(
        &mut self,
        reached: &ReachedState,
        done: usize,
        instance: &Rc<Instance<'a>>,
        args: &[ast::Arg],
        at: ir::SourceSpan,
    ) -> Checked<Transition> {
        let Instantiated::Parser(parser) = instance.of else { return Err(Reported) };
        self.used.insert(std::ptr::from_ref(parser).cast());
        let depth = self.with_parsing(|parsing| parsing.frames[reached.frame].depth) + 1;
        if depth > FRAMES_DEEP_MAX {
            let wrong = format!("parsers are nested more than {FRAMES_DEEP_MAX} levels deep");
            return self.fail(Diagnostic::new(at, wrong).hint("does a parser apply itself?"));
        }
        let bound = self.bind_arguments(&parser.params, args, None, at)?;
        if !bound.copies_back.is_empty() {
            let wrong = Diagnostic::new(at, "overlapping arguments of a parser");
            return self.fail(wrong.hint("use separate storage for each parameter"));
        }
        let scope = self.scopes.last().cloned().unwrap_or_default();
        let before = self.path.clone();
        let path = join_path(&before, &instance.name);
        self.path = path.clone();
        let constants: Vec<(Rc<str>, Val)> = instance.constants.clone();
        let scopes = self.with_outer_scopes(1, |checker| {
            checker.bind_all(bound.items);
            checker.bind_constants(&parser.constructor, &constants);
            checker.check_statements(&parser.locals);
            checker.scopes[1..].to_vec()
        });
        self.path = before;
        let fill = self.fill.clone();
        let back = ReachedState { frame: reached.frame, state: reached.state, done, via: None, fill: fill.clone() };
        let frame = self.add_frame(Frame { parser, scopes, path, back: Some((back, scope)), depth });
        self.resolve_state(frame, "start", parser.name.at, &fill)
    }

    /// Checks states that no transition reaches.
    fn check_unreached_states(&mut self, parser: &'a ast::Parser) {
        for state in 0..parser.states.len() {
            if !self.used.contains(&std::ptr::from_ref(&parser.states[state]).cast()) {
                let reached = ReachedState { frame: 0, state, done: 0, via: None, fill: BTreeMap::new() };
                self.check_without_emitting(PipelinePart::Parser, |checker| drop(checker.lower_state(&reached)));
                self.with_parsing(|parsing| parsing.waiting.clear());
            }
        }
    }
}

/// Reorders the states so that the first one comes first.
fn order_states(mut states: Vec<ParserState>, begins: bool) -> Vec<ParserState> {
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
