// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"fmt"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

func TestCompareKeys(t *testing.T) {
	t.Parallel()
	db := mustOpen(t, newDisk(t), Config{})
	defer mustClose(t, db)
	const count, size = 1000, 1 << 20 // sidecars of 300 MiB of log are not merged
	for i := range count {
		db.AddKey(KeyOrdinary, []byte("t"), fmt.Sprint("k", i), message.LogOffset(size*i))
		if i%300 == 299 {
			if err := db.Checkpoint(message.LogOffset(size*i + size)); err != nil {
				t.Fatal(err)
			}
			if err := db.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name        string
		first       message.LogOffset
		skip, twice int
		compared    uint64
		faults      int
	}{
		{"same", 0, -1, -1, 900, 0},
		{"part of the log dropped", 50 * size, -1, -1, 850, 0},
		{"one is not in the log", 0, 450, -1, 900, 1},
		{"one is only in the log", 0, -1, 10, 900, 1},
		{"both, in two sidecars", 0, 700, 310, 900, 2},
		{"what has no sidecar yet is passed over", 0, 950, -1, 900, 0},
	} {
		c := db.CompareKeys(test.first)
		for i := range count {
			pos := message.LogOffset(size * i)
			if i == test.skip || pos < test.first {
				continue
			}
			c.Add(KeyOrdinary, []byte("t"), fmt.Sprint("k", i), pos)
			if i == test.twice {
				c.Add(KeyUnique, []byte("t"), fmt.Sprint("k", i), pos)
			}
		}
		compared, errs := c.Close()
		if compared != test.compared || len(errs) != test.faults {
			t.Errorf("%s: %d compared, %v", test.name, compared, errs)
		}
		for _, err := range errs {
			if !errors.As(err, new(*KeysError)) {
				t.Errorf("%s: %v", test.name, err)
			}
		}
	}
}
