//! Tests of frames that a caller ignores.

use super::*;

#[test]
fn answer_to_unknown_attempt_is_ignored() {
    let mut caller = caller();
    let call = start_call(&mut caller, ms(0), CloneOptions::default());
    let mut request = sent(&mut caller).remove(0);
    for attempt in [1, u8::MAX] {
        request.head.attempt = attempt;
        caller.receive(ms(1), &answer(&request, 11, by_element(), b"forged"));
        caller.receive(ms(1), &reply(FrameKind::CloneWorking, &request, 11, by_element(), b""));
    }
    assert_eq!((answered(&mut caller), caller.stats().ignored, caller.stats().working), (None, 4, 0));
    request.head.attempt = 0;
    caller.receive(ms(2), &answer(&request, 11, by_element(), b"right"));
    assert_eq!(answered(&mut caller), Some((call, b"right".to_vec())));
}
