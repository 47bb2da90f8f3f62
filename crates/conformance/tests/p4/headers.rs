//! Tests of the P4 program's header layouts against the wire format.

use pathcall_p4::ir::{Program, SlotKind};
use pathcall_wire::{Base, CloneHeader, FieldSpec, MapHeader};

/// Names, offsets and lengths of a header's fields, bytes.
fn fields(program: &Program, header: &str) -> Vec<(String, usize, usize)> {
    let header = program.headers.iter().find(|h| h.name == header).unwrap_or_else(|| panic!("no {header}"));
    let field = |slot: &pathcall_p4::ir::SlotId| {
        let slot = &program.slots[slot.0 as usize];
        let SlotKind::Field { offset_bits, .. } = slot.kind else { panic!("{}: no field", slot.name) };
        let name = slot.name.rsplit('.').next().expect("a name").to_owned();
        (name, offset_bits as usize / 8, usize::from(slot.ty.width()) / 8)
    };
    header.fields.iter().map(field).collect()
}

#[test]
fn p4_header_layouts_match_wire_format() {
    let program = super::program();
    let layouts: [(&str, &[FieldSpec]); 3] =
        [("hdr.base", Base::LAYOUT), ("hdr.map", MapHeader::LAYOUT), ("hdr.call", CloneHeader::LAYOUT)];
    for (header, layout) in layouts {
        let expected: Vec<_> = layout.iter().map(|field| (field.name.to_owned(), field.offset, field.len)).collect();
        assert_eq!(fields(&program, header), expected, "{header}");
    }
}
