// SPDX-License-Identifier: Apache-2.0

package index

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/roquetmq/roquet/internal/disk"
	"github.com/roquetmq/roquet/internal/message"
)

// op is one log entry of the model log; pos is its position, and the next op's position its end.
type op struct {
	kind  string // add, put, delete, deleteTopic
	pos   message.LogOffset
	size  int32
	topic string
	queue int32
	off   message.QueueOffset
	tags  int64
	keys  []string
	state message.State
}

// modelLog is the log that the index indexes, from first on.
type modelLog struct {
	first, end message.LogOffset
	ops        []op
	// next is where queues had got to before first.
	next map[string]message.QueueOffset
}

func (l *modelLog) append(o op) op {
	o.pos = l.end + 7 // an entry has a head
	l.end = o.pos + message.LogOffset(o.size)
	l.ops = append(l.ops, o)
	return o
}

func (o *op) end() message.LogOffset { return o.pos + message.LogOffset(o.size) }

// apply gives o to the index as the store does.
func apply(d *DB, o op) error {
	switch o.kind {
	case "add":
		d.Queue(o.topic, o.queue).Add(Entry{Offset: o.off, Pos: o.pos, Size: o.size, TagsCode: o.tags})
		for _, k := range o.keys {
			d.AddKey(KeyOrdinary, []byte(o.topic), k, o.pos)
		}
	case "put":
		d.Put(o.state.Space, o.state.Key, o.state.Value, o.pos)
	case "delete":
		d.Delete(o.state.Space, o.state.Key, o.pos)
	case "deleteTopic":
		d.DeleteTopic(o.topic, o.pos)
	}
	return d.Checkpoint(o.end())
}

