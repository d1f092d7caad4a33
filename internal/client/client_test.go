// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
)

// TestRequests lays messages down as rules say.
func TestRequests(t *testing.T) {
	t.Parallel()
	offset, queue := int64(1_000_000), int32(3)
	for rpc, test := range map[string]struct {
		in   proto.Message
		want string // method, target, body
	}{
		"TopicService.GetTopic": {&v1.GetTopicRequest{Topic: "%RETRY%g/a|b"}, "GET /v1/topics/%25RETRY%25g%2Fa%7Cb "},
		"TopicService.ListTopics": {
			&v1.ListTopicsRequest{PageSize: 5, PageToken: "a b"}, "GET /v1/topics?pageSize=5&pageToken=a+b ",
		},
		"MessageService.BrowseQueue": {
			&v1.BrowseQueueRequest{Topic: "t", QueueId: 0, Offset: offset, Max: 2_000_000},
			"GET /v1/topics/t/queues/0/messages?max=2000000&offset=1000000 ",
		},
		"MessageService.Publish": {
			&v1.PublishRequest{Topic: "t", Message: &v1.NewMessage{Tag: "a"}}, `POST /v1/topics/t/messages {"tag":"a"}`,
		},
		"MessageService.CommitTransaction": {
			&v1.CommitTransactionRequest{TransactionId: "x:y"}, "POST /v1/transactions/x:y:commit ",
		},
		"GroupService.ResetOffsets": {
			&v1.ResetOffsetsRequest{Group: "g", Topic: "t", QueueId: &queue, Offset: offset},
			`PUT /v1/groups/g/topics/t/offsets {"offset":"1000000","queueId":3}`,
		},
		"MessageService.FindMessages": {
			&v1.FindMessagesRequest{Topic: "t", Key: "k&=", Begin: timestamppb.New(time.Unix(0, 0))},
			"GET /v1/topics/t/messages?begin=1970-01-01T00%3A00%3A00Z&key=k%26%3D ",
		},
	} {
		rules, err := readRules()
		if err != nil {
			t.Fatal(err)
		}
		method, target, body, err := rules["roquet.v1."+rpc].request(test.in)
		got := method + " " + target + " " + strings.ReplaceAll(string(body), ", ", ",")
		if err != nil || got != test.want {
			t.Errorf("%s: %q, %v, want %q", rpc, got, err, test.want)
		}
	}
}

// TestEveryRPCHasARule goes through the services: each can be called, streams apart.
func TestEveryRPCHasARule(t *testing.T) {
	t.Parallel()
	rules, err := readRules()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("roquet.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				found++
				if r := rules[string(methods.Get(j).FullName())]; r == nil {
					t.Errorf("%s has no rule", methods.Get(j).FullName())
				} else if method, path := r.route(); method == "" || path == "" {
					t.Errorf("%s has no path", methods.Get(j).FullName())
				}
			}
		}
		return true
	})
	if found < 30 {
		t.Errorf("only %d rpcs found", found)
	}
}

// TestAnswers is what callers are told, and who they say they are.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cfg    Config
		status int
		answer string
		want   string // of the error
		all    bool   // want is the whole error: what the server says has the cure, which not always is a rule
	}{
		"fine":          {status: 200, answer: `{"name":"t","unknown":1}`},
		"created":       {status: 201, answer: `{"name":"t"}`},
		"garbage":       {status: 200, answer: "<html>", want: "answered with what cannot be read"},
		"other server":  {status: 404, answer: "404 page not found\nx", want: "does --server name another program?"},
		"not ready":     {status: 503, answer: "stopping\n", want: "stopping: try again later"},
		"refused":       {status: 404, answer: `{"code":5,"message":"no topic","details":[{"reason":"R"}]}`, want: "no topic (R)"},
		"who":           {status: 401, answer: `{"code":16,"message":"who"}`, want: "--user and --password-file"},
		"not allowed":   {status: 403, answer: `{"code":7,"message":"no","details":[{"reason":"R"}]}`, want: "no (R)", all: true},
		"basic":         {cfg: Config{User: "u", Password: "p"}, status: 200, answer: `{"name":"Basic dTpw"}`},
		"token":         {cfg: Config{User: "u", Token: "tt"}, status: 200, answer: `{"name":"Bearer tt"}`},
		"late":          {cfg: Config{Timeout: time.Millisecond}, want: "did not answer within 1ms"},
		"not encrypted": {cfg: Config{Server: "https://"}, want: "it speaks without TLS there: --server http://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if test.status == 0 {
					<-done
				}
				if auth := r.Header.Get("Authorization"); auth != "" && !strings.Contains(test.answer, auth) {
					w.WriteHeader(http.StatusTeapot)
				}
				w.WriteHeader(max(test.status, 200))
				_, _ = io.WriteString(w, test.answer)
			}))
			defer server.Close()
			defer close(done)
			test.cfg.Server += strings.TrimPrefix(server.URL, "http://")
			c, err := New(test.cfg)
			if err != nil {
				t.Fatal(err)
			}
			topic, err := c.GetTopic(t.Context(), &v1.GetTopicRequest{Topic: "t"})
			switch {
			case test.want == "" && (err != nil || topic.GetName() == ""):
				t.Errorf("%v, %v", topic, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)),
				test.all && err.Error() != test.want:
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestTLS believes whom it is told to believe.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "name the file of its authority with --ca"},
		{Config{CAFile: authority}, ""},
		{Config{Insecure: true}, ""},
	} {
		test.cfg.Server = server.URL
		c, err := New(test.cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.GetTopic(t.Context(), &v1.GetTopicRequest{Topic: "t"})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.cfg, err, test.want)
		}
	}
}

func TestRefusedBeforeCalling(t *testing.T) {
	t.Parallel()
	if _, err := New(
		Config{Server: "ftp://x"},
	); err == nil ||
		!strings.Contains(err.Error(), "wanted http://host:port") {
		t.Errorf("ftp: %v", err)
	}
	c, err := New(Config{Server: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.GetTopic(t.Context(), &v1.GetTopicRequest{}); err == nil || err.Error() != "the topic is empty" {
		t.Errorf("without a topic: %v", err)
	}
	if _, err = c.Stream(t.Context(), &v1.StreamRequest{}); err == nil {
		t.Error("a stream was opened")
	}
	var refused *Error
	if _, err = c.GetTopic(t.Context(), &v1.GetTopicRequest{Topic: "t"}); err == nil || errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "is roquet running there?") {
		t.Errorf("nobody there: %v", err)
	}
}
