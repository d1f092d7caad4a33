// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// Every code of RocketMQ 5 has an HTTP status that the code of google.rpc beside it mirrors.
func TestStatusMirrorsCode(t *testing.T) {
	t.Parallel()
	only := map[int]bool{ // statuses that google.rpc has no code for
		http.StatusPaymentRequired: true, http.StatusRequestTimeout: true, http.StatusRequestEntityTooLarge: true,
		http.StatusPreconditionRequired: true, http.StatusRequestHeaderFieldsTooLarge: true,
	}
	d := &door{}
	for number, name := range v2.Code_name {
		status, e := d.errorOf(refuse(v2.Code(number), "x"))
		if status < 400 || status > 599 || http.StatusText(status) == "" {
			t.Errorf("%s: status %d", name, status)
		}
		if mirrored := runtime.HTTPStatusFromCode(codes.Code(e.GetCode())); mirrored != status && !only[status] {
			t.Errorf("%s: status %d, code %s", name, status, codes.Code(e.GetCode()))
		}
		if e.GetDetails()[0].GetReason() != name {
			t.Errorf("%s: reason %s", name, e.GetDetails()[0].GetReason())
		}
	}
}

// What the broker refuses for lack of a disk is not the client's fault.
func TestServiceNotAvailable(t *testing.T) {
	t.Parallel()
	status, e := (&door{}).errorOf(&protocol.Error{Code: protocol.ServiceNotAvailable, Remark: "disk full"})
	if status != http.StatusServiceUnavailable ||
		e.GetDetails()[0].GetMetadata()["responseCode"] != "SERVICE_NOT_AVAILABLE" {
		t.Errorf("%d %v", status, e)
	}
}

// Who may come again is told when; who need not is not.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for code, want := range map[v2.Code]string{
		v2.Code_TOO_MANY_REQUESTS: "1", v2.Code_TOPIC_NOT_FOUND: "", v2.Code_INTERNAL_ERROR: "",
	} {
		w := httptest.NewRecorder()
		(&door{}).fail(w, refuse(code, "x"))
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%s: Retry-After %q, want %q", code, got, want)
		}
	}
	w := httptest.NewRecorder()
	(&door{}).fail(w, &protocol.Error{Code: protocol.ServiceNotAvailable, Remark: "disk full"})
	if got := w.Header().Get("Retry-After"); got != "1" {
		t.Errorf("disk full: Retry-After %q", got)
	}
}

// A handle says the same after a round trip, and nothing else is one.
func TestHandleRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := handle{
			rapid.StringMatching(`[%|a-zA-Z0-9_-]+`).Draw(t, "topic"),
			rapid.StringMatching(`[ a-zA-Z0-9_.-]+`).Draw(t, "receipt"),
		}
		if got, err := parseHandle(h.String()); err != nil || *got != h {
			t.Fatalf("%+v became %+v, %v", h, got, err)
		}
	})
}

func FuzzHandle(f *testing.F) {
	f.Add((&handle{"t", "b"}).String())
	f.Add("dCAwIDE3OTU5OTAxMzA2OTggMzAwMDAgMCAwIHZtIDEgMCAzNzQ")
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := parseHandle(text); err == nil && h.String() != text {
			t.Errorf("%q is %+v", text, h)
		}
	})
}

// refusing are rules that panic.
type refusing struct{}

func (refusing) Outgoing(*v2.Message, netip.AddrPort, time.Time) (*protocol.SendMessageRequestHeader, error) {
	panic("a bug")
}

func (refusing) Incoming(message.Record) (*v2.Message, error) { return nil, errors.ErrUnsupported }

func (refusing) StatusOf(error) *v2.Status { return &v2.Status{} }

// A panic is an answer, and the text of it stays inside.
func TestPanicIsAnswered(t *testing.T) {
	t.Parallel()
	registry, err := remoting.NewRegistry(remoting.RegistryConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Rules:        refusing{},
		IDs:          message.NewUniqueIDs(netip.IPv6Loopback(), 1, 1),
		MaxBodyBytes: func() int { return 1000 },
		Ready:        func() error { return nil },
	}, registry)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.door.ServeHTTP(
		w,
		httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/topics/t/messages", http.NoBody),
	)
	if w.Code != http.StatusInternalServerError || w.Body.Len() > 300 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	s.door.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/topics/t", http.NoBody))
	if w.Code != http.StatusInternalServerError { // no route in the registry, and rules without a name for it
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
