// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// DataVersion grows with every change of a table, so that others can tell whether they have seen it.
// Source: DataVersion.java.
type DataVersion struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms
}

// versionName is the name under which a table keeps its DataVersion. No name that is accepted anywhere starts
// with a zero byte: such keys are other tables' of the same space.
const versionName = "\x00dataVersion"

// table is a set of named configs that live in the log: a state record each (key: prefix and name; value:
// JSON) and one for the table's DataVersion. What readers see is what the applier applied, in log order; it
// is read without a lock. A change is computed from the newest proposed value and appended under mu, so that
// the order of the log is the order in which changes were computed.
type table[V any] struct {
	space   message.Space
	prefix  string // of state keys: empty, or starting with a zero byte
	journal store.Journal
	log     *slog.Logger
	live    *xsync.Map[string, *V]
	version atomic.Pointer[DataVersion]
	changed []func(names []string) // registered before the store runs
	heads   atomic.Int32           // so many there are

	mu struct {
		sync.Mutex
		heads   map[string]*head[V]
		version DataVersion // the newest proposed one
	}
}

// head is the newest proposed value of a name, kept while its change is on the way, and until all who waited for it
// have been told.
type head[V any] struct {
	value    *V // nil: deleted
	inFlight int
	newest   *edition // that proposed it
}

// edition is one call of edit: it ends when all that it waits for has ended.
type edition struct {
	left    int
	err     error
	done    func(error)
	waiting []*edition // edits that found nothing to change but what this one changes
}

// edit is one change of one name. next makes the new value out of the current one (nil: there is none). It
// returns nil to delete, and cur to change nothing. It must not keep or change what cur points to. with, if
// set, says what has to be stored along with the change; it is asked only if there is one.
type edit[V any] struct {
	name string
	next func(cur *V) (*V, error)
	with func(cur, next *V) companion
}

// companion is what is stored along with a change; those of settle are called with the outcome.
type companion struct {
	states []message.State
	settle []func(error)
}

// add makes o go along too.
func (c *companion) add(o companion) {
	c.states, c.settle = append(c.states, o.states...), append(c.settle, o.settle...)
}

// plan is what the edits of one call come to.
type plan[V any] struct {
	proposed  map[string]*V
	states    []message.State // the first one is the table's version
	unchanged []*edition      // the changes on the way of names without one of their own
	settle    []func(error)
}

// openTable loads a table over the given defaults, and subscribes it to changes: before the store runs.
func openTable[V any](
	space message.Space, prefix string, journal store.Journal, log *slog.Logger, defaults map[string]*V,
) (*table[V], error) {
	t := &table[V]{space: space, prefix: prefix, journal: journal, log: log, live: xsync.NewMap[string, *V]()}
	t.mu.heads = map[string]*head[V]{}
	t.version.Store(&DataVersion{})
	if err := t.load(defaults); err != nil {
		return nil, err
	}
	journal.OnState(space, t.apply)
	return t, nil
}

// name returns the name that a state key belongs to, if it is this table's.
func (t *table[V]) name(key []byte) (string, bool) {
	name, ok := strings.CutPrefix(string(key), t.prefix)
	return name, ok && (!strings.HasPrefix(name, "\x00") || name == versionName)
}

// load reads the stored configs over the given ones.
func (t *table[V]) load(defaults map[string]*V) error {
	for name, v := range defaults {
		t.live.Store(name, v)
	}
	for st, err := range t.journal.States(t.space, []byte(t.prefix)) {
		if err == nil {
			err = t.take(st)
		}
		if err != nil {
			return fmt.Errorf("load table %d: %w", t.space, err)
		}
	}
	t.mu.version = *t.version.Load()
	return nil
}

// take takes a stored state over into what readers see, if it is this table's.
func (t *table[V]) take(st message.State) error {
	name, own := t.name(st.Key)
	switch {
	case !own:
	case name == versionName:
		v := new(DataVersion)
		if err := json.Unmarshal(st.Value, v); err != nil {
			return fmt.Errorf("decode data version: %w", err)
		}
		t.version.Store(v)
	case st.Delete:
		t.live.Delete(name)
	default:
		v := new(V)
		if err := json.Unmarshal(st.Value, v); err != nil {
			return fmt.Errorf("decode config of %q: %w", st.Key, err)
		}
		t.live.Store(name, v)
	}
	return nil
}

// apply takes one change over into what readers see. Applier only.
func (t *table[V]) apply(st message.State) {
	name, own := t.name(st.Key)
	if old, known := t.live.Load(name); known && !st.Delete {
		if value, err := json.Marshal(old); err == nil && bytes.Equal(value, st.Value) {
			return // carried forward by the store's retention: nothing new
		}
	}
	if err := t.take(st); err != nil {
		t.log.Error("stored state cannot be decoded", "error", err)
		return
	}
	if !own || name == versionName {
		return
	}
	for _, fn := range t.changed {
		fn([]string{name})
	}
}

// edit makes changes durable in one write. done is called exactly once: on the caller's goroutine when there
// was nothing to store or something was refused (then nothing is changed), else by the applier after readers
// see the change, or with the reason why it is not stored.
func (t *table[V]) edit(edits []edit[V], done func(error)) {
	e := &edition{done: done}
	p := plan[V]{proposed: make(map[string]*V, len(edits)), states: make([]message.State, 1, len(edits)+1)}
	t.mu.Lock()
	err := t.planLocked(&p, edits)
	if err == nil && len(p.proposed) > 0 {
		err = t.appendLocked(e, &p)
	}
	for _, other := range p.unchanged {
		if err == nil {
			e.left++
			other.waiting = append(other.waiting, e)
		}
	}
	finished := e.left == 0
	t.mu.Unlock()
	if err != nil {
		settleAll(p.settle, err)
	}
	if finished {
		done(err)
	}
}

