// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/roquetmq/roquet/internal/disk"
)

// partialFolder holds what is restored until all of it is there. It lies inside the data folder, which may be a mount
// point.
const partialFolder = "restoring"

// Restore brings the newest backup of t into a data folder that is empty or missing, and checks every file on the
// way. What was begun and not finished is no data folder: a broker does not find it, and the next Restore begins
// anew. The index is built when the broker starts.
func Restore(ctx context.Context, t Target, dataDir string, p Progress) (*Manifest, error) {
	if err := checkEmpty(dataDir); err != nil {
		return nil, err
	}
	m, err := Newest(ctx, t)
	if err != nil {
		return nil, err
	}
	partial := filepath.Join(dataDir, partialFolder)
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o750)); err != nil {
		return nil, err
	}
	done, total := int64(0), m.Bytes()
	for i := range m.Files {
		err := restoreFile(ctx, t, &m.Files[i], partial, func(n int64) {
			done += n
			p(done, total)
		})
		if err != nil {
			return nil, fmt.Errorf("restore %s: %w", m.Files[i].Name, err)
		}
	}
	parts, err := os.ReadDir(partial)
	for _, part := range parts {
		err = errors.Join(err, os.Rename(filepath.Join(partial, part.Name()), filepath.Join(dataDir, part.Name())))
	}
	return m, errors.Join(err, os.Remove(partial), disk.SyncDir(nil, dataDir))
}

func checkEmpty(dir string) error {
	there, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range there {
		if name := entry.Name(); name != partialFolder && name != "lost+found" {
			return fmt.Errorf("%s is not empty (it has %s): restore into another folder, or move what is there away",
				dir, name)
		}
	}
	return nil
}

func restoreFile(ctx context.Context, t Target, f *File, dir string, each func(n int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := t.Get(ctx, f.key())
	if err != nil {
		return err
	}
	err = writeFile(filepath.Join(dir, filepath.FromSlash(f.Name)), newChecked(r, f, each))
	return errors.Join(err, r.Close())
}
