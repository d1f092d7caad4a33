// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGenerated is `make generate-check` as a test.
func TestGenerated(t *testing.T) {
	t.Chdir("..")
	if err := run(true); err != nil {
		t.Error(err)
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x_gen.go")
	if err := output(path, "package x", true); err == nil {
		t.Error("a missing file passes the check")
	}
	if err := output(path, "package x\nconst   a = 1", false); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "package x\n\nconst a = 1\n" {
		t.Errorf("wrote %q, %v", b, err)
	}
	if err := output(path, "package x\nconst a = 1", true); err != nil {
		t.Error(err)
	}
	if err := output(path, "package x\nconst a = 2", true); err == nil {
		t.Error("another file passes the check")
	}
	if err := output(path, "no Go", false); err == nil {
		t.Error("no Go is written")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const codes = "request\n10 SEND_MESSAGE SendMessage P0\nresponse\n0 SUCCESS Success\n"
	known, err := parseCodes(codes)
	if err != nil || len(known) != 2 || known[0].priority != "P0" || known[1].kind != "response" {
		t.Fatalf("%+v, %v", known, err)
	}
	for _, text := range []string{
		"10 SEND_MESSAGE SendMessage P0", "request\n10 SEND_MESSAGE SendMessage", "request\nx SEND_MESSAGE SendMessage P0",
		"response\n0 SUCCESS Success OK more", "request\n10 SEND_MESSAGE SendMessage P0 topic:pub more",
	} {
		if _, err := parseCodes(text); err == nil || !strings.HasPrefix(err.Error(), "codes.txt:") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{
		"// B\nB", "B\n  a string +", "// B\nB\n  a string", "// B\nB\n  a string *", "// B\nB\n  a string + x=1", "// B\nB C\n  a string +",
		"  a string +",
	} {
		if _, err := parseBodies(text); err == nil || !strings.HasPrefix(err.Error(), "bodies.txt:") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{
		"H\n  a string *", "H SEND_MESSAGE", "H SEND_MESSAGE_V9\n  a string *", "H SUCCESS\n  a string *",
		"H SEND_MESSAGE\n  a string", "H SEND_MESSAGE\n  a float *", "H SEND_MESSAGE\n  a string !", "H SEND_MESSAGE\n  a string * x=1",
	} {
		if _, err := parseHeaders(text, known); err == nil || !strings.HasPrefix(err.Error(), "headers.txt:") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestGoName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"queueId": "QueueID", "msgId": "MsgID", "clientID": "ClientID", "reviveQid": "ReviveQID", "bodyCrc32": "BodyCRC32",
		"acceptStandardJsonOnly": "AcceptStandardJSONOnly", "haServerAddr": "HAServerAddr", "hasMsg": "HasMsg", "suggestWhichBrokerId": "SuggestWhichBrokerID",
		"brokerControllerIdsToClean": "BrokerControllerIDsToClean", "recallHandle": "RecallHandle", "indexType": "IndexType",
	} {
		if got := goName(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestRight(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"-": "", "topic:pub": "topic: auth.Pub", "both:sub|get?": "topic: auth.Sub|auth.Get, group: auth.Sub|auth.Get, optional: true",
		"cluster:update": "cluster: auth.Update",
	} {
		if got, err := right(word); got != want || err != nil {
			t.Errorf("%s: %q, %v", word, got, err)
		}
	}
	for _, word := range []string{"topic", "topic:publish", "user:get", "?"} {
		if got, err := right(word); err == nil {
			t.Errorf("%s is %q", word, got)
		}
	}
}
