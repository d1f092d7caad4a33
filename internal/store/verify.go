// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"slices"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// maxFaults bounds the faults a Report holds; all are counted.
const maxFaults = 100

// Report is what Verify found.
type Report struct {
	Log      commitlog.Report
	Messages uint64 // message records in the log
	States   uint64 // state records in the log
	// NotIndexed are records that the index has not applied yet: the next start replays them. No fault.
	NotIndexed uint64
	// IndexMissing says that there is no index: the next start builds it. No fault.
	IndexMissing bool
	QueueEntries uint64 // entries of queues compared with the log
	LiveStates   uint64 // keys of state compared with the log
	Keys         uint64 // keys of messages in sidecars compared with the log
	// Faults are the first of what does not fit, at most 100; FaultCount counts all.
	Faults     []error
	FaultCount uint64
}

// OK reports whether nothing is wrong.
func (r *Report) OK() bool { return r.FaultCount == 0 && r.Log.FaultCount == 0 }

func (r *Report) fault(format string, args ...any) {
	r.FaultCount++
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, fmt.Errorf(format, args...))
	}
}

// Verify checks a store that nobody has open: every checksum of the log, and that index and log say the
// same, both ways: each message of the log has its queue entry and its keys, and there is no queue entry
// and no state beside those. The log is not changed. The error is about the checking; what does not fit is
// in the Report.
func Verify(ctx context.Context, cfg Config) (rep Report, err error) {
	cfg.setDefaults()
	v := verifier{
		rep: &rep, seed: maphash.MakeSeed(),
		queues: make(map[queueKey]*checkedQueue), states: make(map[string]*checkedState),
	}
	if err := v.openIndex(&cfg); err != nil {
		return rep, err
	}
	if v.db != nil {
		defer func() { err = errors.Join(err, v.db.Close()) }()
	}
	if rep.Log, err = commitlog.Verify(ctx, cfg.Log.FS, cfg.Log.Dir, v.entry); err != nil {
		return rep, err
	}
	if v.db == nil {
		return rep, nil
	}
	if v.db.High() > rep.Log.End || (v.db.Applied() < rep.Log.First && v.db.High() > 0) {
		rep.fault("index (applied %d, high %d) does not fit the log [%d, %d): the next start rebuilds it",
			v.db.Applied(), v.db.High(), rep.Log.First, rep.Log.End)
		return rep, nil
	}
	v.compareKeys(rep.Log.First)
	v.compareQueues()
	return rep, v.compareStates()
}

// verifier walks the log once and compares each record with the index as it goes.
type verifier struct {
	rep    *Report
	db     *index.DB // nil when there is none
	keys   *index.KeyComparer
	seed   maphash.Seed
	queues map[queueKey]*checkedQueue
	states map[string]*checkedState
}

// openIndex opens the index, if there is one that can be opened.
func (v *verifier) openIndex(cfg *Config) error {
	_, err := cfg.FS.Stat(cfg.indexDir())
	if errors.Is(err, fs.ErrNotExist) {
		v.rep.IndexMissing = true
		return nil
	}
	if err != nil {
		return err
	}
	v.db, err = index.Open(cfg.indexDir(), cfg.FS, cfg.Index)
	if _, corrupt := errors.AsType[*index.CorruptError](err); corrupt {
		v.rep.fault("%w", err)
		v.rep.IndexMissing = true
		return nil
	}
	return err
}

// checkedQueue is what the log says of a queue, since the last deletion of its topic.
type checkedQueue struct {
	matched uint64 // messages whose entry is in the index
	faults  []error
	missing uint64
	ahead   []index.Entry // entries read and not compared yet
	buf     [64]index.Entry
}

// checkedState is what the log says of a key.
type checkedState struct {
	applied stateVersion   // the last change the index must know
	later   []stateVersion // changes it may know
}

type stateVersion struct {
	pos  message.LogOffset
	live bool
	hash uint64 // of the value
}

func (v *verifier) entry(e commitlog.Entry) error {
	if v.keys == nil && v.db != nil {
		v.keys = v.db.CompareKeys(e.Position)
	}
	return e.Each(func(pos message.LogOffset, rec []byte) error {
		r := message.Record(rec)
		known := v.db != nil && e.Position < v.db.Applied()
		if !known && v.db != nil {
			v.rep.NotIndexed++
		}
		switch {
		case r.IsMessage():
			v.rep.Messages++
			v.message(pos, r, known)
		case r.IsState():
			v.rep.States++
			v.state(pos, rec, known)
		default:
			v.rep.fault("record at log position %d has the unknown magic %#08x", pos, r.Magic())
		}
		return nil
	})
}

func (v *verifier) message(pos message.LogOffset, r message.Record, known bool) {
	if err := r.Check(); err != nil {
		v.rep.fault("message at log position %d: %w", pos, err)
		return
	}
	if r.LogOffset() != pos {
		v.rep.fault("message at log position %d states the position %d", pos, r.LogOffset())
	}
	if !known {
		return
	}
	messageKeys(v.keys.Add, pos, r)
	if !message.IsQueued(r.SysFlag()) {
		return
	}
	key := queueKey{string(r.Topic()), r.QueueID()}
	q := v.queues[key]
	if q == nil {
		q = &checkedQueue{}
		v.queues[key] = q
	}
	want := index.Entry{
		Offset: r.QueueOffset(), Pos: pos, Size: int32(len(r)),
		TagsCode: message.TagsCode(indexed(r.Properties()).tags),
	}
	if err := q.compare(v.db.LookupQueue(key.topic, key.id), want); err != nil {
		q.missing++
		if len(q.faults) < maxFaults {
			q.faults = append(q.faults, fmt.Errorf("topic %s queue %d: message %d at log position %d: %w",
				key.topic, key.id, want.Offset, pos, err))
		}
		return
	}
	q.matched++
}

