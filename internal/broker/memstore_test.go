// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

var testStoreHost = netip.MustParseAddrPort("10.0.0.1:10911")

type memQueueKey struct {
	topic string
	id    int32
}

// memQueue is one queue: the positions of its messages' records, and who waits for more.
type memQueue struct {
	pos     []message.LogOffset
	first   message.QueueOffset // what is before it was dropped
	waiters []*memWaiter
}

type memWaiter struct {
	w      *store.Waiter
	beyond message.QueueOffset
}

// memStore is a store in memory with the contract of *store.Store. Appended writes wait until apply.
type memStore struct {
	mu       sync.Mutex
	refuse   error // returned by Append
	fail     error // given to Done of all that apply meets
	pending  []*store.Write
	records  map[message.LogOffset]message.Record
	end      message.LogOffset
	queues   map[memQueueKey]*memQueue
	live     map[string]string
	hooks    map[message.Space][]func(message.State)
	lastTime int64
	damaged  map[message.LogOffset]error
	writes   int // applied
}

func newMemStore() *memStore {
	return &memStore{
		records: map[message.LogOffset]message.Record{},
		queues:  map[memQueueKey]*memQueue{},
		live:    map[string]string{},
		hooks:   map[message.Space][]func(message.State){},
		damaged: map[message.LogOffset]error{},
	}
}

// setErrors makes Append, or the Done of what is applied, fail from here on.
func (s *memStore) setErrors(refuse, fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.fail = refuse, fail
}

// reopened is the store after a crash: what was not applied is gone.
func (s *memStore) reopened() *memStore {
	next := newMemStore()
	maps.Copy(next.records, s.records)
	maps.Copy(next.live, s.live)
	next.end = s.end
	for key, q := range s.queues {
		next.queues[key] = &memQueue{pos: slices.Clone(q.pos), first: q.first}
	}
	return next
}

func (s *memStore) Append(w *store.Write) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	for i := range w.Messages {
		if err := w.Messages[i].Validate(); err != nil {
			return err
		}
		w.Messages[i].StoreHost = testStoreHost
	}
	s.pending = append(s.pending, w)
	return nil
}

func (s *memStore) OnState(space message.Space, fn func(message.State)) {
	s.hooks[space] = append(s.hooks[space], fn)
}

// apply ends every pending write, also those that appear meanwhile, and returns their number.
func (s *memStore) apply() (n int) {
	for {
		s.mu.Lock()
		if len(s.pending) == 0 {
			s.mu.Unlock()
			return n
		}
		w := s.pending[0]
		s.pending = s.pending[1:]
		n++
		if err := s.fail; err != nil {
			s.mu.Unlock()
			w.Done(w, err)
			continue
		}
		woken := s.applyLocked(w)
		s.writes++
		s.mu.Unlock()
		for i := range w.State {
			for _, fn := range s.hooks[w.State[i].Space] {
				fn(w.State[i])
			}
		}
		if w.Done != nil {
			w.Done(w, nil)
		}
		for _, waiter := range woken {
			waiter.Wake(waiter)
		}
	}
}

func (s *memStore) applyLocked(w *store.Write) (woken []*store.Waiter) {
	s.lastTime = max(s.lastTime, time.Now().UnixMilli())
	next := map[memQueueKey]message.QueueOffset{}
	for i := range w.Messages {
		m := &w.Messages[i]
		key := memQueueKey{m.Topic, m.QueueID}
		if _, ok := next[key]; !ok {
			next[key] = s.queueLocked(key).next()
		}
		m.StoreTimestamp, m.QueueOffset = s.lastTime, next[key]
		next[key]++
	}
	if w.Assigned != nil {
		w.Assigned(w)
	}
	for i := range w.Messages {
		m := &w.Messages[i]
		m.LogOffset = s.end
		rec := m.AppendTo(nil)
		s.records[s.end] = rec
		q := s.queueLocked(memQueueKey{m.Topic, m.QueueID})
		q.pos = append(q.pos, s.end)
		s.end += message.LogOffset(len(rec))
		woken = append(woken, q.take()...)
	}
	for i := range w.State {
		st := &w.State[i]
		key := string(byte(st.Space)) + string(st.Key)
		if st.Delete {
			delete(s.live, key)
		} else {
			s.live[key] = string(st.Value)
		}
	}
	return woken
}

func (s *memStore) queueLocked(key memQueueKey) *memQueue {
	q := s.queues[key]
	if q == nil {
		key.topic = string([]byte(key.topic))
		q = &memQueue{}
		s.queues[key] = q
	}
	return q
}

func (q *memQueue) next() message.QueueOffset { return message.QueueOffset(len(q.pos)) }

func (q *memQueue) take() (woken []*store.Waiter) {
	q.waiters = slices.DeleteFunc(q.waiters, func(w *memWaiter) bool {
		if w.beyond >= q.next() {
			return false
		}
		woken = append(woken, w.w)
		return true
	})
	return woken
}

// remove is the deletion of a topic.
func (s *memStore) remove(topic string) {
	var woken []*store.Waiter
	s.mu.Lock()
	for key, q := range s.queues {
		if key.topic == topic {
			for _, w := range q.waiters {
				woken = append(woken, w.w)
			}
			delete(s.queues, key)
		}
	}
	s.mu.Unlock()
	for _, w := range woken {
		w.Wake(w)
	}
}

