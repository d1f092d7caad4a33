// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	if err := New().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestEverySettingReadsBackWhatItWrites(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range New().Settings() {
		if seen[s.Key] || seen[s.Environment()] || seen["--"+s.Flag] {
			t.Errorf("%s, %s or --%s stands twice", s.Key, s.Environment(), s.Flag)
		}
		seen[s.Key], seen[s.Environment()], seen["--"+s.Flag] = true, true, true
		before := s.Text()
		if err := s.Set(before); err != nil || s.Text() != before {
			t.Errorf("%s: %q becomes %q, %v", s.Key, before, s.Text(), err)
		}
	}
}

func TestLayers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "broker.conf")
	text := "# comment\nbrokerName = broker-x\nlistenPort=10921\nmappedFileSizeCommitLog=1073741824\nfileReservedTime=48\n" +
		"namesrvAddr=a:9876;\\\nb:9876\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(file, []string{"ROQUET_LISTEN_PORT=10931", "PATH=x"}, map[string]string{"listenPort": "10941"})
	if err != nil {
		t.Fatal(err)
	}
	if l.Identity.BrokerName != "broker-x" || l.Listen.BrokerPort != 10941 ||
		l.Store.FileReservedTime != 48*time.Hour {
		t.Errorf("got %+v", l.Config)
	}
	if strings.Join(l.Identity.NamesrvAddrs, " ") != "a:9876 b:9876" {
		t.Errorf("name servers %q", l.Identity.NamesrvAddrs)
	}
	if len(l.Ignored) != 1 || l.Ignored[0] != "mappedFileSizeCommitLog" {
		t.Errorf("ignored %q", l.Ignored)
	}
	var out bytes.Buffer
	if err := l.Print(&out); err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "again.conf")
	if err := os.WriteFile(again, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	back, err := Load(again, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := l.Settings()
	for i, setting := range back.Settings() {
		if got, want := setting.Text(), want[i].Text(); got != want {
			t.Errorf("printed %s=%s reads back as %s", setting.Key, want, got)
		}
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "roquet.yaml")
	text := "brokerName: b\nportOffset: 100\nautoCreateTopicEnable: false\nnamesrvAddr: [a:9876, b:9876]\nfileReservedTime: 90m\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(file, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if l.Listen.Port(l.Listen.BrokerPort) != 11011 || l.Topic.AutoCreateTopic || len(l.Identity.NamesrvAddrs) != 2 ||
		l.Store.FileReservedTime != 90*time.Minute {
		t.Errorf("got %+v", l.Config)
	}
}

func TestFaultsNameTheCure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, key, value, want string }{
		{"unknown key", "brokrName", "x", `nearest known key is "brokerName"`},
		{"not a number", "listenPort", "abc", `listenPort: "abc" cannot be read`},
		{"not a boolean", "traceOn", "maybe", "true or false"},
		{"port twice", "listenPort", "9876", "is also namesrvPort"},
		{"negative", "maxConnections", "-1", "maxConnections: \"-1\" is outside 0"},
		{"too large", "segmentSize", "2GiB", "outside 1 MiB … 1 GiB"},
		{"no such word", "tls.server.mode", "sometimes", "none of permissive, enforcing, disabled"},
		{"port too large", "listenPort", "70000", "outside 0 … 65535"},
		{"replica", "brokerId", "1", "only a master"},
		{"role", "roles", "controller", "is no role"},
		{"flush", "flushDiskType", "NEVER", "neither SYNC_FLUSH nor ASYNC_FLUSH"},
		{"levels", "messageDelayLevel", "1s 5x", `"5x" is no delay`},
		{"negative time", "fileReservedTime", "-1", "hours"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load("", nil, map[string]string{c.key: c.value})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something with %q", err, c.want)
			}
		})
	}
	if _, err := Load("", []string{"ROQUET_BROKR_NAME=x"}, nil); err == nil ||
		!strings.Contains(err.Error(), "ROQUET_BROKER_NAME") {
		t.Errorf("unknown variable: %v", err)
	}
}

// C143: a protected key is refused, and nothing is changed, not even partly.
func TestC143UpdateIsAllOrNothing(t *testing.T) {
	t.Parallel()
	c := New()
	for _, key := range []string{"storePathRootDir", "brokerName", "bindAddress", "nonsense"} {
		next, err := c.Update(map[string]string{"maxMessageSize": "65536", key: "x"})
		if err == nil || next != nil {
			t.Errorf("%s: accepted", key)
		}
	}
	if c.Message.MaxSizeBytes != 4<<20 {
		t.Error("changed the present configuration")
	}
	next, err := c.Update(
		map[string]string{"maxMessageSize": "65536", "brokerName": c.Identity.BrokerName, "deleteWhen": "05"},
	)
	if err != nil || next.Message.MaxSizeBytes != 65536 {
		t.Errorf("got %v, %v", next, err)
	}
}
