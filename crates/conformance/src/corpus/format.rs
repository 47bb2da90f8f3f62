//! JSON lines of a corpus file, as `conformance/README.md` describes them.

use pathcall_program::{Endpoint, FrameDropReason, InstalledApplication, InstalledPool, Size};
use pathcall_wire::TokenKey;
use serde::{Deserialize, Serialize};

use super::registers::{StateLine, is_default};
use super::{Case, VERSION};
use crate::ProgramOutcome;
use crate::step::{ProgramStep, StepEffect};

/// Line of a file, after the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorpusLine {
    /// Remark on the lines that follow.
    Remark(String),
    /// Step with its effect.
    Step {
        /// Step.
        step: ProgramStep,
        /// Effect; without the reason of a refusal.
        effect: StepEffect,
    },
    /// Registers and counters after the steps so far.
    State(Box<StateLine>),
}

/// Error in a corpus file.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// Invalid line.
    #[error("line {line}: {error}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// JSON error.
        error: serde_json::Error,
    },
    /// Frame that is not a string of hexadecimal digit pairs.
    #[error("line {line}: expected pairs of hexadecimal digits")]
    Hex {
        /// Line number, from 1.
        line: usize,
    },
    /// Unknown format.
    #[error("format {format:?} version {version}, expected {FORMAT:?} version {VERSION}")]
    Format {
        /// Name of the format in the file.
        format: String,
        /// Version in the file.
        version: u32,
    },
    /// File without a header line.
    #[error("the file is empty")]
    Empty,
}

