//! Counters of channels and layers as OpenTelemetry metrics; feature `otel`.
//!
//! ```text
//! Channel::stats, Layer::pool_stats ─▶ observable counters of a meter ─▶ its exporter reads them at each collection
//! ```
//!
//! A metric holds its channel or layer weakly: the values of one that is dropped disappear.

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::channel::stats::{ChannelStats, CloneCallerStats, RefusedExtra};
use crate::layer::PoolStats;

/// Values of a metric, each with the value of its attribute.
type Values = Vec<(&'static str, u64)>;

/// Registers the metrics of a channel. `read` returns `None` when the channel is dropped.
pub(crate) fn export_channel(meter: &Meter, read: impl Fn() -> Option<ChannelStats> + Clone + Send + Sync + 'static) {
    let counter = |name, attribute, description, values: fn(&ChannelStats) -> Values| {
        let read = read.clone();
        export_counter(meter, name, attribute, description, move || Some(values(&read()?)));
    };
    counter("pathcall.channel.calls", "path", "Calls by path", calls);
    counter("pathcall.channel.pool.calls", "result", "Calls to a pool by result", |stats| results(&stats.pool));
    counter("pathcall.channel.pool.extra_requests", "reason", "Extra requests by reason", |stats| extra(&stats.pool));
    counter(
        "pathcall.channel.pool.refused_requests",
        "reason",
        "Extra requests that were not sent, by reason",
        |stats| refused(&stats.pool.refused),
    );
    counter("pathcall.channel.pool.answers", "kind", "Answers beside those of calls, by kind", |stats| {
        answers(&stats.pool)
    });
    let policies = move |gauge: &dyn opentelemetry::metrics::AsyncInstrument<u64>| {
        for method in read().into_iter().flat_map(|stats| stats.policies) {
            let policy = KeyValue::new("policy", method.stats.policy.name());
            let reason = KeyValue::new("reason", method.stats.reason.to_string());
            gauge.observe(1, &[KeyValue::new("method", method.method), policy, reason]);
        }
    };
    meter
        .u64_observable_gauge("pathcall.channel.pool.policy")
        .with_description("1 for the policy of each automatic method")
        .with_callback(policies)
        .build();
}

/// Registers the metrics of a layer's pool membership. `read` returns `None` when there is none, or the layer is dropped.
pub(crate) fn export_pool(meter: &Meter, read: impl Fn() -> Option<PoolStats> + Clone + Send + Sync + 'static) {
    let of_queue = read.clone();
    export_counter(meter, "pathcall.server.pool.requests", "result", "Requests of a pool by result", move || {
        let PoolStats { queue, late, .. } = of_queue()?;
        Some(vec![
            ("answered", queue.answered - queue.failed),
            ("failed", queue.failed),
            ("clone_dropped", queue.clones_dropped),
            ("cancelled", queue.cancelled),
            ("overflowed", queue.overflowed),
            ("late", late),
        ])
    });
    let waiting = move |gauge: &dyn opentelemetry::metrics::AsyncInstrument<u64>| {
        read().into_iter().for_each(|stats| gauge.observe(stats.waiting as u64, &[]));
    };
    meter
        .u64_observable_gauge("pathcall.server.pool.waiting")
        .with_description("Requests that wait for a worker")
        .with_callback(waiting)
        .build();
}

fn export_counter(
    meter: &Meter,
    name: &'static str,
    attribute: &'static str,
    description: &'static str,
    read: impl Fn() -> Option<Values> + Send + Sync + 'static,
) {
    let observe = move |counter: &dyn opentelemetry::metrics::AsyncInstrument<u64>| {
        for (value, count) in read().into_iter().flatten() {
            counter.observe(count, &[KeyValue::new(attribute, value)]);
        }
    };
    meter.u64_observable_counter(name).with_description(description).with_callback(observe).build();
}

fn calls(stats: &ChannelStats) -> Values {
    vec![
        ("plain", stats.plain_calls),
        ("filtered", stats.filtered_calls),
        ("cloned", stats.cloned_calls),
        ("delegated", stats.delegated_calls),
        ("direct", stats.direct_calls),
        ("handler", stats.handler_calls),
        ("idempotent", stats.idempotent_calls),
    ]
}

fn results(pool: &CloneCallerStats) -> Values {
    vec![("answered", pool.answered), ("failed", pool.failed)]
}

fn extra(pool: &CloneCallerStats) -> Values {
    vec![
        ("cloned", pool.cloned),
        ("second_requests", pool.second_requests),
        ("repeated", pool.repeated),
        ("reminded", pool.reminded),
        ("hedged", pool.hedged),
        ("hedged_by_element", pool.hedged_by_element),
        ("after_failed", pool.after_failed),
    ]
}

fn refused(refused: &RefusedExtra) -> Values {
    vec![
        ("budget", refused.budget),
        ("dear", refused.dear),
        ("outage", refused.outage),
        ("pushback", refused.pushback),
        ("busy", refused.busy),
        ("not_idempotent", refused.not_idempotent),
    ]
}

fn answers(pool: &CloneCallerStats) -> Values {
    vec![
        ("redundant", pool.redundant),
        ("set_aside", pool.set_aside),
        ("working", pool.working),
        ("ignored", pool.ignored),
    ]
}
