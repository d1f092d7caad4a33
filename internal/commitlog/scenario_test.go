// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios of testdata print into them")

// TestScenarios runs the scripts of testdata. A script is commands and, behind a line "----", what they
// print. Commands are the cases of (*scenario).do.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScenario(t, string(script))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != string(script) {
				t.Errorf("%s printed\n%s", file, got)
			}
		})
	}
}

func runScenario(t *testing.T, script string) string {
	s := newScenario(t)
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimRight(script, "\n"), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		commands, _, isBlock := strings.Cut(block, "\n----")
		out.WriteString(commands + "\n")
		if !isBlock {
			continue // a comment
		}
		out.WriteString("----\n")
		for _, line := range strings.Split(commands, "\n") {
			if !strings.HasPrefix(line, "#") {
				s.do(&out, strings.Fields(line))
			}
		}
	}
	if s.r != nil {
		s.r.mustHalt()
	}
	return out.String()
}

// usageFS is a file system whose disk usage is what the test says.
type usageFS struct {
	vfs.FS
	percent atomic.Int64
}

func (f *usageFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	const total = 1000 << 20
	used := uint64(f.percent.Load()) * (total / 100)
	return vfs.DiskUsage{TotalBytes: total, UsedBytes: used, AvailBytes: total - used}, nil
}

type scenario struct {
	t     *testing.T
	cfg   Config
	disk  *faultyDisk
	usage *usageFS
	r     *running
	reset chan struct{}
	logs  *bytes.Buffer
	at    map[string]Entry // by the name of a record
}

func newScenario(t *testing.T) *scenario {
	s := &scenario{
		t: t, cfg: testConfig(t), disk: newFaultyDisk(-1), reset: make(chan struct{}, 100),
		logs: new(bytes.Buffer), at: map[string]Entry{},
	}
	s.disk.install(&s.cfg)
	s.usage = &usageFS{FS: s.cfg.FS}
	s.cfg.FS = s.usage
	s.cfg.Disk = DiskMarks{FullPercent: 90, ReserveBytes: 1 << 20, Interval: time.Millisecond}
	s.cfg.Logger = slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	return s
}

// clean takes what differs from run to run out of a text.
func (s *scenario) clean(text string) string {
	text = strings.ReplaceAll(text, s.cfg.Dir+"/", "")
	text = strings.ReplaceAll(text, s.cfg.Dir, "DIR")
	if before, after, ok := strings.Cut(text, "since 20"); ok {
		text = before + "since TIME" + after[len("26-01-01T00:00:00Z"):]
	}
	text = regexp.MustCompile(`checksum is \w+, entry states \w+`).ReplaceAllString(text, "checksum is wrong")
	text = regexp.MustCompile(`to log \w{16}, not to \w{16}`).ReplaceAllString(text, "to another log")
	return strings.ReplaceAll(text, "0000000000000000", "…")
}

//lint:long a flat switch over the commands of the scripts
func (s *scenario) do(out *strings.Builder, words []string) {
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	print := func(format string, args ...any) { fmt.Fprintln(out, s.clean(fmt.Sprintf(format, args...))) }
	check := func(err error) {
		if err != nil {
			print("error: %v", err)
		}
	}
	closedToo := []string{"open", "damage", "verify", "warnings", "heal", "fail", "usage", "async"}
	if s.r == nil && !slices.Contains(closedToo, words[0]) {
		print("not open")
		return
	}
	switch words[0] {
	case "open": // open and run
		s.open(check, print)
	case "stop": // a graceful stop
		check(s.r.halt())
		s.r = nil
	case "kill": // stop as kill -9 does: go on with a copy of the files
		dir := copyDir(s.t, s.cfg.Dir)
		_ = s.r.halt() // a failing disk may not let it
		s.r, s.cfg.Dir = nil, dir
	case "store": // store NAME BYTES
		s.store(arg(1), atoi(arg(2)), print)
	case "fill": // fill PREFIX COUNT BYTES
		for i := range atoi(arg(2)) {
			name := fmt.Sprintf("%s%d", arg(1), i)
			if _, err := s.r.store(newGroup(name, stateRecord(name, atoi(arg(3))))); err != nil {
				check(err)
				return
			}
			s.note(name)
		}
	case "read": // read NAME
		rec, err := s.r.Read(s.at[arg(1)].First, 0)
		if err == nil {
			print("%s, %d bytes", recordName(rec), len(rec))
		}
		check(err)
	case "records":
		print("%s", cmp.Or(strings.Join(s.names(), " "), "none"))
	case "segments":
		for _, seg := range s.r.Segments() {
			print("%s %d..%d", seg.Path, seg.First, seg.End)
		}
		print("first %d end %d", s.r.First(), s.r.End())
	case "drop": // drop COUNT
		check(s.r.Drop(atoi(arg(1))))
	case "roll":
		check(s.r.Roll(s.t.Context()))
	case "health":
		writable, cause := s.r.Health()
		print("writable=%v %T", writable, cause)
	case "warnings": // what was logged since
		print("%s", cmp.Or(strings.TrimSpace(s.logs.String()), "none"))
		s.logs.Reset()
	case "verify":
		s.verify(print, check)
	case "fail": // fail nothing|half|complete enospc|eio [write|sync]: all from now on, or all of a kind
		s.disk.damage = map[string]damage{"nothing": nothing, "half": half, "complete": complete}[arg(1)]
		s.disk.breakFrom(map[string]error{"enospc": syscall.ENOSPC, "eio": syscall.EIO}[arg(2)], arg(3))
	case "heal":
		s.disk.heal()
	case "async": // settle before the sync
		s.cfg.FlushDiskType, s.cfg.FlushInterval = Async, time.Millisecond
	case "await-broken": // until a sync in the background has failed
		for ok, _ := s.r.Health(); ok; ok, _ = s.r.Health() {
			runtime.Gosched()
		}
	case "await-reset": // until the log has restarted
		<-s.reset
	case "usage": // usage PERCENT of the disk
		s.usage.percent.Store(int64(atoi(arg(1))))
		if s.r != nil {
			s.r.lookAtDisk()
		}
	case "damage": // damage what the last file holds: see scenario.damage
		check(s.damage(words[1:]))
	default:
		s.t.Fatalf("unknown command %q", words)
	}
}

