// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/roquetmq/roquet/internal/config"
)

// TestSpansOfRequests: the span of a request has its route as name and the request's parent, and the calls' spans are
// of the same trace. Health checks have none.
func TestSpansOfRequests(t *testing.T) {
	var mu sync.Mutex
	var spans []byte
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		spans = append(spans, body...)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/v1/traces")
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	r := start(t, func(cfg *config.Config) { cfg.Metrics.Exporter = "DISABLE" })
	traces := []string{
		"0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c", "2cf7651916cd43dd8448eb211c80319c",
	}
	parent := func(i int) string { return "traceparent: 00-" + traces[i] + "-b7ad6b7169203331-01" }
	r.do(http.MethodPut, "/v1/topics/orders", "", parent(0)).want(http.StatusOK)
	r.do(http.MethodPost, "/v1/topics/orders/messages", "x", parent(1)).want(http.StatusCreated)
	r.do(http.MethodGet, "/healthz", "", parent(2)).want(http.StatusOK)
	r.get("/v1/topics").want(http.StatusOK)
	r.stop()
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{
		"PUT /v1/topics/{topic}", "POST /v1/topics/{topic}/messages", "RocketMQ/SEND_MESSAGE", "http.route",
	} {
		if !bytes.Contains(spans, []byte(name)) {
			t.Errorf("no %s", name)
		}
	}
	if bytes.Contains(spans, []byte("GET /v1/topics")) {
		t.Error("a request that is not sampled has a span")
	}
	for i, want := range []int{2, 3, 0} { // the request's and the call's; what is sent has a link besides
		id, err := hex.DecodeString(traces[i])
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(spans, id); n < want || n > 0 && want == 0 {
			t.Errorf("%s occurs %d times, wanted %d at least", traces[i], n, want)
		}
	}
}
