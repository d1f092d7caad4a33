// SPDX-License-Identifier: Apache-2.0

// Command image writes roquet's image for several architectures as one tarball, the same bytes from the same
// binaries, with no daemon. The tarball is an OCI layout, for skopeo, podman, crane and containerd; and what
// `docker load` reads, for the architecture that it was asked for (-docker).
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// User is who runs in the container, and Data the folder that belongs to it.
const (
	User = 65532
	Data = "var/lib/roquet"
)

func main() {
	binaries := flag.String("binaries", "dist", "folder of roquet_linux_ARCH")
	arches := flag.String("arch", "amd64,arm64", "architectures")
	docker := flag.String("docker", "amd64", "the one that docker load takes")
	version := flag.String("version", "dev", "tag and version label")
	out := flag.String("out", "dist/roquet-image.tar", "file to write")
	flag.Parse()
	if err := write(*out, *binaries, strings.Split(*arches, ","), *docker, *version); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write makes the tarball from the binaries.
func write(out, binaries string, arches []string, docker, version string) error {
	dir, err := os.MkdirTemp("", "roquet-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var loaded v1.Image
	for _, arch := range arches {
		img, err := image(filepath.Join(binaries, "roquet_linux_"+arch), arch, version)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		if arch == docker {
			loaded = img
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	// The layout's own index holds one entry, the index of the architectures, under the tag.
	top, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tag := map[string]string{"org.opencontainers.image.ref.name": version}
	if err = top.AppendIndex(index, layout.WithAnnotations(tag)); err != nil {
		return err
	}
	if loaded != nil {
		if err = dockerManifest(filepath.Join(dir, "manifest.json"), loaded, "roquet:"+version); err != nil {
			return err
		}
	}
	return pack(out, dir)
}

// image is one architecture's: the binary and an empty data folder, two layers.
func image(binary, arch, version string) (v1.Image, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	program, err := layer(&tar.Header{Name: "roquet", Mode: 0o755, Size: int64(len(data))}, data)
	if err != nil {
		return nil, err
	}
	folder, err := layer(
		&tar.Header{Name: Data + "/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: User, Gid: User}, nil,
	)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, program, folder)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created = arch, "linux", v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config = v1.Config{
		User:         fmt.Sprintf("%d:%d", User, User),
		Entrypoint:   []string{"/roquet"},
		Cmd:          []string{"serve"},
		Env:          []string{"ROQUET_BIND_ADDRESS=0.0.0.0", "ROQUET_STORE_PATH_ROOT_DIR=/" + Data},
		Volumes:      map[string]struct{}{"/" + Data: {}},
		ExposedPorts: map[string]struct{}{},
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/roquet", "health"}, Interval: 5 * time.Second, Timeout: 4 * time.Second,
			StartPeriod: 30 * time.Second,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "roquet",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	for _, port := range []string{"9876", "10911", "10909", "8081", "8080"} {
		file.Config.ExposedPorts[port+"/tcp"] = struct{}{}
	}
	return mutate.ConfigFile(img, file)
}

// layer is a compressed layer of one entry, dated 1970.
func layer(h *tar.Header, data []byte) (v1.Layer, error) {
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	h.ModTime = time.Unix(0, 0)
	if err := w.WriteHeader(h); err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	compressed, err := tarball.LayerFromReader(bytes.NewReader(raw.Bytes()), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	if h.Typeflag != tar.TypeDir {
		return compressed, nil
	}
	return static.NewLayer(raw.Bytes(), types.OCIUncompressedLayer), nil // smaller than its compression's frame
}

// dockerManifest names the blobs of img as `docker load` wants them named.
func dockerManifest(path string, img v1.Image, tag string) error {
	blob := func(h v1.Hash) string { return "blobs/sha256/" + h.Hex }
	config, err := img.ConfigName()
	if err != nil {
		return err
	}
	entry := tarball.Descriptor{Config: blob(config), RepoTags: []string{tag}}
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	for _, l := range manifest.Layers {
		entry.Layers = append(entry.Layers, blob(l.Digest))
	}
	text, err := json.Marshal(tarball.Manifest{entry})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// pack writes the files below dir into a tarball, in order of their names and dated 1970.
func pack(out, dir string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: info.Size(), ModTime: time.Unix(0, 0)}
		if err = w.WriteHeader(h); err != nil {
			return err
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(w, in)
		return err
	})
	if err != nil {
		return err
	}
	if err = w.Close(); err != nil {
		return err
	}
	return f.Close()
}
