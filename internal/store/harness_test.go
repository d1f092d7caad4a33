// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
)

const forever = math.MaxInt64

// clock is a wall clock that tests move by hand.
type clock struct{ millis atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.millis.Store(time.Now().UnixMilli())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.millis.Load()) }
func (c *clock) advance(d time.Duration) { c.millis.Add(d.Milliseconds()) }

// runner is a store that runs, and what is needed to stop, crash and open it again.
type runner struct {
	*Store
	tb     testing.TB
	cfg    Config
	cancel context.CancelFunc
	ended  chan error
}

func testConfig(tb testing.TB) Config {
	tb.Helper()
	return Config{
		Dir:       tb.TempDir(),
		StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"),
		Log: commitlog.Config{
			SegmentBytes: 64 << 10,
			Disk:         commitlog.DiskMarks{FullPercent: 100, ReserveBytes: 1},
		},
		Retention: Retention{Interval: time.Hour, CleanForciblyPercent: 100},
	}
}

func start(tb testing.TB, cfg Config) *runner {
	tb.Helper()
	r, err := tryStart(tb, cfg)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	return r
}

func tryStart(tb testing.TB, cfg Config) (*runner, error) {
	tb.Helper()
	s, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	return run(tb, s, cfg), nil
}

// run starts what was opened.
func run(tb testing.TB, s *Store, cfg Config) *runner {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &runner{Store: s, tb: tb, cfg: cfg, cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- s.Run(ctx) }()
	tb.Cleanup(func() { _ = r.tryStop() })
	return r
}

// stop ends Run and closes the store.
func (r *runner) stop() {
	r.tb.Helper()
	if err := r.tryStop(); err != nil {
		r.tb.Fatalf("stop: %v", err)
	}
}

func (r *runner) tryStop() error {
	if r.cancel == nil {
		return nil
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.ended; err != nil {
		_ = r.Close()
		return err
	}
	return r.Close()
}

// restart stops and opens again.
func (r *runner) restart() *runner {
	r.tb.Helper()
	r.stop()
	return start(r.tb, r.cfg)
}

// crashed returns the configuration of a copy of the store's files as they are now: what kill -9 leaves.
// Nothing may be in flight. The index must be in memory: see crashConfig.
func (r *runner) crashed() Config {
	r.tb.Helper()
	return crashImage(r.tb, r.cfg, 0)
}

func crashImage(tb testing.TB, cfg Config, unsyncedPercent int) Config {
	tb.Helper()
	mem, ok := cfg.FS.(*vfs.MemFS)
	if !ok {
		tb.Fatal("a crash needs the index in a vfs.MemFS")
	}
	dir := tb.TempDir()
	copyDir(tb, filepath.Join(cfg.Dir, logFolder), filepath.Join(dir, logFolder))
	cfg.FS = renamed(tb, mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: unsyncedPercent, RNG: rand.New(rand.NewPCG(1, 2)),
	}), cfg.Dir, dir)
	cfg.Dir = dir
	return cfg
}

// tear makes the log of a crash image end like an unfinished write: r is the store it was taken from, and
// has not written since.
func (r *runner) tear(image Config, torn []byte) {
	r.tb.Helper()
	segments := r.Segments()
	last := segments[len(segments)-1]
	path := filepath.Join(image.Dir, logFolder, filepath.Base(last.Path))
	if err := os.Truncate(path, last.Bytes()); err != nil { // without the room set aside for entries to come
		r.tb.Fatal(err)
	}
	appendBytes(r.tb, path, torn)
}

// crashConfig is testConfig with the index on a disk that can be crashed.
func crashConfig(tb testing.TB) Config {
	tb.Helper()
	cfg := testConfig(tb)
	cfg.Log.FS = vfs.Default
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll(cfg.Dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	syncDir(tb, mem, cfg.Dir)
	cfg.FS = mem
	return cfg
}

// renamed moves the index folder of a crash image to where the copied log is.
func renamed(tb testing.TB, mem *vfs.MemFS, from, to string) *vfs.MemFS {
	tb.Helper()
	if err := mem.MkdirAll(to, 0o755); err != nil {
		tb.Fatal(err)
	}
	if _, err := mem.Stat(filepath.Join(from, indexFolder)); err == nil {
		copied, err := vfs.Clone(
			mem,
			mem,
			filepath.Join(from, indexFolder),
			filepath.Join(to, indexFolder),
			vfs.CloneSync,
		)
		if err != nil || !copied {
			tb.Fatalf("copy the index: %v", err)
		}
	}
	syncDir(tb, mem, to)
	return mem
}

func syncDir(tb testing.TB, fs vfs.FS, dir string) {
	tb.Helper()
	for ; ; dir = fs.PathDir(dir) {
		f, err := fs.OpenDir(dir)
		if err != nil {
			tb.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			tb.Fatal(err)
		}
		_ = f.Close()
		if fs.PathDir(dir) == dir {
			return
		}
	}
}

func copyDir(tb testing.TB, from, to string) {
	tb.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		tb.Fatal(err)
	}
	files, err := os.ReadDir(from)
	if err != nil {
		tb.Fatal(err)
	}
	for _, file := range files {
		src, dst := filepath.Join(from, file.Name()), filepath.Join(to, file.Name())
		if file.IsDir() {
			copyDir(tb, src, dst)
			continue
		}
		copyFile(tb, src, dst)
	}
}

