// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// Each way in which index and log can differ is found, and a restart that rebuilds the index heals it.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		harm func(t *testing.T, s *Store)
		want string
	}{
		{"a queue entry too much", func(_ *testing.T, s *Store) {
			idx := s.db.LookupQueue("topic0", 0)
			idx.Add(index.Entry{Offset: idx.Next(), Pos: s.log.End() - 1, Size: 100})
		}, "have a message in the log"},
		{"a queue that the log does not have", func(_ *testing.T, s *Store) {
			s.db.Queue("nowhere", 0).Add(index.Entry{Pos: s.log.End() - 1, Size: 100})
		}, "topic nowhere queue 0: the index has 1 entries, 0 have"},
		{"a queue that is missing", func(_ *testing.T, s *Store) {
			s.db.DeleteTopic("topic1", s.log.End())
		}, "topic topic1 queue 0: message 0"},
		{"state too much", func(_ *testing.T, s *Store) {
			s.db.Put(message.SpaceKV, []byte("ghost"), []byte("boo"), s.log.End()-1)
		}, `state 4/"ghost"`},
		{"another value", func(t *testing.T, s *Store) {
			_, pos, ok, err := s.db.Get(message.SpaceOffset, []byte("g0"))
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			s.db.Put(message.SpaceOffset, []byte("g0"), []byte("boo"), pos)
		}, `state 3/"g0"`},
		{"state that is missing", func(_ *testing.T, s *Store) {
			s.db.Delete(message.SpaceOffset, []byte("g0"), s.log.End()-1)
		}, `state 3/"g0"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			r := start(t, cfg)
			fill(r, 36)
			r.stop()
			s, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			test.harm(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			wantFault(t, cfg, test.want)
			if err := os.RemoveAll(filepath.Join(cfg.Dir, indexFolder)); err != nil {
				t.Fatal(err)
			}
			start(t, cfg).stop()
			wantSound(t, cfg)
		})
	}
}

func wantFault(t *testing.T, cfg Config, want string) {
	t.Helper()
	rep, err := Verify(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if rep.OK() || !strings.Contains(fmt.Sprint(rep.Faults), want) {
		t.Fatalf("%d faults: %v; want one with %q", rep.FaultCount, rep.Faults, want)
	}
}

// A damaged key sidecar is found by verify, and is written anew by the first search that needs it.
func TestDamagedKeysAreRewritten(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	r := start(t, cfg)
	fill(r, 50)
	r.stop()
	sidecars, err := filepath.Glob(filepath.Join(cfg.Dir, indexFolder, "keys", "*.keys"))
	if err != nil || len(sidecars) == 0 {
		t.Fatalf("no sidecars: %v", err)
	}
	for _, sidecar := range sidecars {
		flip(t, sidecar, 200)
	}
	wantFault(t, cfg, sidecars[0])
	r = start(t, cfg)
	for i := range 50 { // one of them meets the damage
		got := keysOf(t, r, "topic0", fmt.Sprint("key", i), false)
		if len(got) != 3 || !strings.HasPrefix(got[0], fmt.Sprint("body ", i, 6)) {
			t.Fatalf("found %q", got)
		}
	}
	r.stop()
	wantSound(t, cfg)
}
