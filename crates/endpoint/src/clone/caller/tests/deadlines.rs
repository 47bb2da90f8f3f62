//! Tests of call deadlines as servers see them.

use super::*;

#[test]
fn deadline_cancels_the_call_at_asked_servers() {
    for cancel in [true, false] {
        let mut caller = caller();
        let options = CloneOptions { cancel, deadline: ms_of(40), ..random() };
        let call = start_call(&mut caller, ms(0), options);
        (0..40).for_each(|at| caller.poll(ms(at)));
        let mut asked: Vec<_> = sent(&mut caller).iter().map(|request| request.to).collect();
        assert!(asked.len() > 1 && caller.next_event().is_none());
        caller.poll(ms(40));
        assert!(matches!(caller.next_event(), Some(Event::Failed(failed, _)) if failed == call));
        let cancellations = sent(&mut caller);
        assert!(
            cancellations.iter().all(|cancellation| cancellation.base.kind == FrameKind::CloneCancel as u8
                && cancellation.base.seq == call.0)
        );
        let mut destinations: Vec<_> = cancellations.iter().map(|cancellation| cancellation.to).collect();
        destinations.reverse();
        // Without the cancel option, handlers end at the deadline that their request carries.
        asked.retain(|_| cancel);
        assert_eq!(destinations, asked);
    }
}

#[test]
fn each_request_carries_its_remaining_time() {
    let mut caller = caller();
    let request: &'static [u8] = &[9; PART + 1];
    let options = CloneOptions { timed: true, deadline: ms_of(400), ..CloneOptions::default() };
    start_call_for(&mut caller, ms(0), options, request);
    let mut at = 1;
    for _ in 0..2 {
        let parts = sent_at(&mut caller, ms(at));
        assert_eq!(parts[0].payload[..8], ((400 - at) * 1000).to_be_bytes());
        assert!(parts[0].payload.len() == PART && parts[0].payload[8..].iter().all(|byte| *byte == 9));
        assert_eq!(parts[1].payload, [9], "only the first part carries the time");
        while caller.stats().repeated == 0 {
            at += 1;
            caller.poll(ms(at));
        }
    }
    // Without the option, the request is sent unchanged.
    start_call(&mut caller, ms(at), CloneOptions::default());
    assert_eq!(sent_at(&mut caller, ms(at)).pop().expect("sent").payload, b"what?");
}

#[test]
fn expired_request_carries_minimal_time() {
    let mut caller = caller();
    let options = CloneOptions { timed: true, deadline: ms_of(1), ..CloneOptions::default() };
    start_call_for(&mut caller, ms(0), options, &[9; 8]);
    assert_eq!(sent_at(&mut caller, ms(2)).remove(0).payload, 1_u64.to_be_bytes());
    start_call_for(&mut caller, ms(2), options, &[9; 7]);
    assert_eq!(sent_at(&mut caller, ms(2)).remove(0).payload, [9; 7]);
}
