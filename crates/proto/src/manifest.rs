//! Manifest of a service: network options of its methods, as constants.
//!
//! `pathcall-build` reads the `.proto` files and their NetFilters, checks them against each other, and writes one
//! [`Manifest`] per protobuf package beside the ordinary generated code. Channel and server layer look up the method of
//! a call in it ([`Manifest::method`]) to learn which field of the message travels as map frames, and how the network
//! processes it. All values are `'static` and `Copy`: nothing is parsed or allocated at start-up.

pub use pathcall_wire::policy::{Ack, Balance, ClearPolicy, HedgeBudgetConfig, LaneFormat, Modify, ReadMode};
pub use pathcall_wire::{ForwardTarget, OpType};

/// Methods of one protobuf package with network options, and the descriptors of their messages.
#[derive(Debug, Clone, Copy)]
pub struct Manifest {
    /// Methods with a filter, sorted by path.
    pub methods: &'static [Method],
    /// Delegated methods, sorted by path.
    pub delegated: &'static [Delegated],
    /// Methods of a pool of servers, sorted by path.
    pub cloned: &'static [Cloned],
    /// Methods for a host's processor or accelerator, sorted by path.
    pub placed: &'static [Placed],
    /// A `google.protobuf.FileDescriptorSet` of the package's files and all their imports, including the `pathcall`
    /// options.
    pub descriptor: &'static [u8],
}

impl Manifest {
    /// Method with this HTTP/2 path (`/pkg.Service/Method`); `None` without a filter.
    #[must_use]
    pub fn method(&self, path: &str) -> Option<&'static Method> {
        self.methods.binary_search_by(|method| method.path.cmp(path)).ok().map(|i| &self.methods[i])
    }

    /// Method with this HTTP/2 path; `None` unless servers may pass its calls on (DPC ch. 3).
    #[must_use]
    pub fn delegated(&self, path: &str) -> Option<&'static Delegated> {
        self.delegated.binary_search_by(|method| method.path.cmp(path)).ok().map(|i| &self.delegated[i])
    }

    /// Method with this HTTP/2 path; `None` unless a pool of servers answers it (NetClone).
    #[must_use]
    pub fn cloned(&self, path: &str) -> Option<&'static Cloned> {
        self.cloned.binary_search_by(|method| method.path.cmp(path)).ok().map(|i| &self.cloned[i])
    }

    /// Method with this HTTP/2 path; `None` unless a host's processor or accelerator may answer it (LEO).
    #[must_use]
    pub fn placed(&self, path: &str) -> Option<&'static Placed> {
        self.placed.binary_search_by(|method| method.path.cmp(path)).ok().map(|i| &self.placed[i])
    }
}

/// Method whose calls servers may pass on to other servers (DPC ch. 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delegated {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub path: &'static str,
    /// The call has exactly one reply; otherwise, its replies are a stream.
    pub unary: bool,
    /// Executing a call twice has the same effect as once: the method's `idempotency_level` is set.
    pub idempotent: bool,
}

/// Method that a host's processor or accelerator may answer (LEO §III-A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub path: &'static str,
    /// Name of the application's file in the `.proto`.
    pub file: &'static str,
    /// Content of that file.
    pub application: &'static str,
    /// Request type of the application.
    pub request: &'static str,
    /// Number of the field with the key of a request; 0 if the order of requests does not matter.
    pub key: u32,
}

/// Idempotent method that a pool of servers answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cloned {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub path: &'static str,
    /// The channel chooses `clone`, `balance` and `hedging` by what it measures.
    pub automatic: bool,
    /// The element may clone calls.
    pub clone: bool,
    /// Choice of the server for calls that are not cloned.
    pub balance: Balance,
    /// Limit of extra requests.
    pub budget: HedgeBudgetConfig,
    /// Units of the budget that one extra request takes.
    pub cost: u16,
    /// Hedging of slow calls to another pair of servers.
    pub hedging: Option<Hedging>,
    /// Requests that have not begun are cancelled once the call has an answer.
    pub cancel: bool,
    /// Concurrent calls of a server; 0 if unknown.
    pub workers: u32,
    /// The method is server-streaming: its calls go by gRPC and are hedged until the first message.
    pub streaming: bool,
}

