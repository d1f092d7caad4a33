// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/roquetmq/roquet/internal/remoting"
)

const (
	scopeName        = "github.com/roquetmq/roquet"
	defaultService   = "roquet"
	defaultRatio     = 0.01
	shutdownPatience = time.Second // for the last spans; a collector that is gone must not delay the end
)

// Options describes who reports.
type Options struct {
	Version string       // of this program
	Logger  *slog.Logger // nil: nothing is logged

	// Getenv is os.Getenv when nil. What the SDK and its exporters read themselves is the process's all the same.
	Getenv func(string) string
}

func (o *Options) complete() {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Telemetry is what Setup made. It is safe for concurrent use.
type Telemetry struct {
	hook     *SpanHook
	provider *trace.TracerProvider
	exporter trace.SpanExporter
}

// Setup makes the span pipeline that the environment asks for. Without one asked for, Telemetry has a nil
// hook. It does not wait for the collector. It fails when the environment names an exporter or a protocol
// that does not exist; a sampler that does not exist is replaced by the default with a warning, as the
// specification wants.
func Setup(ctx context.Context, opts Options) (*Telemetry, error) {
	opts.complete()
	if !wanted(opts.Getenv) {
		return &Telemetry{}, nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER %q, OTEL_EXPORTER_OTLP_PROTOCOL %q: %w",
			opts.Getenv("OTEL_TRACES_EXPORTER"), opts.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), err)
	}
	if autoexport.IsNoneSpanExporter(exporter) {
		return &Telemetry{}, nil
	}
	return newTelemetry(ctx, opts, exporter, autoprop.NewTextMapPropagator())
}

// wanted reports whether the environment asks for spans.
func wanted(getenv func(string) string) bool {
	return !disabled(getenv) && cmp.Or(getenv("OTEL_TRACES_EXPORTER"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"),
		getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")) != ""
}

// disabled reports whether the environment switches OpenTelemetry off. The Go SDK does not look.
func disabled(getenv func(string) string) bool {
	off, err := strconv.ParseBool(strings.TrimSpace(getenv("OTEL_SDK_DISABLED")))
	return err == nil && off
}

// resourceOf describes this process. The environment comes last, so that it wins.
func resourceOf(ctx context.Context, opts Options) (*resource.Resource, error) {
	res, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName(defaultService), semconv.ServiceVersion(opts.Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(), resource.WithFromEnv())
	if err != nil && res == nil {
		return nil, fmt.Errorf("resource: %w", err)
	}
	if err != nil {
		opts.Logger.Warn("part of the telemetry resource is missing", slog.Any("error", err))
	}
	return res, nil
}

func newTelemetry(
	ctx context.Context, opts Options, exporter trace.SpanExporter, propagator propagation.TextMapPropagator,
) (*Telemetry, error) {
	res, err := resourceOf(ctx, opts)
	if err != nil {
		return nil, err
	}
	sampler, err := samplerFromEnv(opts.Getenv)
	if err != nil {
		opts.Logger.Warn("sampler replaced by the default", slog.Any("error", err),
			slog.Float64("ratio", sampler.ratio))
	}
	otel.SetErrorHandler(newErrorLog(opts.Logger))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(res),
		trace.WithSampler(trace.AlwaysSample()))
	hook := &SpanHook{tracer: provider.Tracer(scopeName), sampler: sampler, propagator: propagator}
	return &Telemetry{hook: hook, provider: provider, exporter: exporter}, nil
}

// Hook returns the hook that makes spans, or nil when none are wanted. The nil is of the interface type, so
// it may be put into a list of hooks as it is.
func (t *Telemetry) Hook() remoting.Hook {
	if t.hook == nil {
		return nil
	}
	return t.hook
}

// Handler makes one span of each sampled request to the HTTP API, named by the route, which next leaves in the
// request's Pattern; the spans of its calls are below it. A stream of messages has none: it may last for days.
// It is for a Telemetry that has a hook.
func (t *Telemetry) Handler(next http.Handler) http.Handler {
	return otelhttp.NewHandler(next, "", otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithPropagators(t.hook.propagator), otelhttp.WithFilter(t.wantsRequest),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			method, route, ok := strings.Cut(r.Pattern, " ")
			if !ok {
				return r.Method
			}
			oteltrace.SpanFromContext(r.Context()).SetAttributes(semconv.HTTPRoute(route))
			return method + " " + route
		}))
}

func (t *Telemetry) wantsRequest(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/v1/") || strings.HasSuffix(r.URL.Path, ":stream") {
		return false
	}
	ctx := t.hook.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return t.hook.sampler.wants(ctx, true)
}

// Shutdown exports what is queued, for a second at most or until ctx is done, and ends the pipeline. An
// export that is under way then is given up. Spans lost that way are no error.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	return shutDown(ctx, "telemetry", func(ctx context.Context) error {
		err := t.provider.Shutdown(ctx)
		if ctx.Err() != nil {
			// The provider has stopped waiting for its exporter, which would go on trying for a minute.
			_ = t.exporter.Shutdown(ctx)
		}
		return err
	})
}

// shutDown ends a pipeline. What it cannot export within shutdownPatience, or until ctx is done, is lost.
func shutDown(ctx context.Context, name string, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownPatience)
	defer cancel()
	if err := end(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("end of %s: %w", name, err)
	}
	return nil
}

// errorLog tells the first failure of the pipeline at Warn and the rest at Debug: a collector that is down
// fails every few seconds.
type errorLog struct {
	log  *slog.Logger
	told atomic.Bool
}

func newErrorLog(log *slog.Logger) *errorLog { return &errorLog{log: log} }

// Handle implements otel.ErrorHandler.
func (e *errorLog) Handle(err error) {
	level := slog.LevelWarn
	if e.told.Swap(true) {
		level = slog.LevelDebug
	}
	e.log.Log(context.Background(), level, "telemetry could not be exported, it is dropped",
		slog.Any("error", err))
}
