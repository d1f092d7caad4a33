// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
)

// fill writes messages of several queues with tags and keys, and state, over several segments.
func fill(r *runner, rounds int) {
	r.tb.Helper()
	for i := range rounds {
		batch := make([]message.Message, 8)
		for j := range batch {
			batch[j] = msg(fmt.Sprint("topic", j%3), int32(j%2), fmt.Sprint("body ", i, j, strings.Repeat("x", 100)),
				message.PropertyTags, fmt.Sprint("tag", j), message.PropertyKeys, fmt.Sprint("key", i, " k", j),
				message.PropertyUniqueKey, fmt.Sprint("U", i, "-", j))
		}
		r.write(&Write{Messages: batch, State: []message.State{
			put(message.SpaceOffset, fmt.Sprint("g", i%7), fmt.Sprint(i)),
			{Space: message.SpaceOffset, Key: fmt.Append(nil, "g", (i+3)%7), Delete: true},
		}})
	}
}

// rawIndex returns every key and value of a closed store's index.
func rawIndex(tb testing.TB, cfg Config) string {
	tb.Helper()
	fs := cfg.FS
	if fs == nil {
		fs = vfs.Default
	}
	dir := filepath.Join(cfg.Dir, indexFolder)
	db, err := pebble.Open(pebbleDir(tb, fs, dir), &pebble.Options{FS: fs, ReadOnly: true, Logger: quiet{}})
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	it, err := db.NewIter(nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer it.Close()
	var b strings.Builder
	for it.First(); it.Valid(); it.Next() {
		if string(it.Key()) == "\x01a" {
			continue // how far it has applied: a mark at the log's end counts or not
		}
		fmt.Fprintf(&b, "%x = %x\n", it.Key(), it.Value())
	}
	return b.String()
}

// quiet is Pebble's logger for a look into its files.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// pebbleDir finds the folder that Pebble uses inside the index folder.
func pebbleDir(tb testing.TB, fs vfs.FS, dir string) string {
	tb.Helper()
	names, err := fs.List(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST") {
			return dir
		}
	}
	for _, name := range names {
		sub := fs.PathJoin(dir, name)
		if inside, err := fs.List(sub); err == nil {
			for _, n := range inside {
				if strings.HasPrefix(n, "MANIFEST") {
					return sub
				}
			}
		}
	}
	tb.Fatalf("no Pebble in %s: %v", dir, names)
	return ""
}

// content is everything that the index answers, as text.
func (r *runner) content() string {
	r.tb.Helper()
	var b strings.Builder
	for _, topic := range r.db.Topics() {
		for _, idx := range r.db.Queues(topic) {
			low := idx.Min(r.log.First())
			fmt.Fprintf(&b, "%s/%d [%d, %d)\n", topic, idx.ID(), low, idx.Next())
			for off := low; off < idx.Next(); off++ {
				rec, err := r.At(topic, idx.ID(), off)
				if err != nil {
					r.tb.Fatal(err)
				}
				m, _ := message.Decode(rec)
				fmt.Fprintf(&b, " %d at %d %q %q\n", off, m.LogOffset, m.Body, m.Properties)
				props := indexed(m.Properties)
				for _, key := range append(strings.Fields(props.keys)[:1], props.uniqueKey) {
					found, err := r.ByKey(topic, key, key == props.uniqueKey, 1000, 0, forever)
					if err != nil {
						r.tb.Fatal(err)
					}
					fmt.Fprintf(&b, "  %s:", key)
					for _, rec := range found {
						fmt.Fprintf(&b, " %d", rec.LogOffset())
					}
					fmt.Fprintln(&b)
				}
			}
		}
	}
	for space := range 256 {
		for st, err := range r.db.Scan(message.Space(space), nil, nil) {
			if err != nil {
				r.tb.Fatal(err)
			}
			fmt.Fprintf(&b, "state %d %q = %q at %d\n", space, st.Key, st.Value, st.Pos)
		}
	}
	return b.String()
}

