//! Resolved method: its canonical text, its description and its Rust constant.

use std::fmt;

use pathcall_proto::manifest::{
    Ack, ClearPolicy, FilterStreams, ForwardTarget, Kind, LaneFormat, MapPath, Modify, ReadMode, Shape,
};

use crate::diagnostic::{Location, SourceText};
use crate::filter::NetFilter;
use crate::load::FilterMethod;

/// Resolved method with its filter: the owned form of [`pathcall_proto::manifest::Method`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedMethod {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub path: String,
    /// Protobuf package of the service.
    pub package: String,
    /// `AppName`.
    pub app: String,
    /// Digest of all filters of `app`: see [`ResolvedMethod::canonical`].
    pub digest: u64,
    /// `Precision`.
    pub precision: u8,
    /// Meaning of the primitives.
    pub kind: Kind,
    /// Operator that is applied to each value before it is added.
    pub modify: Modify,
    /// Typed field of the request.
    pub request: Option<ResolvedField>,
    /// Typed field of the reply.
    pub reply: Option<ResolvedField>,
    /// The request type has fields besides `request`.
    pub untyped_request: bool,
    /// Recipient of the answer.
    pub to: ForwardTarget,
    /// Party that must have an addition before the call completes.
    pub ack: Ack,
    /// Path of the calls. The two ends need not agree on it.
    pub map_path: MapPath,
    /// Size of a sum's values.
    pub lanes: LaneFormat,
    /// Share of a sum's values that travel in a call, in millionths; 0: all.
    pub topk: u32,
    /// What the answer to a query contains.
    pub read: ReadMode,
    /// Streams of requests and replies.
    pub streams: FilterStreams,
    /// Position of the filter.
    pub at: Location,
}

/// Typed field: the owned form of [`pathcall_proto::manifest::Field`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedField {
    /// Field numbers from the message to the typed field.
    pub path: Vec<u32>,
    /// Dotted path: `NewGrad.inner.tensor`.
    pub name: String,
    /// Type of the field.
    pub shape: Shape,
}

impl ResolvedMethod {
    /// Method of this kind, with the typed fields of its request and its reply; the digest follows.
    pub(super) fn new(
        source: &SourceText,
        filter: &NetFilter,
        named: &FilterMethod,
        kind: Kind,
        (request, reply): (Option<ResolvedField>, Option<ResolvedField>),
    ) -> Self {
        Self {
            path: super::path(named),
            package: named.method.parent_file().package_name().to_owned(),
            app: filter.app_name.value.clone(),
            digest: 0,
            precision: filter.precision.value,
            kind,
            modify: filter.modify.value,
            untyped_request: super::field::has_more_than(&named.method.input(), request.as_ref()),
            request,
            reply,
            to: filter.cnt_fwd.to.value,
            ack: filter.ack.value,
            map_path: filter.path.value,
            lanes: filter.lanes.value,
            topk: filter.topk.value,
            read: filter.read.value,
            streams: match (named.method.is_client_streaming(), named.method.is_server_streaming()) {
                (true, true) => FilterStreams::Both,
                (true, false) => FilterStreams::Client,
                (false, _) => FilterStreams::Unary,
            },
            at: source.locate(filter.span.start),
        }
    }

    /// Clear policy of the sum, if the element answers the sums itself.
    fn clears_itself(&self) -> Option<ClearPolicy> {
        match self.kind {
            Kind::Sum { clear, .. } => Some(clear).filter(|clear| clear.is_by_element()),
            _ => None,
        }
    }

    fn shares_scales(&self) -> bool {
        self.lanes != LaneFormat::Int32
    }

    /// Canonical text of all properties that both ends must agree on; the digest is computed from it. Names of fields
    /// are excluded, so that renaming a field changes nothing, as in protobuf.
    ///
    /// One line: path, application (with its length in bytes first), precision, kind with threshold, target, operator
    /// and operand, and the two fields as `1.2:FPArray` or `-`; then `ack server`, `clear shadow` or `clear lazy`,
    /// `lanes`, `topk` and `stream`, if set.
    #[must_use]
    pub fn canonical(&self) -> String {
        let kind = match self.kind {
            Kind::Sum { threshold, .. } => format!("sum {threshold}"),
            Kind::Add { get, .. } => format!("add {}", u8::from(get)),
            Kind::Query => "query 0".to_owned(),
            Kind::Count { threshold, .. } => format!("count {threshold}"),
            Kind::Clear => "clear 0".to_owned(),
            Kind::Modify => "modify 0".to_owned(),
        };
        let to = match self.to {
            ForwardTarget::All => "all",
            ForwardTarget::Src => "src",
            ForwardTarget::Server => "server",
        };
        let field = |field: &Option<ResolvedField>| {
            field.as_ref().map_or_else(
                || "-".to_owned(),
                |field| {
                    let numbers: Vec<_> = field.path.iter().map(u32::to_string).collect();
                    format!("{}:{}", numbers.join("."), field.shape.proto_name())
                },
            )
        };
        format!(
            "{} {}:{} {} {kind} {to} {} {} {} {}{}{}{}{}{}\n",
            self.path,
            self.app.len(),
            self.app,
            self.precision,
            self.modify.op as u8,
            self.modify.para,
            field(&self.request),
            field(&self.reply),
            if self.ack == Ack::Server { " ack server" } else { "" },
            match self.clears_itself() {
                Some(ClearPolicy::Lazy) => " clear lazy",
                Some(_) => " clear shadow",
                None => "",
            },
            if self.shares_scales() { format!(" lanes {}", self.lanes.name()) } else { String::new() },
            if self.topk > 0 { format!(" topk {}", self.topk) } else { String::new() },
            match self.streams {
                FilterStreams::Unary => "",
                FilterStreams::Client => " stream client",
                FilterStreams::Both => " stream both",
            },
        )
    }

