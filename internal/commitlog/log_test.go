// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

func TestStoreReadReopen(t *testing.T) {
	t.Parallel()
	for _, flush := range []FlushDiskType{Sync, Async} {
		t.Run(fmt.Sprint("flush ", flush), func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			cfg.FlushDiskType = flush
			cfg.RingBytes = 32 << 10
			r := start(t, cfg)
			var want []string
			stored := map[message.LogOffset][]byte{}
			for i := range 300 { // several segments
				name := fmt.Sprintf("r%03d", i)
				rec, msg := stateRecord(name, 500+i), messageRecord(name, 300)
				pos := r.mustStore(name, rec, msg)
				message.SetLogOffset(msg, pos+message.LogOffset(len(rec)))
				stored[pos], stored[pos+message.LogOffset(len(rec))] = rec, msg
				want = append(want, name, recordName(msg))
			}
			checkReads(t, r.Log, stored)
			if len(r.Segments()) < 3 {
				t.Errorf("%d segments, want several", len(r.Segments()))
			}
			end := r.End()
			r.mustHalt()
			if _, err := r.Read(0, 0); !errors.Is(err, ErrClosed) {
				t.Errorf("read of a closed log: %v", err)
			}

			l, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if l.End() <= end {
				t.Errorf("end %d after the mark, want more than %d", l.End(), end)
			}
			checkReads(t, l, stored)
			if got := names(t, l); !slices.Equal(got, want) {
				t.Errorf("replayed %d records, want %d", len(got), len(want))
			}
		})
	}
}

func checkReads(t *testing.T, l *Log, stored map[message.LogOffset][]byte) {
	t.Helper()
	for pos, want := range stored {
		for _, size := range []int{0, len(want)} {
			got, err := l.Read(pos, size)
			if err != nil {
				t.Fatalf("read %d size %d: %v", pos, size, err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("read %d size %d: other bytes", pos, size)
			}
		}
		for _, wrong := range []message.LogOffset{pos + 1, pos + 4, pos - 1} {
			if got, err := l.Read(wrong, 0); !errors.Is(err, ErrNotFound) {
				t.Fatalf("read %d inside a record: %d bytes, %v", wrong, len(got), err)
			}
			if _, err := l.Read(wrong, len(want)); !errors.Is(err, ErrNotFound) {
				t.Fatalf("read %d inside a record: %v", wrong, err)
			}
		}
		if _, err := l.Read(pos, len(want)+1); !errors.Is(err, ErrNotFound) {
			t.Fatalf("read %d with a wrong size: %v", pos, err)
		}
	}
	for _, pos := range []message.LogOffset{-1, l.End(), l.End() + 1, 1 << 60} {
		if _, err := l.Read(pos, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("read %d outside: %v", pos, err)
		}
	}
}
