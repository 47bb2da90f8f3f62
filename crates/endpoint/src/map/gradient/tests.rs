//! Tests of sums of gradients: workers whose arrays are added in 64 bits.

use pathcall_wire::SplitMix64;
use proptest::prelude::*;

use super::*;

/// Sums of one step of all workers, and the words of a worker that travelled.
struct StepOutcome {
    /// Result of each worker.
    sums: Vec<Vec<f32>>,
    /// Sum of what left each worker.
    sent: Vec<f64>,
    /// Lanes of each array.
    lanes: Vec<usize>,
}

/// Makes a step; the workers in `missing` do not see its end.
fn step(
    format: GradientFormat,
    states: &mut [GradientState],
    gradients: &[Vec<f32>],
    missing: &[usize],
) -> StepOutcome {
    let start = |(state, gradient): (&GradientState, &Vec<f32>)| GradientSum::new(format, state, gradient.clone());
    let mut workers: Vec<_> = states.iter().zip(gradients).map(start).collect::<Result<_, _>>().expect("finite");
    let before: Vec<Vec<f32>> = workers.iter().map(|worker| worker.values.clone()).collect();
    let mut lanes = Vec::new();
    while let Some(Operation::Sum { lanes: first, modify, threshold, .. }) = workers[0].operation() {
        let mut sums = vec![0i64; first.len()];
        for worker in &workers {
            let Some(Operation::Sum { lanes, modify: own, threshold: count, .. }) = worker.operation() else {
                panic!("all workers sum")
            };
            assert_eq!((own, count, lanes.len()), (modify, threshold, sums.len()), "equal tags");
            sums.iter_mut().zip(lanes.iter()).for_each(|(sum, lane)| *sum += lane);
        }
        let sums: Lanes = sums.into();
        assert!(matches!(sums, Lanes::Narrow(_)), "an element's register holds each sum");
        assert!(sums.iter().all(|sum| sum != i64::from(i32::MAX) && sum != i64::from(i32::MIN)));
        workers.iter_mut().for_each(|worker| worker.take(&sums).expect("workers keep to the scales"));
        lanes.push(sums.len());
    }
    let mut sent = vec![0.0; before[0].len()];
    let mut results = Vec::new();
    for (number, worker) in workers.into_iter().enumerate() {
        let mut state = GradientState::default();
        results.push(worker.finish(&mut state));
        let left = before[number].iter().zip(&state.kept).map(|(value, kept)| f64::from(*value) - f64::from(*kept));
        sent.iter_mut().zip(left).for_each(|(sum, left)| *sum += left);
        if !missing.contains(&number) {
            states[number] = state;
        }
    }
    StepOutcome { sums: results, sent, lanes }
}

fn gradients(random: &mut SplitMix64, workers: usize, len: usize, size: f32) -> Vec<Vec<f32>> {
    let mut value = || (random.bits() % 20_001) as f32 / 1e4 - 1.0;
    (0..workers).map(|_| (0..len).map(|_| value() * size).collect()).collect()
}

const INT8: GradientFormat = GradientFormat { lanes: LaneFormat::Int8, workers: 4, topk: 0 };

#[test]
fn steady_gradient_needs_one_sum_per_step_and_a_quarter_of_the_lanes() {
    let mut random = SplitMix64::new(3);
    for (lanes, values, most) in [(LaneFormat::Int8, 1012, 256), (LaneFormat::Int16, 506, 256)] {
        let format = GradientFormat { lanes, ..INT8 };
        let mut states = vec![GradientState::default(); 4];
        let first = step(format, &mut states, &gradients(&mut random, 4, values, 1.0), &[]);
        assert_eq!(first.lanes, [most, COUNT_WORDS, most], "the first step counts the scales");
        for _ in 0..20 {
            let later = step(format, &mut states, &gradients(&mut random, 4, values, 1.0), &[]);
            assert_eq!(later.lanes, [most]);
        }
    }
}

#[test]
fn scale_follows_gradient_that_shrinks_and_grows() {
    let mut random = SplitMix64::new(4);
    let mut states = vec![GradientState::default(); 4];
    let mut counted = Vec::new();
    for size in [1.0, 1.0, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e3, 1e3] {
        let outcome = step(INT8, &mut states, &gradients(&mut random, 4, 100, size), &[]);
        counted.push(outcome.lanes.len() == 3);
    }
    let steps: Vec<usize> = (0..counted.len()).filter(|step| counted[*step]).collect();
    assert_eq!(steps, [0, 10], "counted when there is no scale, and when values outgrow it");
    let code = states[0].codes[0];
    assert!(scale::unit(code) * 31.0 >= 1e3 && scale::unit(code) * 31.0 < 8e3, "scale of the last steps: {code}");
}

#[test]
fn rounding_error_is_added_to_later_gradient() {
    let format = GradientFormat { lanes: LaneFormat::Int8, workers: 1, topk: 0 };
    let mut states = [GradientState::default()];
    let gradient = vec![vec![127.0, 0.25, -0.25]];
    let mut total = [0.0; 3];
    for _ in 0..8 {
        let outcome = step(format, &mut states, &gradient, &[]);
        total.iter_mut().zip(&outcome.sums[0]).for_each(|(total, sum)| *total += f64::from(*sum));
    }
    assert_eq!(total, [127.0 * 8.0, 2.0, -2.0]);
}