    /// Writes the Rust constant, a [`pathcall_proto::manifest::Method`].
    #[cfg(feature = "stubs")]
    pub(crate) fn write_constant(&self, out: &mut impl fmt::Write) -> fmt::Result {
        writeln!(out, "            Method {{")?;
        writeln!(out, "                path: {:?},", self.path)?;
        writeln!(out, "                app: {:?},", self.app)?;
        writeln!(out, "                digest: {:#018x},", self.digest)?;
        writeln!(out, "                precision: {},", self.precision)?;
        writeln!(out, "                kind: {},", kind(self.kind))?;
        let Modify { op, para } = self.modify;
        writeln!(out, "                modify: Modify {{ op: OpType::{op:?}, para: {para} }},")?;
        writeln!(out, "                request: {},", field(self.request.as_ref()))?;
        writeln!(out, "                reply: {},", field(self.reply.as_ref()))?;
        writeln!(out, "                untyped_request: {},", self.untyped_request)?;
        writeln!(out, "                to: ForwardTarget::{:?},", self.to)?;
        writeln!(out, "                ack: Ack::{:?},", self.ack)?;
        writeln!(out, "                map_path: MapPath::{:?},", self.map_path)?;
        writeln!(out, "                lanes: LaneFormat::{:?},", self.lanes)?;
        writeln!(out, "                topk: {},", self.topk)?;
        writeln!(out, "                read: ReadMode::{:?},", self.read)?;
        writeln!(out, "                streams: FilterStreams::{:?},", self.streams)?;
        writeln!(out, "            }},")
    }
}

/// One-line description: `/training.Training/Update: sum of 2 callers, NewGrad.tensor to AgtrGrad.tensor`.
impl fmt::Display for ResolvedMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: application {:?}, ", self.path, self.app)?;
        match self.kind {
            Kind::Sum { threshold, .. } => write!(f, "sum over {threshold} callers")?,
            Kind::Add { .. } => f.write_str("add")?,
            Kind::Query => f.write_str("query")?,
            Kind::Count { threshold, .. } => write!(f, "count to {threshold}")?,
            Kind::Clear => f.write_str("clear")?,
            Kind::Modify => f.write_str("modify")?,
        }
        if let Some(field) = &self.request {
            write!(f, ", {} ({})", field.name, field.shape.proto_name())?;
        }
        if let Some(field) = &self.reply {
            write!(f, " -> {} ({})", field.name, field.shape.proto_name())?;
        }
        if self.ack == Ack::Server {
            write!(f, ", acknowledged by the server")?;
        }
        if self.read == ReadMode::Recent {
            write!(f, ", recent values")?;
        }
        if self.map_path != MapPath::Automatic {
            write!(f, ", path {}", self.map_path.name())?;
        }
        if self.clears_itself().is_some() {
            write!(f, ", kept in the element only")?;
        }
        if self.topk > 0 {
            write!(f, ", the largest {} %", f64::from(self.topk) / 1e4)?;
        }
        if self.shares_scales() {
            return write!(f, ", {} with shared scales", self.lanes.name());
        }
        let floats = [&self.request, &self.reply].into_iter().flatten().any(|field| field.shape.is_float());
        if floats { write!(f, ", {} digits", self.precision) } else { Ok(()) }
    }
}

// Variants are printed without the name of their type.

#[cfg(feature = "stubs")]
fn kind(kind: Kind) -> String {
    match kind {
        Kind::Add { get, to } => format!("Kind::Add {{ get: {get}, to: ForwardTarget::{to:?} }}"),
        Kind::Count { threshold, to } => format!("Kind::Count {{ threshold: {threshold}, to: ForwardTarget::{to:?} }}"),
        Kind::Sum { threshold, clear } => {
            format!("Kind::Sum {{ threshold: {threshold}, clear: ClearPolicy::{clear:?} }}")
        }
        Kind::Query | Kind::Clear | Kind::Modify => format!("Kind::{kind:?}"),
    }
}

#[cfg(feature = "stubs")]
fn field(field: Option<&ResolvedField>) -> String {
    field.map_or_else(
        || "None".to_owned(),
        |ResolvedField { path, name, shape }| {
            format!("Some(Field {{ path: &{path:?}, name: {name:?}, shape: Shape::{shape:?} }})")
        },
    )
}