func wantSame(tb testing.TB, what, got, want string) {
	tb.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			tb.Fatalf("%s differs at line %d:\n got %s\nwant %s", what, i, g[i], w[i])
		}
	}
	tb.Fatalf("%s has %d lines, want %d", what, len(g), len(w))
}

// The index folder is lost: it is rebuilt, and is the same to the byte.
func TestIndexLost(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	fill(r, 300)
	r.write(&Write{State: []message.State{TopicDeletion("topic1")}})
	fill(r, 100)
	before := r.content()
	r.stop()
	raw := rawIndex(t, r.cfg)
	if err := os.RemoveAll(filepath.Join(r.cfg.Dir, indexFolder)); err != nil {
		t.Fatal(err)
	}
	if rep := wantSound(t, r.cfg); !rep.IndexMissing {
		t.Fatal("verify made an index")
	}
	r = start(t, r.cfg)
	wantSame(t, "content", r.content(), before)
	r.stop()
	wantSame(t, "index", rawIndex(t, r.cfg), raw)
	wantSound(t, r.cfg)
}

// C159: the index is behind the log: what it has not applied is replayed.
func TestC159IndexBehind(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	fill(r, 100)
	r.stop()
	old := filepath.Join(t.TempDir(), "index")
	copyDir(t, filepath.Join(r.cfg.Dir, indexFolder), old)
	r = start(t, r.cfg)
	fill(r, 200)
	before := r.content()
	r.stop()
	raw := rawIndex(t, r.cfg)
	index := filepath.Join(r.cfg.Dir, indexFolder)
	if err := os.RemoveAll(index); err != nil {
		t.Fatal(err)
	}
	copyDir(t, old, index)
	if rep := wantSound(t, r.cfg); rep.NotIndexed == 0 {
		t.Fatal("the index is not behind")
	}
	r = start(t, r.cfg)
	wantSame(t, "content", r.content(), before)
	r.stop()
	wantSame(t, "index", rawIndex(t, r.cfg), raw)
}

// The index is ahead of the log (an unsynced tail was lost): it is rebuilt.
func TestIndexAhead(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	fill(r, 100)
	before := r.content()
	r.stop()
	log := filepath.Join(t.TempDir(), "log")
	copyDir(t, filepath.Join(r.cfg.Dir, logFolder), log)
	r = start(t, r.cfg)
	fill(r, 100)
	r.stop()
	if err := os.RemoveAll(filepath.Join(r.cfg.Dir, logFolder)); err != nil {
		t.Fatal(err)
	}
	copyDir(t, log, filepath.Join(r.cfg.Dir, logFolder))
	r = start(t, r.cfg)
	wantSame(t, "content", r.content(), before)
	fill(r, 10)
	r.stop()
	wantSound(t, r.cfg)
}

// C157: empty files do not stop the start: a last segment of zero bytes, and index files of zero bytes.
func TestC157EmptyFiles(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	fill(r, 100)
	before := r.content()
	index := filepath.Join(r.cfg.Dir, indexFolder)
	r.stop()
	log, err := commitlog.Verify(t.Context(), vfs.Default, filepath.Join(r.cfg.Dir, logFolder), nil)
	if err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(r.cfg.Dir, logFolder, fmt.Sprintf("%020d", log.Entries+1)) // they are numbered from 1
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files := indexFiles(t, index)
	for _, file := range files {
		saved := filepath.Join(t.TempDir(), "saved")
		copyDir(t, r.cfg.Dir, saved)
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		r = start(t, r.cfg)
		wantSame(t, "content with an empty "+filepath.Base(file), r.content(), before)
		r.stop()
		if err := os.RemoveAll(r.cfg.Dir); err != nil {
			t.Fatal(err)
		}
		copyDir(t, saved, r.cfg.Dir)
	}
}

func indexFiles(tb testing.TB, dir string) []string {
	tb.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "LOCK" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

func lastSegment(tb testing.TB, cfg Config) string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(cfg.Dir, logFolder, "[0-9]*"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no segments: %v", err)
	}
	return slices.Max(files)
}