/// gRPC's hedging policy (A6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hedging {
    /// `hedgingDelay` in nanoseconds; not used with a share.
    pub delay_ns: u64,
    /// `hedgingShare` in thousandths: the delay is learned. 0: the delay is fixed.
    pub share: u16,
    /// `maxAttempts`: limit of requests of one call, 2 to 5.
    pub max_attempts: u8,
    /// `nonFatalStatusCodes`, as a bit mask: a status with code n does not end the call while another attempt may
    /// succeed, if bit n is set.
    pub non_fatal: u32,
}

impl Hedging {
    /// True if a call continues after this status code.
    #[must_use]
    pub const fn is_non_fatal(&self, code: u8) -> bool {
        code < 32 && self.non_fatal & 1 << code != 0
    }
}

/// Method with its NetFilter (NetRPC §4), resolved against its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub path: &'static str,
    /// `AppName`: methods with the same name work on the same map.
    pub app: &'static str,
    /// Digest of all filters of `app` in the service: equal filters, equal digest.
    pub digest: u64,
    /// `Precision`: decimal digits after the point that a floating-point value keeps, 0..=15.
    pub precision: u8,
    /// Meaning of the filter's primitives.
    pub kind: Kind,
    /// `Stream.modify`: applied to each quantised value before it is added.
    pub modify: Modify,
    /// Typed field of the request, which leaves the message.
    pub request: Option<Field>,
    /// Typed field of the reply, which is filled in from the map.
    pub reply: Option<Field>,
    /// The request type has fields besides `request`. Whether a call uses them is checked at run time.
    pub untyped_request: bool,
    /// `CntFwd.to`: recipient of the answer.
    pub to: ForwardTarget,
    /// `ack`: party that must have an addition before the call completes.
    pub ack: Ack,
    /// `path`: path of the calls. The two ends need not agree on it.
    pub map_path: MapPath,
    /// `lanes`: size of a sum's values.
    pub lanes: LaneFormat,
    /// `topk`: share of a sum's values that travel in a call, in millionths; 0: all.
    pub topk: u32,
    /// `read`: what the answer to a query contains. The two ends need not agree on it.
    pub read: ReadMode,
    /// Streams of requests and replies.
    pub streams: FilterStreams,
}

impl Method {
    /// Query without typed fields, with the default of each key of the filter: base for methods written by hand.
    pub const DEFAULT: Self = Self {
        path: "",
        app: "",
        digest: 0,
        precision: 0,
        kind: Kind::Query,
        modify: Modify::NOP,
        request: None,
        reply: None,
        untyped_request: false,
        to: ForwardTarget::Src,
        ack: Ack::Element,
        map_path: MapPath::Automatic,
        lanes: LaneFormat::Int32,
        topk: 0,
        read: ReadMode::Linearizable,
        streams: FilterStreams::Unary,
    };
}

/// Path of the calls of a method with a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MapPath {
    /// The server uses an element if a caller is on another host; the channel chooses between frames and one gRPC call
    /// by measured times.
    #[default]
    Automatic,
    /// Frames by the element, if one is registered; otherwise to the server.
    Element,
    /// Frames to the server.
    Software,
    /// One gRPC call, which the server's layer executes whole: for keyed additions and queries. Other methods of the
    /// application take [`Software`](Self::Software).
    Direct,
}

impl MapPath {
    /// All paths.
    pub const ALL: [Self; 4] = [Self::Automatic, Self::Element, Self::Software, Self::Direct];

    /// Name in filters, options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::Element => "element",
            Self::Software => "software",
            Self::Direct => "direct",
        }
    }
}