/// Name of the format.
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
#[serde(remote = "InstalledApplication", deny_unknown_fields)]
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
#[serde(remote = "InstalledPool", deny_unknown_fields)]
struct PoolDef {
    gaid: u32,
    version: u32,
    servers: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Change {
    Install(#[serde(with = "ApplicationDef")] InstalledApplication),
    Key { gaid: u32, key: Option<[String; 2]> },
    Remove { gaid: u32 },
    Reset { gaid: u32 },
    Endpoint(#[serde(with = "EndpointDef")] Endpoint),
    RemoveEndpoint { endpoint: u32 },
    Group { gaid: u32, endpoints: Vec<u32> },
    Pool(#[serde(with = "PoolDef")] InstalledPool),
    NumberAfter { last: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum JsonLine {
    Remark(String),
    Frame {
        r#in: String,
        #[serde(default, skip_serializing_if = "is_default")]
        congested: bool,
        out: OutcomeLine,
    },
    Refused(Change),
    State(StateLine),
    #[serde(untagged)]
    Change(Change),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum OutcomeLine {
    Forward(CopyLine),
    Copies(Vec<CopyLine>),
    Drop(ReasonLine),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyLine {
    endpoint: u32,
    frame: String,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum ReasonLine {
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
    let lines = case.lines.iter().map(|line| json(&JsonLine::of(line)));
    std::iter::once(json(&header)).chain(lines).map(|line| line + "\n").collect()
}

pub(super) fn read(text: &str) -> Result<Case, CorpusError> {
    let mut lines = (1..).zip(text.lines());
    let (_, first) = lines.next().ok_or(CorpusError::Empty)?;
    let header: Header = serde_json::from_str(first).map_err(|error| CorpusError::Line { line: 1, error })?;
    if header.format != FORMAT || header.version != VERSION {
        return Err(CorpusError::Format { format: header.format, version: header.version });
    }
    let lines = lines.map(|(line, text)| {
        let text: JsonLine = serde_json::from_str(text).map_err(|error| CorpusError::Line { line, error })?;
        text.into_line().ok_or(CorpusError::Hex { line })
    });
    Ok(Case { title: header.title, memory: header.memory, lines: lines.collect::<Result<_, _>>()? })
}

/// JSON of a value whose serialization cannot fail.
fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("strings and numbers, keys that are strings")
}

impl JsonLine {
    fn of(line: &CorpusLine) -> Self {
        match line {
            CorpusLine::Remark(text) => Self::Remark(text.clone()),
            CorpusLine::State(state) => Self::State((**state).clone()),
            CorpusLine::Step { step: ProgramStep::Frame { bytes, congested }, effect } => {
                Self::Frame { r#in: hex(bytes), congested: *congested, out: OutcomeLine::of(effect) }
            }
            CorpusLine::Step { step, effect } => {
                let change = Change::of(step).expect("frames are written above");
                if *effect == StepEffect::Changed { Self::Change(change) } else { Self::Refused(change) }
            }
        }
    }

    fn into_line(self) -> Option<CorpusLine> {
        Some(match self {
            Self::Remark(text) => CorpusLine::Remark(text),
            Self::State(state) => CorpusLine::State(Box::new(state)),
            Self::Frame { r#in, congested, out } => CorpusLine::Step {
                step: ProgramStep::Frame { bytes: bytes(&r#in)?, congested },
                effect: StepEffect::Frame(out.into_outcome()?),
            },
            Self::Change(change) => CorpusLine::Step { step: change.into_step()?, effect: StepEffect::Changed },
            Self::Refused(change) => CorpusLine::Step { step: change.into_step()?, effect: StepEffect::Refused(None) },
        })
    }
}

impl Change {
    fn of(step: &ProgramStep) -> Option<Self> {
        Some(match step {
            ProgramStep::Install(application) => Self::Install(*application),
            ProgramStep::Authenticate(gaid, key) => {
                let words = key.map(|key| key.words().map(|word| format!("{word:016x}")));
                Self::Key { gaid: *gaid, key: words }
            }
            ProgramStep::Remove(gaid) => Self::Remove { gaid: *gaid },
            ProgramStep::Reset(gaid) => Self::Reset { gaid: *gaid },
            ProgramStep::SetEndpoint(endpoint) => Self::Endpoint(*endpoint),
            ProgramStep::RemoveEndpoint(endpoint) => Self::RemoveEndpoint { endpoint: *endpoint },
            ProgramStep::SetGroup(gaid, endpoints) => Self::Group { gaid: *gaid, endpoints: endpoints.clone() },
            ProgramStep::InstallPool(pool) => Self::Pool(pool.clone()),
            ProgramStep::NumberAfter(last) => Self::NumberAfter { last: *last },
            ProgramStep::Frame { .. } => return None,
        })
    }

    fn into_step(self) -> Option<ProgramStep> {
        Some(match self {
            Self::Install(application) => ProgramStep::Install(application),
            Self::Key { gaid, key: None } => ProgramStep::Authenticate(gaid, None),
            Self::Key { gaid, key: Some([k0, k1]) } => {
                let word = |text: &str| u64::from_str_radix(text, 16).ok();
                ProgramStep::Authenticate(gaid, Some(TokenKey::new([word(&k0)?, word(&k1)?])))
            }
            Self::Remove { gaid } => ProgramStep::Remove(gaid),
            Self::Reset { gaid } => ProgramStep::Reset(gaid),
            Self::Endpoint(endpoint) => ProgramStep::SetEndpoint(endpoint),
            Self::RemoveEndpoint { endpoint } => ProgramStep::RemoveEndpoint(endpoint),
            Self::Group { gaid, endpoints } => ProgramStep::SetGroup(gaid, endpoints),
            Self::Pool(pool) => ProgramStep::InstallPool(pool),
            Self::NumberAfter { last } => ProgramStep::NumberAfter(last),
        })
    }
}

impl OutcomeLine {
    /// Outcome of a frame. An unknown reason, and an effect that is not a frame's, become malformed.
    fn of(effect: &StepEffect) -> Self {
        let to = |endpoint: &u32, frame: &Vec<u8>| CopyLine { endpoint: *endpoint, frame: hex(frame) };
        match effect {
            StepEffect::Frame(ProgramOutcome::Forward(endpoint, frame)) => Self::Forward(to(endpoint, frame)),
            StepEffect::Frame(ProgramOutcome::Copies(copies)) => {
                Self::Copies(copies.iter().map(|(endpoint, frame)| to(endpoint, frame)).collect())
            }
            StepEffect::Frame(ProgramOutcome::Drop(Some(reason))) => Self::Drop(ReasonLine::of(*reason)),
            _ => Self::Drop(ReasonLine::Malformed),
        }
    }

    fn into_outcome(self) -> Option<ProgramOutcome> {
        let to = |to: &CopyLine| Some((to.endpoint, bytes(&to.frame)?));
        Some(match &self {
            Self::Forward(one) => to(one).map(|(endpoint, frame)| ProgramOutcome::Forward(endpoint, frame))?,
            Self::Copies(all) => ProgramOutcome::Copies(all.iter().map(to).collect::<Option<_>>()?),
            Self::Drop(why) => ProgramOutcome::Drop(Some(why.reason())),
        })
    }
}

impl ReasonLine {
    const fn of(reason: FrameDropReason) -> Self {
        match reason {
            FrameDropReason::Malformed => Self::Malformed,
            FrameDropReason::Forged => Self::Forged,
            FrameDropReason::Stale => Self::Stale,
            FrameDropReason::Counted => Self::Counted,
            FrameDropReason::NotAdmitted => Self::NotAdmitted,
            FrameDropReason::UnknownEndpoint => Self::UnknownEndpoint,
            FrameDropReason::Unauthentic => Self::Unauthentic,
            FrameDropReason::Filtered => Self::Filtered,
        }
    }

    const fn reason(self) -> FrameDropReason {
        match self {
            Self::Malformed => FrameDropReason::Malformed,
            Self::Forged => FrameDropReason::Forged,
            Self::Stale => FrameDropReason::Stale,
            Self::Counted => FrameDropReason::Counted,
            Self::NotAdmitted => FrameDropReason::NotAdmitted,
            Self::UnknownEndpoint => FrameDropReason::UnknownEndpoint,
            Self::Unauthentic => FrameDropReason::Unauthentic,
            Self::Filtered => FrameDropReason::Filtered,
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
