//! Model tests of mirrored tables: prefixes, idle entries, readers beside a writer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use pathcall_netfn::mirror::layout::{TableLayout, mask};
use pathcall_netfn::mirror::lpm::{self, Lpm};
use pathcall_netfn::mirror::{Inserted, MirroredTable, TableFull, wheel};
use pathcall_p4::ir::{
    Action, ActionId, Expr, Match, MatchKind, Parser, Program, Slot, SlotId, SlotKind, SourceSpan, Table, TableEntry,
    TableId, TableKey, Ty,
};

/// Program with one table: keys by width and kind, one action with a 32-bit argument, one without arguments.
fn program(keys: &[(u16, MatchKind)], size: u32, idle_timeout_ms: Option<u64>) -> Program {
    let slot = |name: &str, ty| Slot { name: name.into(), ty, kind: SlotKind::Local };
    let mut slots = vec![slot("pre.rewrite.value", Ty::Bit(32))];
    let keys = keys.iter().enumerate().map(|(index, &(width, kind))| {
        slots.push(slot(&format!("meta.k{index}"), Ty::Bit(width)));
        let expr = Expr::slot(Ty::Bit(width), SlotId(index as u32 + 1));
        TableKey { expr, kind, name: format!("meta.k{index}") }
    });
    let table = Table {
        name: "pre.t".into(),
        keys: keys.collect(),
        actions: vec![ActionId(0), ActionId(1)],
        default: (ActionId(1), Vec::new()),
        entries: Vec::new(),
        size,
        mirrored: true,
        idle_timeout_ms,
        at: SourceSpan::default(),
    };
    Program {
        name: "test".into(),
        slots,
        headers: Vec::new(),
        parser: Parser::default(),
        verify: Vec::new(),
        ingress: Vec::new(),
        egress: Vec::new(),
        compute: Vec::new(),
        deparser: Vec::new(),
        tables: vec![table],
        actions: vec![
            Action { name: "pre.rewrite".into(), params: vec![SlotId(0)], body: Vec::new() },
            Action { name: "NoAction".into(), params: Vec::new(), body: Vec::new() },
        ],
        registers: Vec::new(),
        counters: Vec::new(),
        partitions: Vec::new(),
        handler: None,
    }
}

fn entry(keys: &[(u128, u16)], value: u128) -> TableEntry {
    let keys = keys.iter().map(|&(value, prefix_bits)| Match { value, prefix_bits }).collect();
    TableEntry { keys, action: ActionId(0), args: vec![value] }
}

fn bytes(layout: &TableLayout, entry: &TableEntry) -> Vec<u8> {
    let mut bytes = vec![0xff; layout.bytes];
    assert!(layout.from_ir(entry, &mut bytes));
    bytes
}

/// Reference model of longest-prefix matching: linear search.
#[derive(Default)]
struct Naive(BTreeMap<(Vec<u8>, u128, u16), u32>);

impl Naive {
    fn matching(&self, width: u16, exact: &[u8], address: u128) -> Option<(u128, u16, u32)> {
        let covers = |value: u128, bits: u16| (address ^ value) & mask(width) & !mask(width - bits) == 0;
        let of_group = self.0.iter().filter(|((group, ..), _)| group == exact);
        let found = of_group.filter(|((_, value, bits), _)| covers(*value, *bits));
        found.map(|((_, value, bits), id)| (*value, *bits, *id)).max_by_key(|(_, bits, _)| *bits)
    }

    fn beneath(&self, width: u16, exact: &[u8], prefix: Match) -> bool {
        self.0.keys().any(|(group, value, bits)| {
            group == exact
                && *bits > prefix.prefix_bits
                && (value ^ prefix.value) & !mask(width - prefix.prefix_bits) == 0
        })
    }
}

/// Steps on a table with prefixes; there are few addresses, so that prefixes overlap.
fn steps(width: u16) -> impl Strategy<Value = Vec<(bool, u8, u128, u16, u128)>> {
    let address = prop_oneof![0..16u128, (0..256u128).prop_map(move |top| top << (width.max(8) - 8)), any::<u128>()];
    let near = prop_oneof![0..16u128, (0..256u128).prop_map(move |top| top << (width.max(8) - 8)), any::<u128>()];
    proptest::collection::vec((any::<bool>(), 0..3u8, address, 0..=width, near), 1..120)
}

