// SPDX-License-Identifier: Apache-2.0

// Package telemetry is the only user of OpenTelemetry. It turns calls of the registry, whatever their door,
// into spans: a remoting.Hook, made by Setup when the OTEL_* environment asks for spans, nil when it does
// not. A broker's span is an RPC server span; it links to the contexts that messages carry and never becomes
// their parent or changes them.
//
// It also makes the metrics: SetupMetrics gives a LatencyHook for the registry, Start exports Tables, whose rows
// the owner reads from what it counts anyway, as a page for Prometheus, over OTLP or into the log.
//
// # Environment
//
// Spans are exported when OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. OTEL_SDK_DISABLED=true wins over all. The SDK and its exporters
// read the rest: OTEL_TRACES_SAMPLER (here 1 % of root calls by default, and whatever a sampled parent says),
// OTEL_BSP_*, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_PROPAGATORS, OTEL_EXPORTER_OTLP_*.
//
// # Cost
//
// A call that is not sampled allocates nothing: the hook asks the sampler before it makes a span. Sampled
// spans go to a bounded queue that drops when it is full, so a collector that does not answer slows nobody
// down.
package telemetry
