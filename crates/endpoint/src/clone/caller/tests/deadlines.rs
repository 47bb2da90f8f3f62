//! What servers hear of a call's deadline.

use super::*;

#[test]
fn servers_that_were_asked_hear_that_the_deadline_is_over() {
    for cancel in [true, false] {
        let mut caller = caller();
        let options = Options { cancel, deadline: ms_of(40), ..random() };
        let call = ask(&mut caller, ms(0), options);
        (0..40).for_each(|at| caller.poll(ms(at)));
        let mut asked: Vec<_> = sent(&mut caller).iter().map(|request| request.to).collect();
        assert!(asked.len() > 1 && caller.event().is_none());
        caller.poll(ms(40));
        assert!(matches!(caller.event(), Some(Event::Failed(failed, _)) if failed == call));
        let words = sent(&mut caller);
        assert!(words.iter().all(|word| word.base.kind == Kind::CloneCancel as u8 && word.base.seq == call.0));
        let mut told: Vec<_> = words.iter().map(|word| word.to).collect();
        told.reverse();
        // Who did not ask for that has handlers end by the time that they were told.
        asked.retain(|_| cancel);
        assert_eq!(told, asked);
    }
}

#[test]
fn each_request_says_how_much_time_is_left_when_it_is_sent() {
    let mut caller = caller();
    let request: &'static [u8] = &[9; PART + 1];
    let options = Options { timed: true, deadline: ms_of(400), ..Options::default() };
    ask_for(&mut caller, ms(0), options, request);
    let mut at = 1;
    for _ in 0..2 {
        let parts = sent_at(&mut caller, ms(at));
        assert_eq!(parts[0].payload[..8], ((400 - at) * 1000).to_be_bytes());
        assert!(parts[0].payload.len() == PART && parts[0].payload[8..].iter().all(|byte| *byte == 9));
        assert_eq!(parts[1].payload, [9], "the time leads the first part");
        while caller.stats().repeated == 0 {
            at += 1;
            caller.poll(ms(at));
        }
    }
    // Of one that asks for nothing like it, all is as it was given.
    ask(&mut caller, ms(at), Options::default());
    assert_eq!(sent_at(&mut caller, ms(at)).pop().expect("sent").payload, b"what?");
}

#[test]
fn a_request_without_time_left_says_so_and_one_that_is_shorter_says_nothing() {
    let mut caller = caller();
    let options = Options { timed: true, deadline: ms_of(1), ..Options::default() };
    ask_for(&mut caller, ms(0), options, &[9; 8]);
    assert_eq!(sent_at(&mut caller, ms(2)).remove(0).payload, 1_u64.to_be_bytes());
    ask_for(&mut caller, ms(2), options, &[9; 7]);
    assert_eq!(sent_at(&mut caller, ms(2)).remove(0).payload, [9; 7]);
}
