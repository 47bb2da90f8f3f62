//! Exact solver: compared with all plans and with a general solver, and at its intended size.

use std::time::Instant;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use pathcall_place::exact::{Solver, TimedRequest, cost_ns, solve};
use pathcall_place::model::{AccessMode, Preset};
use pathcall_place::path::{PathSide, RequestKind};
use pathcall_place::{
    Application, Dependency, DeviceRole, Hardware, Hop, KindId, Path, PathId, Paths, Resource, ResourceId,
};
use proptest::prelude::*;

/// Hops of paths, each with resource and busy time; and the number of paths of each type.
type Shape = (Vec<Vec<(u16, u64)>>, Vec<u16>);

const RESOURCES: u16 = 4;

/// Draws one or two request types, the first with at least two paths.
fn shapes() -> impl Strategy<Value = Shape> {
    let hops = proptest::collection::vec((0..RESOURCES, 0..3_000_u64), 1..4);
    (2..4_u16, 1..3_u16).prop_flat_map(move |(first, second)| {
        let count = usize::from(first + second);
        (proptest::collection::vec(hops.clone(), count..=count), Just(vec![first, second]))
    })
}

fn arrivals(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<TimedRequest>> {
    let arrival = (0..2_u16, 0..2_500_u64).prop_map(|(kind, after_ns)| TimedRequest { kind: KindId(kind), after_ns });
    proptest::collection::vec(arrival, count)
}

fn paths((hops, counts): &Shape) -> Paths {
    let mut first = 0;
    let mut laid = Paths {
        application: "random".to_owned(),
        kinds: Vec::new(),
        paths: Vec::new(),
        resources: (0..RESOURCES)
            .map(|at| Resource { side: PathSide::Responder, name: format!("r{at}"), node: None, slots: 1 })
            .collect(),
    };
    for (kind, count) in counts.iter().enumerate() {
        let (name, dependency, access) = (format!("K{kind}"), Dependency::None, AccessMode::Write);
        laid.kinds.push(RequestKind { name, dependency, access, first: PathId(first), count: *count });
        for hops in &hops[usize::from(first)..usize::from(first + count)] {
            let hops: Vec<Hop> = hops
                .iter()
                .map(|(at, ns)| Hop { resource: ResourceId(*at), delay_ns: ns + 100, busy_ns: *ns })
                .collect();
            laid.paths.push(Path {
                name: "p".to_owned(),
                kind: KindId(kind as u16),
                role: DeviceRole::Cpu,
                requester_role: DeviceRole::Cpu,
                traverse_ns: hops.iter().map(|hop| hop.delay_ns).sum(),
                toll_ns: hops.iter().map(|hop| hop.busy_ns).sum(),
                noise_ns: 0,
                fifo: true,
                hops,
            });
        }
        first += count;
    }
    laid
}

/// Cost of the cheapest of all plans.
fn brute_force(paths: &Paths, backlog_ns: &[u64], arrivals: &[TimedRequest]) -> u64 {
    let mut plans = vec![Vec::new()];
    for arrival in arrivals {
        let kind = &paths.kinds[usize::from(arrival.kind.0)];
        let with = |plan: Vec<PathId>| {
            (kind.first.0..kind.first.0 + kind.count).map(move |at| [&plan[..], &[PathId(at)]].concat())
        };
        plans = plans.into_iter().flat_map(with).collect();
    }
    plans.iter().map(|plan| cost_ns(paths, backlog_ns, arrivals, plan)).min().expect("a plan")
}

/// Cost according to a general solver: eq. 1–4, with each maximum as two bounds, and each product of a choice and a
/// wait as a bound that a large number relaxes for other choices (big M).
fn by_milp(paths: &Paths, arrivals: &[TimedRequest]) -> f64 {
    const US: f64 = 1e-3;
    let large =
        arrivals.len() as f64 * paths.paths.iter().map(|path| path.toll_ns).max().unwrap_or(0) as f64 * US + 1.0;
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let mut waits: Vec<Variable> = paths.resources.iter().map(|_| problem.add_var(0.0, (0.0, 0.0))).collect();
    // Choices of the previous request, each with its busy times.
    let mut before: Vec<(Variable, Vec<f64>)> = Vec::new();
    for arrival in arrivals {
        let next: Vec<Variable> = paths.resources.iter().map(|_| problem.add_var(0.0, (0.0, f64::INFINITY))).collect();
        for (at, (wait, next)) in waits.iter().zip(&next).enumerate() {
            // Q_t ≥ Q_(t-1) + added work − Δt; its lower bound is 0.
            let mut terms = vec![(*next, 1.0), (*wait, -1.0)];
            terms.extend(before.iter().map(|(choice, busy)| (*choice, -busy[at])).filter(|(_, busy)| *busy != 0.0));
            problem.add_constraint(&terms[..], ComparisonOp::Ge, -(arrival.after_ns as f64) * US);
        }
        waits = next;
        let kind = &paths.kinds[usize::from(arrival.kind.0)];
        before = paths
            .of_kind(arrival.kind)
            .iter()
            .map(|path| {
                let choice = problem.add_binary_var(path.traverse_ns as f64 * US);
                let waited = problem.add_var(1.0, (0.0, f64::INFINITY));
                let mut busy = vec![0.0; paths.resources.len()];
                path.hops.iter().for_each(|hop| busy[usize::from(hop.resource.0)] += hop.busy_ns as f64 * US);
                let mut used: Vec<usize> = path.hops.iter().map(|hop| usize::from(hop.resource.0)).collect();
                used.sort_unstable();
                used.dedup();
                // waited ≥ ΣQ − M(1 − X)
                let mut terms = vec![(waited, 1.0), (choice, -large)];
                terms.extend(used.iter().map(|at| (waits[*at], -1.0)));
                problem.add_constraint(&terms[..], ComparisonOp::Ge, -large);
                (choice, busy)
            })
            .collect();
        assert_eq!(before.len(), usize::from(kind.count));
        let one: Vec<(Variable, f64)> = before.iter().map(|(choice, _)| (*choice, 1.0)).collect();
        problem.add_constraint(&one[..], ComparisonOp::Eq, 1.0);
    }
    problem.solve().expect("it is feasible").objective() / US
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn exact_plan_is_optimal(
        shape in shapes(),
        arrivals in arrivals(1..7),
        backlog in proptest::array::uniform4(0..4_000_u64),
    ) {
        let paths = paths(&shape);
        let plan = Solver::new(&paths).solve(&backlog, &arrivals, 100_000);
        prop_assert_eq!(plan.paths.len(), arrivals.len());
        prop_assert_eq!(plan.total_ns, cost_ns(&paths, &backlog, &arrivals, &plan.paths));
        prop_assert!(plan.proven());
        prop_assert_eq!(plan.total_ns, brute_force(&paths, &backlog, &arrivals));
    }

    #[test]
    fn few_labels_give_plan_with_valid_bound(shape in shapes(), arrivals in arrivals(1..30), labels in 1..200_usize) {
        let paths = paths(&shape);
        let plan = solve(&paths, &arrivals, labels);
        prop_assert_eq!(plan.total_ns, cost_ns(&paths, &[0; 4], &arrivals, &plan.paths));
        let best = solve(&paths, &arrivals, 1_000_000);
        prop_assert!(best.proven());
        prop_assert!(plan.bound_ns <= best.total_ns && best.total_ns <= plan.total_ns);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn exact_plan_equals_general_solver(shape in shapes(), arrivals in arrivals(4..11)) {
        let paths = paths(&shape);
        let plan = solve(&paths, &arrivals, 100_000);
        let other = by_milp(&paths, &arrivals);
        prop_assert!((plan.total_ns as f64 - other).abs() < 1.0, "{} here, {other} there", plan.total_ns);
    }
}

#[test]
fn fifty_requests_over_four_paths_are_proven() {
    let hardware = Hardware::preset(Preset::OnPath);
    let text = include_str!("../models/applications/ebs.yaml");
    let application = Application::parse("ebs.yaml", text).expect("an application");
    let paths = Paths::of(&hardware, &hardware, &application).expect("paths");
    let kind = paths.kind("READ4K").expect("a type");
    // Bursts of five, at about the capacity of both devices.
    let arrivals: Vec<TimedRequest> =
        (0..50).map(|n| TimedRequest { kind, after_ns: if n % 5 == 0 { 1_200 } else { 60 + n * 7 % 50 } }).collect();
    let mut solver = Solver::new(&paths);
    for count in [10, 20, 50] {
        let begun = Instant::now();
        let plan = solver.solve(&vec![0; paths.resources.len()], &arrivals[..count], 200_000);
        println!("{count} requests: {} ns, at least {}; solved in {:?}", plan.total_ns, plan.bound_ns, begun.elapsed());
        assert!(plan.proven());
    }
}
