// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Entries of the stream that are no files of the backup.
const (
	planEntry     = "plan.json"     // first: the manifest without checksums, so that the size is known
	manifestEntry = "manifest.json" // last
	errorEntry    = "error.txt"     // instead of the last: why the server gave up

	maxManifestBytes = 256 << 20
	sumRecord        = "ROQUET.sha256" // of a file, in its tar head
)

// Send writes a backup of the files that plan lists and dir holds; nobody may change their first Size bytes. have are
// files that the receiver has: those with the same checksum are left out. It fills in the plan's checksums.
func Send(ctx context.Context, w io.Writer, plan *Manifest, dir string, have []File) error {
	t := tar.NewWriter(w)
	err := sendJSON(t, planEntry, plan)
	for i := range plan.Files {
		if err = errors.Join(err, ctx.Err()); err != nil {
			break
		}
		err = sendFile(t, &plan.Files[i], filepath.Join(dir, filepath.FromSlash(plan.Files[i].Name)), have)
	}
	if err == nil {
		err = sendJSON(t, manifestEntry, plan)
	} else {
		text := []byte(err.Error()) // the connection may be gone, too
		err = errors.Join(err,
			sendEntry(t, &tar.Header{Name: errorEntry, Size: int64(len(text))}, bytes.NewReader(text)))
	}
	return errors.Join(err, t.Close())
}

func sendJSON(t *tar.Writer, name string, m *Manifest) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return sendEntry(t, &tar.Header{Name: name, Size: int64(len(text))}, bytes.NewReader(text))
}

func sendEntry(t *tar.Writer, h *tar.Header, r io.Reader) error {
	h.Mode = 0o600
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.CopyN(t, r, h.Size)
	return err
}

// sendFile reads the file twice: a head with its checksum goes first. The second time it is in the page cache.
func sendFile(t *tar.Writer, f *File, path string, have []File) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	if _, err := io.CopyN(sum, file, f.Size); err != nil {
		return fmt.Errorf("read %s: %w", f.Name, err)
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if slices.Contains(have, *f) {
		return nil
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return sendEntry(t, &tar.Header{
		Name: f.Name, Size: f.Size, PAXRecords: map[string]string{sumRecord: f.SHA256},
	}, file)
}

// Take asks for a backup and stores it in t. request sends the names, sizes and checksums of have, as a JSON array of
// File, to POST /v1/backup and returns the answer's body. Nothing counts as a backup before Take returns nil.
func Take(
	ctx context.Context, t Target, request func(ctx context.Context, have []byte) (io.ReadCloser, error), p Progress,
) (*Manifest, error) {
	var have []File
	newest, err := Newest(ctx, t)
	if err == nil {
		have = newest.Files
	} else if !errors.Is(err, ErrNone) {
		return nil, err
	}
	text, err := json.Marshal(have)
	if err != nil {
		return nil, err
	}
	body, err := request(ctx, text)
	if err != nil {
		return nil, err
	}
	in := &receiver{target: t, progress: p, there: have}
	err = in.receive(ctx, tar.NewReader(body))
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("the backup is not whole: %w", err)
	}
	return &in.manifest, nil
}

// receiver stores what a stream brings.
type receiver struct {
	target      Target
	progress    Progress
	there       []File // in the target
	manifest    Manifest
	done, total int64
}

func (in *receiver) receive(ctx context.Context, stream *tar.Reader) error {
	for {
		h, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return errors.New("the stream ended without a manifest")
		}
		if err != nil {
			return err
		}
		switch h.Name {
		case errorEntry:
			text, err := io.ReadAll(io.LimitReader(stream, maxManifestBytes))
			return errors.Join(fmt.Errorf("the server gave up: %s", text), err)
		case planEntry:
			if err := json.NewDecoder(io.LimitReader(stream, maxManifestBytes)).Decode(&in.manifest); err != nil {
				return err
			}
			in.total = in.manifest.Bytes()
		case manifestEntry:
			return in.finish(ctx, stream)
		default:
			f := File{Name: h.Name, Size: h.Size, SHA256: h.PAXRecords[sumRecord]}
			if err := f.check(); err != nil {
				return err
			}
			if err := in.target.Put(ctx, f.key(), newChecked(stream, &f, in.count), f.Size); err != nil {
				return fmt.Errorf("store %s: %w", f.Name, err)
			}
			in.there = append(in.there, f)
		}
	}
}

func (in *receiver) count(n int64) {
	in.done += n
	in.progress(in.done, max(in.total, in.done))
}

// finish stores the manifest, if the target has all that it lists.
func (in *receiver) finish(ctx context.Context, stream io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(stream, maxManifestBytes))
	if err != nil {
		return err
	}
	in.manifest = Manifest{}
	if err := json.Unmarshal(text, &in.manifest); err != nil {
		return err
	}
	if err := in.manifest.check(); err != nil {
		return err
	}
	for i := range in.manifest.Files {
		if f := in.manifest.Files[i]; !slices.Contains(in.there, f) {
			return fmt.Errorf("the server sent no %s", f.Name)
		}
	}
	in.progress(in.total, in.total)
	name := manifests + in.manifest.Created.UTC().Format("20060102T150405.000000000Z") + ".json"
	return in.target.Put(ctx, name, strings.NewReader(string(text)), int64(len(text)))
}
