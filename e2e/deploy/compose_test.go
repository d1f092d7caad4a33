// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// TestComposeFiles parses the files as Compose v2 does; docker-compose 1.29 reads one in deploy/compose/test.sh.
func TestComposeFiles(t *testing.T) {
	for path, services := range map[string][]string{
		"../../docker-compose.yml":                {"collector", "roquet", "viewer"},
		"../../deploy/compose/self-contained.yml": {"roquet"},
	} {
		p := compose(t, path)
		if got := slices.Sorted(keys(p.Services)); !slices.Equal(got, services) {
			t.Errorf("%s: services %v", path, got)
		}
		r := p.Services["roquet"]
		if !r.ReadOnly || !slices.Equal(r.CapDrop, []string{"ALL"}) || r.StopGracePeriod == nil ||
			time.Duration(*r.StopGracePeriod) < 30*time.Second {
			t.Errorf("%s: read_only, cap_drop or stop_grace_period", path)
		}
		for _, port := range r.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to the network", path, port.Published)
			}
		}
		// Who comes through the published name server port is told the published broker port.
		addr, told, _ := strings.Cut(*r.Environment["ROQUET_LISTENERS"], "=")
		if published(r, addr) != "9876" || "127.0.0.1:"+published(r, ":10911") != told {
			t.Errorf("%s: listener %s tells %s, ports %v", path, addr, told, r.Ports)
		}
		for _, name := range services {
			if s := p.Services[name]; path != "../../docker-compose.yml" && (s.Build == nil || s.Build.Dockerfile != "Dockerfile") {
				t.Errorf("%s: %s would be pulled", path, name)
			}
		}
	}
}

func published(s types.ServiceConfig, addr string) string {
	for _, p := range s.Ports {
		if _, port, _ := strings.Cut(addr, ":"); port == fmt.Sprint(p.Target) {
			return p.Published
		}
	}
	return ""
}

func compose(t *testing.T, path string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{path}, cli.WithName("roquet"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return p
}

// TestDockerfiles: the image from source ends as the image from a binary does.
func TestDockerfiles(t *testing.T) {
	tail := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, tail, ok := strings.Cut(string(text), "COPY --chown=65532:65532 deploy/docker/data/ /var/lib/roquet/\n")
		if !ok {
			t.Fatalf("%s has no data folder", path)
		}
		return tail
	}
	if a, b := tail("../../Dockerfile"), tail("../../Dockerfile.build"); a != b {
		t.Errorf("Dockerfile ends with\n%s\nDockerfile.build with\n%s", a, b)
	}
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"\nRUN", "# syntax", "<<"} {
		if strings.Contains(string(text), word) {
			t.Errorf("Dockerfile has %q, which needs another image or a newer builder", word)
		}
	}
}
