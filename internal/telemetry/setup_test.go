// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestNothingAskedForMeansNilHook(t *testing.T) {
	t.Parallel()
	for name, getenv := range map[string]func(string) string{
		"empty":             env(),
		"only a sampler":    env("OTEL_TRACES_SAMPLER", "always_on"),
		"disabled":          env("OTEL_SDK_DISABLED", "true", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
		"disabled, capital": env("OTEL_SDK_DISABLED", " TRUE ", "OTEL_TRACES_EXPORTER", "otlp"),
	} {
		telemetry, err := Setup(t.Context(), Options{Getenv: getenv})
		if err != nil || telemetry.Hook() != nil {
			t.Errorf("%s: hook %v, %v", name, telemetry.Hook(), err)
		}
		if err := telemetry.Shutdown(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExporterNames(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	telemetry, err := Setup(t.Context(), Options{})
	if err != nil || telemetry.Hook() != nil {
		t.Errorf("none: %v, %v", telemetry.Hook(), err)
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
	if _, err := Setup(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "carrier-pigeon") {
		t.Errorf("unknown exporter: %v", err)
	}
}

func TestSamplers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, arg   string
		ratio       float64
		parentBased bool
		fault       string
	}{
		{"", "", 0.01, true, ""},
		{"", "0.5", 0.5, true, ""},
		{"always_on", "", 1, false, ""},
		{"always_off", "7", 0, false, ""},
		{"traceidratio", "0.25", 0.25, false, ""},
		{"traceidratio", "2", 1, false, "want a number"},
		{"parentbased_traceidratio", "x", 1, true, "want a number"},
		{"parentbased_always_on", "", 1, true, ""},
		{"parentbased_always_off", "", 0, true, ""},
		{" Always_On ", "", 1, false, ""},
		{"dice", "", 0.01, true, "dice"},
		{"traceidratio", "NaN", 1, false, "want a number"},
	} {
		s, err := samplerFromEnv(env("OTEL_TRACES_SAMPLER", tc.name, "OTEL_TRACES_SAMPLER_ARG", tc.arg))
		if s.ratio != tc.ratio || strings.HasPrefix(s.parents.Description(), "ParentBased") != tc.parentBased {
			t.Errorf("%q %q: %v of roots, else %s", tc.name, tc.arg, s.ratio, s.parents.Description())
		}
		if (err == nil) != (tc.fault == "") || (err != nil && !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("%q %q: %v", tc.name, tc.arg, err)
		}
	}
}

// logBuffer is a log that tests read.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// blackHole accepts connections and never answers. It lets go of them at the end of the test.
func blackHole(t *testing.T) string {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var held sync.WaitGroup
	held.Go(func() {
		var conns []net.Conn
		for {
			nc, err := socket.Accept()
			if err != nil {
				for _, nc := range conns {
					_ = nc.Close()
				}
				return
			}
			conns = append(conns, nc)
		}
	})
	t.Cleanup(func() {
		_ = socket.Close()
		held.Wait()
	})
	return "http://" + socket.Addr().String()
}

// TestC207UnreachableCollector: start, calls and stop take their usual time whatever the collector does, with
// one warning.
func TestC207UnreachableCollector(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closedURL := "http://" + closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ endpoint, protocol string }{
		"closed port, http": {closedURL, "http/protobuf"}, "closed port, grpc": {closedURL, "grpc"},
		"black hole, http": {blackHole(t), "http/protobuf"}, "black hole, grpc": {blackHole(t), "grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", tc.endpoint)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", tc.protocol)
			t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
			log := &logBuffer{}
			begun := time.Now()
			telemetry, err := Setup(
				t.Context(),
				Options{Version: "1", Logger: slog.New(slog.NewTextHandler(log, nil))},
			)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("start took %v", took)
			}
			hook := telemetry.Hook()
			begun = time.Now()
			for range 10_000 {
				c := call(protocol.SendMessageV2, nil, nil)
				hook.After(hook.Before(t.Context(), c), c, &remoting.Response{}, nil)
			}
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("10,000 calls took %v", took)
			}
			begun = time.Now()
			if err := telemetry.Shutdown(context.Background()); err != nil {
				t.Logf("Shutdown: %v", err) // a collector that refuses is told
			}
			if took := time.Since(begun); took > shutdownPatience+2*time.Second {
				t.Errorf("stop took %v", took)
			}
			if n := strings.Count(log.String(), "level=WARN"); n > 1 {
				t.Errorf("%d warnings: %s", n, log)
			}
		})
	}
}

// TestSpansReachACollector: OTLP over HTTP as the environment says, with the resource it names.
func TestSpansReachACollector(t *testing.T) {
	got := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		got <- r.URL.Path + " " + body.String()
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/v1/traces")
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	t.Setenv("OTEL_SERVICE_NAME", "orders-broker")
	telemetry, err := Setup(t.Context(), Options{Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	c := call(protocol.SendMessageV2, nil, nil)
	telemetry.Hook().After(telemetry.Hook().Before(t.Context(), c), c, &remoting.Response{}, nil)
	if err := telemetry.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case body := <-got:
		for _, part := range []string{"/v1/traces", "orders-broker", "1.2.3", "RocketMQ/SEND_MESSAGE_V2"} {
			if !strings.Contains(body, part) {
				t.Errorf("the collector did not get %s", part)
			}
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
	}
}

func TestErrorsAreToldOnce(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	h := newErrorLog(slog.New(slog.NewTextHandler(log, nil)))
	for range 5 {
		h.Handle(context.DeadlineExceeded)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d lines", n)
	}
}
