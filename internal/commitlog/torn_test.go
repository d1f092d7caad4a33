// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// tornLog is the content of a log of one file that was killed: entries a, b and c, the room behind them cut
// off.
type tornLog struct {
	cfg     Config
	content []byte
	entries []Entry
	names   []string
}

func newTornLog(t *testing.T) *tornLog {
	t.Helper()
	l := &tornLog{cfg: testConfig(t), names: []string{"a", "b", "c"}}
	r := start(t, l.cfg)
	for i, name := range l.names {
		r.mustStore(name, stateRecord(name, 80+40*i))
	}
	r.mu.Lock()
	l.entries = r.applied
	r.mu.Unlock()
	dir := copyDir(t, l.cfg.Dir)
	r.mustHalt()
	content, err := os.ReadFile(filepath.Join(dir, segmentName(1)))
	if err != nil {
		t.Fatal(err)
	}
	l.content = content[:l.entries[2].End]
	return l
}

// open opens a log whose file has the content and returns the names of its records, or Open's error.
func (l *tornLog) open(t *testing.T, content []byte) (*Log, error) {
	t.Helper()
	cfg := l.cfg
	cfg.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(cfg.Dir, segmentName(1)), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return Open(cfg)
}

// mustHold opens the content and wants exactly the records, now, and after one more was stored and the log
// killed.
func (l *tornLog) mustHold(t *testing.T, content []byte, want ...string) {
	t.Helper()
	log, err := l.open(t, content)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, log); !slices.Equal(got, want) {
		t.Errorf("the log holds %v, want %v", got, want)
	}
	r := run(t, log)
	r.mustStore("z", stateRecord("z", 50))
	dir := copyDir(t, r.cfg.Dir)
	r.mustHalt()
	cfg := r.cfg
	cfg.Dir = dir
	again, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := names(t, again); !slices.Equal(got, append(slices.Clone(want), "z")) {
		t.Errorf("after one more and a kill the log holds %v", got)
	}
}

// TestEveryCut ends the file after every length of the last entry, with nothing, zeros or garbage behind it.
func TestEveryCut(t *testing.T) {
	t.Parallel()
	l := newTornLog(t)
	last := int(l.entries[2].Position)
	random := rand.New(rand.NewPCG(1, 2))
	garbage := make([]byte, 300)
	for i := range garbage {
		garbage[i] = byte(random.Uint32())
	}
	tails := map[string][]byte{"nothing": nil, "zeros": make([]byte, 5000), "garbage": garbage}
	for name, tail := range tails {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := last; n < len(l.content); n++ {
				content := append(slices.Clone(l.content[:n]), tail...)
				if l.mustHold(t, content, "a", "b"); t.Failed() {
					t.Fatalf("cut after %d bytes of the last entry", n-last)
				}
			}
			l.mustHold(t, append(slices.Clone(l.content), tail...), "a", "b", "c")
		})
	}
}

// TestEveryBit flips each bit of the log. In the last entry it looks like a torn write: it is cut, and kept
// aside. Anywhere else Open refuses, and names the place; nothing is cut. No bit goes unnoticed.
func TestEveryBit(t *testing.T) {
	t.Parallel()
	l := newTornLog(t)
	for bit := range 8 * len(l.content) {
		at := bit / 8
		content := slices.Clone(l.content)
		content[at] ^= 1 << (bit % 8)
		log, err := l.open(t, content)
		if at >= int(l.entries[2].Position) {
			if err != nil {
				t.Fatalf("bit %d of byte %d in the last entry: %v", bit%8, at, err)
			}
			if got := names(t, log); !slices.Equal(got, l.names[:2]) {
				t.Fatalf("bit %d of byte %d: %v", bit%8, at, got)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Fatalf("bit %d of byte %d: %v", bit%8, at, err)
		}
		damaged := l.entries[0]
		if at >= int(damaged.End) {
			damaged = l.entries[1]
		}
		if corrupt.Position != damaged.Position || corrupt.Offset != int64(damaged.Position) || corrupt.File == "" {
			t.Fatalf("bit %d of byte %d is reported at %d: %v", bit%8, at, corrupt.Position, err)
		}
	}
}

// TestCorruptLogIsLeftAlone wants every byte of a damaged log where it was, after Open has refused it.
func TestCorruptLogIsLeftAlone(t *testing.T) {
	t.Parallel()
	l := newTornLog(t)
	content := slices.Clone(l.content)
	content[l.entries[1].First+5] ^= 1
	dir := t.TempDir()
	file := filepath.Join(dir, segmentName(1))
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := l.cfg
	cfg.Dir = dir
	for range 2 {
		if _, err := Open(cfg); !errors.As(err, new(*CorruptError)) {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || !slices.Equal(got, content) {
		t.Errorf("the file was changed: %v", err)
	}
}

// TestTornTailIsKept wants the bytes of a last entry that is whole in length in a file of their own.
func TestTornTailIsKept(t *testing.T) {
	t.Parallel()
	l := newTornLog(t)
	content := slices.Clone(l.content)
	last := int(l.entries[2].Position)
	content[last+90] ^= 1
	log, err := l.open(t, content)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	kept, err := os.ReadFile(filepath.Join(log.cfg.Dir, fmt.Sprintf("torn-%020d", last)))
	if err != nil || !slices.Equal(kept, content[last:]) {
		t.Errorf("kept %d bytes of %d: %v", len(kept), len(content)-last, err)
	}
}

// TestEmbeddedEntries stores messages whose bodies look like entries of the log, damages the one before them
// and tears the last one: nothing inside a record is taken for an entry.
func TestEmbeddedEntries(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	r := start(t, cfg)
	r.mustStore("a", stateRecord("a", 50))
	var fake []byte
	for i := range 50 { // a head that states its true place, but cannot know the log's id
		entry := make([]byte, headBytes)
		pos := r.End() + 2 + headBytes + 17 + message.LogOffset(len(fake)+1)
		(&head{kind: kindMark, logID: uint64(i), position: pos, durable: pos, index: 3}).put(entry)
		fake = append(append(fake, headBytes), entry...)
	}
	s := stateRecord("b", len(fake))
	copy(s[len(s)-len(fake):], fake)
	pos := r.mustStore("b", s)
	dir := copyDir(t, cfg.Dir)
	r.mustHalt()

	file := filepath.Join(dir, segmentName(1))
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[pos+3] ^= 1
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Dir = dir
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := names(t, l); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the log holds %v", got)
	}
}

// TestForeignSegment puts a segment of another log in the place of one.
func TestForeignSegment(t *testing.T) {
	t.Parallel()
	var dirs []string
	for range 2 {
		cfg := testConfig(t)
		r := start(t, cfg)
		for i := range 12 {
			r.mustStore("x", stateRecord(fmt.Sprintf("x%02d", i), 15_000))
		}
		r.mustHalt()
		dirs = append(dirs, cfg.Dir)
	}
	name := segmentName(6)
	b, err := os.ReadFile(filepath.Join(dirs[1], name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dirs[0], name), b, 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := Verify(t.Context(), vfs.Default, dirs[0], nil)
	if err != nil || report.FaultCount == 0 {
		t.Errorf("%+v, %v", report, err)
	}
	cfg := testConfig(t)
	cfg.Dir = dirs[0]
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Replay(0, func(Entry) error { return nil }); !errors.As(err, new(*CorruptError)) {
		t.Errorf("replay over a foreign segment: %v", err)
	}
}
