//! Methods that a pool of servers answers: what their option says, and what is wrong with it.

use std::fmt;
use std::time::Duration;

use pathcall_proto::manifest::{Balance, Hedging};
use prost_reflect::{DynamicMessage, Value};

use crate::diagnostic::Diagnostic;
use crate::load::Steered;

/// A method that a pool of servers answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Cloned {
    /// The HTTP/2 path: `/pkg.Service/Method`.
    pub path: String,
    /// The protobuf package that declares it.
    pub package: String,
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

/// One line for people.
impl fmt::Display for Cloned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, clone, balance, budget, hedging, cancel, workers, .. } = self;
        let balance = match balance {
            Balance::Random => "a random server",
            Balance::Shortest => "the shorter queue of two",
            Balance::RoundRobin => "one server after the other",
        };
        let clone = if *clone { "cloned to two idle servers, else to " } else { "to " };
        write!(f, "{path}: {clone}{balance}, extra requests up to {budget} of the calls")?;
        if let Some(Hedging { delay_ns, max_attempts, non_fatal }) = hedging {
            write!(f, ", hedged after {:?}, {max_attempts} requests at most", Duration::from_nanos(*delay_ns))?;
            if *non_fatal > 0 {
                write!(f, ", {} status codes not fatal", non_fatal.count_ones())?;
            }
        }
        if *cancel {
            write!(f, ", losers cancelled")?;
        }
        if *workers > 0 { write!(f, ", {workers} at once at a server") } else { Ok(()) }
    }
}

/// What is wrong, and what to do about it.
type Wrong = (String, &'static str);

/// The methods, by path, that can mean what they say.
pub(crate) fn resolve(steered: &[Steered], problems: &mut Vec<Diagnostic>) -> Vec<Cloned> {
    let mut methods = Vec::new();
    for Steered { method, says, at, filtered, delegated, .. } in steered {
        let service = method.parent_service();
        let path = format!("/{}/{}", service.full_name(), method.name());
        let streams = method.is_client_streaming() || method.is_server_streaming();
        let found = if streams {
            Err(("streams; only unary calls are cloned".to_owned(), "remove the option or the `stream`"))
        } else if *filtered || *delegated {
            let other = if *filtered { "pathcall.filter" } else { "pathcall.delegate" };
            let what = format!("has `{other}` too; a call goes one way only");
            Err((what, "remove one of the options"))
        } else {
            read(&path, service.package_name(), says)
        };
        match found {
            Ok(found) => methods.extend(found),
            Err((wrong, hint)) => {
                problems.push(Diagnostic::error(at.clone(), format!("{path} {wrong}")).hint(hint));
            }
        }
    }
    methods.sort_by(|a, b| a.path.cmp(&b.path));
    methods
}

/// The method as its option describes it; `None`: it may not be done twice, so it is a plain call.
fn read(path: &str, package: &str, says: &DynamicMessage) -> Result<Option<Cloned>, Wrong> {
    let idempotent = flag(says, "idempotent");
    if !idempotent {
        let other = says.fields().find(|(field, _)| field.name() != "idempotent");
        return match other {
            None => Ok(None),
            Some((field, _)) => Err((
                format!("says `{}` and is not idempotent; what may not be done twice is sent once", field.name()),
                "add `idempotent: true` if doing it twice is as good as once, or remove the rest",
            )),
        };
    }
    let budget = match value(says, "budget") {
        Some(Value::F64(budget)) => budget,
        _ => 1.0,
    };
    if !(0.0..=10.0).contains(&budget) {
        let what = format!("has the budget {budget}, expected a share of the calls between 0 and 10");
        return Err((what, "0.1 is one extra request for ten calls"));
    }
    let balance = match value(says, "balance") {
        Some(Value::EnumNumber(1)) => Balance::Shortest,
        Some(Value::EnumNumber(2)) => Balance::RoundRobin,
        _ => Balance::Random,
    };
    let clone = flag(says, "clone");
    if clone && balance == Balance::RoundRobin {
        return Err((
            "is cloned and takes servers in turn; the element clones to pairs that are drawn".to_owned(),
            "add `clone: false`, or choose RANDOM or SHORTEST",
        ));
    }
    let hedging = match value(says, "hedgingPolicy") {
        Some(Value::Message(policy)) if says.has_field_by_name("hedgingPolicy") => Some(hedging(&policy)?),
        _ => None,
    };
    let workers = match value(says, "workers") {
        Some(Value::U32(0)) if says.has_field_by_name("workers") => {
            return Err(("has 0 workers, expected at least 1".to_owned(), "remove it to leave it to the server"));
        }
        Some(Value::U32(workers)) => workers,
        _ => 0,
    };
    let cancel = flag(says, "cancel");
    Ok(Some(Cloned { path: path.into(), package: package.into(), clone, balance, budget, hedging, cancel, workers }))
}

fn hedging(policy: &DynamicMessage) -> Result<Hedging, Wrong> {
    let attempts = match value(policy, "maxAttempts") {
        Some(Value::U32(attempts)) => attempts,
        _ => 0,
    };
    // A6: more than five are treated as five; we say so instead.
    let max_attempts = u8::try_from(attempts)
        .ok()
        .filter(|attempts| (2..=5).contains(attempts))
        .ok_or_else(|| (format!("has the maxAttempts {attempts}, expected 2 to 5"), "the first request is counted"))?;
    let text = match value(policy, "hedgingDelay") {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse::<f64>().ok());
    let delay = seconds.filter(|seconds| (0.0..=3600.0).contains(seconds) && !text.starts_with(['-', '+']));
    let delay = delay.map(Duration::from_secs_f64).ok_or_else(|| {
        (format!("has the hedgingDelay {text:?}, expected seconds and an `s`"), "20 ms are \"0.02s\"")
    })?;
    let codes = match value(policy, "nonFatalStatusCodes") {
        Some(Value::List(codes)) => codes,
        _ => Vec::new(),
    };
    // The enumeration has no others.
    let bits = codes.iter().filter_map(Value::as_enum_number).map(|code| 1_u32 << (code & 31));
    let non_fatal = bits.fold(0, |all, bit| all | bit);
    Ok(Hedging { delay_ns: u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), max_attempts, non_fatal })
}

/// A field's value, or its default.
pub(crate) fn value(message: &DynamicMessage, name: &str) -> Option<Value> {
    message.get_field_by_name(name).map(std::borrow::Cow::into_owned)
}

fn flag(message: &DynamicMessage, name: &str) -> bool {
    value(message, name).and_then(|value| value.as_bool()) == Some(true)
}