// appendBytes puts bytes behind the last byte of the log, as an unfinished write does.
func appendBytes(tb testing.TB, path string, b []byte) {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
}

// C155: a torn record at the end costs itself and nothing in front of it.
func TestC155TornTailKeepsTheRest(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Log.SegmentBytes = 1 << 20
	r := start(t, cfg)
	for i := range 1000 {
		r.send(msg("t", 0, fmt.Sprint(i)))
	}
	r.stop()
	appendBytes(t, lastSegment(t, cfg), []byte{0x80, 0x02, 'R', 'Q', 'E', '1', 1, 1})
	r = start(t, cfg)
	if got := len(r.bodies("t", 0, 0)); got != 1000 {
		t.Fatalf("%d messages", got)
	}
	if got := r.send(msg("t", 0, "next"))[0].QueueOffset; got != 1000 {
		t.Fatalf("queue offset %d", got)
	}
	r.stop()
	wantSound(t, cfg)
}

// C166: what is acknowledged after a torn tail was cut is there after the next crash.
func TestC166AppendsAfterATornTail(t *testing.T) {
	t.Parallel()
	r := start(t, crashConfig(t))
	r.send(msg("t", 0, "a"), msg("t", 0, "b"))
	for i := range 5 {
		cfg := r.crashed()
		r.tear(cfg, []byte{0xff, 0x03, 1, 2, 3})
		r.stop()
		r = start(t, cfg)
		r.send(msg("t", 0, fmt.Sprint("c", i)))
		r.send(msg("t", 0, fmt.Sprint("d", i)))
	}
	cfg := r.crashed()
	r.stop()
	r = start(t, cfg)
	wantBodies(t, r.bodies("t", 0, 0), "a", "b", "c0", "d0", "c1", "d1", "c2", "d2", "c3", "d3", "c4", "d4")
}

// C163, C164, C165: rounds of kill -9 while topics, state and messages are written. State is old or new,
// never gone; queue offsets go on.
func TestC163C164KillRounds(t *testing.T) {
	t.Parallel()
	r := start(t, crashConfig(t))
	for round := range 20 {
		topic := fmt.Sprint("topic", round)
		r.write(
			&Write{
				State: []message.State{
					put(message.SpaceTopic, topic, "queues=4"),
					put(message.SpaceOffset, "g", fmt.Sprint(round)),
				},
			},
		)
		for i := range 5 {
			if got := r.send(msg("t", 0, "x"))[0].QueueOffset; got != message.QueueOffset(round*5+i) {
				t.Fatalf("queue offset %d in round %d", got, round)
			}
			r.send(msg(topic, int32(i%2), "y"))
		}
		cfg := r.crashed()
		r.stop()
		r = start(t, cfg)
		for old := range round + 1 {
			if got := r.state(message.SpaceTopic, fmt.Sprint("topic", old)); got != "queues=4" {
				t.Fatalf("topic %d after round %d: %s", old, round, got)
			}
			if got := len(r.bodies(fmt.Sprint("topic", old), 0, 0)); got != 3 {
				t.Fatalf("%d messages in topic %d", got, old)
			}
		}
		if got := r.state(message.SpaceOffset, "g"); got != fmt.Sprint(round) {
			t.Fatalf("offset %s after round %d", got, round)
		}
	}
}

// C168: a crash just behind a segment's end, with the index lagging: the last records of the old segment
// are there.
func TestC168SegmentBorder(t *testing.T) {
	t.Parallel()
	r := start(t, crashConfig(t))
	want := []string{}
	for i := 0; len(r.Segments()) < 3; i++ {
		want = append(want, fmt.Sprint(i))
		r.send(msg("t", 0, fmt.Sprint(i), "pad", strings.Repeat("x", 2000)))
	}
	cfg := r.crashed()
	r.stop()
	r = start(t, cfg)
	wantBodies(t, r.bodies("t", 0, 0), want...)
}

