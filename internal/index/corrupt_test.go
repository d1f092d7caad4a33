// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// builtIndex returns a disk with a closed index of l.
func builtIndex(t *testing.T, l *modelLog, cfg Config) *vfs.MemFS {
	t.Helper()
	disk := newDisk(t)
	d := mustOpen(t, disk, cfg)
	if err := l.replay(d, 0); err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	return disk
}

func copyDisk(t *testing.T, from *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	to := vfs.NewMem()
	if _, err := vfs.Clone(from, to, "/data", "/data"); err != nil {
		t.Fatal(err)
	}
	return to
}

func readFile(t *testing.T, disk vfs.FS, name string) []byte {
	t.Helper()
	f, err := disk.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t *testing.T, disk vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := disk.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(append([]byte(nil), content...))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, disk vfs.FS, dir string) []string {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestDamagedPebbleFile flips a byte, cuts or removes each file in turn. The index either answers rightly,
// for what it says it has applied, or says that it is damaged and what to do.
func TestDamagedPebbleFile(t *testing.T) {
	t.Parallel()
	l := workload(700)
	cfg := Config{CheckpointBytes: 20_000}
	built := builtIndex(t, l, cfg)
	const dir = "/data/index/pebble/"
	for _, name := range list(t, built, dir) {
		content := readFile(t, built, dir+name)
		step := max(1, len(content)/60)
		if testing.Short() {
			step = max(1, len(content)/4)
		}
		for at := 0; at < len(content); at += step {
			flipped := append([]byte(nil), content...)
			flipped[at] ^= 0x10
			disk := copyDisk(t, built)
			writeFile(t, disk, dir+name, flipped)
			checkDamaged(t, disk, cfg, l, name)
		}
		disk := copyDisk(t, built)
		writeFile(t, disk, dir+name, content[:len(content)/2])
		checkDamaged(t, disk, cfg, l, name)
		disk = copyDisk(t, built)
		if err := disk.Remove(dir + name); err != nil {
			t.Fatal(err)
		}
		checkDamaged(t, disk, cfg, l, name)
	}
}

func checkDamaged(t *testing.T, disk vfs.FS, cfg Config, l *modelLog, name string) {
	t.Helper()
	d, err := Open("/data/index", disk, cfg)
	if err == nil {
		_, err = got(d, 0, nil, 32)
		if err == nil {
			l.compareQueues(t, d, d.Applied(), 32)
		} else if d.Err() == nil {
			t.Errorf("%s: read says %v, Err says nothing", name, err)
		}
		_ = d.Close() // may or may not find damage on its way
		again, openErr := Open("/data/index", disk, cfg)
		if openErr == nil {
			_ = again.Close()
		}
		if err != nil && !strings.Contains(fmt.Sprint(openErr), "found earlier") {
			t.Errorf("%s: after %v it opens again: %v", name, err, openErr)
		}
	}
	var damage *CorruptError
	switch {
	case err == nil:
	case !errors.As(err, &damage):
		t.Errorf("%s: not a CorruptError: %v", name, err)
	case !strings.Contains(err.Error(), "delete the index folder"):
		t.Errorf("%s: no cure in %q", name, err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := Open(dir, vfs.Default, Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, vfs.Default, Config{})
	var damage *CorruptError
	if err == nil || errors.As(err, &damage) {
		t.Errorf("opened twice: %v", err)
	}
	mustClose(t, d)

	if err := Wipe(dir, vfs.Default); err != nil {
		t.Fatal(err)
	}
	d, err = Open(dir, vfs.Default, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.pebble.Set([]byte(metaFormat), []byte{0, 0, 0, 99}, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	if _, err = Open(
		dir,
		vfs.Default,
		Config{},
	); !errors.As(err, &damage) ||
		!strings.Contains(err.Error(), "format 99") {
		t.Errorf("unknown format: %v", err)
	}
}

// TestDamagedSidecar damages a sidecar at every byte, cuts and removes it. Nothing false is answered; the
// damage is named; the range can be rewritten while serving.
func TestDamagedSidecar(t *testing.T) {
	t.Parallel()
	l := workload(120)
	cfg := Config{CheckpointBytes: 5000}
	built := builtIndex(t, l, cfg)
	names := list(t, built, "/data/index/keys") // in any order
	slices.Sort(names)
	if len(names) < 2 {
		t.Fatalf("want at least two sidecars, have %v", names)
	}
	name := "/data/index/keys/" + names[0]
	content := readFile(t, built, name)
	damages := [][]byte{nil, {}, content[:10], content[:len(content)-1], append([]byte(nil), append(content, 0)...)}
	for at := 0; at < len(content); at += 1 + min(at/sidecarHead, 1)*4 { // all of the head, every fifth behind it
		flipped := append([]byte(nil), content...)
		flipped[at] ^= 1
		damages = append(damages, flipped)
	}
	for i, damaged := range damages {
		disk := copyDisk(t, built)
		if damaged == nil {
			if err := disk.Remove(name); err != nil {
				t.Fatal(err)
			}
		} else {
			writeFile(t, disk, name, damaged)
		}
		d := mustOpen(t, disk, cfg)
		checkSidecarDamage(t, d, l, i)
		rewriteMissing(t, d, l)
		l.compare(t, d, l.end, 32)
		mustClose(t, d)
		d = mustOpen(t, disk, cfg)
		l.compare(t, d, l.end, 32)
		mustClose(t, d)
	}
}

// checkSidecarDamage looks up every key: what is found must be right, and an error must name the range.
func checkSidecarDamage(t *testing.T, d *DB, l *modelLog, i int) {
	t.Helper()
	want := l.want(l.end).Keys
	for _, key := range l.allKeys() {
		topic, k, _ := strings.Cut(key, "#")
		right := map[message.LogOffset]bool{}
		for _, pos := range want[key] {
			right[pos] = true
		}
		for pos, err := range d.FindKeys(KeyOrdinary, topic, k, 0, 1<<62) {
			var damage *KeysError
			switch {
			case errors.As(err, &damage):
				if damage.Range.From != 0 || !strings.Contains(err.Error(), ".keys") {
					t.Fatalf("damage %d: error names the wrong sidecar: %v", i, err)
				}
			case err != nil:
				t.Fatalf("damage %d: %v", i, err)
			case !right[pos]:
				t.Fatalf("damage %d: key %s is not at %d", i, key, pos)
			}
			delete(right, pos)
		}
		if len(right) > 0 && len(d.MissingKeys(0)) == 0 {
			t.Fatalf("damage %d: key %s lacks %v and nobody says so", i, key, right)
		}
	}
}
