//! What a service asks of its path, as constants.
//!
//! `pathcall-build` reads the `.proto` files and the NetFilters they name, checks them against each
//! other, and writes one [`Manifest`] per protobuf package beside the code of the ordinary
//! generator. The channel and the server layer look the method of a call up in it ([`Manifest::method`])
//! and find out which field of the message travels as map frames, and what happens to it on the
//! way. Everything here is `'static` and `Copy`: nothing is parsed or allocated when a program starts.

/// All methods of one protobuf package that ask something of their path, and the descriptors to print them with.
#[derive(Debug, Clone, Copy)]
pub struct Manifest {
    /// The methods that name a filter, sorted by path.
    pub methods: &'static [Method],
    /// The paths of the methods that servers may pass on, sorted.
    pub delegated: &'static [&'static str],
    /// The methods that a pool of servers answers, sorted by path.
    pub cloned: &'static [Cloned],
    /// The methods that a host's processor or its accelerator may answer, sorted by path.
    pub placed: &'static [Placed],
    /// A `google.protobuf.FileDescriptorSet` of the package's files and all they import, with the
    /// `pathcall` options in it.
    pub descriptor: &'static [u8],
}

impl Manifest {
    /// The method with this HTTP/2 path (`/pkg.Service/Method`), if it names a filter.
    #[must_use]
    pub fn method(&self, path: &str) -> Option<&'static Method> {
        self.methods.binary_search_by(|method| method.path.cmp(path)).ok().map(|i| &self.methods[i])
    }

    /// Whether servers may pass calls of the method with this HTTP/2 path on (DPC ch. 3).
    #[must_use]
    pub fn is_delegated(&self, path: &str) -> bool {
        self.delegated.binary_search(&path).is_ok()
    }

    /// The method with this HTTP/2 path, if a pool of servers answers it (NetClone).
    #[must_use]
    pub fn cloned(&self, path: &str) -> Option<&'static Cloned> {
        self.cloned.binary_search_by(|method| method.path.cmp(path)).ok().map(|i| &self.cloned[i])
    }

    /// The method with this HTTP/2 path, if a host's processor or accelerator may answer it (LEO).
    #[must_use]
    pub fn placed(&self, path: &str) -> Option<&'static Placed> {
        self.placed.binary_search_by(|method| method.path.cmp(path)).ok().map(|i| &self.placed[i])
    }
}

/// One method that a host's processor or its accelerator may answer (LEO §III-A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The HTTP/2 path: `/pkg.Service/Method`.
    pub path: &'static str,
    /// The application's file as the `.proto` names it.
    pub file: &'static str,
    /// What stands in it.
    pub application: &'static str,
    /// Which of the application's types of requests it is.
    pub request: &'static str,
    /// Number of the field whose value says what a request is about; 0: its order does not matter.
    pub key: u32,
}

/// One method that a pool of servers answers; doing it twice is as good as once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cloned {
    /// The HTTP/2 path: `/pkg.Service/Method`.
    pub path: &'static str,
    /// Whether the element may clone its calls.
    pub clone: bool,
    /// Which server gets a call that is not cloned.
    pub balance: Balance,
    /// Extra requests at most, as a share of the calls.
    pub budget: f64,
    /// Whether a call goes to another pair when it takes long.
    pub hedging: Option<Hedging>,
    /// Whether losers that have not begun are told not to.
    pub cancel: bool,
    /// Calls that a server works on at once; 0: not said.
    pub workers: u32,
}

/// Which server gets a call that is not cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Balance {
    /// A random one.
    Random,
    /// The one of two whose queue is shorter.
    Shortest,
    /// One after the other.
    RoundRobin,
}

/// gRPC's hedging policy (A6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hedging {
    /// `hedgingDelay` in nanoseconds.
    pub delay_ns: u64,
    /// `maxAttempts`: requests of one call at most, 2 to 5.
    pub max_attempts: u8,
    /// `nonFatalStatusCodes`: bit n, and code n of a server does not end the call while another may do better.
    pub non_fatal: u32,
}

impl Hedging {
    /// Whether a call goes on when a server says this status code.
    #[must_use]
    pub const fn goes_on(&self, code: u8) -> bool {
        code < 32 && self.non_fatal & 1 << code != 0
    }
}

