//! Table of the applications' claims on element memory: weights, quotas, fair shares, and idle times.

use pathcall_console::TextTable;
use pathcall_proto::v1::{ApplicationStatus, StatusReply};
use serde_json::{Value, json};

use crate::memory;

/// Table of the claims; `None` if no application requests memory.
pub(super) fn table(status: &StatusReply) -> Option<TextTable<8>> {
    let claims = |application: &&ApplicationStatus| application.requested_rows > 0 || application.memory.is_some();
    let mut table =
        TextTable::new(["application", "weight", "quota", "rows requested", "rows", "bytes", "fair share", "idle"]);
    let mut is_empty = true;
    for application in status.applications.iter().filter(claims) {
        is_empty = false;
        table.row([
            application.name.clone(),
            application.weight.to_string(),
            application.quota_bytes.map_or("-".to_owned(), memory::bytes),
            application.requested_rows.to_string(),
            application.memory.as_ref().map_or(0, |memory| memory.rows).to_string(),
            memory::bytes(application.memory_bytes),
            memory::bytes(application.share_bytes),
            application.idle_ms.map_or("-".to_owned(), |idle_ms| format!("{} s", idle_ms / 1000)),
        ]);
    }
    (!is_empty).then_some(table)
}

/// Claim of an application.
pub(super) fn json(application: &ApplicationStatus) -> Value {
    json!({
        "weight": application.weight,
        "quota_bytes": application.quota_bytes,
        "requested_rows": application.requested_rows,
        "memory_bytes": application.memory_bytes,
        "share_bytes": application.share_bytes,
        "idle_ms": application.idle_ms,
    })
}