// C160: nobody sees a message before it is durable.
func TestC160OnlyDurableIsVisible(t *testing.T) {
	t.Parallel()
	gate := &syncGate{reached: make(chan struct{}, 1), open: make(chan struct{})}
	cfg := testConfig(t)
	cfg.FS = vfs.Default
	cfg.Log.FS = errorfs.Wrap(vfs.Default, gate)
	r := start(t, cfg)
	r.send(msg("t", 0, "durable"))
	gate.close()
	done := make(chan error, 1)
	w := &Write{Messages: []message.Message{msg("t", 0, "not yet")}, Done: func(_ *Write, err error) { done <- err }}
	if err := r.Append(w); err != nil {
		t.Fatal(err)
	}
	<-gate.reached
	wantStatus(t, r.fetch("t", 0, 1), OffsetOverflowOne, 1)
	if _, maximum, _ := r.Bounds("t", 0); maximum != 1 {
		t.Fatalf("maximum %d", maximum)
	}
	if recs, err := r.ByKey("t", "k", false, 1, 0, forever); len(recs) != 0 || err != nil {
		t.Fatalf("%d records by key, %v", len(recs), err)
	}
	select {
	case err := <-done:
		t.Fatalf("done before it is durable: %v", err)
	default:
	}
	close(gate.open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantBodies(t, r.bodies("t", 0, 0), "durable", "not yet")
}

// syncGate holds up syncs of the log's files once it is closed.
type syncGate struct {
	mu      sync.Mutex
	closed  bool
	reached chan struct{}
	open    chan struct{}
}

func (g *syncGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *syncGate) String() string { return "syncGate" }

func (g *syncGate) MaybeError(op errorfs.Op) error {
	if op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData {
		return nil
	}
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed {
		select {
		case g.reached <- struct{}{}:
		default:
		}
		<-g.open
	}
	return nil
}

// A flipped bit inside the log is reported with file and position; the queue's other messages are readable.
func TestDamagedRecordIsReported(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	r := start(t, cfg)
	var sent []message.Message
	for i := range 200 { // more than a segment, one entry each
		sent = append(sent, r.send(msg("t", 0, fmt.Sprint("body ", i), "pad", strings.Repeat("x", 1000)))...)
	}
	segments := r.Segments()
	r.stop()
	bad := sent[10]
	if bad.LogOffset >= segments[0].End {
		t.Fatal("the record is not in the first segment")
	}
	flip(t, segments[0].Path, int64(bad.LogOffset-segments[0].First)+100)

	rep, err := Verify(t.Context(), cfg)
	if err != nil || len(rep.Log.Faults) == 0 {
		t.Fatalf("verify: %v, %+v", err, rep)
	}
	r = start(t, cfg)
	res := r.fetch("t", 0, 0)
	wantStatus(t, res, Found, 10)
	res = r.fetch("t", 0, 10)
	wantStatus(t, res, Damaged, 11)
	var damage *DamagedError
	var corrupt *commitlog.CorruptError
	if !errors.As(res.Err, &damage) || damage.Offset != 10 || damage.End != 11 || damage.Pos != bad.LogOffset {
		t.Fatalf("error %v", res.Err)
	}
	if !errors.As(res.Err, &corrupt) || corrupt.File != segments[0].Path {
		t.Fatalf("error %v", res.Err)
	}
	for from := message.QueueOffset(11); from < 200; {
		res := r.fetch("t", 0, from)
		if res.Status != Found {
			t.Fatalf("from %d: %v %v", from, res.Status, res.Err)
		}
		from = res.Next
	}
	if _, err := r.At("t", 0, 10); !errors.As(err, &damage) {
		t.Errorf("At: %v", err)
	}
	if _, err := r.Record(bad.LogOffset); !errors.As(err, &damage) {
		t.Errorf("Record: %v", err)
	}
	if n := len(r.damages.reported); n != 1 {
		t.Errorf("%d damaged", n)
	}
	if off, err := r.OffsetByTime("t", 0, 0, false); off != 0 || err != nil {
		t.Errorf("by time: %d, %v", off, err)
	}
}

func flip(tb testing.TB, path string, at int64) {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		tb.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		tb.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], at); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
}
