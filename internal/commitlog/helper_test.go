// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/roquetmq/roquet/internal/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testConfig is a log with small bounds in a folder of the test.
func testConfig(t testing.TB) Config {
	t.Helper()
	return Config{
		Dir: t.TempDir(), SegmentBytes: 64 << 10, RingBytes: 256 << 10, CacheBytes: 256 << 10,
		MaxPendingBytes: 4 << 20, MaxBatchBytes: 16 << 10, MaxGroupBytes: 1 << 20,
		Disk: DiskMarks{FullPercent: 100, ReserveBytes: 1},
	}
}

// testGroup appends records that are ready made and notes the outcome.
type testGroup struct {
	name    string
	records [][]byte
	done    chan struct{}
	first   message.LogOffset
	err     error
}

func newGroup(name string, records ...[]byte) *testGroup {
	return &testGroup{name: name, records: records, done: make(chan struct{})}
}

func (g *testGroup) size() int {
	n := 0
	for _, r := range g.records {
		n += len(r)
	}
	return n
}

func (g *testGroup) Encode(dst []byte) []byte {
	for _, r := range g.records {
		dst = append(dst, r...)
	}
	return dst
}

func (g *testGroup) Done(first message.LogOffset, err error) {
	g.first, g.err = first, err
	close(g.done)
}

// wait returns the outcome once there is one.
func (g *testGroup) wait() (message.LogOffset, error) {
	<-g.done
	return g.first, g.err
}

// stateRecord is a record with a name and size bytes of value.
func stateRecord(name string, size int) []byte {
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(i*7+len(name)) | 1 // no zeros: a cut tail can be told from room
	}
	s := message.State{Space: message.SpaceKV, Key: []byte(name), Value: value}
	return s.AppendTo(nil)
}

// messageRecord is a whole message record whose log offset has not been set.
func messageRecord(name string, bodyBytes int) []byte {
	m := message.Message{Topic: "t", Body: []byte(fmt.Sprintf("%s-%0*d", name, bodyBytes, 1))}
	return m.AppendTo(nil)
}

func recordName(rec []byte) string {
	s, err := message.DecodeState(rec)
	if err != nil {
		return fmt.Sprintf("message of %d bytes", len(rec))
	}
	return string(s.Key)
}

// running is a log that runs, with what it applied.
type running struct {
	*Log
	t      testing.TB
	stop   context.CancelFunc
	result chan error

	mu      sync.Mutex
	applied []Entry
	resets  int
}

func start(t testing.TB, cfg Config) *running {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, l)
}

// Drop removes the n oldest segments, fewer if there are not so many.
func (r *running) Drop(n int) error {
	segments := r.Segments()
	_, err := r.DropBefore(segments[min(n, len(segments))-1].End)
	return err
}

func run(t testing.TB, l *Log) *running { return runWith(t, l, Handler{}) }

// runWith runs a log with handler's functions behind its own.
func runWith(t testing.TB, l *Log, h Handler) *running {
	ctx, stop := context.WithCancel(context.Background())
	r := &running{Log: l, t: t, stop: stop, result: make(chan error, 1)}
	reset := h.Reset
	h.Apply = func(e Entry) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.applied = append(r.applied, e)
	}
	h.Reset = func() {
		r.mu.Lock()
		r.resets++
		r.mu.Unlock()
		if reset != nil {
			reset()
		}
	}
	go func() { r.result <- l.Run(ctx, h) }()
	return r
}

// halt stops and closes the log and returns the first error.
func (r *running) halt() error {
	r.stop()
	return errors.Join(<-r.result, r.Close())
}

func (r *running) mustHalt() {
	r.t.Helper()
	if err := r.halt(); err != nil {
		r.t.Fatal(err)
	}
}

// store appends a group and waits for it.
func (r *running) store(g *testGroup) (message.LogOffset, error) {
	if err := r.Append(g, g.size(), false); err != nil {
		return 0, err
	}
	return g.wait()
}

func (r *running) mustStore(name string, records ...[]byte) message.LogOffset {
	r.t.Helper()
	pos, err := r.store(newGroup(name, records...))
	if err != nil {
		r.t.Fatalf("store %s: %v", name, err)
	}
	return pos
}

// names replays a log and returns the names of its records.
func names(t testing.TB, l *Log) []string {
	t.Helper()
	var all []string
	err := l.Replay(l.First(), func(e Entry) error {
		return e.Each(func(pos message.LogOffset, rec []byte) error {
			all = append(all, recordName(rec))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