// replay applies what is at or after from.
func (l *modelLog) replay(d *DB, from message.LogOffset) error {
	for _, o := range l.ops {
		if o.pos >= from {
			if err := apply(d, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// content is what an index answers, in full: what the model says it must answer.
type content struct {
	Queues map[string][]Entry // "topic/queue" → retained entries
	Bounds map[string]string  // "topic/queue" → "min-next"
	State  map[string]string  // "space/key" → "pos value"
	Keys   map[string][]message.LogOffset
}

// want computes the content after the ops that end at or before upTo.
func (l *modelLog) want(upTo message.LogOffset) content {
	c := content{map[string][]Entry{}, map[string]string{}, map[string]string{}, map[string][]message.LogOffset{}}
	next := maps.Clone(l.next)
	for _, o := range l.ops {
		if o.end() > upTo {
			break
		}
		name := fmt.Sprintf("%s/%d", o.topic, o.queue)
		state := fmt.Sprintf("%d/%s", o.state.Space, o.state.Key)
		switch o.kind {
		case "add":
			next[name] = o.off + 1
			if o.pos >= l.first {
				c.Queues[name] = append(
					c.Queues[name],
					Entry{Offset: o.off, Pos: o.pos, Size: o.size, TagsCode: o.tags},
				)
				for _, k := range o.keys {
					key := o.topic + "#" + k
					if !slices.Contains(c.Keys[key], o.pos) {
						c.Keys[key] = slices.Insert(c.Keys[key], 0, o.pos)
					}
				}
			}
		case "put":
			c.State[state] = fmt.Sprintf("%d %s", o.pos, o.state.Value)
		case "delete":
			delete(c.State, state)
		case "deleteTopic":
			ofTopic := func(name string) bool { return name[:bytes.IndexByte([]byte(name), '/')] == o.topic }
			maps.DeleteFunc(next, func(name string, _ message.QueueOffset) bool { return ofTopic(name) })
			maps.DeleteFunc(c.Queues, func(name string, _ []Entry) bool { return ofTopic(name) })
		}
	}
	for name, n := range next {
		c.Bounds[name] = fmt.Sprintf("%d-%d", n-message.QueueOffset(len(c.Queues[name])), n)
	}
	return c
}

// got asks the index everything.
func got(d *DB, first message.LogOffset, keys []string, step int) (content, error) {
	c := content{map[string][]Entry{}, map[string]string{}, map[string]string{}, map[string][]message.LogOffset{}}
	for _, topic := range d.Topics() {
		for _, q := range d.Queues(topic) {
			if q.Next() == 0 {
				continue
			}
			name := fmt.Sprintf("%s/%d", q.Topic(), q.ID())
			low := q.Min(first)
			c.Bounds[name] = fmt.Sprintf("%d-%d", low, q.Next())
			buf, reader := make([]Entry, step), Reader{Queue: q}
			defer reader.Close()
			for off := low; off < q.Next(); {
				n, err := reader.Read(off, buf)
				if err != nil {
					return c, fmt.Errorf("read %s %d: %w", name, off, err)
				}
				if n == 0 {
					return c, fmt.Errorf("read %s %d: nothing", name, off)
				}
				c.Queues[name] = append(c.Queues[name], buf[:n]...)
				off += message.QueueOffset(n)
			}
		}
	}
	for space := message.SpaceTopic; space <= message.SpaceBroker; space++ {
		for st, err := range d.Scan(space, nil, nil) {
			if err != nil {
				return c, err
			}
			c.State[fmt.Sprintf("%d/%s", space, st.Key)] = fmt.Sprintf("%d %s", st.Pos, st.Value)
		}
	}
	for _, key := range keys {
		topic, k, _ := bytes.Cut([]byte(key), []byte("#"))
		for pos, err := range d.FindKeys(KeyOrdinary, string(topic), string(k), first, 1<<62) {
			if err != nil {
				return c, err
			}
			c.Keys[key] = append(c.Keys[key], pos)
		}
	}
	return c, nil
}

// allKeys returns every key that was ever used.
func (l *modelLog) allKeys() []string {
	seen := map[string]bool{"none#none": true}
	for _, o := range l.ops {
		for _, k := range o.keys {
			seen[o.topic+"#"+k] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// compare fails unless d answers exactly what the log up to upTo says.
func (l *modelLog) compare(t failer, d *DB, upTo message.LogOffset, step int) {
	t.Helper()
	l.compareKeys(t, d, upTo, step, l.allKeys())
}

// compareSome is compare for a few of the keys only: each is looked up in every sidecar.
func (l *modelLog) compareSome(t failer, d *DB, upTo message.LogOffset, step int) {
	t.Helper()
	all := l.allKeys()
	var some []string
	for i := len(l.ops) % 7; i < len(all); i += 7 {
		some = append(some, all[i])
	}
	l.compareKeys(t, d, upTo, step, some)
}

func (l *modelLog) compareKeys(t failer, d *DB, upTo message.LogOffset, step int, keys []string) {
	t.Helper()
	have, err := got(d, l.first, keys, step)
	if err != nil {
		t.Fatalf("reading the index: %v", err)
	}
	want := l.want(upTo)
	maps.DeleteFunc(want.Keys, func(key string, _ []message.LogOffset) bool { return !slices.Contains(keys, key) })
	if !reflect.DeepEqual(want, have) { // cmp takes its time
		t.Fatalf("index differs at %d of %d (-want +got):\n%s", upTo, l.end, cmp.Diff(want, have))
	}
}

// compareQueues compares what must be an exact prefix: state may be newer.
func (l *modelLog) compareQueues(t failer, d *DB, upTo message.LogOffset, step int) {
	t.Helper()
	have, err := got(d, l.first, l.allKeys(), step)
	if err != nil {
		t.Fatalf("reading the index: %v", err)
	}
	want := l.want(upTo)
	want.State = have.State
	if !reflect.DeepEqual(want, have) { // cmp takes its time
		t.Fatalf("index differs at %d of %d (-want +got):\n%s", upTo, l.end, cmp.Diff(want, have))
	}
}

// dropOps forgets the ops before pos, as retention of the log does.
func (l *modelLog) dropOps(pos message.LogOffset) {
	i := sort.Search(len(l.ops), func(i int) bool { return l.ops[i].pos >= pos })
	for _, o := range l.ops[:i] {
		if o.kind == "add" {
			l.next[fmt.Sprintf("%s/%d", o.topic, o.queue)] = o.off + 1
		}
	}
	l.ops = l.ops[i:]
	l.first = pos
}

// newDisk returns a disk with a durable /data.
func newDisk(t failer) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	if err := errors.Join(fs.MkdirAll("/data", 0o755), disk.SyncDir(fs, "/")); err != nil {
		t.Fatalf("new disk: %v", err)
	}
	return fs
}

func mustOpen(t failer, fs vfs.FS, cfg Config) *DB {
	t.Helper()
	d, err := Open("/data/index", fs, cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return d
}

func mustClose(t failer, d *DB) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}