#[test]
fn chosen_groups_travel_and_others_wait() {
    let format = GradientFormat { lanes: LaneFormat::Int8, workers: 2, topk: 100_000 };
    let mut states = vec![GradientState::default(); 2];
    let mut gradient = vec![0.5; 640];
    gradient[..64].fill(10.0);
    let mut total = vec![0.0f64; 640];
    let first = step(format, &mut states, &[gradient.clone(), gradient.clone()], &[]);
    assert!(first.sums[0][64..].iter().all(|sum| *sum == 0.0) && first.sums[0][0] > 19.0);
    assert_eq!(first.lanes[0], 3, "weights of ten groups, four in a lane");
    assert_eq!(*first.lanes.last().unwrap(), 3 + 16, "a group of 64 values");
    for _ in 0..200 {
        let outcome = step(format, &mut states, &[gradient.clone(), gradient.clone()], &[]);
        total.iter_mut().zip(&outcome.sums[0]).for_each(|(total, sum)| *total += f64::from(*sum));
    }
    assert!(total[64..].iter().all(|total| *total > 100.0), "each group travels at times");
}

#[test]
fn worker_that_joins_has_no_scale_and_all_count() {
    let mut random = SplitMix64::new(5);
    let mut states = vec![GradientState::default(); 3];
    let format = GradientFormat { workers: 3, ..INT8 };
    for _ in 0..3 {
        step(format, &mut states, &gradients(&mut random, 3, 2000, 1.0), &[]);
    }
    states[1] = GradientState::default();
    let outcome = step(format, &mut states, &gradients(&mut random, 3, 2000, 1.0), &[]);
    assert_eq!(outcome.lanes.len(), 3);
    assert_eq!(outcome.sums[0].iter().map(|sum| f64::from(*sum)).collect::<Vec<_>>(), outcome.sent);
}

#[test]
fn value_that_is_not_finite_is_refused() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = GradientSum::new(INT8, &GradientState::default(), vec![1.0, value]).unwrap_err();
        assert!(matches!(error, GradientError::Value { index: 1, .. }), "{error}");
    }
}

#[test]
fn sums_of_wrong_workers_are_refused() {
    for lanes in [vec![], vec![1; 9], vec![i64::MAX; 28], vec![5, 6, 7], vec![-1; 28]] {
        let mut sum = GradientSum::new(INT8, &GradientState::default(), vec![1.0; 100]).unwrap();
        let refused = sum.take(&lanes.into()).is_err();
        assert!(refused || sum.phase == Phase::Counts);
        assert!(refused || sum.take(&vec![0i64; COUNT_WORDS].into()).is_err());
    }
    let mut sum = GradientSum::new(INT8, &GradientState::default(), vec![1.0; 100]).unwrap();
    sum.take(&vec![0i64; 28].into()).unwrap();
    sum.take(&vec![1i64; COUNT_WORDS].into()).unwrap();
    assert_eq!(sum.take(&vec![0i64; 28].into()), Err(GradientError::Scale), "the workers do not use what they counted");
}

#[test]
fn empty_gradient_needs_no_sum() {
    let sum = GradientSum::new(INT8, &GradientState::default(), Vec::new()).unwrap();
    assert_eq!(sum.operation(), None);
    assert_eq!(sum.finish(&mut GradientState::default()), Vec::<f32>::new());
}

proptest! {
    #[test]
    fn result_is_exact_sum_of_quantised_gradients(
        seed: u64,
        workers in 1usize..=9,
        len in 1usize..3000,
        int8: bool,
        topk in prop_oneof![Just(0u32), Just(50_000), Just(400_000)],
        misses in proptest::collection::vec((0usize..8, 0usize..9), 0..4),
        sizes in proptest::collection::vec(-30i32..30, 8),
    ) {
        let lanes = if int8 { LaneFormat::Int8 } else { LaneFormat::Int16 };
        let format = GradientFormat { lanes, workers: workers as u32, topk };
        let mut random = SplitMix64::new(seed);
        let mut states = vec![GradientState::default(); workers];
        for (number, size) in sizes.iter().enumerate() {
            let mut gradients = gradients(&mut random, workers, len, (*size as f32).exp2());
            // One worker's values are of another size.
            let odd = random.bits() as usize % workers;
            let factor = [1.0, 0.0, 1e-6, 1e6][random.bits() as usize % 4];
            gradients[odd].iter_mut().for_each(|value| *value *= factor);
            let missing: Vec<usize> = misses.iter().filter(|(step, _)| *step == number).map(|(_, who)| *who).collect();
            let outcome = step(format, &mut states, &gradients, &missing);
            for sums in &outcome.sums {
                prop_assert_eq!(sums, &outcome.sums[0]);
            }
            let sums: Vec<f64> = outcome.sums[0].iter().map(|sum| f64::from(*sum)).collect();
            prop_assert_eq!(sums, outcome.sent);
        }
    }
}
