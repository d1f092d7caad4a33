// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/roquetmq/roquet/internal/backup"
	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// broker is a store that runs.
type broker struct {
	*store.Store
	t   *testing.T
	dir string // the data folder
}

func storeConfig(dataDir string) store.Config {
	return store.Config{
		Dir: filepath.Join(dataDir, "store"), StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"),
		Log: commitlog.Config{SegmentBytes: 64 << 10, Disk: commitlog.DiskMarks{FullPercent: 100, ReserveBytes: 1}},
	}
}

func start(t *testing.T, dataDir string) (b *broker, stop func()) {
	t.Helper()
	s, err := store.Open(storeConfig(dataDir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return &broker{Store: s, t: t, dir: dataDir}, func() {
		cancel()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// send stores a message and waits until that is acknowledged.
func (b *broker) send(body string) {
	done := make(chan error, 1)
	w := &store.Write{Done: func(_ *store.Write, err error) { done <- err }}
	m := w.Single()
	m.Topic, m.Body, m.BornHost = "orders", []byte(body), netip.MustParseAddrPort("10.0.0.1:1")
	if err := b.Append(w); err != nil {
		b.t.Error(err)
		return
	}
	if err := <-done; err != nil {
		b.t.Error(err)
	}
}

// bodies are all messages.
func (b *broker) bodies() (all []string) {
	for next := message.QueueOffset(0); ; {
		r := b.Fetch(&store.FetchRequest{Topic: "orders", From: next})
		if r.Status != store.Found {
			return all
		}
		for _, rec := range r.Records {
			all = append(all, string(message.Record(rec).Body()))
		}
		next = r.Next
	}
}

// request is what a server does with POST /v1/backup. sent counts the bytes.
func (b *broker) request(sent *int64) func(context.Context, []byte) (io.ReadCloser, error) {
	return func(ctx context.Context, have []byte) (io.ReadCloser, error) {
		var there []backup.File
		if err := json.Unmarshal(have, &there); err != nil {
			return nil, err
		}
		dir := b.t.TempDir()
		m, err := backup.Checkpoint(ctx, b.Store, b.dir, dir)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		err = backup.Send(ctx, &out, m, dir, there)
		*sent = int64(out.Len())
		return io.NopCloser(&out), err
	}
}

func noProgress(int64, int64) {}

// bucket serves S3 in this process.
func bucket(t *testing.T, wrap func(http.Handler) http.Handler) backup.Target {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	memory := s3mem.New()
	if err := memory.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(wrap(gofakes3.New(memory).Server()))
	t.Cleanup(server.Close)
	target, err := backup.OpenTarget("s3://backups/broker-a", backup.S3{
		Endpoint: strings.TrimPrefix(server.URL, "http://"), Region: "us-east-1", Insecure: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func folder(t *testing.T) backup.Target {
	t.Helper()
	target, err := backup.OpenTarget(filepath.Join(t.TempDir(), "backups"), backup.S3{})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// eachTarget runs a test with a folder and with a bucket.
func eachTarget(t *testing.T, test func(t *testing.T, target backup.Target)) {
	t.Run("folder", func(t *testing.T) { test(t, folder(t)) })
	t.Run("bucket", func(t *testing.T) {
		test(t, bucket(t, func(h http.Handler) http.Handler { return h }))
	})
}

// restored restores into a new folder, verifies the store, and returns its messages.
func restored(t *testing.T, target backup.Target) []string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	var last int64
	m, err := backup.Restore(t.Context(), target, dir, func(done, total int64) {
		if done < last || done > total {
			t.Errorf("progress went from %d to %d of %d", last, done, total)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	if last != m.Bytes() {
		t.Errorf("progress ended at %d of %d bytes", last, m.Bytes())
	}
	b, stop := start(t, dir)
	bodies := b.bodies()
	if int64(b.End()) < m.End {
		t.Errorf("the log ends at %d, the backup at %d", b.End(), m.End)
	}
	stop()
	report, err := store.Verify(t.Context(), storeConfig(dir))
	if err != nil || !report.OK() || report.Log.TornBytes > 0 {
		t.Errorf("verify: %+v, %v", report, err)
	}
	if _, err := backup.Restore(t.Context(), target, dir, noProgress); err == nil ||
		!strings.Contains(err.Error(), "not empty") {
		t.Errorf("restored over a store: %v", err)
	}
	return bodies
}

// TestBackupUnderLoad takes backups while messages come in. Everything acknowledged before is there.
func TestBackupUnderLoad(t *testing.T) {
	eachTarget(t, func(t *testing.T, target backup.Target) {
		b, stop := start(t, t.TempDir())
		defer stop()
		for i := range 300 {
			b.send(fmt.Sprintf("before %d %s", i, strings.Repeat("x", 1000)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				b.send(fmt.Sprint("while ", i))
			}
		})
		var sent, ends [2]int64
		for i := range sent {
			acknowledged := b.bodies()
			m, err := backup.Take(t.Context(), target, b.request(&sent[i]), noProgress)
			if err != nil {
				t.Fatal(err)
			}
			ends[i] = m.End
			if m.End-m.Begin < 300_000 || len(m.Files) < 5 {
				t.Errorf("backup of %d bytes in %d files", m.End-m.Begin, len(m.Files))
			}
			got := restored(t, target)
			if len(got) < len(acknowledged) || !slices.Equal(got[:len(acknowledged)], acknowledged) {
				t.Errorf("%d messages restored, %d were acknowledged before the backup", len(got), len(acknowledged))
			}
		}
		cancel()
		wg.Wait()
		if came := ends[1] - ends[0]; sent[1] > sent[0]/2+came {
			t.Errorf("the first backup sent %d bytes, the next one %d, when %d had come", sent[0], sent[1], came)
		}
	})
}

// TestBackupTorn kills the transfer anywhere: the backup before is the newest, and good.
func TestBackupTorn(t *testing.T) {
	eachTarget(t, func(t *testing.T, target backup.Target) {
		b, stop := start(t, t.TempDir())
		defer stop()
		if _, err := backup.Restore(t.Context(), target, t.TempDir(), noProgress); !errors.Is(err, backup.ErrNone) {
			t.Fatalf("restore without a backup: %v", err)
		}
		b.send("first")
		var size int64
		if _, err := backup.Take(t.Context(), target, b.request(&size), noProgress); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			b.send(fmt.Sprint(i, strings.Repeat("x", 2000)))
		}
		whole, err := b.request(&size)(t.Context(), []byte("null"))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := io.ReadAll(whole)
		if err != nil {
			t.Fatal(err)
		}
		for _, cut := range []int{0, 100, 600, 3000, len(stream) / 2, len(stream) - 4000, len(stream) - 1600} {
			for name, rest := range map[string]io.Reader{
				"cut":     bytes.NewReader(nil),
				"broken":  iotest.ErrReader(errors.New("connection reset")),
				"garbage": strings.NewReader(strings.Repeat("garbage ", 1000)),
			} {
				torn := func(context.Context, []byte) (io.ReadCloser, error) {
					return io.NopCloser(io.MultiReader(bytes.NewReader(stream[:cut]), rest)), nil
				}
				if m, err := backup.Take(t.Context(), target, torn, noProgress); err == nil {
					t.Errorf("a stream %s at %d of %d is a backup: %+v", name, cut, len(stream), m)
				}
			}
		}
		if got := restored(t, target); !slices.Equal(got, []string{"first"}) {
			t.Errorf("restored %d messages", len(got))
		}
	})
}

// TestBackupKilledUpload fails every S3 request from the n-th on, as a killed process does.
func TestBackupKilledUpload(t *testing.T) {
	requests, limit := 0, 1<<30
	target := bucket(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests++; requests > limit {
				http.Error(w, "gone", http.StatusForbidden) // not tried again
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	b, stop := start(t, t.TempDir())
	defer stop()
	b.send("first")
	var size int64
	if _, err := backup.Take(t.Context(), target, b.request(&size), noProgress); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		b.send(fmt.Sprint(i, strings.Repeat("x", 2000)))
	}
	for n := 0; ; n++ {
		requests, limit = 0, n
		_, err := backup.Take(t.Context(), target, b.request(&size), noProgress)
		requests, limit = 0, 1<<30
		if err == nil {
			break
		}
		if got := restored(t, target); len(got) != 1 {
			t.Fatalf("after %d requests: %d messages restored", n, len(got))
		}
	}
	if got := restored(t, target); len(got) != 201 {
		t.Errorf("%d messages restored", len(got))
	}
}

// TestBackupDamage flips a byte of every file of a backup in turn.
func TestBackupDamage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	target, err := backup.OpenTarget(root, backup.S3{})
	if err != nil {
		t.Fatal(err)
	}
	b, stop := start(t, t.TempDir())
	defer stop()
	for i := range 100 {
		b.send(fmt.Sprint(i, strings.Repeat("x", 2000)))
	}
	var size int64
	if _, err := backup.Take(t.Context(), target, b.request(&size), noProgress); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "files", "*"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for what, bad := range map[string][]byte{
			"flipped": append(append(bytes.Clone(good[:len(good)/2]), good[len(good)/2]^1), good[len(good)/2+1:]...),
			"short":   good[:len(good)-1],
			"empty":   {},
		} {
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if _, err := backup.Restore(t.Context(), target, dir, noProgress); err == nil {
				t.Errorf("restored from a %s file", what)
			}
			if _, err := os.Stat(filepath.Join(dir, "store")); err == nil {
				t.Errorf("a %s file: what is not whole looks like a store", what)
			}
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := restored(t, target); len(got) != 100 {
		t.Errorf("%d messages restored", len(got))
	}
}

// TestBackupKeepsFilesThatRetentionDrops: a segment that goes while a backup is sent is in the backup.
func TestBackupKeepsFilesThatRetentionDrops(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
	cfg := storeConfig(data)
	cfg.Retention.FileReservedTime = time.Nanosecond
	s, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	b := &broker{Store: s, t: t, dir: data}
	for i := range 100 {
		b.send(fmt.Sprint(i, strings.Repeat("x", 2000)))
	}
	m, err := backup.Checkpoint(t.Context(), s, data, dir)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Retain(t.Context()); n < 2 || err != nil {
		t.Fatal(n, err)
	}
	target := folder(t)
	_, err = backup.Take(t.Context(), target, func(ctx context.Context, _ []byte) (io.ReadCloser, error) {
		var out bytes.Buffer
		return io.NopCloser(&out), backup.Send(ctx, &out, m, dir, nil)
	}, noProgress)
	if err != nil {
		t.Fatal(err)
	}
	if got := restored(t, target); len(got) != 100 {
		t.Errorf("%d messages restored", len(got))
	}
	cancel()
	if err := errors.Join(<-ended, s.Close()); err != nil {
		t.Error(err)
	}
}