func copyFile(tb testing.TB, from, to string) {
	tb.Helper()
	in, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return // the store is at work: it has removed a file meanwhile
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		tb.Fatal(err)
	}
	if err := out.Close(); err != nil {
		tb.Fatal(err)
	}
}

// msg makes a message; props are pairs of name and value.
func msg(topic string, queueID int32, body string, props ...string) message.Message {
	var p []byte
	for i := 0; i+1 < len(props); i += 2 {
		p = message.AppendProperty(p, props[i], props[i+1])
	}
	return message.Message{
		Topic: topic, QueueID: queueID, Body: []byte(body), Properties: string(p),
		BornHost: netip.MustParseAddrPort("10.0.0.1:4711"),
	}
}

func put(space message.Space, key, value string) message.State {
	return message.State{Space: space, Key: []byte(key), Value: []byte(value)}
}

// tryAppend appends and waits for Done.
func (r *runner) tryAppend(w *Write) error {
	done := make(chan error, 1)
	w.Done = func(_ *Write, err error) { done <- err }
	if err := r.Append(w); err != nil {
		return err
	}
	return <-done
}

func (r *runner) write(w *Write) *Write {
	r.tb.Helper()
	if err := r.tryAppend(w); err != nil {
		r.tb.Fatalf("append: %v", err)
	}
	return w
}

// send appends messages as one Write.
func (r *runner) send(msgs ...message.Message) []message.Message {
	r.tb.Helper()
	return r.write(&Write{Messages: msgs}).Messages
}

func (r *runner) fetch(topic string, queueID int32, from message.QueueOffset) FetchResult {
	r.tb.Helper()
	return r.Fetch(&FetchRequest{Topic: topic, QueueID: queueID, From: from})
}

// bodies reads a queue from an offset to its end.
func (r *runner) bodies(topic string, queueID int32, from message.QueueOffset) []string {
	r.tb.Helper()
	var bodies []string
	for {
		res := r.fetch(topic, queueID, from)
		if res.Status == OffsetOverflowOne || res.Status == NoMatchedLogicQueue {
			return bodies
		}
		if res.Status != Found {
			r.tb.Fatalf("fetch %s/%d from %d: %v %v", topic, queueID, from, res.Status, res.Err)
		}
		for i, rec := range res.Records {
			m, err := message.Decode(rec)
			if err != nil {
				r.tb.Fatal(err)
			}
			if want := from + message.QueueOffset(i); m.QueueOffset != want {
				r.tb.Fatalf("queue offset %d, want %d", m.QueueOffset, want)
			}
			bodies = append(bodies, string(m.Body))
		}
		from = res.Next
	}
}

func (r *runner) state(space message.Space, key string) string {
	r.tb.Helper()
	value, ok, err := r.State(space, []byte(key))
	if err != nil {
		r.tb.Fatal(err)
	}
	if !ok {
		return "<none>"
	}
	return string(value)
}

func wantBodies(tb testing.TB, got []string, want ...string) {
	tb.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		tb.Fatalf("got %v, want %v", got, want)
	}
}

func wantStatus(tb testing.TB, res FetchResult, status FetchStatus, next message.QueueOffset) {
	tb.Helper()
	if res.Status != status || res.Next != next {
		tb.Fatalf("got %v next %d (err %v), want %v next %d", res.Status, res.Next, res.Err, status, next)
	}
}

// wantSound verifies the stopped store offline.
func wantSound(tb testing.TB, cfg Config) Report {
	tb.Helper()
	rep, err := Verify(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("verify: %v", err)
	}
	if !rep.OK() {
		tb.Fatalf(
			"verify: %d faults, %d in the log: %v %v",
			rep.FaultCount,
			len(rep.Log.Faults),
			rep.Faults,
			rep.Log.Faults,
		)
	}
	return rep
}
