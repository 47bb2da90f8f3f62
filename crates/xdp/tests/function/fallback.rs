//! Tests of the fallback to user space: programs that copy packets run there, other programs in the kernel.

use pathcall_function_testing::random::{Choices, ProgramLimits, first_difference, program, steps};
use pathcall_p4::emit::xdp::unsupported;
use pathcall_p4::exec::Execution;
use pathcall_p4::interp::Interpreter;
use pathcall_xdp::function::{Config, KernelOrInterpreter};

#[test]
fn unsupported_by_kernel_runs_in_user_space() {
    let config = Config { testing: true, local_port: None, storage: None };
    let (mut in_kernel, mut in_user_space) = (0, 0);
    for seed in 0..400u32 {
        let bytes: Vec<u8> = (0..900u32).map(|i| ((i + seed * 977).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (mut of_program, mut of_steps) = Choices::new(&bytes).split(160);
        let program = program(&mut of_program, ProgramLimits { copies: true, generated: true });
        // Four of each are enough.
        let copies = !unsupported(&program).is_empty();
        if (if copies { in_user_space } else { in_kernel }) == 4 {
            continue;
        }
        let Some(mut loaded) = super::permitted(KernelOrInterpreter::load(&program, &config)) else { return };
        let mut reference = Interpreter::new(&program).expect("well-typed");
        for group in 1..3 {
            loaded.set_group(group, &[(1, 1), (3, group)]);
            reference.set_group(group, &[(1, 1), (3, group)]);
        }
        match &loaded {
            KernelOrInterpreter::Kernel(_) => in_kernel += 1,
            KernelOrInterpreter::UserSpace(_, reason) => {
                assert!(!reason.is_empty());
                in_user_space += 1;
            }
        }
        let steps = steps(&program, &mut of_steps, 40);
        assert_eq!(first_difference(&program, &steps, &mut reference, &mut loaded), None, "seed {seed}");
    }
    println!("{in_kernel} programs in the kernel, {in_user_space} in user space");
    assert!(in_kernel == 4 && in_user_space == 4, "{in_kernel} in the kernel, {in_user_space} in user space");
}
