// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

// mappings returns the lines of this process's memory map that name a file in dir.
func mappings(t *testing.T, dir string) (lines []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("segments are mapped on Linux only")
	}
	all, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, dir) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestMappedReads lets walks go through all segments, more than may be mapped, while the oldest ones are dropped: each
// record is whole or not found, and at last nothing stays mapped.
func TestMappedReads(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.RingBytes = 1
	r := start(t, cfg)
	r.mapped.limit = 200 << 10
	stored := map[message.LogOffset][]byte{}
	for i := range 120 {
		rec := stateRecord(fmt.Sprintf("g%03d", i), 9000)
		stored[r.mustStore("g", rec)] = rec
	}
	order := slices.Sorted(maps.Keys(stored))
	walk := func() {
		reader := Reader{Log: r.Log, Passing: true}
		defer reader.Close()
		for _, pos := range order {
			got, err := reader.Read(pos, len(stored[pos]))
			if errors.Is(err, ErrNotFound) && pos < r.First() {
				continue
			}
			if err != nil || !bytes.Equal(got, stored[pos]) {
				t.Errorf("read %d: %d bytes, %v", pos, len(got), err)
			}
		}
	}
	walk()
	if n, listed := len(mappings(t, cfg.Dir)), len(r.mapped.byKey); n != 2 || listed != 2 {
		t.Errorf("%d segments are mapped, %d listed: two have room", n, listed)
	}
	r.mapped.forgetUnused(time.Now().Unix() - trustSeconds)
	if n := len(mappings(t, cfg.Dir)); n != 2 {
		t.Errorf("%d of 2 segments stay mapped when they have just been used", n)
	}
	r.mapped.forgetUnused(time.Now().Unix() + 1)
	if left := mappings(t, cfg.Dir); len(left) > 0 {
		t.Errorf("still mapped a long time after the last use: %q", left)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(walk)
	}
	for len(r.Segments()) > 2 { // the last may be empty
		if err := r.Drop(1); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	r.mustHalt()
	if left := mappings(t, cfg.Dir); len(left) > 0 {
		t.Errorf("still mapped: %q", left)
	}
}

// TestMappedDamage flips a bit of a sealed segment: its entry is not served, those around it are, and what was verified
// is looked at again after a while.
func TestMappedDamage(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.RingBytes = 1
	r := start(t, cfg)
	var at []message.LogOffset
	for i := range 12 {
		at = append(at, r.mustStore("g", stateRecord(fmt.Sprintf("g%02d", i), 9000)))
	}
	read := func(pos message.LogOffset) error {
		reader := Reader{Log: r.Log, Passing: true}
		defer reader.Close()
		_, err := reader.Read(pos, 0)
		return err
	}
	if err := read(at[1]); err != nil {
		t.Fatal(err)
	}
	seg, _ := r.segs.find(at[1])
	file, err := os.OpenFile(seg.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte{0xff}, int64(at[1]-seg.First)+4000); err != nil {
		t.Fatal(err)
	}
	if err := read(at[1]); err != nil {
		t.Errorf("within the time of trust: %v", err)
	}
	for i := range seg.verified {
		seg.verified[i].Store(0)
	}
	if err := read(at[1]); !errors.As(err, new(*CorruptError)) {
		t.Errorf("a damaged entry: %v", err)
	}
	if err := errors.Join(read(at[0]), read(at[2])); err != nil {
		t.Errorf("an entry beside it: %v", err)
	}
	r.mustHalt()
}
