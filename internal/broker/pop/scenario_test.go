// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

var rewrite = flag.Bool("rewrite", false, "write what came out into testdata")

// queueOfMessages is a Queue with the messages of its queue and the records that were stored for it.
type queueOfMessages struct {
	q        *Queue
	now      int64 // ms
	keys     []uint32
	wanted   []bool
	records  map[message.QueueOffset][]byte
	maxTimes int32
	orderly  bool // one key for all messages
	handles  map[string]Ref
}

func newQueueOfMessages(next message.QueueOffset) *queueOfMessages {
	return &queueOfMessages{
		q: NewQueue(next, new(Scratch)), records: map[message.QueueOffset][]byte{}, maxTimes: NoMaxTimes,
		handles: map[string]Ref{},
	}
}

// step steps, and stores what is to be stored.
func (w *queueOfMessages) step(ev Event) []Action {
	actions := w.q.Step(w.now, ev)
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case Put:
			w.records[a.Offset] = a.AppendValue(nil)
		case Delete:
			delete(w.records, a.Offset)
		}
	}
	return actions
}

// receive does what the owner of a Queue does for a receive.
func (w *queueOfMessages) receive(ask Ask, invisible int64) []Action {
	ask.MaxTimes = w.maxTimes
	if w.orderly && !ask.Free {
		ask.Key = 1
	}
	plan := w.q.Plan(w.now, ask, nil)
	ev := &Receive{Ask: ask, Invisible: invisible, From: w.q.Next(), To: w.q.Next()}
	for _, off := range plan.Again {
		if w.wanted[off] {
			ev.Again = append(ev.Again, off)
		} else {
			ev.Gone = append(ev.Gone, off)
		}
	}
	for !plan.Blocked && len(ev.Again)+len(ev.Fresh) < ask.MaxCount && int(ev.To) < len(w.keys) {
		if off := ev.To; w.wanted[off] {
			ev.Fresh = append(ev.Fresh, Fresh{Offset: off, Key: w.key(off)})
		}
		ev.To++
	}
	return w.step(ev)
}

func (w *queueOfMessages) key(off message.QueueOffset) uint32 {
	if w.orderly {
		return 1
	}
	return w.keys[off]
}

// reopened is the Queue that the stored records make.
func (w *queueOfMessages) reopened() (*Queue, error) {
	q := Restored(new(Scratch))
	for _, from := range slices.Sorted(maps.Keys(w.records)) {
		if err := q.Restore(from, w.records[from]); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// TestScenarios runs the scripts of testdata. A script is commands, "----" and what came out.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(script))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != string(script) {
				t.Errorf("%s: what came out differs; run with -rewrite and read the diff:\n%s", file, got)
			}
		})
	}
}

