//! Lines of a file as JSON: what `conformance/README.md` describes, and nothing else.

use pathcall_program::{Application, Endpoint, Pool, Reason, Size};
use pathcall_wire::TokenKey;
use serde::{Deserialize, Serialize};

use super::registers::{StateLine, is_default};
use super::{Case, VERSION};
use crate::Outcome;
use crate::step::{Effect, Step};

/// A line of a file, after the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A remark on what follows.
    Remark(String),
    /// What happens, and what it does.
    Step {
        /// What happens.
        step: Step,
        /// What it does. Why a change is refused is not told.
        effect: Effect,
    },
    /// What registers and counters hold now.
    State(Box<StateLine>),
}

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// A line is not what it should be.
    #[error("line {line}: {error}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What the parser says.
        error: serde_json::Error,
    },
    /// A frame is not written as pairs of hexadecimal digits.
    #[error("line {line}: expected pairs of hexadecimal digits")]
    Hex {
        /// Counted from 1.
        line: usize,
    },
    /// A file of another format.
    #[error("format {format:?} version {version}, expected {FORMAT:?} version {VERSION}")]
    Format {
        /// What it says that it is.
        format: String,
        /// And of which version.
        version: u32,
    },
    /// A file without a first line.
    #[error("the file is empty")]
    Empty,
}

/// What a file says that it is.
const FORMAT: &str = "pathcall-conformance";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    version: u32,
    title: String,
    #[serde(with = "SizeDef")]
    memory: Size,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Size", deny_unknown_fields)]
