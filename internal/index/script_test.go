// SPDX-License-Identifier: Apache-2.0

package index

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/roquetmq/roquet/internal/message"
)

// TestScripts runs testdata/*.txt: a command a line, "----" and what came out. With -rewrite the files are
// rewritten.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if flag.Lookup("rewrite").Value.String() == "true" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

var _ = flag.Bool("rewrite", false, "write what came out into testdata")

// runScript executes the commands of text and returns text with the outputs that came.
func runScript(t *testing.T, text string) string {
	t.Helper()
	s := &scriptRun{t: t, disk: newDisk(t), next: map[string]int64{}}
	s.open()
	defer func() { mustClose(t, s.d) }()
	var out strings.Builder
	inOutput := false
	var commands []string
	for line := range strings.Lines(text + "\n") {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "----":
			inOutput = true
			out.WriteString("----\n")
			for _, c := range commands {
				out.WriteString(s.run(strings.Fields(c)))
			}
			commands = nil
		case line == "":
			if inOutput {
				out.WriteByte('\n')
			}
			inOutput = false
		case inOutput: // the old output
		case strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		default:
			out.WriteString(line + "\n")
			commands = append(commands, line)
		}
	}
	return strings.TrimSuffix(out.String(), "\n")
}

type scriptRun struct {
	t    *testing.T
	disk *vfs.MemFS
	d    *DB
	end  message.LogOffset
	next map[string]int64
}

// rewind lets the log end where the index does: it has lost its tail too.
func (s *scriptRun) rewind() {
	s.end = s.d.High()
	clear(s.next)
	for _, topic := range s.d.Topics() {
		for _, q := range s.d.Queues(topic) {
			s.next[fmt.Sprintf("%s/%d", topic, q.ID())] = int64(q.Next())
		}
	}
}

func (s *scriptRun) open() { s.d = mustOpen(s.t, s.disk, Config{}) }

// entry moves the log's end on and returns the position of a record of 100 bytes.
func (s *scriptRun) entry() message.LogOffset {
	s.end += 100
	return s.end - 100
}

func (s *scriptRun) run(f []string) string {
	arg := func(i int) string { return append(f, make([]string, 5)...)[i] }
	num := func(i int) int64 { n, _ := strconv.ParseInt(arg(i), 10, 64); return n }
	switch f[0] {
	case "add": // topic/queue count keys…
		return s.add(arg(1), max(1, num(2)), f[min(3, len(f)):])
	case "put":
		s.d.Put(message.SpaceKV, []byte(arg(1)), []byte(arg(2)), s.entry())
	case "delete":
		s.d.Delete(message.SpaceKV, []byte(arg(1)), s.entry())
	case "delete-topic":
		s.d.DeleteTopic(arg(1), s.entry())
		for name := range s.next {
			if strings.HasPrefix(name, arg(1)+"/") {
				delete(s.next, name)
			}
		}
	case "start":
		s.d.Queue(splitName(arg(1))).Start(message.QueueOffset(num(2)))
	case "sync":
		_ = s.d.Checkpoint(s.end)
		return s.result(s.d.Sync())
	case "crash":
		clone := s.disk.CrashClone(vfs.CrashCloneCfg{})
		mustClose(s.t, s.d)
		s.disk = clone
		s.open()
		s.rewind()
	case "restart":
		_ = s.d.Checkpoint(s.end)
		mustClose(s.t, s.d)
		s.open()
	case "drop":
		return s.result(s.d.DropBefore(message.LogOffset(num(1))))
	default:
		return s.ask(f[0], arg, num)
	}
	return ""
}

// ask runs the commands that change nothing.
func (s *scriptRun) ask(command string, arg func(int) string, num func(int) int64) string {
	switch command {
	case "read": // topic/queue from count
		return s.read(arg(1), num(2), max(1, num(3)))
	case "bounds": // topic/queue first
		q := s.d.LookupQueue(splitName(arg(1)))
		if q == nil {
			return "no such queue\n"
		}
		return fmt.Sprintf("min=%d next=%d\n", q.Min(message.LogOffset(num(2))), q.Next())
	case "topics":
		return fmt.Sprintln(s.d.Topics())
	case "scan":
		var out strings.Builder
		for st, err := range s.d.Scan(message.SpaceKV, []byte(arg(1)), KeyEnd([]byte(arg(1)))) {
			if err != nil {
				return out.String() + s.result(err)
			}
			fmt.Fprintf(&out, "%s=%s at %d\n", st.Key, st.Value, st.Pos)
		}
		return out.String() + s.result(nil)
	case "find": // topic key
		var out strings.Builder
		for pos, err := range s.d.FindKeys(KeyOrdinary, arg(1), arg(2), 0, 1<<62) {
			fmt.Fprintf(&out, "%d %s", pos, s.result(err))
		}
		return out.String()
	case "sidecars":
		return fmt.Sprintln(list(s.t, s.disk, "/data/index/keys"))
	case "marks":
		return fmt.Sprintf("applied=%d high=%d missing=%v\n", s.d.Applied(), s.d.High(), s.d.MissingKeys(0))
	}
	return "unknown command " + command + "\n"
}

func (s *scriptRun) add(name string, count int64, keys []string) string {
	topic, id := splitName(name)
	first := s.next[name]
	for range count {
		pos := s.entry()
		s.d.Queue(topic, id).Add(Entry{Offset: message.QueueOffset(s.next[name]), Pos: pos, Size: 100})
		for _, k := range keys {
			s.d.AddKey(KeyOrdinary, []byte(topic), k, pos)
		}
		s.next[name]++
	}
	return fmt.Sprintf("%s: %d to %d, log end %d\n", name, first, s.next[name]-1, s.end)
}

func (s *scriptRun) read(name string, from, count int64) string {
	q := s.d.LookupQueue(splitName(name))
	if q == nil {
		return "no such queue\n"
	}
	dst := make([]Entry, count)
	n, err := q.Read(message.QueueOffset(from), dst)
	if n == 0 {
		return "nothing " + s.result(err)
	}
	return fmt.Sprintf("%d entries, first at %d, last at %d\n", n, dst[0].Pos, dst[n-1].Pos)
}

func (s *scriptRun) result(err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	return "ok\n"
}

func splitName(name string) (string, int32) {
	topic, id, _ := strings.Cut(name, "/")
	n, _ := strconv.ParseInt(id, 10, 32)
	return topic, int32(n)
}
