// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// samplerFromEnv reads OTEL_TRACES_SAMPLER and its argument. The SDK would do so too, but keeps the sampler
// to itself, and the hook asks it before it makes a span. The sampler is usable also when there is an error.
func samplerFromEnv(getenv func(string) string) (sdk.Sampler, error) {
	name := strings.ToLower(strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER")))
	arg := strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER_ARG"))
	ratio, err := 1.0, error(nil)
	if name == "" {
		name, ratio = "parentbased_traceidratio", defaultRatio
	}
	if arg != "" && strings.HasSuffix(name, "traceidratio") {
		given, parseErr := strconv.ParseFloat(arg, 64)
		if parseErr != nil || !(given >= 0 && given <= 1) {
			err = fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q, want a number from 0 to 1", arg)
		} else {
			ratio = given
		}
	}
	switch name {
	case "always_on":
		return sdk.AlwaysSample(), err
	case "always_off":
		return sdk.NeverSample(), err
	case "traceidratio":
		return sdk.TraceIDRatioBased(ratio), err
	case "parentbased_always_on":
		return sdk.ParentBased(sdk.AlwaysSample()), err
	case "parentbased_always_off":
		return sdk.ParentBased(sdk.NeverSample()), err
	case "parentbased_traceidratio":
		return sdk.ParentBased(sdk.TraceIDRatioBased(ratio)), err
	default:
		return sdk.ParentBased(sdk.TraceIDRatioBased(defaultRatio)),
			fmt.Errorf("OTEL_TRACES_SAMPLER is %q", name)
	}
}

// chosenIDs is the SDK's ID generator: a root span gets the trace id that the sampler was asked about, so
// that it decides the same when the SDK asks it again.
type chosenIDs struct{}

type chosenKey struct{}

// NewIDs implements IDGenerator for root spans.
func (g chosenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, ok := ctx.Value(chosenKey{}).(trace.TraceID)
	if !ok {
		id = newTraceID()
	}
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements IDGenerator.
func (chosenIDs) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	var id trace.SpanID
	for !id.IsValid() {
		binary.LittleEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// newTraceID returns a random trace id. It does not allocate.
func newTraceID() trace.TraceID {
	var id trace.TraceID
	for !id.IsValid() {
		binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
		binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}