struct SizeDef {
    rows: usize,
    lanes: usize,
    slots: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Application", deny_unknown_fields)]
struct ApplicationDef {
    gaid: u32,
    epoch: u32,
    owner: u32,
    row_base: u32,
    rows: u32,
    lane_base: u32,
    width: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Endpoint", deny_unknown_fields)]
struct EndpointDef {
    endpoint: u32,
    incarnation: u32,
    gaid: u32,
    slot_base: u32,
    slots: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Pool", deny_unknown_fields)]
struct PoolDef {
    gaid: u32,
    version: u32,
    servers: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Change {
    Install(#[serde(with = "ApplicationDef")] Application),
    Key { gaid: u32, key: Option<[String; 2]> },
    Remove { gaid: u32 },
    Reset { gaid: u32 },
    Endpoint(#[serde(with = "EndpointDef")] Endpoint),
    RemoveEndpoint { endpoint: u32 },
    Group { gaid: u32, endpoints: Vec<u32> },
    Pool(#[serde(with = "PoolDef")] Pool),
    NumberAfter { last: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Text {
    Remark(String),
    Frame {
        r#in: String,
        #[serde(default, skip_serializing_if = "is_default")]
        congested: bool,
        out: Out,
    },
    Refused(Change),
    State(StateLine),
    #[serde(untagged)]
    Change(Change),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Out {
    Forward(To),
    Copies(Vec<To>),
    Drop(Why),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct To {
    endpoint: u32,
    frame: String,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Why {
    Malformed,
    Forged,
    Stale,
    Counted,
    NotAdmitted,
    UnknownEndpoint,
    Unauthentic,
    Filtered,
}

pub(super) fn write(case: &Case) -> String {
    let header = Header { format: FORMAT.to_owned(), version: VERSION, title: case.title.clone(), memory: case.memory };
    let lines = case.lines.iter().map(|line| json(&Text::of(line)));
    std::iter::once(json(&header)).chain(lines).map(|line| line + "\n").collect()
}

pub(super) fn read(text: &str) -> Result<Case, Wrong> {
    let mut lines = (1..).zip(text.lines());
    let (_, first) = lines.next().ok_or(Wrong::Empty)?;
    let header: Header = serde_json::from_str(first).map_err(|error| Wrong::Line { line: 1, error })?;
    if header.format != FORMAT || header.version != VERSION {
        return Err(Wrong::Format { format: header.format, version: header.version });
    }
    let lines = lines.map(|(line, text)| {
        let text: Text = serde_json::from_str(text).map_err(|error| Wrong::Line { line, error })?;
        text.into_line().ok_or(Wrong::Hex { line })
    });
    Ok(Case { title: header.title, memory: header.memory, lines: lines.collect::<Result<_, _>>()? })
}

/// The JSON of what has no way to fail.
fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("strings and numbers, keys that are strings")
}

impl Text {
    fn of(line: &Line) -> Self {
        match line {
            Line::Remark(text) => Self::Remark(text.clone()),
            Line::State(state) => Self::State((**state).clone()),
            Line::Step { step: Step::Frame { bytes, congested }, effect } => {
                Self::Frame { r#in: hex(bytes), congested: *congested, out: Out::of(effect) }
            }
            Line::Step { step, effect } => {
                let change = Change::of(step).expect("frames are written above");
                if *effect == Effect::Changed { Self::Change(change) } else { Self::Refused(change) }
            }
        }
    }

    fn into_line(self) -> Option<Line> {
        Some(match self {
            Self::Remark(text) => Line::Remark(text),
            Self::State(state) => Line::State(Box::new(state)),
            Self::Frame { r#in, congested, out } => Line::Step {
                step: Step::Frame { bytes: bytes(&r#in)?, congested },
                effect: Effect::Frame(out.into_outcome()?),
            },
            Self::Change(change) => Line::Step { step: change.into_step()?, effect: Effect::Changed },
            Self::Refused(change) => Line::Step { step: change.into_step()?, effect: Effect::Refused(None) },
        })
    }
}

impl Change {
    fn of(step: &Step) -> Option<Self> {
        Some(match step {
            Step::Install(application) => Self::Install(*application),
            Step::Authenticate(gaid, key) => {
                let words = key.map(|key| key.words().map(|word| format!("{word:016x}")));
                Self::Key { gaid: *gaid, key: words }
            }
            Step::Remove(gaid) => Self::Remove { gaid: *gaid },
            Step::Reset(gaid) => Self::Reset { gaid: *gaid },
            Step::SetEndpoint(endpoint) => Self::Endpoint(*endpoint),
            Step::RemoveEndpoint(endpoint) => Self::RemoveEndpoint { endpoint: *endpoint },
            Step::SetGroup(gaid, endpoints) => Self::Group { gaid: *gaid, endpoints: endpoints.clone() },
            Step::InstallPool(pool) => Self::Pool(pool.clone()),
            Step::NumberAfter(last) => Self::NumberAfter { last: *last },
            Step::Frame { .. } => return None,
        })
    }

    fn into_step(self) -> Option<Step> {
        Some(match self {
            Self::Install(application) => Step::Install(application),
            Self::Key { gaid, key: None } => Step::Authenticate(gaid, None),
            Self::Key { gaid, key: Some([k0, k1]) } => {
                let word = |text: &str| u64::from_str_radix(text, 16).ok();
                Step::Authenticate(gaid, Some(TokenKey::new([word(&k0)?, word(&k1)?])))
            }
            Self::Remove { gaid } => Step::Remove(gaid),
            Self::Reset { gaid } => Step::Reset(gaid),
            Self::Endpoint(endpoint) => Step::SetEndpoint(endpoint),
            Self::RemoveEndpoint { endpoint } => Step::RemoveEndpoint(endpoint),
            Self::Group { gaid, endpoints } => Step::SetGroup(gaid, endpoints),
            Self::Pool(pool) => Step::InstallPool(pool),
            Self::NumberAfter { last } => Step::NumberAfter(last),
        })
    }
}

impl Out {
    /// What became of a frame. A reason that is not told, and what is no frame's effect, reads as malformed.
    fn of(effect: &Effect) -> Self {
        let to = |endpoint: &u32, frame: &Vec<u8>| To { endpoint: *endpoint, frame: hex(frame) };
        match effect {
            Effect::Frame(Outcome::Forward(endpoint, frame)) => Self::Forward(to(endpoint, frame)),
            Effect::Frame(Outcome::Copies(copies)) => {
                Self::Copies(copies.iter().map(|(endpoint, frame)| to(endpoint, frame)).collect())
            }
            Effect::Frame(Outcome::Drop(Some(reason))) => Self::Drop(Why::of(*reason)),
            _ => Self::Drop(Why::Malformed),
        }
    }

    fn into_outcome(self) -> Option<Outcome> {
        let to = |to: &To| Some((to.endpoint, bytes(&to.frame)?));
        Some(match &self {
            Self::Forward(one) => to(one).map(|(endpoint, frame)| Outcome::Forward(endpoint, frame))?,
            Self::Copies(all) => Outcome::Copies(all.iter().map(to).collect::<Option<_>>()?),
            Self::Drop(why) => Outcome::Drop(Some(why.reason())),
        })
    }
}

impl Why {
    const fn of(reason: Reason) -> Self {
        match reason {
            Reason::Malformed => Self::Malformed,
            Reason::Forged => Self::Forged,
            Reason::Stale => Self::Stale,
            Reason::Counted => Self::Counted,
            Reason::NotAdmitted => Self::NotAdmitted,
            Reason::UnknownEndpoint => Self::UnknownEndpoint,
            Reason::Unauthentic => Self::Unauthentic,
            Reason::Filtered => Self::Filtered,
        }
    }

    const fn reason(self) -> Reason {
        match self {
            Self::Malformed => Reason::Malformed,
            Self::Forged => Reason::Forged,
            Self::Stale => Reason::Stale,
            Self::Counted => Reason::Counted,
            Self::NotAdmitted => Reason::NotAdmitted,
            Self::UnknownEndpoint => Reason::UnknownEndpoint,
            Self::Unauthentic => Reason::Unauthentic,
            Self::Filtered => Reason::Filtered,
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect())?
}