// runScript returns the script with what comes out now.
func runScript(t *testing.T, script string) string {
	w := newQueueOfMessages(0)
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(script, "\n"), "\n\n") {
		commands, _, _ := strings.Cut(block, "\n----")
		out.WriteString(commands + "\n----\n")
		for line := range strings.SplitSeq(commands, "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			out.WriteString(w.run(t, line))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// arguments are the name=value words of a command.
type arguments map[string]string

func (a arguments) int(name string, fallback int64) int64 {
	n, err := strconv.ParseInt(a[name], 10, 64)
	if err != nil {
		return fallback
	}
	return n
}

func (a arguments) millis(name string, fallback time.Duration) int64 {
	d, err := time.ParseDuration(a[name])
	if err != nil {
		d = fallback
	}
	return d.Milliseconds()
}

func (a arguments) offset(name string) message.QueueOffset {
	return message.QueueOffset(a.int(name, 0))
}

// refs are handles by the names that receives and renewals gave them.
func (w *queueOfMessages) refs(t *testing.T, names string) (refs []Ref) {
	for name := range strings.SplitSeq(names, ",") {
		ref, ok := w.handles[name]
		if !ok {
			t.Fatalf("no handle %q", name)
		}
		refs = append(refs, ref)
	}
	return refs
}

func (w *queueOfMessages) run(t *testing.T, line string) string {
	words := strings.Fields(line)
	args := arguments{}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		args[name] = value
	}
	switch words[0] {
	case "queue":
		*w = *newQueueOfMessages(args.offset("next"))
		w.maxTimes = int32(args.int("max-times", int64(NoMaxTimes)))
		w.orderly = args["order"] == "queue"
		for len(w.keys) < int(w.q.Next()) {
			w.keys, w.wanted = append(w.keys, 0), append(w.wanted, true)
		}
		return ""
	case "send":
		for range args.int("n", 1) {
			w.keys, w.wanted = append(w.keys, uint32(args.int("key", 0))), append(w.wanted, args["unwanted"] == "")
		}
		return ""
	case "unwant":
		w.wanted[args.offset("offset")] = false
		return ""
	case "advance":
		w.now += args.millis("by", 0)
		return ""
	case "receive":
		ask := Ask{MaxCount: int(args.int("max", 32)), Attempt: uint64(args.int("attempt", 0))}
		invisible := args.millis("invisible", 10*time.Second)
		return w.show(w.receive(ask, invisible), args["as"], nil, invisible)
	case "ack":
		refs := w.refs(t, args["handle"])
		return w.show(w.step(&Ack{Refs: refs}), "", refs, 0)
	case "forge":
		w.handles[args["as"]] = Ref{args.offset("offset"), args.int("pop", 0), args.millis("invisible", 0)}
		return ""
	case "renew":
		refs := w.refs(t, args["handle"])
		ev := &Renew{
			Refs: refs, Invisible: args.millis("invisible", 0), Suspend: args["suspend"] != "",
			Orderly: w.orderly,
		}
		return w.show(w.step(ev), args["as"], refs, 0)
	case "forward":
		return w.show(w.step(&Forward{Refs: w.refs(t, args["handle"])[:1]}), "", nil, 0)
	case "tick":
		return w.show(w.step(&Tick{MaxTimes: w.maxTimes, Everything: args["everything"] != ""}), "", nil, 0)
	case "bury":
		return w.show(w.step(&Bury{Offset: args.offset("offset")}), "", nil, 0)
	case "spare":
		return w.show(w.step(&Spare{Offset: args.offset("offset"), Wait: 1000}), "", nil, 0)
	case "jump":
		return w.show(w.step(&Jump{To: args.offset("to")}), "", nil, 0)
	case "reset":
		return w.show(w.step(&Reset{To: args.offset("to")}), "", nil, 0)
	case "reopen":
		q, err := w.reopened()
		if err != nil {
			t.Fatal(err)
		}
		w.q = q
		return w.status()
	case "status":
		return w.status()
	}
	t.Fatalf("unknown command %q", line)
	return ""
}

func (w *queueOfMessages) status() string {
	deadline := "none"
	if d := w.q.Deadline(); d != never {
		deadline = fmt.Sprintf("%dms", d)
	}
	return fmt.Sprintf("next=%d committed=%d unfinished=%v deadline=%s records=%d\n",
		w.q.Next(), w.q.Committed(), w.q.Unfinished(nil), deadline, len(w.records))
}

// show prints actions, a line each. Handles of what was delivered or renewed are named prefix and offset.
func (w *queueOfMessages) show(actions []Action, prefix string, refs []Ref, invisible int64) string {
	var out strings.Builder
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case Deliver:
			fmt.Fprintf(&out, "deliver %d times=%d first=%dms\n", a.Offset, a.Times, a.FirstPop)
			w.handles[fmt.Sprint(prefix, a.Offset)] = Ref{a.Offset, w.now, invisible}
		case Renewed:
			fmt.Fprintf(&out, "renewed %d pop=%dms invisible=%dms\n", a.Offset, a.PopTime, a.Invisible)
			w.handles[fmt.Sprint(prefix, a.Offset)] = Ref{a.Offset, a.PopTime, a.Invisible}
		case Refused:
			fmt.Fprintf(&out, "refused %d never=%v\n", refs[a.Index].Offset, a.Never)
		case Finished:
			fmt.Fprintf(&out, "finished %d\n", a.Offset)
		case DeadLetter:
			fmt.Fprintf(&out, "dead letter %d times=%d\n", a.Offset, a.Times)
		case Put:
			fmt.Fprintf(&out, "put %d %x\n", a.Offset, a.AppendValue(nil))
		case Delete:
			fmt.Fprintf(&out, "delete %d\n", a.Offset)
		case Commit:
			fmt.Fprintf(&out, "commit %d\n", a.Offset)
		case Wake:
			out.WriteString("wake\n")
		}
	}
	return out.String()
}
