// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/message"
)

// machine is the model test: random changes, checkpoints, crashes, drops and rebuilds; the index must always
// answer what the log says.
type machine struct {
	fs   *vfs.MemFS
	cfg  Config
	log  modelLog
	d    *DB
	next map[string]message.QueueOffset
	step int
}

func (m *machine) apply(t *rapid.T, o op) {
	if err := apply(m.d, m.log.append(o)); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

func (m *machine) add(t *rapid.T) {
	topic := fmt.Sprintf("t%d", rapid.IntRange(0, 3).Draw(t, "topic"))
	queue := rapid.Int32Range(0, 2).Draw(t, "queue")
	name := fmt.Sprintf("%s/%d", topic, queue)
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "entries"), 1))
	for range rapid.SampledFrom([]int{1, 1, 3, 130, 260}).Draw(t, "count") {
		o := op{
			kind: "add", topic: topic, queue: queue, off: m.next[name],
			size: 91 + rng.Int32N(300), tags: int64(rng.Uint64() >> rng.IntN(64)),
		}
		for range rng.IntN(3) {
			o.keys = append(o.keys, fmt.Sprintf("k%d", rng.IntN(12)))
		}
		m.next[name]++
		m.apply(t, o)
	}
}

func (m *machine) state(t *rapid.T) {
	s := message.State{
		Space:  message.Space(rapid.IntRange(1, 9).Draw(t, "space")),
		Key:    fmt.Appendf(nil, "s%d", rapid.IntRange(0, 9).Draw(t, "name")),
		Delete: rapid.Bool().Draw(t, "delete"),
	}
	o := op{kind: "delete", state: s, size: 30}
	if !s.Delete {
		o.kind = "put"
		o.state.Value = fmt.Appendf(nil, "v%d", rapid.IntRange(0, 9).Draw(t, "value"))
	}
	m.apply(t, o)
}

func (m *machine) deleteTopic(t *rapid.T) {
	topic := fmt.Sprintf("t%d", rapid.IntRange(0, 3).Draw(t, "topic"))
	for q := range 3 {
		delete(m.next, fmt.Sprintf("%s/%d", topic, q))
	}
	m.apply(t, op{kind: "deleteTopic", topic: topic, size: 20})
}

func (m *machine) sync(t *rapid.T) {
	if err := errors.Join(m.d.Checkpoint(m.log.end), m.d.Sync()); err != nil {
		t.Fatalf("sync: %v", err)
	}
	if m.d.Applied() != m.log.end {
		t.Fatalf("applied is %d after sync, want %d", m.d.Applied(), m.log.end)
	}
}

func (m *machine) crash(t *rapid.T) {
	seed := rapid.Uint64().Draw(t, "seed")
	durable := m.d.Applied()
	percent := rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced percent")
	disk := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 1))})
	mustClose(t, m.d)
	m.fs = disk
	m.reopen(t)
	if m.d.Applied() < durable {
		t.Fatalf("applied is %d after a crash, was %d before", m.d.Applied(), durable)
	}
}

func (m *machine) restart(t *rapid.T) {
	mustClose(t, m.d)
	m.reopen(t)
	if m.d.Applied() != m.log.end {
		t.Fatalf("applied is %d after close, want %d", m.d.Applied(), m.log.end)
	}
}

func (m *machine) reopen(t *rapid.T) {
	m.d = mustOpen(t, m.fs, m.cfg)
	if m.d.High() > m.log.end || m.d.High() < m.d.Applied() {
		t.Fatalf("high is %d with applied %d, log end %d", m.d.High(), m.d.Applied(), m.log.end)
	}
	m.log.compareQueues(t, m.d, max(m.d.Applied(), m.log.first), m.step)
	if err := m.log.replay(m.d, m.d.Applied()); err != nil {
		t.Fatalf("replay: %v", err)
	}
}

func (m *machine) drop(t *rapid.T) {
	applied := m.d.Applied()
	if applied <= m.log.first {
		return
	}
	pos := message.LogOffset(rapid.Int64Range(int64(m.log.first), int64(applied)).Draw(t, "pos"))
	// State in the dropped range has been carried forward by the store; here it is simply kept.
	for _, o := range m.log.ops {
		if o.pos < pos && (o.kind == "put" || o.kind == "deleteTopic") {
			return
		}
	}
	m.log.dropOps(pos)
	if rapid.Bool().Draw(t, "ask first") {
		m.log.compare(t, m.d, m.log.end, m.step)
	}
	if err := m.d.DropBefore(pos); err != nil {
		t.Fatalf("drop: %v", err)
	}
}

func (m *machine) rebuild(t *rapid.T) {
	mustClose(t, m.d)
	if err := Wipe("/data/index", m.fs); err != nil {
		t.Fatalf("wipe: %v", err)
	}
	m.d = mustOpen(t, m.fs, m.cfg)
	// Queues whose messages have all expired: the store knows their next offsets from state.
	for name, next := range m.next {
		topic, queue := name[:2], int32(name[3]-'0')
		first := next
		for _, o := range m.log.ops {
			if o.kind == "add" && o.topic == topic && o.queue == queue {
				first = o.off
				break
			}
		}
		m.d.Queue(topic, queue).Start(first)
	}
	if err := m.log.replay(m.d, 0); err != nil {
		t.Fatalf("replay: %v", err)
	}
	m.sync(t) // what Start said is not in the log here
}

func (m *machine) check(t *rapid.T) {
	if m.d.Err() != nil {
		t.Fatalf("index is not well: %v", m.d.Err())
	}
	m.log.compareSome(t, m.d, m.log.end, m.step)
	if missing := m.d.MissingKeys(m.log.first); len(missing) != 0 {
		t.Fatalf("keys are missing: %v", missing)
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{
			fs:   newDisk(t),
			next: map[string]message.QueueOffset{},
			log:  modelLog{next: map[string]message.QueueOffset{}},
			cfg: Config{
				CheckpointBytes: rapid.SampledFrom([]int64{2000, 8000, 100_000}).Draw(t, "checkpoint bytes"),
			},
			step: rapid.SampledFrom([]int{1, 7, 32, 500}).Draw(t, "read step"),
		}
		m.d = mustOpen(t, m.fs, m.cfg)
		defer func() { mustClose(t, m.d) }()
		t.Repeat(map[string]func(*rapid.T){
			"add": m.add, "add again": m.add, "state": m.state, "delete topic": m.deleteTopic, "sync": m.sync,
			"crash": m.crash, "restart": m.restart, "drop": m.drop, "rebuild": m.rebuild, "": m.check,
		})
	})
}
