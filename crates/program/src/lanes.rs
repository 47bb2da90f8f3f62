//! Lane arithmetic of whole rows: native registers and big-endian lanes, in place in the frame. The loops are compiled
//! for several instruction sets; the best one of the CPU is chosen at run time.

use pathcall_wire::OpType;

/// `register += op(lane, para)`, saturating; a register at the end of its range stays there (NetRPC §5.2.1: the
/// overflow is visible until the clear).
pub(crate) fn add(registers: &mut [i32], lanes: &[u8], op: OpType, para: i32) {
    pulp::Arch::new().dispatch(|| match op {
        OpType::Nop => add_with(registers, lanes, |value| value),
        op => add_with(registers, lanes, |value| op.apply(value, para)),
    });
}

#[inline(always)]
fn add_with(registers: &mut [i32], lanes: &[u8], modify: impl Fn(i32) -> i32) {
    for (register, lane) in registers.iter_mut().zip(lanes.as_chunks().0) {
        let sum = register.saturating_add(modify(i32::from_be_bytes(*lane)));
        let stuck = *register == i32::MAX || *register == i32::MIN;
        *register = if stuck { *register } else { sum };
    }
}

/// `lane = register`.
pub(crate) fn get(registers: &[i32], lanes: &mut [u8]) {
    pulp::Arch::new().dispatch(|| {
        for (register, lane) in registers.iter().zip(lanes.as_chunks_mut().0) {
            *lane = register.to_be_bytes();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vector_instruction_sets_are_compiled_in() {
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            assert!(!matches!(pulp::Arch::new(), pulp::Arch::Scalar), "{:?}", pulp::Arch::new());
        }
    }

    proptest! {
        #[test]
        fn row_addition_matches_lane_by_lane_addition(
            pairs in proptest::collection::vec((any::<i32>(), any::<i32>()), 0..300), op in 0u8..=10, para in any::<i32>(),
        ) {
            let op = OpType::parse(op).expect("in range");
            let mut registers: Vec<i32> = pairs.iter().map(|(r, _)| *r).collect();
            let mut bytes: Vec<u8> = pairs.iter().flat_map(|(_, v)| v.to_be_bytes()).collect();
            add(&mut registers, &bytes, op, para);
            for ((before, value), after) in pairs.iter().zip(&registers) {
                let stuck = *before == i32::MAX || *before == i32::MIN;
                let expected = if stuck { *before } else { before.saturating_add(op.apply(*value, para)) };
                prop_assert_eq!(*after, expected);
            }
            get(&registers, &mut bytes);
            let shown: Vec<i32> = bytes.chunks_exact(4).map(|b| i32::from_be_bytes(b.try_into().expect("4"))).collect();
            prop_assert_eq!(shown, registers);
        }
    }
}
