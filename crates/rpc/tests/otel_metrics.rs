//! Tests of counters as OpenTelemetry metrics.

use std::collections::BTreeMap;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use pathcall_rpc::Channel;
use pathcall_test_support::store::{STORE, TestPool, calls};
use pathcall_test_support::stubs::store_client::StoreClient;

use crate::cloned::sent_to_two;

/// Values of the last collection, by metric and by the values of the attributes.
fn collect(provider: &SdkMeterProvider, exporter: &InMemoryMetricExporter) -> BTreeMap<(String, String), u64> {
    exporter.reset();
    provider.force_flush().expect("the exporter is in memory");
    let mut values = BTreeMap::new();
    for resource in exporter.get_finished_metrics().expect("the exporter is in memory") {
        for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
            let points: Vec<(Vec<String>, u64)> = match metric.data() {
                AggregatedMetrics::U64(MetricData::Sum(sum)) => sum
                    .data_points()
                    .map(|point| (point.attributes().map(|at| at.value.to_string()).collect(), point.value()))
                    .collect(),
                AggregatedMetrics::U64(MetricData::Gauge(gauge)) => gauge
                    .data_points()
                    .map(|point| (point.attributes().map(|at| at.value.to_string()).collect(), point.value()))
                    .collect(),
                other => panic!("{}: {other:?}", metric.name()),
            };
            values.extend(points.into_iter().map(|(of, value)| ((metric.name().to_owned(), of.join(", ")), value)));
        }
    }
    values
}

#[tokio::test]
async fn counters_of_channel_and_server_are_exported_until_they_are_dropped() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let meter = provider.meter("test");
    let pool = TestPool::start(2).await;
    let channel = Channel::builder(pool.members[0].uri(), &STORE).unwrap().cloned(sent_to_two());
    let channel = channel.connect().await.unwrap();
    channel.export_metrics(&meter);
    pool.members[0].pathcall.export_metrics(&meter);
    calls(&StoreClient::new(channel.clone()), 40).await;

    let (values, stats) = (collect(&provider, &exporter), channel.stats());
    let of = |metric: &str, value: &str| values[&(format!("pathcall.{metric}"), value.to_owned())];
    assert_eq!((of("channel.calls", "cloned"), of("channel.pool.calls", "answered")), (40, 40));
    assert_eq!(of("channel.pool.extra_requests", "second_requests"), stats.pool.second_requests);
    assert_eq!(of("channel.pool.refused_requests", "budget"), stats.pool.refused.budget);
    assert!(of("server.pool.requests", "answered") > 0, "{values:?}");

    drop(channel);
    let values = collect(&provider, &exporter);
    assert!(values.keys().all(|(metric, _)| !metric.contains(".channel.")), "{values:?}");
}

#[tokio::test]
async fn policy_of_automatic_method_is_exported() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let pool = TestPool::start(2).await;
    let options = pathcall_endpoint::clone::CloneOptions { automatic: true, ..Default::default() };
    let channel = Channel::builder(pool.members[0].uri(), &STORE).unwrap().cloned(options).connect().await.unwrap();
    channel.export_metrics(&provider.meter("test"));
    calls(&StoreClient::new(channel.clone()), 10).await;
    let values = collect(&provider, &exporter);
    let policies = values.keys().filter(|(metric, _)| metric == "pathcall.channel.pool.policy");
    let policies: Vec<_> = policies.map(|(_, values)| values.clone()).collect();
    let expected: Vec<_> = channel.stats().policies.iter().map(|of| (of.method, of.stats.policy.name())).collect();
    assert_eq!(policies.len(), expected.len(), "{values:?}");
    for (method, policy) in expected {
        assert!(policies.iter().any(|values| values.contains(method) && values.contains(policy)), "{policies:?}");
    }
}