func (s *memStore) States(space message.Space, prefix []byte) iter.Seq2[message.State, error] {
	return s.StatesIn(space, prefix, index.KeyEnd(prefix))
}

func (s *memStore) StatesIn(space message.Space, from, to []byte) iter.Seq2[message.State, error] {
	return func(yield func(message.State, error) bool) { s.scanStates(space, from, to, yield) }
}

func (s *memStore) scanStates(space message.Space, from, to []byte, yield func(message.State, error) bool) {
	s.mu.Lock()
	var keys []string
	for key := range s.live {
		k := key[1:]
		if key[0] == byte(space) && k >= string(from) && (to == nil || k < string(to)) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = s.live[key]
	}
	s.mu.Unlock()
	for i, key := range keys {
		if !yield(message.State{Space: space, Key: []byte(key[1:]), Value: []byte(values[i])}, nil) {
			break
		}
	}
}

func (s *memStore) Bounds(topic string, queueID int32) (minimum, maximum message.QueueOffset, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[memQueueKey{topic, queueID}]
	if q == nil {
		return 0, 0, false
	}
	return q.first, q.next(), true
}

func (s *memStore) At(topic string, queueID int32, off message.QueueOffset) (message.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[memQueueKey{topic, queueID}]
	if q == nil || off < q.first || off >= q.next() {
		return nil, store.ErrNotFound
	}
	if err := s.damaged[q.pos[off]]; err != nil {
		return nil, err
	}
	return s.records[q.pos[off]], nil
}

func (s *memStore) Record(pos message.LogOffset) (message.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec, ok := s.records[pos]; ok {
		return rec, nil
	}
	return nil, store.ErrNotFound
}

func (s *memStore) ByKey(topic, key string, unique bool, limit int, begin, end int64) ([]message.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := message.PropertyKeys
	if unique {
		name = message.PropertyUniqueKey
	}
	var found []message.Record
	for _, pos := range slices.Backward(slices.Sorted(maps.Keys(s.records))) {
		rec := s.records[pos]
		value, _ := message.Property(rec.Properties(), name)
		at := rec.StoreTimestamp()
		if len(found) < limit && string(rec.Topic()) == topic && value == key && at >= begin && at <= end {
			found = append(found, rec)
		}
	}
	return found, nil
}

func (s *memStore) Fetch(req *store.FetchRequest) store.FetchResult {
	minimum, maximum, ok := s.Bounds(req.Topic, req.QueueID)
	res := store.FetchResult{Min: minimum, Max: maximum, Records: req.Into}
	switch {
	case !ok:
		res.Status = store.NoMatchedLogicQueue
	case maximum == 0:
		res.Status = store.NoMessageInQueue
	case req.From < minimum:
		res.Status, res.Next = store.OffsetTooSmall, minimum
	case req.From == maximum:
		res.Status, res.Next = store.OffsetOverflowOne, req.From
	case req.From > maximum:
		res.Status, res.Next = store.OffsetOverflowBadly, maximum
	default:
		s.scan(req, &res)
	}
	return res
}

func (s *memStore) scan(req *store.FetchRequest, res *store.FetchResult) {
	res.Status, res.Next = store.NoMatchedMessage, req.From
	scan := req.MaxScan
	if scan == 0 {
		scan = store.DefaultFetchScan
	}
	for ; res.Next < res.Max && res.Next < req.From+message.QueueOffset(scan); res.Next++ {
		rec, err := s.At(req.Topic, req.QueueID, res.Next)
		if err != nil && len(res.Records) == len(req.Into) {
			res.Status, res.Err, res.Next = store.Damaged, err, res.Next+1
			return
		}
		full := len(res.Records)-len(req.Into) >= req.MaxCount || res.Bytes > 0 && res.Bytes+len(rec) > req.MaxBytes
		if err != nil || full {
			return
		}
		tag, _ := message.Property(rec.Properties(), message.PropertyTags)
		if req.Match != nil && !req.Match(message.TagsCode(tag)) || req.MatchRecord != nil && !req.MatchRecord(rec) {
			continue
		}
		res.Status = store.Found
		res.Records = append(res.Records, rec)
		res.Bytes += len(rec)
	}
}

func (s *memStore) Await(topic string, queueID int32, beyond message.QueueOffset, w *store.Waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queueLocked(memQueueKey{topic, queueID})
	if q.next() > beyond {
		return false
	}
	q.waiters = append(q.waiters, &memWaiter{w, beyond})
	return true
}

func (s *memStore) Cancel(w *store.Waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		for i, waiter := range q.waiters {
			if waiter.w == w {
				q.waiters = slices.Delete(q.waiters, i, i+1)
				return true
			}
		}
	}
	return false
}

func (s *memStore) endOfLog() message.LogOffset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// waiting returns how many wait for queues.
func (s *memStore) waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		n += len(q.waiters)
	}
	return n
}

// discard stores nothing and is done at once.
type discard struct{ *memStore }

func (discard) Append(w *store.Write) error {
	w.Done(w, nil)
	return nil
}