/// Meaning of a filter: its combination of primitives (NetRPC Tables 1 and 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SyncAgtr: `threshold` callers each add an array; all get the sum, and the map is empty again.
    Sum {
        /// Number of callers in a sum, at least 1.
        threshold: u32,
        /// Party that keeps the sum until all callers have it.
        clear: ClearPolicy,
    },
    /// AsyncAgtr and KeyValue: adds the values under their keys (the keys of an array are its indices).
    Add {
        /// The reply carries the values after the addition, for the same keys.
        get: bool,
        /// [`ForwardTarget::Server`] calls the handler each time; [`ForwardTarget::Src`] answers on the way.
        to: ForwardTarget,
    },
    /// Reads the keys of the request's typed field; all keys if it has none.
    Query,
    /// Agreement: counts one vote per key of the request, and answers the call at `threshold`. A threshold of 1 is
    /// test-and-set.
    Count {
        /// Votes that a key needs, at least 1.
        threshold: u32,
        /// Recipient of the result.
        to: ForwardTarget,
    },
    /// Sets the keys of the request's typed field back to zero; all keys if it has none.
    Clear,
    /// Modifies the values of the request on their way to the handler, without a map.
    Modify,
}

/// Streams of a method with a filter. Each message of a stream is one call of the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FilterStreams {
    /// One request, one reply.
    #[default]
    Unary,
    /// A stream of requests, one reply: it has the last result for each key.
    Client,
    /// A stream of requests, each with a reply, in the same order.
    Both,
}

/// Position of a typed field in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field {
    /// Field numbers from the message down to the typed field: `[3, 1]` is field 1 of field 3.
    pub path: &'static [u32],
    /// Dotted path, for errors: `NewGrad.inner.tensor`.
    pub name: &'static str,
    /// Type of the field.
    pub shape: Shape,
}

/// Types of `pathcall/types.proto` (NetRPC §4: INC-enabled data types).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// `IntArray`: `repeated sint64 data = 1`.
    IntArray,
    /// `FPArray`: `repeated double data = 1`.
    FpArray,
    /// `FPArray32`: `repeated float data = 1`.
    FpArray32,
    /// `STRINTMap`: `map<string, sint64> map = 1`.
    StrInt,
    /// `STRFPMap`: `map<string, double> map = 1`.
    StrFp,
    /// `INTINTMap`: `map<sint64, sint64> map = 1`.
    IntInt,
    /// `INTFPMap`: `map<sint64, double> map = 1`.
    IntFp,
    /// `IntValue`: `sint64 value = 1`.
    Int,
    /// `FPValue`: `double value = 1`.
    Fp,
}

impl Shape {
    /// All shapes, in the order of `types.proto`.
    pub const ALL: [Self; 9] = [
        Self::IntArray,
        Self::FpArray,
        Self::FpArray32,
        Self::StrInt,
        Self::StrFp,
        Self::IntInt,
        Self::IntFp,
        Self::Int,
        Self::Fp,
    ];

    /// Name of the message in `types.proto`, without the package.
    #[must_use]
    pub const fn proto_name(self) -> &'static str {
        match self {
            Self::IntArray => "IntArray",
            Self::FpArray => "FPArray",
            Self::FpArray32 => "FPArray32",
            Self::StrInt => "STRINTMap",
            Self::StrFp => "STRFPMap",
            Self::IntInt => "INTINTMap",
            Self::IntFp => "INTFPMap",
            Self::Int => "IntValue",
            Self::Fp => "FPValue",
        }
    }

    /// True for an array, whose keys are the indices 0, 1, 2, …
    #[must_use]
    pub const fn is_array(self) -> bool {
        matches!(self, Self::IntArray | Self::FpArray | Self::FpArray32)
    }

    /// True for a map.
    #[must_use]
    pub const fn is_map(self) -> bool {
        matches!(self, Self::StrInt | Self::StrFp | Self::IntInt | Self::IntFp)
    }

    /// True for a single number, which is an array of length one.
    #[must_use]
    pub const fn is_scalar(self) -> bool {
        matches!(self, Self::Int | Self::Fp)
    }

    /// True for floating-point values, to which `Precision` applies.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::FpArray | Self::FpArray32 | Self::StrFp | Self::IntFp | Self::Fp)
    }

    /// True for string keys; all other keys are integers.
    #[must_use]
    pub const fn has_string_keys(self) -> bool {
        matches!(self, Self::StrInt | Self::StrFp)
    }
}
