//! Abstract syntax tree: the supported subset of P4_16's grammar (App. G) and CLIP's declarations.

use crate::check::Num;
use crate::ir::{SourceSpan, Unary};
use crate::lex::Width;
use std::rc::Rc;

/// Identifier with its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    pub text: Rc<str>,
    pub at: SourceSpan,
}

/// Annotation, such as `@name("text")`; for most annotations only the name is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Annotation {
    pub name: Name,
    /// First string among the arguments.
    pub text: Option<Rc<str>>,
}

/// Top-level declaration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decl {
    Errors(Vec<Name>),
    Const(Variable),
    Typedef {
        ty: Type,
        name: Name,
        new: bool,
    },
    Struct(Struct),
    Enum {
        name: Name,
        of: Option<Type>,
        members: Vec<(Name, Option<Expr>)>,
    },
    Action(Action),
    Function(Function),
    Parser(Parser),
    Control(Control),
    Instance(Instance),
    /// `request { … }`
    Request {
        fields: Vec<Field>,
        at: SourceSpan,
    },
    /// `response { … }`
    Response {
        fields: Vec<Field>,
        at: SourceSpan,
    },
    /// `state { C }`
    State {
        c: SourceSpan,
        at: SourceSpan,
    },
    /// `void remote_handler(in request req, out response res) { C }`
    Handler {
        params: Vec<Param>,
        c: SourceSpan,
        at: SourceSpan,
    },
    /// `partition bit<16> ports = 1024 .. 65535;`
    Partition {
        ty: Type,
        name: Name,
        first: Expr,
        last: Expr,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Struct {
    pub name: Name,
    pub header: bool,
    pub fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub annotations: Vec<Annotation>,
    pub ty: Type,
    pub name: Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    None,
    In,
    Out,
    InOut,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Param {
    pub direction: Direction,
    pub ty: Type,
    pub name: Name,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Action {
    pub name: Name,
    pub params: Vec<Param>,
    pub body: Vec<Stmt>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Function {
    pub name: Name,
    pub result: Type,
    pub params: Vec<Param>,
    pub body: Vec<Stmt>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parser {
    pub name: Name,
    pub params: Vec<Param>,
    /// Constructor's parameters, which get their values at instantiation.
    pub constructor: Vec<Param>,
    pub locals: Vec<Stmt>,
    pub states: Vec<State>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    pub name: Name,
    pub body: Vec<Stmt>,
    pub transition: Option<Transition>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Transition {
    To(Name),
    Select { keys: Vec<Expr>, cases: Vec<(Vec<Expr>, Name)>, at: SourceSpan },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Control {
    pub name: Name,
    pub params: Vec<Param>,
    /// Constructor's parameters, which get their values at instantiation.
    pub constructor: Vec<Param>,
    pub locals: Vec<Local>,
    pub body: Vec<Stmt>,
}

/// Declaration within a control.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Local {
    /// A variable, a constant or an instance.
    Stmt(Stmt),
    Action(Action),
    Table(Table),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    pub annotations: Vec<Annotation>,
    pub name: Name,
    pub keys: Vec<Key>,
    pub actions: Vec<Expr>,
    pub default: Option<Expr>,
    /// Keys and action of each entry.
    pub entries: Vec<(Vec<Expr>, Expr)>,
    pub size: Option<Expr>,
    pub idle_timeout: Option<Expr>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    pub expr: Expr,
    pub kind: Name,
    pub annotations: Vec<Annotation>,
}

/// Instance declaration: `bit<32>(4) name;`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Instance {
    pub annotations: Vec<Annotation>,
    pub ty: Type,
    pub args: Vec<Arg>,
    pub name: Name,
}

/// Variable, or constant with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Variable {
    pub ty: Type,
    pub name: Name,
    pub value: Option<Expr>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stmt {
    pub kind: StmtKind,
    pub at: SourceSpan,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StmtKind {
    Empty,
    Block(Vec<Stmt>),
    Assign(Expr, Expr),
    Call(Expr),
    If(Expr, Box<Stmt>, Option<Box<Stmt>>),
    /// Selector and cases. A case without a label is `default`; one without a body falls through to the next.
    Switch(Expr, Vec<Case>),
    Return(Option<Expr>),
    Exit,
    Variable(Variable),
    Const(Variable),
    Instance(Instance),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    pub label: Option<Expr>,
    pub body: Option<Vec<Stmt>>,
    pub at: SourceSpan,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Type {
    pub kind: TypeKind,
    pub at: SourceSpan,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TypeKind {
    Bool,
    Bit(Option<Box<Expr>>),
    /// `int<N>`, or `int` without a width.
    Int(Option<Box<Expr>>),
    Varbit(Box<Expr>),
    Float,
    Error,
    String,
    Void,
    Tuple(Vec<Type>),
    Named(Name, Vec<Type>),
    Stack(Box<Type>, Box<Expr>),
    /// `_`
    Any,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub at: SourceSpan,
    /// Height of the expression's tree. It is bounded, so that recursive passes cannot overflow the stack.
    pub depth: u16,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExprKind {
    Number(Num, Option<Width>),
    Bool(bool),
    Text(Rc<str>),
    Name(Rc<str>),
    Member(Box<Expr>, Name),
    Index(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Box<Expr>, Box<Expr>),
    Unary(Unary, Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Mux(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(Type, Box<Expr>),
    List(Vec<Expr>),
    Record(Vec<(Name, Expr)>),
    Call {
        of: Box<Expr>,
        types: Vec<Type>,
        args: Vec<Arg>,
    },
    /// `value &&& mask`
    Mask(Box<Expr>, Box<Expr>),
    /// `low .. high`
    Range(Box<Expr>, Box<Expr>),
    /// `_`, `default`
    Any,
}

/// Binary operator: those of the IR, and division and modulo, which only constants have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Ir(crate::ir::Binary),
    Div,
    Mod,
}

/// Argument of a call; the value of `_` is [`ExprKind::Any`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arg {
    pub name: Option<Name>,
    pub value: Expr,
}
