//! Estimate of the program's need of a hardware pipeline, stage by stage, and the profiles that fit one.

use std::fmt::Write;

use pathcall_console::TextTable;
use pathcall_program::hardware::{self, ArrayPart, PipelineLimits, PipelinePlan, Placement};
use pathcall_program::pipeline::PipelineProfile;
use serde_json::{Value, json};

use crate::memory;

/// Table of a plan's stages, with its verdict.
pub(super) fn plan_text(plan: &PipelinePlan, limits: &PipelineLimits) -> String {
    let placement = hardware::place(plan, limits);
    let mut table = TextTable::new(["stage", "register groups", "memory", "arrays"]);
    for (number, parts) in placement.stages.iter().enumerate() {
        let groups: usize = parts.iter().map(|part| part.groups).sum();
        let used: u64 = parts.iter().map(|part| part.bytes).sum();
        let of_stage = format!("{} of {}", memory::bytes(used), memory::bytes(limits.stage_bytes));
        table.row([number.to_string(), format!("{groups} of {}", limits.groups), of_stage, names(&placement, number)]);
    }
    format!("{table}{}", verdict(&placement, plan, limits))
}

/// Names of what a stage has.
fn names(placement: &Placement, stage: usize) -> String {
    let name = |part: &ArrayPart| match part.groups {
        0 => format!("table {}", part.array),
        1 => part.array.to_owned(),
        groups => format!("{} x {groups}", part.array),
    };
    let mut names: Vec<_> = placement.stages[stage].iter().map(name).collect();
    if stage == placement.decision {
        names.push("decision".to_owned());
    }
    if names.is_empty() { "admission tables".to_owned() } else { names.join(", ") }
}

/// Verdict of the estimate: fits, or the changes with which it would fit.
fn verdict(placement: &Placement, plan: &PipelinePlan, limits: &PipelineLimits) -> String {
    let (stages, of) = (placement.stages.len(), limits.stages);
    if placement.fits(limits) {
        return format!("it fits: {stages} of {of} stages\n");
    }
    let mut text = String::new();
    if stages > of {
        let arrays = hardware::lane_arrays_fitting(plan, limits);
        let _ = write!(text, "it does not fit: {stages} stages of {of}; ");
        text.push_str(&match arrays {
            0 => "nor does it fit with one array of lanes\n".to_owned(),
            arrays => format!("the stages suffice with {arrays} of {} arrays of lanes\n", plan.lane_arrays),
        });
    }
    for (array, bytes) in &placement.too_large {
        let (got, of) = (memory::bytes(*bytes), memory::bytes(limits.stage_bytes));
        let _ = writeln!(text, "it does not fit: {array} takes {got}, a stage has {of}");
    }
    if !placement.too_large.is_empty() {
        let (slots, of) = (hardware::slots_fitting(plan, limits), plan.size.slots);
        let _ = writeln!(text, "with {slots} of {of} flow slots, each array of slots fits a stage");
    }
    text
}

/// Profiles of the P4 program: what each takes, serves and costs; and the stages of those that fit.
pub(super) fn profiles_text(limits: &PipelineLimits) -> String {
    let mut table =
        TextTable::new(["profile", "lanes of a frame", "passes", "stages", "register groups", "memory", "verdict"]);
    let mut text = format!("profiles of the P4 program for a {}-stage pipeline: an estimate\n", limits.stages);
    for profile in PipelineProfile::ALL {
        let placement = hardware::place(&PipelinePlan::of(profile), limits);
        let lanes = profile.frame_lanes();
        table.row([
            profile.name().to_owned(),
            if lanes == 0 { "-".to_owned() } else { lanes.to_string() },
            profile.passes().to_string(),
            format!("{} of {}", placement.stages.len(), limits.stages),
            format!("{} of {}", placement.groups(), limits.groups * limits.stages),
            memory::bytes(placement.bytes()),
            if placement.fits(limits) { "fits" } else { "does not fit" }.to_owned(),
        ]);
    }
    let _ = writeln!(text, "{table}");
    for profile in PipelineProfile::ALL {
        let name = profile.name();
        let _ = writeln!(text, "{name} serves {}", profile.serves());
        let _ = writeln!(text, "{name} leaves out {}", profile.leaves_out());
        let _ = writeln!(text, "{name} costs {}", profile.costs());
    }
    for profile in PipelineProfile::ALL.into_iter().filter(|profile| *profile != PipelineProfile::Whole) {
        let macros = profile.macros().join(" -D ");
        let _ = write!(text, "\nprofile {}, -D {macros}\n", profile.name());
        text.push_str(&plan_text(&PipelinePlan::of(profile), limits));
    }
    text.push('\n');
    text
}

/// Estimate of a plan.
pub(super) fn plan_json(plan: &PipelinePlan, limits: &PipelineLimits) -> Value {
    let placement = hardware::place(plan, limits);
    let stages = placement.stages.iter().map(|parts| {
        let part = |part: &ArrayPart| json!({ "array": part.array, "groups": part.groups, "bytes": part.bytes });
        parts.iter().map(part).collect::<Vec<_>>()
    });
    json!({
        "limits": {
            "stages": limits.stages,
            "groups": limits.groups,
            "stage_bytes": limits.stage_bytes,
        },
        "fits": placement.fits(limits),
        "stages": stages.collect::<Vec<_>>(),
        "decision": placement.decision,
        "too_large": placement.too_large.iter().map(|(array, _)| array).collect::<Vec<_>>(),
        "lane_arrays": plan.lane_arrays,
        "lane_arrays_fitting": hardware::lane_arrays_fitting(plan, limits),
        "slots_fitting": hardware::slots_fitting(plan, limits),
    })
}

/// Estimates of all profiles.
pub(super) fn profiles_json(limits: &PipelineLimits) -> Value {
    let profile = |profile: PipelineProfile| {
        let plan = PipelinePlan::of(profile);
        json!({
            "name": profile.name(),
            "macros": profile.macros(),
            "frame_lanes": profile.frame_lanes(),
            "passes": profile.passes(),
            "rows": plan.size.rows,
            "slots": plan.size.slots,
            "serves": profile.serves(),
            "leaves_out": profile.leaves_out(),
            "costs": profile.costs(),
            "pipeline": plan_json(&plan, limits),
        })
    };
    PipelineProfile::ALL.map(profile).into()
}
