//! Property tests of arithmetic against a bitwise model, and of arbitrary packets.

use proptest::prelude::*;

use super::*;

/// Mask of the lowest `width` bits.
fn mask(width: u16) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

/// Result of an operator, computed bit by bit.
fn model(op: Binary, left: u128, right: u128, width: u16, sign: bool) -> u128 {
    let bit = |value: u128, at: u16| value >> at & 1 == 1;
    let from = |each: &dyn Fn(u16) -> bool| (0..width).fold(0, |v, at| v | u128::from(each(at)) << at);
    let less = |a: u128, b: u128| {
        for at in (0..width).rev() {
            let negative = sign && at == width - 1;
            if bit(a, at) != bit(b, at) {
                return bit(a, at) == negative;
            }
        }
        false
    };
    let add = |a: u128, b: u128, mut carry: bool| {
        let mut sum = 0u128;
        for at in 0..width {
            let (x, y) = (bit(a, at), bit(b, at));
            sum |= u128::from(x ^ y ^ carry) << at;
            carry = (x && y) || (carry && (x || y));
        }
        (sum, carry)
    };
    let flip = |a: u128| from(&|at| !bit(a, at));
    let top = width - 1;
    let (lowest, highest) = if sign { (1 << top, from(&|at| at != top)) } else { (0, from(&|_| true)) };
    match op {
        Binary::Add => add(left, right, false).0,
        Binary::Sub => add(left, flip(right), true).0,
        Binary::AddSaturating => {
            let (sum, carry) = add(left, right, false);
            let over = if sign { bit(left, top) == bit(right, top) && bit(sum, top) != bit(left, top) } else { carry };
            if over { if sign && bit(left, top) { lowest } else { highest } } else { sum }
        }
        Binary::SubSaturating => {
            let (rest, carry) = add(left, flip(right), true);
            let over =
                if sign { bit(left, top) != bit(right, top) && bit(rest, top) != bit(left, top) } else { !carry };
            if over { if sign && !bit(left, top) { highest } else { lowest } } else { rest }
        }
        Binary::Mul => (0..width).filter(|at| bit(right, *at)).fold(0, |sum, at| {
            let shifted = from(&|to| to >= at && bit(left, to - at));
            add(sum, shifted, false).0
        }),
        Binary::And => from(&|at| bit(left, at) && bit(right, at)),
        Binary::Or => from(&|at| bit(left, at) || bit(right, at)),
        Binary::Xor => from(&|at| bit(left, at) != bit(right, at)),
        Binary::Shl => from(&|at| u128::from(at) >= right && bit(left, at - right as u16)),
        Binary::Shr => from(&|at| match right.checked_add(at.into()) {
            Some(from) if from < width.into() => bit(left, from as u16),
            _ => sign && bit(left, top),
        }),
        Binary::Eq => (0..width).all(|at| bit(left, at) == bit(right, at)).into(),
        Binary::Ne => (0..width).any(|at| bit(left, at) != bit(right, at)).into(),
        Binary::Lt => less(left, right).into(),
        Binary::Gt => less(right, left).into(),
        Binary::Le => (!less(right, left)).into(),
        Binary::Ge => (!less(left, right)).into(),
        Binary::Concat | Binary::LogicalAnd | Binary::LogicalOr => unreachable!("not drawn"),
    }
}

const DRAWN: [Binary; 16] = [
    Binary::Add,
    Binary::AddSaturating,
    Binary::Sub,
    Binary::SubSaturating,
    Binary::Mul,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::Shl,
    Binary::Shr,
    Binary::Eq,
    Binary::Ne,
    Binary::Lt,
    Binary::Le,
    Binary::Gt,
    Binary::Ge,
];

