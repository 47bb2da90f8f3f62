//! A program that copies packets runs in user space, and does what it does there; others run in the kernel.

use pathcall_function::emit::xdp::unsupported;
use pathcall_function::exec::Execution;
use pathcall_function::interp::Interpreter;
use pathcall_function_testing::random::{Choices, Limits, first_difference, program, steps};
use pathcall_xdp::function::{Anywhere, Config};

#[test]
fn what_the_kernel_cannot_do_runs_in_user_space() {
    let config = Config { testing: true, local_port: None, storage: None };
    let (mut here, mut there) = (0, 0);
    for seed in 0..400u32 {
        let bytes: Vec<u8> = (0..900u32).map(|i| ((i + seed * 977).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (mut of_program, mut of_steps) = Choices::new(&bytes).split(160);
        let program = program(&mut of_program, Limits { copies: true, generated: true });
        // Four of each will do.
        let copies = !unsupported(&program).is_empty();
        if (if copies { there } else { here }) == 4 {
            continue;
        }
        let Some(mut loaded) = super::permitted(Anywhere::load(&program, &config)) else { return };
        let mut reference = Interpreter::new(&program).expect("well-typed");
        for group in 1..3 {
            loaded.set_group(group, &[(1, 1), (3, group)]);
            reference.set_group(group, &[(1, 1), (3, group)]);
        }
        match &loaded {
            Anywhere::Kernel(_) => here += 1,
            Anywhere::UserSpace(_, why) => {
                assert!(!why.is_empty());
                there += 1;
            }
        }
        let steps = steps(&program, &mut of_steps, 40);
        assert_eq!(first_difference(&program, &steps, &mut reference, &mut loaded), None, "seed {seed}");
    }
    println!("{here} programs in the kernel, {there} in user space");
    assert!(here == 4 && there == 4, "{here} in the kernel, {there} in user space");
}
