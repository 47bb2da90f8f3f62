//! Cloned methods: resolution and checks of the option `pathcall.clone`.

use std::fmt;
use std::time::Duration;

use pathcall_proto::manifest::{Balance, HedgeBudgetConfig, Hedging};
use prost_reflect::{DynamicMessage, Value};

use crate::diagnostic::BuildDiagnostic;
use crate::load::{OptionMethod, is_idempotent};

/// Method that a pool of servers answers.
#[derive(Debug, Clone, PartialEq)]
pub struct ClonedMethod {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub path: String,
    /// Protobuf package of the service.
    pub package: String,
    /// The channel chooses the policy.
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
    /// The method is server-streaming.
    pub streaming: bool,
}

/// One-line description.
impl fmt::Display for ClonedMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, automatic, clone, balance, budget, cost, hedging, cancel, workers, streaming, .. } = self;
        let balance = match balance {
            Balance::Random => "a random server",
            Balance::Shortest => "the shorter queue of two",
            Balance::RoundRobin => "servers in rotation",
        };
        match (automatic, clone, streaming) {
            (true, ..) => write!(f, "{path}: by the policy that the channel measures as best")?,
            (_, true, _) => write!(f, "{path}: cloned to two idle servers, else to {balance}")?,
            (_, _, true) => write!(f, "{path}: a stream of {balance}")?,
            (..) => write!(f, "{path}: to {balance}")?,
        }
        write!(f, ", extra requests up to {} of the calls", budget.share)?;
        let usual = HedgeBudgetConfig::default();
        if (budget.burst, budget.per_second) != (usual.burst, usual.per_second) {
            write!(f, " + {} at once + {} a second", budget.burst, budget.per_second)?;
        }
        if *cost > 1 {
            write!(f, ", each counted as {cost}")?;
        }
        if let Some(Hedging { delay_ns, share, max_attempts, non_fatal }) = hedging {
            match share {
                0 => write!(f, ", hedged after {:?}", Duration::from_nanos(*delay_ns))?,
                share => write!(f, ", {} of the calls hedged", f64::from(*share) / 1000.0)?,
            }
            write!(f, ", {max_attempts} requests at most")?;
            if *non_fatal > 0 {
                write!(f, ", {} status codes not fatal", non_fatal.count_ones())?;
            }
        }
        if *cancel {
            write!(f, ", slower requests cancelled")?;
        }
        if *workers > 0 { write!(f, ", {workers} concurrent calls per server") } else { Ok(()) }
    }
}

/// Greatest cost of an extra request.
const COST_MAX: u16 = 1000;

/// Fields that the channel chooses for an automatic method. A unary method without them is automatic.
const CHOSEN: [&str; 3] = ["clone", "balance", "hedgingPolicy"];

/// Extra requests for each call of an automatic method, unless its option says otherwise.
const AUTOMATIC_SHARE: f64 = 0.1;

