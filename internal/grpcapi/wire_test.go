// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
)

// wireMessage decodes a line of testdata/wire.
func wireMessage(t *testing.T, line string) (rpc string, m proto.Message) {
	t.Helper()
	rpc, text, _ := strings.Cut(line, " ")
	raw, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	name := rpc + "Request"
	if rpc == "Telemetry" {
		name = "TelemetryCommand"
	}
	typ, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("apache.rocketmq.v2." + name))
	if err != nil {
		t.Fatal(err)
	}
	m = typ.New().Interface()
	if err := proto.Unmarshal(raw, m); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	again, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	other := typ.New().Interface()
	if err := proto.Unmarshal(again, other); err != nil || !proto.Equal(m, other) {
		t.Errorf("%s: decoded and encoded it is another message: %v", rpc, err)
	}
	return rpc, m
}

// unknown finds a field that our protos do not have.
func unknown(m protoreflect.Message) bool {
	found := len(m.GetUnknown()) > 0
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				found = found || unknown(v.List().Get(i).Message())
			}
		default:
			found = found || unknown(v.Message())
		}
		return true
	})
	return found
}

// What the official clients send is understood to the last field, and nothing of it is refused.
func TestWireOfOfficialClients(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/wire/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	d := newDoor(t, nil)
	a := d.server.api
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rpcs := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			rpc, m := wireMessage(t, strings.TrimSpace(line))
			rpcs[rpc] = true
			if unknown(m.ProtoReflect()) {
				t.Errorf("%s: %s has fields that are unknown here: %v", file, rpc, m)
			}
			if err := accepted(a, m); err != nil {
				t.Errorf("%s: %s is refused: %v\n%v", file, rpc, err, m)
			}
		}
		for _, rpc := range []string{"QueryRoute", "Telemetry", "Heartbeat", "SendMessage", "ReceiveMessage", "AckMessage"} {
			if !rpcs[rpc] {
				t.Errorf("%s has no %s", file, rpc)
			}
		}
	}
}

// accepted checks a client's request as its rpc does.
func accepted(a *api, m proto.Message) error {
	switch req := m.(type) {
	case *v2.SendMessageRequest:
		_, err := a.outgoing(
			req.GetMessages(),
			&caller{conn: &connInfo{}},
			req.GetMessages()[0].GetSystemProperties().
				GetBornTimestamp().AsTime().Add(time.Second),
		)
		return err
	case *v2.TelemetryCommand:
		if s := req.GetSettings(); s != nil {
			return a.checkSettings(s)
		}
		return nil
	case *v2.ReceiveMessageRequest:
		_, err := expressionOf(req.GetFilterExpression())
		return err
	case *v2.AckMessageRequest:
		return handleOK(req.GetEntries()[0].GetReceiptHandle())
	case *v2.ChangeInvisibleDurationRequest:
		return handleOK(req.GetReceiptHandle())
	}
	return nil
}

// handleOK checks that a receipt handle has its nine fields.
func handleOK(handle string) error {
	if strings.Count(handle, " ") != 8 {
		return fmt.Errorf("receipt handle %q", handle)
	}
	return nil
}
