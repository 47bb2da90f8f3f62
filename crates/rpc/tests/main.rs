//! Tests of calls through stubs, channels and servers; tests that measure a whole process are in a target of their own.

mod addresses;
mod authentication;
mod automatic_path;
mod calls;
mod cancelled_sums;
mod carried;
mod cloned;
mod cloned_element;
mod cloned_extra;
mod cloned_members;
mod cloned_racks;
mod cloned_streams;
mod cloned_unreached;
mod cloned_workers;
#[cfg(feature = "gzip")]
mod compressed;
mod controller;
mod cuttable_link;
mod deadlines;
mod delegated;
mod direct_calls;
mod dropped_callers;
mod element_reads;
mod existing;
mod filter_streams;
mod filters;
mod handled_sums;
mod idempotent_calls;
mod joining;
mod late_registration;
mod memory_sharing;
mod message;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "otel")]
mod otel_metrics;
mod owner_store;
mod placed;
mod placed_delegated;
mod plain_callers;
mod registering;
mod shadow_sums;
mod shutdown;
mod small_sums;
mod sum_steps;