/// One method and its NetFilter (NetRPC §4), resolved against its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method {
    /// The HTTP/2 path: `/pkg.Service/Method`.
    pub path: &'static str,
    /// `AppName`: methods with the same name work on the same map.
    pub app: &'static str,
    /// Digest of all filters of `app` in the service: equal filters, equal digest.
    pub digest: u64,
    /// `Precision`: decimal digits after the point that a floating-point value keeps, 0..=15.
    pub precision: u8,
    /// What the filter's primitives amount to.
    pub kind: Kind,
    /// `Stream.modify`: applied to each quantised value before it is added.
    pub modify: Modify,
    /// The typed field of the request that leaves the message.
    pub request: Option<Field>,
    /// The typed field of the reply that is filled in from the map.
    pub reply: Option<Field>,
    /// The request type declares more than `request`. Whether a call has any of it is seen at run time.
    pub untyped_request: bool,
    /// `CntFwd.to`: who gets the answer.
    pub to: Target,
    /// `ack`: who must have what is added before the call completes.
    pub ack: Ack,
}

/// `ack`: who must have what is added before the call completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ack {
    /// The element will do: the caller can repeat what is lost with it.
    #[default]
    Element,
    /// The server: nothing that was reported done is lost, even with element and caller together.
    Server,
}

/// The meaning of a filter: which primitives it combines (NetRPC Table 1 and 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SyncAgtr: `threshold` callers each add an array; all get the sum, and the map is empty again.
    Sum {
        /// How many callers make a sum, at least 1.
        threshold: u32,
        /// Who keeps it until all have it.
        clear: ClearPolicy,
    },
    /// AsyncAgtr and KeyValue: the values are added under their keys (an array's are its indices).
    Add {
        /// The reply carries the values after the addition, for the same keys.
        get: bool,
        /// [`Target::Server`] calls the handler each time; [`Target::Src`] answers on the way.
        to: Target,
    },
    /// Reads the keys of the request's typed field; all keys if it has none.
    Query,
    /// Agreement: counts one vote per key of the request; at `threshold` the call is answered.
    /// A threshold of 1 is test-and-set.
    Count {
        /// Votes that a key needs, at least 1.
        threshold: u32,
        /// Who hears of it.
        to: Target,
    },
    /// Sets the keys of the request's typed field back to zero; all keys if it has none.
    Clear,
}

/// `clear` of a sum (NetRPC §5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClearPolicy {
    /// The server has a copy of it before anybody else.
    Copy,
    /// The element, which answers by itself and has two places for each array.
    Shadow,
}

/// `CntFwd.to`: whom a frame is forwarded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Every caller of the application.
    All,
    /// Back to the caller that sent it.
    Src,
    /// On to the server.
    Server,
}

/// `Stream.modify`: `value = op(value, para)` on each value, in 32 bits (NetRPC Table 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Modify {
    /// The operator.
    pub op: Op,
    /// Its operand, in units of the quantised value; 0 where the operator takes none.
    pub para: i32,
}

impl Modify {
    /// Leaves the values as they are.
    pub const NOP: Self = Self { op: Op::Nop, para: 0 };
}

/// The operators of `Stream.modify`; the numbers are those of a frame's `OpType` (NetRPC Table 8, Fig. 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Leaves the value.
    Nop = 0,
    /// `max(value, para)`.
    Max = 1,
    /// `min(value, para)`.
    Min = 2,
    /// `value + para`.
    Add = 3,
    /// `para`.
    Assign = 4,
    /// `value << para`.
    ShiftL = 5,
    /// `value >> para`, arithmetic.
    ShiftR = 6,
    /// `value & para`.
    Band = 7,
    /// `value | para`.
    Bor = 8,
    /// `!value`; takes no `para`.
    Bnot = 9,
    /// `value ^ para`.
    Bxor = 10,
}

/// Where a typed field is in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field {
    /// Field numbers from the message down to the typed field: `[3, 1]` is field 1 of field 3.
    pub path: &'static [u32],
    /// The same in words, for errors: `NewGrad.inner.tensor`.
    pub name: &'static str,
    /// Its type.
    pub shape: Shape,
}

/// The typed fields of `pathcall/types.proto` (NetRPC §4: INC-enabled data types).
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
    /// All of them, in the order of `types.proto`.
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

    /// The message of `types.proto` it stands for, without the package.
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

    /// An array: its keys are the indices 0, 1, 2, …
    #[must_use]
    pub const fn is_array(self) -> bool {
        matches!(self, Self::IntArray | Self::FpArray | Self::FpArray32)
    }

    /// A map.
    #[must_use]
    pub const fn is_map(self) -> bool {
        matches!(self, Self::StrInt | Self::StrFp | Self::IntInt | Self::IntFp)
    }

    /// One number: an array of length one.
    #[must_use]
    pub const fn is_scalar(self) -> bool {
        matches!(self, Self::Int | Self::Fp)
    }

    /// The values are floating-point, so `Precision` applies to them.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::FpArray | Self::FpArray32 | Self::StrFp | Self::IntFp | Self::Fp)
    }

    /// The keys are strings; all others have integers for keys.
    #[must_use]
    pub const fn has_string_keys(self) -> bool {
        matches!(self, Self::StrInt | Self::StrFp)
    }
}