/// Error message and hint.
type Problem = (String, &'static str);

/// Resolves the methods, sorted by path, and reports invalid ones.
pub(crate) fn resolve(option_methods: &[OptionMethod], problems: &mut Vec<BuildDiagnostic>) -> Vec<ClonedMethod> {
    let mut methods = Vec::new();
    for OptionMethod { method, option, at, filtered, delegated, .. } in option_methods {
        let service = method.parent_service();
        let path = format!("/{}/{}", service.full_name(), method.name());
        let found = if method.is_client_streaming() {
            let what = "is client-streaming, but only unary and server-streaming methods can be cloned".to_owned();
            Err((what, "remove the option, or the `stream` of the request"))
        } else if *filtered || *delegated {
            let other = if *filtered { "pathcall.filter" } else { "pathcall.delegate" };
            let what = format!("has `{other}` as well, but a method can have only one of them");
            Err((what, "remove one of the options"))
        } else {
            read(&path, service.package_name(), option, is_idempotent(method), method.is_server_streaming())
        };
        match found {
            Ok(found) => methods.extend(found),
            Err((wrong, hint)) => {
                problems.push(BuildDiagnostic::error(at.clone(), format!("{path} {wrong}")).hint(hint));
            }
        }
    }
    methods.sort_by(|a, b| a.path.cmp(&b.path));
    methods
}

/// Parses the option. `by_level`: the method has an `idempotency_level`. `None`: the method is not idempotent, so its
/// calls are plain.
fn read(
    path: &str,
    package: &str,
    option: &DynamicMessage,
    by_level: bool,
    streaming: bool,
) -> Result<Option<ClonedMethod>, Problem> {
    let idempotent = if option.has_field_by_name("idempotent") { flag(option, "idempotent") } else { by_level };
    if !idempotent {
        let other = option.fields().find(|(field, _)| field.name() != "idempotent");
        return match other {
            None => Ok(None),
            Some((field, _)) => Err((
                format!("sets `{}` but is not idempotent, so its calls are sent only once", field.name()),
                "add `idempotent: true` or an `idempotency_level` if a repeat is harmless, or remove the other fields",
            )),
        };
    }
    if streaming {
        check_stream(option)?;
    }
    let chosen = CHOSEN.into_iter().find(|name| option.has_field_by_name(name));
    let by_default = chosen.is_none() && !streaming && !option.has_field_by_name("automatic");
    let automatic = by_default || flag(option, "automatic");
    if let Some(other) = chosen.filter(|_| automatic) {
        let what = format!("is automatic and sets `{other}`, which the channel chooses then");
        return Err((what, "remove `automatic`, or the other field"));
    }
    let (budget, cost) = (hedge_budget(option, automatic)?, cost(option)?);
    let balance = match value(option, "balance") {
        Some(Value::EnumNumber(1)) => Balance::Shortest,
        Some(Value::EnumNumber(2)) => Balance::RoundRobin,
        _ => Balance::Random,
    };
    let clone = flag(option, "clone") && !streaming && !automatic;
    if clone && balance == Balance::RoundRobin {
        return Err((
            "is cloned, but ROUND_ROBIN allows no clones, which go to random pairs of servers".to_owned(),
            "add `clone: false`, or choose RANDOM or SHORTEST",
        ));
    }
    let hedging = match value(option, "hedgingPolicy") {
        Some(Value::Message(policy)) if option.has_field_by_name("hedgingPolicy") => Some(hedging(&policy)?),
        _ => None,
    };
    let workers = match value(option, "workers") {
        Some(Value::U32(0)) if option.has_field_by_name("workers") => {
            return Err((
                "has 0 workers, expected at least 1".to_owned(),
                "remove the field to use the server's own number",
            ));
        }
        Some(Value::U32(workers)) => workers,
        _ => 0,
    };
    let hedges = automatic || hedging.is_some();
    let cancel = flag(option, "cancel") || streaming || hedges && !option.has_field_by_name("cancel");
    Ok(Some(ClonedMethod {
        path: path.into(),
        package: package.into(),
        automatic,
        clone,
        balance,
        budget,
        cost,
        hedging,
        cancel,
        workers,
        streaming,
    }))
}

/// Checks the fields of a server-streaming method: its calls go by gRPC, past the element and the servers' queues.
fn check_stream(option: &DynamicMessage) -> Result<(), Problem> {
    let set = |name: &str| value(option, name).filter(|_| option.has_field_by_name(name));
    let (what, hint) = if set("automatic") == Some(Value::Bool(true)) {
        ("sets `automatic: true`, but streams are only hedged", "replace `automatic` by a hedgingPolicy")
    } else if set("hedgingPolicy").is_none() {
        ("has no hedgingPolicy, but streams are only hedged", "add a hedgingPolicy, or remove the option")
    } else if set("clone") == Some(Value::Bool(true)) {
        ("sets `clone: true`, but the element clones unary calls only", "remove `clone`: the call is hedged")
    } else if set("balance") == Some(Value::EnumNumber(1)) {
        ("sets `balance: SHORTEST`, but streams do not wait in queues", "choose RANDOM or ROUND_ROBIN")
    } else if set("cancel") == Some(Value::Bool(false)) {
        ("sets `cancel: false`, but slower streams are always cancelled", "remove `cancel`")
    } else if set("workers").is_some() {
        ("sets `workers`, but streams do not wait in queues", "remove `workers`, or set it on a unary method")
    } else {
        return Ok(());
    };
    Err((format!("is streaming and {what}"), hint))
}

fn hedge_budget(option: &DynamicMessage, automatic: bool) -> Result<HedgeBudgetConfig, Problem> {
    let usual = HedgeBudgetConfig::default();
    let number = |name: &str, usual: f64| value(option, name).and_then(|value| value.as_f64()).unwrap_or(usual);
    let is_default = automatic && !option.has_field_by_name("budget");
    let share = if is_default { AUTOMATIC_SHARE } else { number("budget", usual.share) };
    if !(0.0..=10.0).contains(&share) {
        let what = format!("has the invalid budget {share}: expected a share of the calls between 0 and 10");
        return Err((what, "0.1 is one extra request for ten calls"));
    }
    let (burst, per_second) = (number("budgetBurst", usual.burst), number("budgetPerSecond", usual.per_second));
    for (name, requests) in [("budgetBurst", burst), ("budgetPerSecond", per_second)] {
        if !(0.0..=1e6).contains(&requests) {
            let what = format!("has the {name} {requests}, expected 0 to 1000000 extra requests");
            return Err((what, "0 allows a share of the calls only"));
        }
    }
    Ok(HedgeBudgetConfig { share, burst, per_second })
}

/// Units of the budget that one extra request takes.
fn cost(option: &DynamicMessage) -> Result<u16, Problem> {
    let cost = value(option, "cost").and_then(|value| value.as_u32()).unwrap_or(1);
    u16::try_from(cost)
        .ok()
        .filter(|cost| (1..=COST_MAX).contains(cost))
        .ok_or_else(|| (format!("has the cost {cost}, expected 1 to {COST_MAX}"), "2 halves the extra requests"))
}

fn hedging(policy: &DynamicMessage) -> Result<Hedging, Problem> {
    let attempts = match value(policy, "maxAttempts") {
        Some(Value::U32(attempts)) => attempts,
        _ => 0,
    };
    // A6: more than five attempts are treated as five; here they are an error.
    let max_attempts = u8::try_from(attempts)
        .ok()
        .filter(|attempts| (2..=5).contains(attempts))
        .ok_or_else(|| (format!("has the maxAttempts {attempts}, expected 2 to 5"), "the first request is counted"))?;
    let (delay_ns, share) = match value(policy, "hedgingShare") {
        Some(Value::F64(share)) if policy.has_field_by_name("hedgingShare") => {
            if policy.has_field_by_name("hedgingDelay") {
                let what = "has a hedgingDelay and a hedgingShare".to_owned();
                return Err((what, "remove the hedgingDelay to learn it"));
            }
            (0, hedging_share(share)?)
        }
        _ => (hedging_delay(policy)?, 0),
    };
    let codes = match value(policy, "nonFatalStatusCodes") {
        Some(Value::List(codes)) => codes,
        _ => Vec::new(),
    };
    // The enumeration has no other codes.
    let bits = codes.iter().filter_map(Value::as_enum_number).map(|code| 1_u32 << (code & 31));
    let non_fatal = bits.fold(0, |all, bit| all | bit);
    Ok(Hedging { delay_ns, share, max_attempts, non_fatal })
}

/// Share of the calls in thousandths.
fn hedging_share(share: f64) -> Result<u16, Problem> {
    if !(0.001..=0.5).contains(&share) {
        let what = format!("has the hedgingShare {share}, expected 0.001 to 0.5");
        return Err((what, "0.05 hedges the slowest twentieth of the calls"));
    }
    Ok((share * 1000.0).round() as u16)
}

/// Delay in nanoseconds.
fn hedging_delay(policy: &DynamicMessage) -> Result<u64, Problem> {
    let text = match value(policy, "hedgingDelay") {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse::<f64>().ok());
    let delay = seconds.filter(|seconds| (0.0..=3600.0).contains(seconds) && !text.starts_with(['-', '+']));
    let delay = delay.map(Duration::from_secs_f64).ok_or_else(|| {
        (format!("has the hedgingDelay {text:?}, expected seconds and an `s`"), "20 ms are \"0.02s\"")
    })?;
    Ok(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
}

/// Value of a field, or its default.
pub(crate) fn value(message: &DynamicMessage, name: &str) -> Option<Value> {
    message.get_field_by_name(name).map(std::borrow::Cow::into_owned)
}

fn flag(message: &DynamicMessage, name: &str) -> bool {
    value(message, name).and_then(|value| value.as_bool()) == Some(true)
}
