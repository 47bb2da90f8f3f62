//! Coverage of the step generator: each behaviour of the program occurs, and often enough.

use std::collections::BTreeMap;

use pathcall_conformance::generate::{Generator, GeneratorOptions, SIZE};
use pathcall_conformance::{ProgramExecution, ProgramOutcome, ProgramStep, StepEffect};
use pathcall_program::SwitchProgram;
use pathcall_wire::{CloneFrame, Flags, FrameKind, Instant, MapFlags, MapFrame, TokenKey};

/// Number of frames.
const FRAMES: usize = 130_000;

/// Number of occurrences of each behaviour, by name.
#[derive(Default)]
struct Tally(BTreeMap<String, u64>);

impl Tally {
    fn add(&mut self, what: impl Into<String>, times: u64) {
        *self.0.entry(what.into()).or_default() += times;
    }

    /// Checks that each behaviour occurred at least `least` times.
    fn expect(&self, least: u64, what: impl IntoIterator<Item = String>) {
        let of = |what: &String| self.0.get(what).copied().unwrap_or(0);
        let rare: Vec<_> = what.into_iter().filter(|what| of(what) < least).map(|what| (of(&what), what)).collect();
        assert!(rare.is_empty(), "less than {least} times: {rare:?} of {:#?}", self.0);
    }

    fn frame(&mut self, came: &[u8], outcome: &ProgramOutcome) {
        let map = MapFrame::new_checked(came).map(|frame| frame.kind());
        let kind = map.or_else(|_| CloneFrame::new_checked(came).map(|frame| frame.kind()));
        let kind = kind.map_or("none".to_owned(), |kind| format!("{kind:?}"));
        self.add(format!("in {kind}"), 1);
        let left = match outcome {
            ProgramOutcome::Drop(reason) => {
                return self.add(format!("{kind} dropped: {:?}", reason.expect("the reference reports a reason")), 1);
            }
            ProgramOutcome::Forward(_, frame) => frame,
            ProgramOutcome::Copies(copies) => {
                self.add(format!("{} copies", copies.len()), 1);
                let Some((_, frame)) = copies.first() else { return };
                frame
            }
        };
        if let Ok(frame) = CloneFrame::new_checked(&left[..]) {
            self.add(format!("{kind} left as {:?}", frame.kind()), 1);
            let properties = [
                ("ECN", frame.base().has(Flags::ECN)),
                ("NOT_ADMITTED", frame.base().has(Flags::NOT_ADMITTED)),
                ("cloned", matches!(outcome, ProgramOutcome::Copies(copies) if copies.len() == 2)),
                ("in parts", frame.head().parts() > 1),
                ("numbered", frame.head().req_id() >> 63 == 0),
            ];
            properties
                .iter()
                .filter(|(_, is_set)| *is_set)
                .for_each(|(name, _)| self.add(format!("{kind} left {name}"), 1));
            return;
        }
        let frame = MapFrame::new_checked(&left[..]).expect("the output is a frame");
        self.add(format!("{kind} left as {:?}", frame.kind()), 1);
        let (base, map) = (frame.base(), frame.map());
        let properties = [
            ("ECN", base.has(Flags::ECN)),
            ("NOT_ADMITTED", base.has(Flags::NOT_ADMITTED)),
            ("REACHED", map.has(MapFlags::REACHED)),
            ("OLD", map.has(MapFlags::OLD)),
            ("DIVERTED", map.has(MapFlags::DIVERTED)),
            ("DENIED", map.has(MapFlags::DENIED)),
            ("OVERFLOW", map.has(MapFlags::OVERFLOW)),
        ];
        for (name, _) in properties.iter().filter(|(_, is_set)| *is_set) {
            self.add(format!("{kind} left {name}"), 1);
        }
    }

    fn applications(&mut self, program: &mut SwitchProgram) {
        let state = program.state().expect("the reference's state can be read");
        for counters in state.applications.values().map(|application| application.counters) {
            counters.iter().for_each(|(name, count)| self.add(format!("counter {name}"), count));
        }
        for counters in state.pools.values().map(|pool| pool.counters) {
            counters.iter().for_each(|(name, count)| self.add(format!("pool {name}"), count));
        }
    }
}

fn play(options: GeneratorOptions) -> Tally {
    let (mut tally, mut frames) = (Tally::default(), 0);
    for seed in 0.. {
        let mut program = pathcall_conformance::program(SIZE);
        for (now, step) in Generator::new(seed, options).take(5_000).enumerate() {
            if matches!(step, ProgramStep::Remove(_)) {
                tally.removed(&mut program, &step);
            }
            match (&step, step.apply(Instant(now as u64), &mut program).expect("the reference has no failures")) {
                (ProgramStep::Frame { bytes, .. }, StepEffect::Frame(outcome)) => {
                    frames += 1;
                    tally.frame(bytes, &outcome);
                }
                (_, effect) => {
                    let step = format!("{step:?}");
                    let name = step.split(['(', ' ']).next().expect("a name");
                    let effect = if effect == StepEffect::Changed { "taken" } else { "refused" };
                    tally.add(format!("{name} {effect}"), 1);
                }
            }
        }
        tally.applications(&mut program);
        program.counters().iter().for_each(|(name, count)| tally.add(format!("counter {name}"), count));
        if frames >= FRAMES {
            break;
        }
    }
    tally
}

