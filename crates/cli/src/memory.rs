//! Register memory of applications, computed from a controller's status.

use pathcall_program::{Size, layout};
use pathcall_proto::v1::{ApplicationStatus, ElementStatus, StatusReply};
use pathcall_wire::KEYED_WIDTH;
use serde_json::{Value, json};

/// Register memory of an application in one element.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RegisterMemory {
    pub(crate) element: u32,
    pub(crate) rows: u32,
    pub(crate) width: u32,
    /// Banks of a row: a keyed row has two, for the open generation and for the harvested one.
    pub(crate) banks: u32,
    /// Flow slots of its callers.
    pub(crate) slots: u32,
    pub(crate) bytes: u64,
    /// Share of the element's register bytes, 0 to 1; `None` when the element is unknown.
    pub(crate) share: Option<f64>,
}

impl RegisterMemory {
    /// Memory of the application; `None` when it works in software.
    pub(crate) fn of(application: &ApplicationStatus, status: &StatusReply) -> Option<Self> {
        let grant = application.memory.as_ref()?;
        let slots = application.endpoints.iter().map(|endpoint| endpoint.slots).sum();
        let lanes = grant.rows as usize * grant.width as usize;
        let bytes = layout::bytes(&Size { rows: grant.rows as usize, lanes, slots: slots as usize });
        let element = status.elements.iter().find(|element| element.element == grant.element);
        let whole = element.map(|element| layout::bytes(&size(element)));
        Some(Self {
            element: grant.element,
            rows: grant.rows,
            width: grant.width,
            banks: if grant.width as usize == KEYED_WIDTH { 2 } else { 1 },
            slots,
            bytes,
            share: whole.map(|whole| bytes as f64 / whole.max(1) as f64),
        })
    }

    pub(crate) fn share(&self) -> String {
        self.share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "element": self.element,
            "rows": self.rows,
            "width": self.width,
            "banks": self.banks,
            "slots": self.slots,
            "bytes": self.bytes,
            "share": self.share,
        })
    }
}

/// Sizes of an element's register arrays.
pub(crate) fn size(element: &ElementStatus) -> Size {
    Size { rows: element.rows as usize, lanes: element.lanes as usize, slots: element.slots as usize }
}

/// Formats a number of bytes.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
