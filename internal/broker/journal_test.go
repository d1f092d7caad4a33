// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// fataler is what tests, benchmarks and rapid's scripts have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// memJournal is a log in memory: Append keeps writes, apply makes them durable in order, as the store's
// applier would.
type memJournal struct {
	mu      sync.Mutex
	refuse  error // returned by Append
	pending []*store.Write
	live    map[string]string // space and key → value
	hooks   map[message.Space][]func(message.State)
	writes  int
}

func newMemJournal() *memJournal {
	return &memJournal{live: map[string]string{}, hooks: map[message.Space][]func(message.State){}}
}

// reopened is the journal after a crash: what was not applied is gone.
func (j *memJournal) reopened() *memJournal {
	next := newMemJournal()
	maps.Copy(next.live, j.live)
	return next
}

func (j *memJournal) Append(w *store.Write) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refuse != nil {
		return j.refuse
	}
	j.writes++
	j.pending = append(j.pending, w)
	return nil
}

func (j *memJournal) OnState(space message.Space, fn func(message.State)) {
	j.hooks[space] = append(j.hooks[space], fn)
}

func (j *memJournal) States(space message.Space, prefix []byte) iter.Seq2[message.State, error] {
	return func(yield func(message.State, error) bool) {
		from := string(byte(space)) + string(prefix)
		for _, key := range slices.Sorted(maps.Keys(j.live)) {
			if strings.HasPrefix(key, from) &&
				!yield(message.State{Space: space, Key: []byte(key[1:]), Value: []byte(j.live[key])}, nil) {
				return
			}
		}
	}
}

// apply ends every pending write: with nil after its states are live, or with err.
func (j *memJournal) apply(tb fataler, err error) int {
	tb.Helper()
	j.mu.Lock()
	pending := j.pending
	j.pending = nil
	j.mu.Unlock()
	for _, w := range pending {
		if err != nil {
			w.Done(w, err)
			continue
		}
		for _, st := range w.State {
			j.applyState(tb, st)
		}
		w.Done(w, nil)
	}
	return len(pending)
}

func (j *memJournal) applyState(tb fataler, st message.State) {
	tb.Helper()
	stored, err := message.DecodeState(st.AppendTo(nil))
	if err != nil {
		tb.Fatalf("state %+v: %v", st, err)
	}
	key := string(byte(stored.Space)) + string(stored.Key)
	if stored.Delete {
		delete(j.live, key)
	} else {
		j.live[key] = string(stored.Value)
	}
	for _, fn := range j.hooks[stored.Space] {
		fn(stored)
	}
}

// keys returns the live keys of a space.
func (j *memJournal) keys(space message.Space) []string {
	var keys []string
	for key := range j.live {
		if key[0] == byte(space) {
			keys = append(keys, key[1:])
		}
	}
	slices.Sort(keys)
	return keys
}

// quiet is a logger that drops everything.
func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// tables are all durable tables over one journal.
type tables struct {
	journal *memJournal
	topics  *Topics
	groups  *Groups
	offsets *offset.Table
}

func openTables(tb fataler, j *memJournal, configure ...func(*TopicsConfig, *GroupsConfig)) *tables {
	tb.Helper()
	tc := TopicsConfig{System: SystemNames{Cluster: "DefaultCluster", Broker: "broker-a"}, Logger: quiet()}
	gc := GroupsConfig{Logger: quiet()}
	for _, fn := range configure {
		fn(&tc, &gc)
	}
	offsets, err := offset.New(j, quiet())
	if err != nil {
		tb.Fatal(err)
	}
	topics, err := NewTopics(tc, j, offsets)
	if err != nil {
		tb.Fatal(err)
	}
	groups, err := NewGroups(gc, j)
	if err != nil {
		tb.Fatal(err)
	}
	return &tables{journal: j, topics: topics, groups: groups, offsets: offsets}
}

// outcome records what a done function was called with.
type outcome struct {
	calls int
	err   error
	topic *TopicConfig
	group *GroupConfig
}

func (o *outcome) done(err error) { o.calls, o.err = o.calls+1, err }

func (o *outcome) gotTopic(cfg *TopicConfig, err error) {
	o.topic = cfg
	o.done(err)
}

func (o *outcome) gotGroup(cfg *GroupConfig, err error) {
	o.group = cfg
	o.done(err)
}

func (o *outcome) want(tb fataler, calls int, ok bool) {
	tb.Helper()
	if o.calls != calls || (o.err == nil) != ok {
		tb.Fatalf("done called %d times with %v, want %d times, success %v", o.calls, o.err, calls, ok)
	}
}

// testChannel is a connection that goes nowhere.
type testChannel struct {
	id   uint64
	addr string
}

func (c testChannel) ID() uint64                 { return c.id }
func (c testChannel) RemoteAddr() netip.AddrPort { return netip.MustParseAddrPort(c.addr) }

func channel(id uint64) testChannel { return testChannel{id, "10.0.0.1:40000"} }
