// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/backup"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/store"
)

// postBackup asks a server for a backup.
func (w *wire) postBackup(ctx context.Context, have []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.addr+"/v1/backup", bytes.NewReader(have))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%s: %s: %w", answer.Status, text, err)
	}
	return answer.Body, nil
}

// TestBackupOverHTTP backs a running broker up through its door and starts another one from that.
func TestBackupOverHTTP(t *testing.T) {
	var data string
	w := startWire(t, func(cfg *config.Config) {
		data = cfg.Store.Dir
		left := filepath.Join(data, "checkpoint-of-a-killed-process")
		if err := os.MkdirAll(filepath.Join(left, "store"), 0o750); err != nil {
			t.Fatal(err)
		}
	})
	publish := func(n int) {
		for i := range n {
			answer, err := http.Post(
				"http://"+w.addr+"/v1/topics/orders/messages",
				"text/plain",
				strings.NewReader(fmt.Sprint("order ", i)),
			)
			if err != nil || answer.StatusCode != http.StatusCreated {
				t.Fatal(answer, err)
			}
			_ = answer.Body.Close()
		}
	}
	publish(20)
	target, err := backup.OpenTarget(t.TempDir(), backup.S3{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := backup.Take(t.Context(), target, w.postBackup, func(int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	if m.Broker != "broker-a" || m.Version != "test" || m.End == 0 {
		t.Errorf("manifest %+v", m)
	}
	publish(1)
	if _, err := backup.Take(t.Context(), target, w.postBackup, func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(data, checkpointPattern)); err != nil || len(left) > 0 {
		t.Errorf("left in the data folder: %v, %v", left, err)
	}
	if _, err := w.postBackup(t.Context(), []byte("{")); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("asked with garbage: %v", err)
	}

	dir := t.TempDir()
	if _, err := backup.Restore(t.Context(), target, dir, func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	cfg := config.New()
	cfg.Store.Dir = dir
	report, err := store.Verify(t.Context(), storeConfig(cfg, nil, slog.New(slog.DiscardHandler)))
	if err != nil || !report.OK() || report.Messages < 21 {
		t.Errorf("verify: %+v, %v", report, err)
	}
	second := startWire(t, func(cfg *config.Config) { cfg.Store.Dir = dir })
	var found int
	for queue := range int32(16) {
		_, maximum, _ := second.svc.node.store.Bounds("orders", queue)
		found += int(maximum)
	}
	if found != 21 {
		t.Errorf("%d messages in the restored broker, want 21", found)
	}
}
