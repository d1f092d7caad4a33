// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampler chooses calls before anything is made for their spans. The SDK would read the environment too, but
// keeps its sampler to itself, and asking it costs more than a random number.
type sampler struct {
	ratio   float64     // of calls without a parent
	parents sdk.Sampler // asked about calls that have one
}

// wants reports whether a request that came with ctx gets a span. Without hasParent ctx has no parent.
func (s *sampler) wants(ctx context.Context, hasParent bool) bool {
	if hasParent {
		if parent := trace.SpanContextFromContext(ctx); parent.IsValid() {
			asked := sdk.SamplingParameters{ParentContext: ctx, TraceID: parent.TraceID()}
			return s.parents.ShouldSample(asked).Decision != sdk.Drop
		}
	}
	return rand.Float64() < s.ratio
}

// samplerFromEnv reads OTEL_TRACES_SAMPLER and its argument. The sampler is usable also when there is an error.
func samplerFromEnv(getenv func(string) string) (s sampler, err error) {
	name := strings.ToLower(strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER")))
	arg := strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER_ARG"))
	s.ratio = 1
	if name == "" {
		name, s.ratio = "parentbased_traceidratio", defaultRatio
	}
	kind, parentBased := strings.CutPrefix(name, "parentbased_")
	switch kind {
	case "always_on":
	case "always_off":
		s.ratio = 0
	case "traceidratio":
		given, parseErr := strconv.ParseFloat(cmp.Or(arg, fmt.Sprint(s.ratio)), 64)
		if parseErr != nil || !(given >= 0 && given <= 1) {
			err = fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q, want a number from 0 to 1", arg)
		} else {
			s.ratio = given
		}
	default:
		s.ratio, parentBased, err = defaultRatio, true, fmt.Errorf("OTEL_TRACES_SAMPLER is %q", name)
	}
	s.parents = sdk.TraceIDRatioBased(s.ratio)
	if parentBased {
		s.parents = sdk.ParentBased(s.parents)
	}
	return s, err
}