// change is an edit of one name.
func (t *table[V]) change(name string, next func(cur *V) (*V, error), done func(error)) {
	t.edit([]edit[V]{{name: name, next: next}}, done)
}

// ensure is an edit after which done gets the value; missing is the error when it was deleted in between.
func (t *table[V]) ensure(ed edit[V], missing func(name string) error, done func(*V, error)) {
	ed.name = strings.Clone(ed.name)
	t.edit([]edit[V]{ed}, func(err error) {
		v, ok := t.live.Load(ed.name)
		switch {
		case err != nil:
			done(nil, err)
		case !ok:
			done(nil, missing(ed.name))
		default:
			done(v, nil)
		}
	})
}

func (t *table[V]) planLocked(p *plan[V], edits []edit[V]) error {
	for _, ed := range edits {
		name := strings.Clone(ed.name)
		cur, other := t.newestLocked(name)
		if v, ok := p.proposed[name]; ok {
			cur = v
		}
		next, err := ed.next(cur)
		if err != nil {
			return err
		}
		if next == cur {
			if other != nil {
				p.unchanged = append(p.unchanged, other)
			}
			continue
		}
		st, err := message.JSONState(t.space, t.prefix+name, next)
		if err != nil {
			return err
		}
		p.states = append(p.states, st)
		p.proposed[name] = next
		if ed.with != nil {
			c := ed.with(cur, next)
			p.states = append(p.states, c.states...)
			p.settle = append(p.settle, c.settle...)
		}
	}
	return nil
}

// appendLocked hands the plan to the store and notes the proposed values. The applier's Done waits for mu, so
// heads are there before it looks for them.
func (t *table[V]) appendLocked(e *edition, p *plan[V]) error {
	version := DataVersion{Counter: t.mu.version.Counter + 1, Timestamp: time.Now().UnixMilli()}
	st, err := message.JSONState(t.space, t.prefix+versionName, &version)
	if err != nil {
		return err
	}
	p.states[0] = st
	w := &store.Write{State: p.states}
	names := slices.Collect(maps.Keys(p.proposed))
	w.Done = func(_ *store.Write, err error) {
		settleAll(p.settle, err)
		t.settle(e, names, err)
	}
	if err := t.journal.Append(w); err != nil {
		return err
	}
	t.mu.version = version
	e.left++
	for name, v := range p.proposed {
		h := t.mu.heads[name]
		if h == nil {
			h = &head[V]{}
			t.mu.heads[name] = h
			t.heads.Add(1)
		}
		h.value, h.newest = v, e
		h.inFlight++
	}
	return nil
}

// store stores c by itself; done is called as the table's methods say.
func (c *companion) store(journal store.Journal, done func(error)) {
	w := &store.Write{State: c.states}
	w.Done = func(_ *store.Write, err error) { settleAll(append(c.settle, done), err) }
	if len(c.states) == 0 {
		w.Done(w, nil)
	} else if err := journal.Append(w); err != nil {
		w.Done(w, err)
	}
}

func settleAll(settle []func(error), err error) {
	for _, fn := range settle {
		fn(err)
	}
}

// settle ends one write. Who made it is told first, then those who waited for it, in the order they came; who comes
// before all are told waits too, so that nobody passes another. Applier only.
func (t *table[V]) settle(e *edition, names []string, err error) {
	t.mu.Lock()
	for _, name := range names {
		h := t.mu.heads[name]
		if h.inFlight--; h.inFlight == 0 {
			h.value, _ = t.live.Load(name) // what was proposed, unless that failed
		}
	}
	for turn := append([]*edition{e}, e.waiting...); len(turn) > 0; turn = e.waiting {
		e.waiting = nil
		finished := turn[:0]
		for _, one := range turn {
			one.err = errors.Join(one.err, err)
			if one.left--; one.left == 0 {
				finished = append(finished, one)
			}
		}
		t.mu.Unlock()
		for _, one := range finished {
			one.done(one.err)
		}
		t.mu.Lock()
		err = nil // is no concern of those who came since
	}
	for _, name := range names {
		if t.mu.heads[name].inFlight == 0 {
			delete(t.mu.heads, name)
			t.heads.Add(-1)
		}
	}
	t.mu.Unlock()
}

// settled returns the value of a name, unless there is none, or somebody waits for a change of it: then an edit
// waits as well. It takes no lock and does not allocate while nothing changes.
func (t *table[V]) settled(name string) (*V, bool) {
	if t.heads.Load() > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.mu.heads[name] != nil {
			return nil, false
		}
	}
	return t.live.Load(name)
}

// newestLocked returns the newest proposed or applied value, and who proposed it if that has not ended.
func (t *table[V]) newestLocked(name string) (*V, *edition) {
	if h := t.mu.heads[name]; h != nil {
		return h.value, h.newest
	}
	v, _ := t.live.Load(name)
	return v, nil
}

// sorted returns all names, in order, and their values.
func (t *table[V]) sorted() ([]string, map[string]*V) {
	live := xsync.ToPlainMap(t.live)
	return slices.Sorted(maps.Keys(live)), live
}

// all returns every value, ordered by name.
func (t *table[V]) all() []*V {
	names, live := t.sorted()
	all := make([]*V, len(names))
	for i, name := range names {
		all[i] = live[name]
	}
	return all
}
