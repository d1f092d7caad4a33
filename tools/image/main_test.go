// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// built is a tarball of real binaries to look at too; `make image` gives it.
var built = flag.String("image", "", "image tarball to check")

// most is the size that an image may have, compressed.
const most = 20 << 20

func TestImage(t *testing.T) {
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		if err := os.WriteFile(filepath.Join(dir, "roquet_linux_"+arch), []byte("binary of "+arch), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var files [2][]byte
	for i := range files {
		path := filepath.Join(dir, "image.tar")
		if err := write(path, dir, []string{"amd64", "arm64"}, "amd64", "v1"); err != nil {
			t.Fatal(err)
		}
		var err error
		if files[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("the same binaries made two different tarballs")
	}
	checkTarball(t, filepath.Join(dir, "image.tar"), func(arch string, binary []byte) {
		if string(binary) != "binary of "+arch {
			t.Errorf("%s holds %q", arch, binary)
		}
	})
}

func TestBuiltImage(t *testing.T) {
	if *built == "" {
		t.Skip("no -image: make image checks the real one")
	}
	machines := map[string]byte{"amd64": 62, "arm64": 183} // e_machine of ELF
	checkTarball(t, *built, func(arch string, binary []byte) {
		if !bytes.HasPrefix(binary, []byte("\x7fELF\x02\x01")) || binary[18] != machines[arch] {
			t.Errorf("%s: not a 64-bit ELF file of that machine: % x", arch, binary[:20])
		}
	})
}

// checkTarball unpacks an image tarball and checks all that users rely on.
func checkTarball(t *testing.T, path string, checkBinary func(arch string, binary []byte)) {
	t.Helper()
	dir := unpack(t, path)
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("index.json: %v, %v", manifest, err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	var arches []string
	for _, d := range manifest.Manifests {
		arches = append(arches, d.Platform.OS+"/"+d.Platform.Architecture)
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, d.Platform.Architecture, checkBinary)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, arches); diff != "" {
		t.Errorf("architectures: %s", diff)
	}
	loaded, err := tarball.ImageFromPath(path, nil) // reads as docker load does
	if err != nil {
		t.Fatal(err)
	}
	checkImage(t, loaded, "amd64", checkBinary)
}

func checkImage(t *testing.T, img v1.Image, arch string, checkBinary func(arch string, binary []byte)) {
	t.Helper()
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.Architecture != arch || file.OS != "linux" {
		t.Errorf("%s: the configuration says %s/%s", arch, file.OS, file.Architecture)
	}
	c := file.Config
	got := [][]string{{c.User}, c.Entrypoint, c.Cmd, c.Env, c.Healthcheck.Test}
	want := [][]string{
		{"65532:65532"}, {"/roquet"}, {"serve"},
		{"ROQUET_BIND_ADDRESS=0.0.0.0", "ROQUET_STORE_PATH_ROOT_DIR=/var/lib/roquet"}, {"CMD", "/roquet", "health"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: configuration: %s", arch, diff)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 2 || len(file.RootFS.DiffIDs) != 2 {
		t.Fatalf("%s: %d layers, %v", arch, len(layers), err)
	}
	var size int64
	var entries []string
	for _, l := range layers {
		n, err := l.Size()
		if err != nil {
			t.Fatal(err)
		}
		size += n
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for in := tar.NewReader(r); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, h.FileInfo().Mode().String()+" "+h.Name)
			switch h.Name {
			case "roquet":
				binary, err := io.ReadAll(in)
				if err != nil {
					t.Fatal(err)
				}
				checkBinary(arch, binary)
			case "var/lib/roquet/":
				if h.Uid != 65532 || h.Gid != 65532 {
					t.Errorf("%s: the data folder belongs to %d:%d", arch, h.Uid, h.Gid)
				}
			}
		}
	}
	if diff := cmp.Diff([]string{"-rwxr-xr-x roquet", "drwxr-xr-x var/lib/roquet/"}, entries); diff != "" {
		t.Errorf("%s: files: %s", arch, diff)
	}
	if size > most {
		t.Errorf("%s: %d bytes compressed, more than %d", arch, size, most)
	}
	t.Logf("%s: %d bytes compressed", arch, size)
}

func unpack(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(h.Name, "..") || h.ModTime.Unix() != 0 {
			t.Errorf("entry %s dated %v", h.Name, h.ModTime)
		}
		to := filepath.Join(dir, h.Name)
		if err = os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if err = os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