impl Tally {
    /// Adds the counters of an application before its removal.
    fn removed(&mut self, program: &mut SwitchProgram, step: &ProgramStep) {
        let ProgramStep::Remove(gaid) = step else { return };
        let state = program.state().expect("the reference's state can be read");
        if let Some(application) = state.applications.get(gaid) {
            application.counters.iter().for_each(|(name, count)| self.add(format!("counter {name}"), count));
        }
        if let Some(pool) = state.pools.get(gaid) {
            pool.counters.iter().for_each(|(name, count)| self.add(format!("pool {name}"), count));
        }
    }
}

/// Outcomes that must occur for each kind of frame.
const LEAVES: [&str; 55] = [
    "MapData left as MapData",
    "MapData left as MapAck",
    "MapData left as MapHeld",
    "MapData left as MapRefused",
    "MapData left REACHED",
    "MapData left OLD",
    "MapData left DIVERTED",
    "MapData left DENIED",
    "MapData left OVERFLOW",
    "MapData left ECN",
    "MapData left NOT_ADMITTED",
    "MapData dropped: Counted",
    "MapData dropped: Stale",
    "MapData dropped: Malformed",
    "MapData dropped: Forged",
    "MapResult left as MapResult",
    "MapResult left ECN",
    "MapResult dropped: Malformed",
    "MapPairs left as MapPairs",
    "MapPairs left as MapAck",
    "MapPairs left REACHED",
    "MapPairs left DIVERTED",
    "MapPairs dropped: Malformed",
    "MapPairs dropped: Stale",
    "MapPairsAck dropped: Malformed",
    "MapRead left as MapValues",
    "MapRead dropped: Malformed",
    "MapClose left as MapClosed",
    "MapClose dropped: Malformed",
    "MapPlaces left as MapRecord",
    "MapPlaces dropped: Malformed",
    "MapWipe left as MapWiped",
    "MapWipe dropped: Malformed",
    "MapFree left as MapFreed",
    "MapFree dropped: Malformed",
    "MapMove left as MapMoved",
    "CloneRequest left as CloneRequest",
    "CloneRequest left cloned",
    "CloneRequest left in parts",
    "CloneRequest left numbered",
    "CloneRequest left ECN",
    "CloneRequest left NOT_ADMITTED",
    "CloneRequest dropped: Forged",
    "CloneRequest dropped: Malformed",
    "CloneRequest dropped: UnknownEndpoint",
    "CloneReply left as CloneReply",
    "CloneReply left in parts",
    "CloneReply dropped: Filtered",
    "CloneReply dropped: Forged",
    "CloneCancel dropped: Stale",
    "CloneWorking left as CloneWorking",
    "0 copies",
    "1 copies",
    "2 copies",
    "3 copies",
];
/// Changes of the tables that must occur.
const CHANGES: [&str; 13] = [
    "Install taken",
    "Install refused",
    "Remove taken",
    "Remove refused",
    "Reset taken",
    "Reset refused",
    "SetEndpoint taken",
    "SetEndpoint refused",
    "RemoveEndpoint taken",
    "SetGroup taken",
    "SetGroup refused",
    "InstallPool taken",
    "InstallPool refused",
];

#[test]
fn generator_covers_all_behaviour_of_the_program() {
    let tally = play(GeneratorOptions::default());
    let counters = pathcall_program::Counters::default();
    let of_applications = pathcall_program::ApplicationCounters::default();
    let counters = counters.iter().chain(of_applications.iter()).map(|(name, _)| format!("counter {name}"));
    tally.expect(300, counters);
    let of_pools = pathcall_program::PoolCounters::default();
    let rare = ["unauthentic", "cancels"];
    let of_pools = of_pools.iter().map(|(name, _)| name).filter(|name| !rare.contains(name));
    tally.expect(300, of_pools.map(|name| format!("pool {name}")));
    tally.expect(100, ["pool cancels".to_owned()]);
    tally.expect(100, (1..=35).filter_map(|kind| FrameKind::parse(kind).ok()).map(|kind| format!("in {kind:?}")));
    tally.expect(100, LEAVES.map(str::to_owned));
    tally.expect(5, CHANGES.map(str::to_owned));
    tally.expect(1000, ["in none".to_owned()]);
}

#[test]
fn tokens_appear_only_with_option() {
    let tally = play(GeneratorOptions { tokens: true, ..GeneratorOptions::default() });
    tally.expect(1000, ["counter admitted".to_owned(), "counter drop_unauthentic".to_owned()]);
    tally.expect(10, ["Authenticate taken".to_owned()]);
    // Without the option, all signed frames are refused, because no key is installed.
    let signed = |options| {
        let step = |step| matches!(step, ProgramStep::Authenticate(_, Some::<TokenKey>(_)));
        Generator::new(3, options).take(10_000).filter(|s| step(s.clone())).count()
    };
    assert_eq!(signed(GeneratorOptions::default()), 0);
    assert_ne!(signed(GeneratorOptions { tokens: true, ..GeneratorOptions::default() }), 0);
}

#[test]
fn equal_seeds_give_equal_steps() {
    let steps = |seed| Generator::new(seed, GeneratorOptions::default()).take(3_000).collect::<Vec<_>>();
    assert_eq!(steps(7), steps(7));
    assert_ne!(steps(7), steps(8));
}
