// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk: C208. A pod whose volume fills up leaves the Service and says why, and is not restarted: the liveness probe
// holds. When there is room again it comes back by itself.
func TestFullDisk(t *testing.T) {
	if *binary == "" {
		t.Skip("no -roquet: .ci/run gives it")
	}
	c := newCluster(t, render(t, ""), *binary)
	p := c.pods[0]
	k := c.r.set.Spec.Template.Spec.Containers[0]
	volume := filepath.Join(p.root, "var/lib/roquet")
	run(t, "mount", "-t", "tmpfs", "-o", "size=512m,uid=65532,gid=65532", "tmpfs", volume)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", volume).Run() })
	c.start(p)
	c.awaitReady(p)
	filler := filepath.Join(volume, "filler")
	var disk syscall.Statfs_t
	if err := syscall.Statfs(volume, &disk); err != nil {
		t.Fatal(err)
	}
	run(t, "fallocate", "-l", fmt.Sprint(int64(disk.Bavail)*disk.Bsize-4<<20), filler)
	await(t, "the pod is not ready", func() bool { return askHealth(t.Context(), p.ip, k.ReadinessProbe.GRPC) != nil })
	resp, err := http.Get(fmt.Sprintf("http://%s:%d/readyz", p.ip, c.port("http")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	reason, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(reason), "not writable") {
		t.Errorf("readyz: %s %q, %v", resp.Status, reason, err)
	}
	t.Logf("not ready: %s", reason)
	if err := askHealth(t.Context(), p.ip, k.LivenessProbe.GRPC); err != nil {
		t.Errorf("a full disk restarts the pod: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	await(t, "the pod is ready again", func() bool { return askHealth(t.Context(), p.ip, k.ReadinessProbe.GRPC) == nil })
	c.delete(p)
}