// store prints the position, how the group ended, or what refused it: only the kind, as the text depends on
// how often the log has tried to restart meanwhile, unless it is that of the disk's marks.
func (s *scenario) store(name string, size int, print func(string, ...any)) {
	g := newGroup(name, stateRecord(name, size))
	if err := s.r.Append(g, g.size(), false); err != nil {
		print("refused: %T", err)
		if full := (*DiskFullError)(nil); errors.As(err, &full) && full.Cause == nil {
			print("%v", err)
		}
		return
	}
	pos, err := g.wait()
	if err != nil {
		print("error: %v", err)
		return
	}
	print("%s at %d", name, pos)
	s.note(name)
}

func (s *scenario) open(check func(error), print func(string, ...any)) {
	l, err := Open(s.cfg)
	if err != nil {
		var corrupt *CorruptError
		print("corrupt=%v", errors.As(err, &corrupt))
		check(err)
		return
	}
	s.r = runWith(s.t, l, Handler{Reset: func() { s.reset <- struct{}{} }})
}

func (s *scenario) note(name string) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.at[name] = s.r.applied[len(s.r.applied)-1]
}

// names replays the log; that is allowed here because nothing is appended meanwhile.
func (s *scenario) names() []string { return names(s.t, s.r.Log) }

func (s *scenario) verify(print func(string, ...any), check func(error)) {
	report, err := Verify(s.t.Context(), vfs.Default, s.cfg.Dir, nil)
	check(err)
	print("%d segments, %d entries, %d records, %d..%d, torn %d, faults %d", report.Segments, report.Entries,
		report.Records, report.First, report.End, report.TornBytes, report.FaultCount)
	for _, fault := range report.Faults {
		print("%v", fault)
	}
}

// damage changes files behind the log's back; the log must not be running. Forms:
//
//	NAME cut N        shorten the file to the first N bytes of NAME's entry
//	NAME zero N       overwrite all behind the first N bytes of NAME's entry with zeros
//	NAME garbage N    overwrite from byte N of NAME's entry to its end with random bytes
//	NAME flip N       flip a bit of byte N of NAME's entry
//	NAME append N     put N random bytes behind NAME's entry, and end the file there
//	NAME remove       remove the file that holds NAME
//	empty             begin an empty next segment file
func (s *scenario) damage(words []string) error {
	if words[0] == "empty" {
		path, err := newestSegment(s.cfg.Dir)
		if err != nil {
			return err
		}
		index, err := strconv.ParseUint(filepath.Base(path), 10, 64)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(s.cfg.Dir, segmentName(index+1000)), nil, 0o600)
	}
	e := s.at[words[0]]
	path, base, err := s.fileOf(e)
	if err != nil {
		return err
	}
	if words[1] == "remove" {
		return os.Remove(path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	n := atoi(words[2])
	from, end := int(e.Position)-base, int(e.End)-base
	random := rand.New(rand.NewPCG(1, uint64(n)))
	switch words[1] {
	case "cut":
		content = content[:from+n]
	case "zero":
		clear(content[from+n:])
	case "garbage":
		for i := from + n; i < end; i++ {
			content[i] = byte(random.Uint32())
		}
	case "flip":
		content[from+n] ^= 4
	case "append":
		content = content[:end]
		for range n {
			content = append(content, byte(random.Uint32()))
		}
	}
	return os.WriteFile(path, content, 0o600)
}

// fileOf returns the file that holds an entry and the position of its first byte.
func (s *scenario) fileOf(e Entry) (string, int, error) {
	files, err := listSegments(vfs.Default, s.cfg.Dir)
	if err != nil {
		return "", 0, err
	}
	base := 0
	for i, f := range files {
		if i+1 == len(files) || files[i+1].FirstIndex > e.Index {
			return f.Path, base, nil
		}
		base += int(f.End)
	}
	return "", 0, errors.New("no file holds it")
}

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}