// compare looks whether the index has the entry.
func (q *checkedQueue) compare(idx *index.Queue, want index.Entry) error {
	if idx == nil {
		return errors.New("the queue is not in the index")
	}
	if len(q.ahead) == 0 || q.ahead[0].Offset != want.Offset {
		n, err := idx.Read(want.Offset, q.buf[:])
		if err != nil {
			return err
		}
		q.ahead = q.buf[:n]
	}
	if len(q.ahead) == 0 {
		return errors.New("not in the index")
	}
	got := q.ahead[0]
	q.ahead = q.ahead[1:]
	if got != want {
		return fmt.Errorf("the index has %+v, the log %+v", got, want)
	}
	return nil
}

func (v *verifier) state(pos message.LogOffset, rec []byte, known bool) {
	st, err := message.DecodeState(rec)
	if err != nil {
		v.rep.fault("state record at log position %d: %w", pos, err)
		return
	}
	if topic, ok := deletedTopic(&st); ok {
		v.deleteTopic(topic, pos, known)
		return
	}
	key := guardKey(&st)
	c := v.states[key]
	if c == nil {
		c = &checkedState{}
		v.states[key] = c
	}
	c.change(stateVersion{pos: pos, live: !st.Delete, hash: maphash.Bytes(v.seed, st.Value)}, known)
}

func (c *checkedState) change(version stateVersion, known bool) {
	if known {
		c.applied = version
	} else {
		c.later = append(c.later, version)
	}
}

// deleteTopic forgets what was compared of the topic's queues, and its floors.
func (v *verifier) deleteTopic(topic string, pos message.LogOffset, known bool) {
	if known {
		maps.DeleteFunc(v.queues, func(key queueKey, _ *checkedQueue) bool { return key.topic == topic })
	}
	prefix := guardKey(&message.State{Space: message.SpaceBroker, Key: floorPrefix(topic)})
	for key, c := range v.states {
		if len(key) == len(prefix)+4 && key[:len(prefix)] == prefix {
			c.change(stateVersion{pos: pos}, known)
		}
	}
}

// compareKeys ends the comparison of keys.
func (v *verifier) compareKeys(first message.LogOffset) {
	if v.keys == nil {
		return
	}
	var errs []error
	v.rep.Keys, errs = v.keys.Close()
	for _, err := range errs {
		v.rep.fault("%w", err)
	}
	for _, missing := range v.db.MissingKeys(first) {
		v.rep.fault("keys of the log positions [%d, %d) are missing: the next start rebuilds them",
			missing.From, missing.To)
	}
}

// compareQueues looks for entries of the index that no message of the log stands behind.
func (v *verifier) compareQueues() {
	for _, q := range v.queues {
		for _, err := range q.faults {
			v.rep.fault("%w", err)
		}
		v.rep.FaultCount += q.missing - uint64(len(q.faults))
	}
	for _, topic := range v.db.Topics() {
		for _, idx := range v.db.Queues(topic) {
			entries := uint64(idx.Next() - min(idx.Min(v.rep.Log.First), idx.Next()))
			v.rep.QueueEntries += entries
			var matched uint64
			if q := v.queues[queueKey{topic, idx.ID()}]; q != nil {
				matched = q.matched
			}
			if matched != entries {
				v.rep.fault("topic %s queue %d: the index has %d entries, %d have a message in the log",
					topic, idx.ID(), entries, matched)
			}
		}
	}
}

// compareStates compares the state of the index with that of the log.
func (v *verifier) compareStates() error {
	seen := make(map[string]struct{})
	for space := range 256 {
		for st, err := range v.db.Scan(message.Space(space), nil, nil) {
			if err != nil {
				return err
			}
			v.rep.LiveStates++
			id := guardKey(&message.State{Space: message.Space(space), Key: st.Key})
			seen[id] = struct{}{}
			got := stateVersion{pos: st.Pos, live: true, hash: maphash.Bytes(v.seed, st.Value)}
			if c := v.states[id]; c == nil || !c.has(got) {
				v.rep.fault("state %d/%q: the index has a value from log position %d, the log has not",
					space, st.Key, st.Pos)
			}
		}
	}
	for id, c := range v.states {
		if _, ok := seen[id]; !ok && c.applied.live && !c.mayBeGone() {
			v.rep.fault("state %d/%q of log position %d is not in the index", id[0], id[1:], c.applied.pos)
		}
	}
	return nil
}

func (c *checkedState) has(got stateVersion) bool {
	return c.applied == got || slices.Contains(c.later, got)
}

func (c *checkedState) mayBeGone() bool {
	return slices.ContainsFunc(c.later, func(later stateVersion) bool { return !later.live })
}