fn agrees(width: u16, grouped: bool, size: u32, steps: Vec<(bool, u8, u128, u16, u128)>) -> Result<(), TestCaseError> {
    let mut lpm = Lpm::new(width, size, grouped);
    let mut naive = Naive::default();
    for (step, (insert, group, address, bits, probe)) in steps.into_iter().enumerate() {
        let exact = if grouped { vec![group] } else { Vec::new() };
        let (address, probe) = (address & mask(width), probe & mask(width));
        let prefix = Match { value: address & !mask(width - bits), prefix_bits: bits };
        let key = (exact.clone(), prefix.value, bits);
        if insert {
            lpm.insert(&exact, prefix, step as u32).expect("room");
            naive.0.insert(key, step as u32);
        } else {
            // An existing prefix is removed, as a random one would rarely exist.
            let (value, bits) = naive.matching(width, &exact, address).map_or((prefix.value, bits), |(v, b, _)| (v, b));
            let removed = lpm.remove(&exact, Match { value, prefix_bits: bits });
            prop_assert_eq!(removed, naive.0.remove(&(exact.clone(), value, bits)));
        }
        for address in [address, address ^ 1, probe, prefix.value, prefix.value | mask(width - bits)] {
            let expected = naive.matching(width, &exact, address);
            prop_assert_eq!(lpm.lookup(&exact, address), expected.map(|(.., id)| id), "address {:x}", address);
            if let Some(view) = lpm.view(&exact) {
                let left = (address << (32 - width)) as u32;
                prop_assert_eq!(view.lookup(left), expected.map(|(.., id)| id));
                // More addresses than are prefetched at once.
                let addresses: Vec<u32> = (0..40).map(|i| left.rotate_left(i)).collect();
                let mut found = vec![None; 41];
                view.lookup_all(&addresses, &mut found);
                let one_by_one = addresses.iter().map(|address| view.lookup(*address));
                prop_assert_eq!(&found[..40], one_by_one.collect::<Vec<_>>());
            }
            if let Some(reader) = lpm.reader() {
                let left = (address << (32 - width)) as u32;
                prop_assert_eq!(reader.lookup(0, left), expected.map(|(.., id)| id));
            }
            let derived = lpm.clear_prefix(&exact, address);
            prop_assert_eq!(derived.is_some(), expected.is_some());
            if let (Some(derived), Some((value, bits, _))) = (derived, expected) {
                // The derived prefix lies in the matching entry, contains the address, has nothing beneath and is the
                // largest such.
                prop_assert!(derived.prefix_bits >= bits);
                prop_assert_eq!((derived.value ^ address) & !mask(width - derived.prefix_bits), 0);
                let is_most_specific = |p: Match| {
                    !naive.0.keys().any(|(group, other, other_bits)| {
                        let covering = (*other, *other_bits) == (value, bits) || *other_bits < bits;
                        *group == exact && !covering && {
                            let common = p.prefix_bits.min(*other_bits);
                            (other ^ p.value) & !mask(width - common) == 0
                        }
                    })
                };
                prop_assert!(is_most_specific(derived), "{derived:x?}");
                if derived.prefix_bits > bits {
                    let wider = derived.prefix_bits - 1;
                    let wider = Match { value: address & !mask(width - wider), prefix_bits: wider };
                    prop_assert!(!is_most_specific(wider), "{wider:x?} is larger and clear");
                }
            }
        }
        prop_assert_eq!(lpm.get(&exact, prefix), naive.0.get(&(exact.clone(), prefix.value, bits)).copied());
        prop_assert_eq!(lpm.has_beneath(&exact, prefix), naive.beneath(width, &exact, prefix));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn prefixes_of_32_bits_match_model(steps in steps(32)) { agrees(32, false, 1000, steps)?; }
    #[test]
    fn prefixes_with_exact_part_match_model(steps in steps(32)) { agrees(32, true, 1000, steps)?; }
    #[test]
    fn short_prefixes_match_model(steps in steps(11)) { agrees(11, true, 1000, steps)?; }
    #[test]
    fn one_bit_prefixes_match_model(steps in steps(1)) { agrees(1, false, 10, steps)?; }
    #[test]
    fn wide_prefixes_match_model(steps in steps(128)) { agrees(128, true, 1000, steps)?; }
    #[test]
    fn prefixes_of_48_bits_match_model(steps in steps(48)) { agrees(48, false, 1000, steps)?; }

    // An exact table is a map whose entries expire.
    #[test]
    fn exact_table_matches_expiring_map_model(
        steps in proptest::collection::vec((0..6u8, 0..12u128, 0..4u128, 0..400u64), 1..150),
    ) {
        let idle_ms = 500;
        let program = program(&[(9, MatchKind::Exact), (100, MatchKind::Exact)], 8, Some(idle_ms));
        let mut mirror = MirroredTable::new(&program, TableId(0), 0).unwrap();
        // Key to value, last use, own idle time, leased.
        let mut model: BTreeMap<u128, (u128, u64, u64, bool)> = BTreeMap::new();
        let mut now = 0;
        for (operation, key, value, pass) in steps {
            now += pass;
            let mut expired = vec![0; mirror.layout().bytes];
            while mirror.expire(now, &mut expired) {
                let entry = mirror.layout().to_ir(&expired);
                let (value, used, idle, leased) = model.remove(&entry.keys[0].value).expect("a known entry");
                prop_assert_eq!(entry.args, vec![value]);
                prop_assert!(!leased && used + idle <= now);
            }
            for (_, used, idle, leased) in model.values() {
                prop_assert!(*leased || used + idle + wheel::TICK_MS > now, "the entry should have expired");
            }
            let entry = entry(&[(key, 9), (key << 70, 100)], value);
            let bytes = bytes(mirror.layout(), &entry);
            let found = mirror.layout().key(&bytes);
            match operation {
                0 | 1 => {
                    let own = (value == 3).then_some(2000);
                    let inserted = mirror.insert(&bytes, own, now);
                    let known = model.get(&key).copied();
                    match inserted {
                        Ok(Inserted::New) => prop_assert!(known.is_none()),
                        Ok(Inserted::Changed) => prop_assert!(known.is_some_and(|k| k.0 != value)),
                        Ok(Inserted::Same) => prop_assert!(known.is_some_and(|k| k.0 == value)),
                        Err(TableFull) => prop_assert!(known.is_none() && model.len() == 8),
                    }
                    if inserted.is_ok() {
                        model.insert(key, (value, now, own.unwrap_or(idle_ms), known.is_some_and(|k| k.3)));
                    }
                }
                2 => {
                    let removed = mirror.remove(&found);
                    let known = model.remove(&key);
                    prop_assert_eq!(removed.map(|r| r.args[0]), known.map(|k| k.0));
                }
                3 => {
                    let known = model.get_mut(&key);
                    prop_assert_eq!(mirror.lease(&found, value < 2, now), known.is_some());
                    if let Some(known) = known { (known.1, known.3) = (now, value < 2); }
                }
                _ => {
                    let known = model.get_mut(&key);
                    let seen = mirror.lookup(&found, now).map(<[u8]>::to_vec);
                    prop_assert_eq!(seen.map(|s| mirror.layout().to_ir(&s).args[0]), known.as_ref().map(|k| k.0));
                    if let Some(known) = known { known.1 = now; }
                }
            }
            prop_assert_eq!(mirror.len() as usize, model.len());
            let mut cursor = 0;
            let mut seen = BTreeMap::new();
            while let Some(entry) = mirror.next(&mut cursor) {
                let entry = mirror.layout().to_ir(entry);
                prop_assert!(seen.insert(entry.keys[0].value, entry.args[0]).is_none());
            }
            prop_assert!(seen.iter().map(|(k, v)| (*k, *v)).eq(model.iter().map(|(k, v)| (*k, v.0))));
        }
    }
}

#[test]
fn entry_conversion_to_bytes_round_trips() {
    let program = program(&[(1, MatchKind::Exact), (32, MatchKind::Lpm), (65, MatchKind::Exact)], 10, None);
    let mut mirror = MirroredTable::new(&program, TableId(0), 0).unwrap();
    let wanted = entry(&[(1, 1), (0x0a00_0000, 8), (1 << 64 | 5, 65)], 77);
    let written = bytes(mirror.layout(), &wanted);
    // Key: u8 at 0, u32 at 4, u16 at 8, nine bytes at 10; then the action, then the argument.
    assert_eq!(mirror.layout().key.fields.iter().map(|f| f.offset).collect::<Vec<_>>(), [0, 4, 8, 10]);
    assert_eq!((mirror.layout().key.bytes, mirror.layout().action_offset, mirror.layout().bytes), (20, 20, 28));
    assert_eq!(mirror.layout().to_ir(&written), wanted);
    // Bits beyond widths and beyond the prefix are ignored.
    let mut dirty = written.clone();
    dirty[0] |= 0xfe;
    dirty[1..4].fill(9);
    dirty[4] = 3;
    let mut clean = vec![0; dirty.len()];
    assert!(mirror.layout().normalise(&dirty, &mut clean));
    assert_eq!(clean, written);
    // Unknown action; prefix longer than its key.
    dirty[20] = 2;
    assert!(!mirror.layout().normalise(&dirty, &mut clean));
    (dirty[20], dirty[8]) = (0, 33);
    assert!(!mirror.layout().normalise(&dirty, &mut clean));

    assert_eq!(mirror.insert(&written, None, 0), Ok(Inserted::New));
    let mut key = mirror.layout().key(&written);
    key.prefix = Match { value: 0x0a01_0203, prefix_bits: 0 };
    assert_eq!(mirror.lookup(&key, 0), Some(&written[..]));
    let (found, derived) = mirror.placeable(&key).unwrap();
    assert_eq!((found, derived), (&written[..], Some(Match { value: 0x0a00_0000, prefix_bits: 8 })));
}

#[test]
fn insertion_into_full_table_fails() {
    let program = program(&[(32, MatchKind::Lpm)], 3, None);
    let mut mirror = MirroredTable::new(&program, TableId(0), 0).unwrap();
    for value in 0..3 {
        let entry = bytes(mirror.layout(), &entry(&[(value << 8, 24)], value));
        assert_eq!(mirror.insert(&entry, None, 0), Ok(Inserted::New));
    }
    let fourth = bytes(mirror.layout(), &entry(&[(9 << 8, 24)], 9));
    assert_eq!(mirror.insert(&fourth, None, 0), Err(TableFull));
    let known = bytes(mirror.layout(), &entry(&[(0, 24)], 5));
    assert_eq!(mirror.insert(&known, None, 0), Ok(Inserted::Changed));
}

#[test]
fn nodes_are_freed_and_bounded() {
    let mut dir = lpm::dir::Dir::groups(4, 5);
    let at = |group, address, len| lpm::dir::DirPrefix { group, address, len };
    dir.insert(at(1, 0, 0), 0, true).unwrap();
    dir.insert(at(1, 0x0a0b_0c0d, 32), 1, true).unwrap();
    assert_eq!(dir.nodes(), 4);
    // The prefix needs two nodes, and one is left.
    assert_eq!(dir.insert(at(1, 0x0a0c_0c00, 32), 2, true), Err(TableFull));
    assert_eq!(dir.nodes(), 4);
    dir.remove(at(1, 0x0a0b_0c0d, 32), 1, Some(0));
    assert_eq!((dir.nodes(), dir.lookup(1, 0x0a0b_0c0d), dir.lookup(2, 1)), (0, Some(0), None));
}

#[test]
fn large_group_matches_as_before_its_move() {
    let mut lpm = Lpm::new(32, 1 << 20, true);
    let of = |number: u32| Match { value: u128::from(number << 8), prefix_bits: 24 };
    lpm.insert(&[2], Match { value: 0, prefix_bits: 0 }, 1 << 20).unwrap();
    lpm.insert(&[1], Match { value: 0, prefix_bits: 0 }, 1 << 19).unwrap();
    for number in 0..lpm::LARGE as u32 + 10 {
        lpm.insert(&[1], of(number * 7), number).unwrap();
        assert_eq!(lpm.lookup(&[1], u128::from(number * 7) << 8 | 5), Some(number));
    }
    for number in 0..lpm::LARGE as u32 + 10 {
        assert_eq!(lpm.lookup(&[1], u128::from(number * 7) << 8 | 5), Some(number));
        assert_eq!(lpm.lookup(&[1], u128::from(number * 7 + 1) << 8), Some(1 << 19));
        assert_eq!(lpm.lookup(&[2], u128::from(number * 7) << 8), Some(1 << 20));
        assert_eq!(lpm.remove(&[1], of(number * 7)), Some(number));
        assert_eq!(lpm.lookup(&[1], u128::from(number * 7) << 8 | 5), Some(1 << 19));
    }
}

#[test]
fn readers_match_while_writer_changes_prefixes() {
    let mut lpm = Lpm::new(32, 1000, false);
    let covering = Match { value: 0x0a00_0000, prefix_bits: 8 };
    lpm.insert(&[], covering, 0).unwrap();
    let reader = lpm.reader().unwrap();
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut seen = 0u64;
            while !done.load(Ordering::Relaxed) {
                for low in [0u32, 1, 255, 256, 0xffff] {
                    let found = reader.lookup(0, 0x0a0b_0000 | low).expect("at least the covering prefix");
                    // Number n stands for the prefix 10.11.0.0/(8 + n); a reused node holds prefixes of 10.12, from 100
                    // on.
                    assert!(found < 100, "prefix of other addresses: {found}");
                    seen += 1;
                }
            }
            seen
        });
        for _ in 0..2000 {
            for bits in [17u16, 24, 25, 32] {
                let id = u32::from(bits) - 8;
                lpm.insert(&[], Match { value: 0x0a0b_0000, prefix_bits: bits }, id).unwrap();
            }
            for bits in [32, 25, 24, 17] {
                lpm.remove(&[], Match { value: 0x0a0b_0000, prefix_bits: bits }).unwrap();
            }
            for bits in [17u16, 24, 25, 32] {
                let id = 100 + u32::from(bits);
                lpm.insert(&[], Match { value: 0x0a0c_0000, prefix_bits: bits }, id).unwrap();
            }
            for bits in [17, 32, 25, 24] {
                lpm.remove(&[], Match { value: 0x0a0c_0000, prefix_bits: bits }).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
        reading.join().expect("the reader")
    });
    assert!(seen > 0);
}
