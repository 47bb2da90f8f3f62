//! Frames that a caller takes nothing from.

use super::*;

#[test]
fn answer_to_an_attempt_that_was_not_made_is_ignored() {
    let mut caller = caller();
    let call = ask(&mut caller, ms(0), Options::default());
    let mut request = sent(&mut caller).remove(0);
    for attempt in [1, u8::MAX] {
        request.head.attempt = attempt;
        caller.receive(ms(1), &answer(&request, 11, by_element(), b"forged"));
        caller.receive(ms(1), &reply(Kind::CloneWorking, &request, 11, by_element(), b""));
    }
    assert_eq!((answered(&mut caller), caller.stats().ignored, caller.stats().working), (None, 4, 0));
    request.head.attempt = 0;
    caller.receive(ms(2), &answer(&request, 11, by_element(), b"right"));
    assert_eq!(answered(&mut caller), Some((call, b"right".to_vec())));
}
