// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"strconv"
	"strings"
	"testing"
)

// ranks orders the packages: a package imports only packages of a lower rank. A package that is not listed
// fails the test, so that its place is decided when it is born. Longer prefixes win.
var ranks = map[string]int{
	"internal/message":        0,
	"internal/protocol":       0,
	"api":                     0,
	"internal/lint":           0,
	"internal/disk":           0, // files that survive
	"internal/nested":         0, // maps of maps
	"internal/commitlog":      10,
	"internal/index":          10,
	"internal/store":          20,
	"internal/broker/due":     25, // what is looked at when it is due
	"internal/backup":         25,
	"internal/broker/filter/": 25, // filter/sql92
	"internal/broker/":        30, // broker/filter, broker/offset
	"internal/broker":         40,
	"internal/nameserver":     40,
	"internal/auth":           45, // users and rules
	"internal/remoting":       50,
	"internal/telemetry":      60,
	"internal/grpcapi":        60,
	"internal/gateway":        60,
	"internal/service":        70,
	"internal/config":         10,
	"internal/client":         10, // the REST API from outside
	"internal/conformance":    80,
	"cmd/server":              80,
}

// fences lists imports that belong to a few places only, whatever the ranks say.
var fences = map[string][]string{
	"github.com/tidwall/wal":        {"internal/commitlog/wal.go"},
	"go.opentelemetry.io/":          {"internal/telemetry/"},
	"github.com/cockroachdb/pebble": {"internal/index/", "internal/commitlog/", "internal/store/", "internal/disk/"},
	"google.golang.org/grpc": {
		"internal/grpcapi/",
		"internal/gateway/",
		"internal/service/",
		"internal/telemetry/",
		"internal/client/",
	},
	"github.com/spf13/cobra":    {"cmd/server/"},
	"github.com/minio/minio-go": {"internal/backup/"},
}

// wireFree lists packages that must not know a wire format.
var wireFree = []string{
	"internal/broker",
	"internal/auth",
	"internal/nameserver",
	"internal/store",
	"internal/index",
	"internal/commitlog",
}

func rankOf(dir string) (int, bool) {
	best, rank, found := "", 0, false
	for prefix, r := range ranks {
		exact := prefix == dir
		below := strings.HasPrefix(dir+"/", strings.TrimSuffix(prefix, "/")+"/") &&
			dir != strings.TrimSuffix(prefix, "/")
		if (exact || below) && len(prefix) > len(best) {
			best, rank, found = prefix, r, true
		}
	}
	return rank, found
}

// TestImportsGoDown checks the ranks: cmd, service, adapters, broker domain, log and index, leaves.
func TestImportsGoDown(t *testing.T) {
	t.Parallel()
	for _, src := range sources(t) {
		own, known := rankOf(src.dir())
		if !known {
			t.Errorf("%s: package %s has no rank: add it to the table in internal/lint", src.path, src.dir())
			continue
		}
		for _, imp := range src.file.Imports {
			path, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			checkFence(t, src, path)
			dir, ours := strings.CutPrefix(path, modulePath)
			if !ours || dir == src.dir() {
				continue
			}
			if rank, ok := rankOf(dir); !ok || (rank >= own && !src.test) {
				t.Errorf(
					"%s: imports %s (rank %d) but has rank %d itself: imports go down only",
					src.path,
					dir,
					rank,
					own,
				)
			}
			checkWire(t, src, dir)
		}
	}
}

func checkFence(t *testing.T, src *source, path string) {
	t.Helper()
	for prefix, places := range fences {
		if !strings.HasPrefix(path, prefix) || src.test || src.generated {
			continue
		}
		allowed := false
		for _, place := range places {
			allowed = allowed || strings.HasPrefix(src.path, place)
		}
		if !allowed {
			t.Errorf("%s: imports %s, which only %v may", src.path, path, places)
		}
	}
}

func checkWire(t *testing.T, src *source, dir string) {
	t.Helper()
	if dir != "internal/protocol" && dir != "internal/remoting" {
		return
	}
	for _, place := range wireFree {
		if src.dir() == place || strings.HasPrefix(src.dir(), place+"/") {
			t.Errorf("%s: %s knows no wire format, but imports %s", src.path, place, dir)
		}
	}
}