/// Value of an expression of up to 128 bits, from a program that outputs it in parts.
fn evaluate(expr: Expr) -> u128 {
    let mut f = fixture();
    let result = SlotId(f.program.slots.len() as u32);
    let width = expr.ty.width();
    f.program.slots.push(Slot { name: "result".into(), ty: expr.ty, kind: SlotKind::Metadata });
    let whole = Expr::slot(expr.ty, result);
    f.program.ingress =
        vec![assign(result, expr), stmt(StmtKind::Digest { name: "result".into(), values: vec![whole] })];
    let mut value = None;
    Interpreter::new(&f.program).expect("runs").process(0, 0, &PACKET, &mut |output| {
        if let Output::Digest { values, .. } = output {
            value = values.first().copied();
        }
    });
    let value = value.expect("told");
    assert_eq!(value & !mask(width), 0, "no bits beyond the width");
    value
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn arithmetic_matches_bitwise_model(
        op in proptest::sample::select(&DRAWN[..]),
        width in 1u16..=128,
        left: u128,
        right: u128,
        small in proptest::bool::ANY,
        sign: bool,
    ) {
        let (left, right) = (left & mask(width), right & mask(width) & if small { 0xff } else { !0 });
        let ty = if sign { Ty::Int(width) } else { Ty::Bit(width) };
        let compares = matches!(op, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge);
        let result = if compares { Ty::Bool } else { ty };
        let expr = Expr::binary(result, op, Expr::constant(ty, left), Expr::constant(ty, right));
        prop_assert_eq!(evaluate(expr), model(op, left, right, width, sign), "{:?} of {} bits", op, width);
    }

    #[test]
    fn casts_match_bitwise_model(from in 1u16..=128, to in 1u16..=128, value: u128, sign: bool) {
        let value = value & mask(from);
        let ty = |width| if sign { Ty::Int(width) } else { Ty::Bit(width) };
        let expr = Expr { ty: ty(to), kind: ExprKind::Cast(Box::new(Expr::constant(ty(from), value))) };
        let top = value >> (from - 1) & 1;
        let expected = (0..to).fold(0, |all, at| {
            let bit = if at < from { value >> at & 1 } else { u128::from(sign) & top };
            all | bit << at
        });
        prop_assert_eq!(evaluate(expr), expected);
        let low = to.min(from) - 1;
        let slice = Expr {
            ty: Ty::Bit(from - low),
            kind: ExprKind::Slice { of: Box::new(number(from, value)), high: from - 1, low },
        };
        prop_assert_eq!(evaluate(slice.clone()), value >> low);
        if low > 0 {
            let rest = ExprKind::Slice { of: Box::new(number(from, value)), high: low - 1, low: 0 };
            let whole = Expr::binary(Ty::Bit(from), Binary::Concat, slice, Expr { ty: Ty::Bit(low), kind: rest });
            prop_assert_eq!(evaluate(whole), value);
        }
        let complement = Expr { ty: Ty::Bit(from), kind: ExprKind::Unary(Unary::Complement, Box::new(number(from, value))) };
        prop_assert_eq!(evaluate(complement), value ^ mask(from));
        let negated = Expr { ty: Ty::Bit(from), kind: ExprKind::Unary(Unary::Negate, Box::new(number(from, value))) };
        prop_assert_eq!(evaluate(negated), model(Binary::Sub, 0, value, from, false));
    }

    #[test]
    fn interpreter_does_not_panic_on_any_packet(packet in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut f = fixture();
        let payload = vec![Expr::slot(Ty::Bit(32), f.a), Expr::slot(Ty::Bit(8), f.kind)];
        f.program.compute = vec![stmt(StmtKind::Checksum {
            condition: Expr::constant(Ty::Bool, 1),
            to: f.b,
            algorithm: HashAlgorithm::Csum16,
            inputs: payload,
            payload: true,
        })];
        let mut interpreter = Interpreter::new(&f.program).expect("runs");
        let (packets, reasons) = process(&mut interpreter, &packet);
        prop_assert_eq!(packets.len() + reasons.len(), 1);
        prop_assert_eq!(packets[0].1.len(), packet.len());
    }
}
