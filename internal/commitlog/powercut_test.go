// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// TestPowerCut takes copies of a log under load and spoils in each what was not synced: sectors of it become
// zeros or stay, as a disk may leave them. What was acknowledged before the copy (Sync), or synced (Async),
// must be there.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	for _, flush := range []FlushDiskType{Sync, Async} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%v/%d", flush, seed), func(t *testing.T) {
				t.Parallel()
				powerCut(t, flush, seed)
			})
		}
	}
}

func powerCut(t *testing.T, flush FlushDiskType, seed uint64) {
	cfg := testConfig(t)
	cfg.FlushDiskType = flush
	cfg.SegmentBytes, cfg.FlushInterval = 256<<10, time.Millisecond
	var power sync.RWMutex // held to stop all writing and syncing
	cfg.FS = &powerFS{FS: vfs.Default, power: &power}
	cfg.OpenWAL = func(dir string, n int64) (WAL, error) {
		w, err := OpenWAL(dir, n)
		return &powerWAL{WAL: w, power: &power}, err
	}
	r := start(t, cfg)
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	var acked []string
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for p := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("p%d-%05d", p, i)
				if _, err := r.store(newGroup(name, stateRecord(name, 100+i%2000))); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked = append(acked, name)
				mu.Unlock()
			}
		})
	}
	for range 5 {
		for range 1 + random.IntN(20) { // let some pass
			r.mustStore("m", stateRecord("m", 10))
		}
		power.Lock()
		mu.Lock()
		must := slices.Clone(acked)
		mu.Unlock()
		durable := message.LogOffset(r.durable.Load())
		dir := copyDir(t, cfg.Dir)
		power.Unlock()
		spoil(t, r, dir, durable, random)
		checkAfterPowerCut(t, cfg, dir, durable, must)
	}
	close(stop)
	wg.Wait()
	r.mustHalt()
}

type powerWAL struct {
	WAL
	power *sync.RWMutex
}

func (w *powerWAL) Write(index uint64, data []byte) error {
	w.power.RLock()
	defer w.power.RUnlock()
	return w.WAL.Write(index, data)
}

type powerFS struct {
	vfs.FS
	power *sync.RWMutex
}

func (f *powerFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, o...)
	return &powerFile{File: file, power: f.power}, err
}

func (f *powerFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return &powerFile{File: file, power: f.power}, err
}

type powerFile struct {
	vfs.File
	power *sync.RWMutex
}

func (f *powerFile) SyncData() error {
	f.power.RLock()
	defer f.power.RUnlock()
	return f.File.SyncData()
}

// spoil zeroes some of the sectors behind the durable end; the last file may be gone altogether.
func spoil(t *testing.T, r *running, dir string, durable message.LogOffset, random *rand.Rand) {
	t.Helper()
	for _, seg := range r.Segments() {
		path := filepath.Join(dir, filepath.Base(seg.Path))
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // begun since the copy
		}
		if err != nil {
			t.Fatal(err)
		}
		from := max(0, int(durable-seg.First))
		if from == 0 && seg.First > 0 && random.IntN(2) == 0 {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		const sector = 512
		for at := from; at < len(content); at = (at/sector + 1) * sector {
			if random.IntN(3) == 0 {
				clear(content[at:min(len(content), (at/sector+1)*sector)])
			}
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func checkAfterPowerCut(t *testing.T, cfg Config, dir string, durable message.LogOffset, must []string) {
	t.Helper()
	cfg.Dir, cfg.FS, cfg.OpenWAL = dir, nil, nil
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.End() < durable {
		t.Errorf("the log ends at %d, durable was %d", l.End(), durable)
	}
	there := map[string]int{}
	for _, name := range names(t, l) {
		there[name]++
	}
	if cfg.FlushDiskType == Async {
		return // durable, which was compared, is all that it promises
	}
	for _, name := range must {
		if there[name] != 1 {
			t.Errorf("%s is there %d times", name, there[name])
		}
	}
}
