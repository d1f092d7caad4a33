// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// TestModel runs random scripts against a log and against a list of what it must hold. The seed is the
// subtest's name and enough to run a script again.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := &model{t: t, random: rand.New(rand.NewPCG(seed, 7)), disk: newFaultyDisk(-1)}
			m.reset = make(chan struct{}, 1000)
			m.cfg = testConfig(t)
			m.cfg.Disk.Interval = time.Millisecond
			m.cfg.RingBytes = 1 << (10 + m.random.IntN(8))
			m.cfg.CacheBytes = 1 << (10 + m.random.IntN(8))
			m.disk.install(&m.cfg)
			m.open()
			for range 60 {
				m.step()
				if t.Failed() {
					return
				}
			}
			m.r.mustHalt()
			report, err := Verify(t.Context(), vfs.Default, m.cfg.Dir, nil)
			if err != nil || report.FaultCount+report.TornBytes > 0 {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

type model struct {
	t      *testing.T
	random *rand.Rand
	cfg    Config
	disk   *faultyDisk
	reset  chan struct{}
	r      *running

	count int
	names []string // stored and not dropped
	at    map[string]message.LogOffset
	size  map[string]int
}

func (m *model) open() {
	l, err := Open(m.cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.at == nil {
		m.at, m.size = map[string]message.LogOffset{}, map[string]int{}
	}
	if got := names(m.t, l); !slices.Equal(got, m.names) {
		m.t.Fatalf("opened with %v, want %v", got, m.names)
	}
	m.r = runWith(m.t, l, Handler{Reset: func() { m.reset <- struct{}{} }})
}

func (m *model) step() {
	switch n := m.random.IntN(20); {
	case n < 9:
		m.store()
	case n < 14:
		m.read()
	case n == 14:
		if err := m.r.Roll(m.t.Context()); err != nil {
			m.t.Error(err)
		}
	case n == 15:
		m.drop()
	case n == 16:
		m.r.mustHalt()
		m.open()
	case n == 17:
		m.cfg.Dir = copyDir(m.t, m.cfg.Dir)
		m.r.mustHalt()
		m.open()
	default:
		m.fail()
	}
}

func (m *model) next() *testGroup {
	m.count++
	name := fmt.Sprintf("g%04d", m.count)
	size := m.random.IntN(300)
	if m.random.IntN(4) == 0 {
		size = m.random.IntN(30_000)
	}
	return newGroup(name, stateRecord(name, size))
}

// store appends some groups at once.
func (m *model) store() {
	var all []*testGroup
	for range 1 + m.random.IntN(20) {
		g := m.next()
		if err := m.r.Append(g, g.size(), false); err != nil {
			m.t.Fatal(err)
		}
		all = append(all, g)
	}
	for _, g := range all {
		pos, err := g.wait()
		if err != nil {
			m.t.Fatal(err)
		}
		m.note(g, pos)
	}
}

func (m *model) note(g *testGroup, pos message.LogOffset) {
	m.names = append(m.names, g.name)
	m.at[g.name], m.size[g.name] = pos, g.size()
}

func (m *model) read() {
	if len(m.names) == 0 {
		return
	}
	name := m.names[m.random.IntN(len(m.names))]
	rec, err := m.r.Read(m.at[name], m.size[name]*m.random.IntN(2))
	if err != nil || recordName(rec) != name {
		m.t.Errorf("read %s at %d: %v", name, m.at[name], err)
	}
}

func (m *model) drop() {
	if err := m.r.Drop(1 + m.random.IntN(2)); err != nil {
		m.t.Error(err)
	}
	first := m.r.First()
	m.names = slices.DeleteFunc(m.names, func(name string) bool { return m.at[name] < first })
}

// fail lets a write or a sync fail while some groups are stored, then heals the disk.
func (m *model) fail() {
	m.disk.damage = damage(m.random.IntN(3))
	kind := []string{"write", "sync"}[m.random.IntN(2)]
	m.disk.breakFrom([]error{errInjected, syscall.ENOSPC}[m.random.IntN(2)], kind)
	var all []*testGroup
	for range 1 + m.random.IntN(5) {
		g := m.next()
		if err := m.r.Append(g, g.size(), false); err != nil {
			break // the first one has failed already
		}
		all = append(all, g)
	}
	for _, g := range all {
		if pos, err := g.wait(); err == nil {
			m.note(g, pos) // a full segment is synced by the library's write
		}
	}
	if ok, _ := m.r.Health(); ok { // a segment was full: nothing failed before the next write
		g := m.next()
		if pos, err := m.r.store(g); err == nil {
			m.note(g, pos)
		} else if !errors.As(err, new(*BrokenError)) && !errors.As(err, new(*DiskFullError)) {
			m.t.Error(err)
		}
	}
	m.disk.heal()
	for ok, _ := m.r.Health(); !ok; ok, _ = m.r.Health() {
		<-m.reset
	}
}
