// SPDX-License-Identifier: Apache-2.0

// Package backup copies a broker's data while it serves, and brings it back.
//
// A backup is a manifest and the files that it lists: the segments of the commit log up to a committed position, and
// the name server's settings. The index is left out, it is a function of the log. A server sends a backup as one tar
// stream ([Send]); whoever asked for it stores it in a [Target], a folder or a bucket ([Take]):
//
//	files/<base name>-<sha256>     a file of one or more backups
//	manifests/<UTC time>.json      written last, so that what was torn is no backup
//
// Files that the newest backup in the target has already, with the same name, size and checksum, are not sent again.
// [Restore] checks every byte against the manifest.
package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"path/filepath"
	"time"
)

// format is the version of the manifest.
const format = 1

// ErrNone says that there is no whole backup.
var ErrNone = errors.New("there is no backup")

// Manifest says what a backup consists of.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the server
	Broker  string    `json:"broker"`
	Created time.Time `json:"created"`
	Begin   int64     `json:"begin"` // log positions: everything in [Begin, End) is in the backup
	End     int64     `json:"end"`
	Files   []File    `json:"files"`
}

// File is one file of a backup.
type File struct {
	Name   string `json:"name"`   // in the data folder, with slashes
	Size   int64  `json:"size"`   // bytes; the file itself may have more by now
	SHA256 string `json:"sha256"` // of these bytes, in lower-case hexadecimal
}

// Bytes is the size of all files.
func (m *Manifest) Bytes() (n int64) {
	for i := range m.Files {
		n += m.Files[i].Size
	}
	return n
}

// check refuses a manifest that another version wrote.
func (m *Manifest) check() error {
	if m.Format != format {
		return fmt.Errorf("the backup's manifest has format %d, this program knows %d", m.Format, format)
	}
	for i := range m.Files {
		if err := m.Files[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// check refuses names that lead out of the folder.
func (f *File) check() error {
	sum, err := hex.DecodeString(f.SHA256)
	if err != nil || len(sum) != sha256.Size || f.Size < 0 || !filepath.IsLocal(filepath.FromSlash(f.Name)) {
		return fmt.Errorf("%q is no file of a backup", f.Name)
	}
	return nil
}

// key is where a target has the file.
func (f *File) key() string { return "files/" + path.Base(f.Name) + "-" + f.SHA256 }

// Progress is told after every piece how many of the bytes are there. It is called by one goroutine.
type Progress func(done, total int64)

// checked reads a file and fails instead of giving its last bytes when they are not what the manifest says, so that
// whoever stores what it reads never ends up with the whole of a wrong file.
type checked struct {
	r    io.Reader
	file *File
	left int64
	sum  hash.Hash
	each func(n int64)
}

func newChecked(r io.Reader, f *File, each func(n int64)) *checked {
	return &checked{r: r, file: f, left: f.Size, sum: sha256.New(), each: each}
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	if c.left == 0 && c.file.Size > 0 {
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.sum.Write(p[:n])
	switch {
	case c.left == 0 && hex.EncodeToString(c.sum.Sum(nil)) != c.file.SHA256:
		return 0, fmt.Errorf("%s is damaged: its SHA-256 is %x, the manifest says %s",
			c.file.Name, c.sum.Sum(nil), c.file.SHA256)
	case c.left > 0 && errors.Is(err, io.EOF):
		return n, fmt.Errorf("%s ends %d bytes too early: %w", c.file.Name, c.left, io.ErrUnexpectedEOF)
	case c.left == 0 && err == nil && n == 0:
		err = io.EOF
	}
	c.each(int64(n))
	return n, err
}
