// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/roquetmq/roquet/internal/store"
)

// namesrvKV is the one file of a data folder that is not in the store: what mqadmin updateKvConfig set.
const namesrvKV = "namesrv/kvConfig.json"

// Checkpoint links the data of a broker as it is now into dir, an empty folder on the same disk, and returns what is
// to be sent of it; the checksums are missing. The broker goes on; what retention drops meanwhile stays in dir.
func Checkpoint(ctx context.Context, s *store.Store, dataDir, dir string) (*Manifest, error) {
	m := &Manifest{Format: format, Created: time.Now()}
	storeDir := filepath.Join(dir, "store")
	segments, err := s.Checkpoint(ctx, storeDir)
	if err != nil {
		return nil, err
	}
	for i := range segments {
		name, err := filepath.Rel(dir, segments[i].Path)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, File{Name: filepath.ToSlash(name), Size: segments[i].Bytes()})
		m.End = int64(segments[i].End)
	}
	if len(segments) > 0 {
		m.Begin = int64(segments[0].First)
	}
	kv := filepath.Join(dir, filepath.FromSlash(namesrvKV))
	err = os.MkdirAll(filepath.Dir(kv), 0o750)
	if err == nil {
		err = os.Link(filepath.Join(dataDir, filepath.FromSlash(namesrvKV)), kv)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	info, statErr := os.Stat(kv)
	if err = errors.Join(err, statErr); err != nil {
		return nil, err
	}
	m.Files = append(m.Files, File{Name: namesrvKV, Size: info.Size()})
	return m, nil
}
