// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/roquetmq/roquet/internal/disk"
)

const manifests = "manifests/"

// Target is where backups are.
type Target interface {
	// Put stores size bytes of r under a name. When it fails, or the process dies, nothing has that name.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Get reads what Put stored. That there is nothing may become known when it is read.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Last returns the greatest name that begins with prefix, "" when there is none.
	Last(ctx context.Context, prefix string) (string, error)
}

// OpenTarget opens a folder, or a bucket when location is s3://bucket/prefix. A folder need not be there.
func OpenTarget(location string, s3 S3) (Target, error) {
	if rest, ok := strings.CutPrefix(location, "s3://"); ok {
		return openBucket(rest, s3)
	}
	if location == "" {
		return nil, errors.New("backup: no folder and no s3://bucket/prefix given")
	}
	return folder(location), nil
}

// Newest returns the manifest of the newest backup. Errors: ErrNone.
func Newest(ctx context.Context, t Target) (*Manifest, error) {
	name, err := t.Last(ctx, manifests)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, ErrNone
	}
	r, err := t.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	err = json.NewDecoder(io.LimitReader(r, maxManifestBytes)).Decode(m)
	if err = errors.Join(err, r.Close()); err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of the backup: %w", name, err)
	}
	return m, nil
}

// folder is a Target.
type folder string

// Put implements Target.
func (d folder) Put(_ context.Context, name string, r io.Reader, _ int64) error {
	return writeFile(filepath.Join(string(d), filepath.FromSlash(name)), r)
}

// Get implements Target.
func (d folder) Get(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(d), filepath.FromSlash(name)))
}

// Last implements Target.
func (d folder) Last(_ context.Context, prefix string) (string, error) {
	all, err := fs.Glob(os.DirFS(string(d)), prefix+"*.json") // sorted
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[len(all)-1], nil
}

// writeFile makes a durable file, which has its name only once it is whole.
func writeFile(path string, r io.Reader) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".partial-")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return disk.SyncDir(nil, dir)
}
