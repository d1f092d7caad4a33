// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"cmp"
	"errors"
	"runtime/debug"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// Bounds of a Fetch whose request leaves them 0. Source: MessageStoreConfig
// maxTransferCountOnMessageInMemory, maxTransferBytesOnMessageInMemory, maxFilterMessageSize; that is 800
// entries, after which a request would cost as much as what it looked at.
const (
	DefaultFetchCount = 32
	DefaultFetchBytes = 256 << 10
	DefaultFetchScan  = 3200

	fetchScanBytes = 16 << 20 // records whose filter has to look at them: no request reads more
	fetchChunk     = 32       // queue entries read from the index at once
)

// FetchStatus is the outcome of a Fetch. String gives the original's name of it.
type FetchStatus uint8

// Outcomes of a Fetch, and where Next then is. Source: DefaultMessageStore.getMessage.
const (
	// Found: at least one record. Next follows the last entry looked at.
	Found FetchStatus = iota
	// NoMatchedMessage: entries were looked at, none matched. Next follows the last one looked at.
	NoMatchedMessage
	// MessageWasRemoving: retention dropped the records meanwhile. Next is the new minimum, or follows what
	// is gone.
	MessageWasRemoving
	// NoMatchedLogicQueue: nothing was ever stored in this queue, or its topic was deleted. Next is 0.
	NoMatchedLogicQueue
	// NoMessageInQueue: the queue exists with maximum 0. Next is 0.
	NoMessageInQueue
	// OffsetTooSmall: From is below the minimum. Next is the minimum.
	OffsetTooSmall
	// OffsetOverflowOne: From is the maximum: the reader has everything. Next is From.
	OffsetOverflowOne
	// OffsetOverflowBadly: From is beyond the maximum. Next is the maximum.
	OffsetOverflowBadly
	// Damaged: the next record to return can not be read. Err is a *DamagedError that names file and
	// position. Next follows the damaged run, so that a reader who was told of the loss can go on with the
	// rest of the queue. Records in front of the damage are returned first, as Found, with Next at the
	// damage.
	Damaged
	// Unreadable: the queue's index can not be read. Err says why; Next is From. It is not the log that is
	// damaged.
	Unreadable
)

// String returns the original's name of the outcome, which a pull response carries as its remark.
func (s FetchStatus) String() string {
	return [...]string{
		"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE",
		"OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY", "DAMAGED", "UNREADABLE",
	}[s]
}

// FetchRequest asks for records of one queue.
type FetchRequest struct {
	Topic   string
	QueueID int32
	From    message.QueueOffset
	// MaxCount bounds the records returned; 0 means DefaultFetchCount.
	MaxCount int
	// MaxBytes bounds their bytes, but one record is returned in any case; 0 means DefaultFetchBytes.
	MaxBytes int
	// MaxScan bounds the queue entries looked at; 0 means DefaultFetchScan. It is never less than MaxCount.
	MaxScan int
	// Match, when set, says by tags code whether a message may be wanted, before its record is read.
	Match func(tagsCode int64) bool
	// MatchRecord, when set, decides on the record itself, after Match.
	MatchRecord func(rec message.Record) bool
	// Into is what Records is appended to; nil is fine.
	Into [][]byte
}

// FetchResult is what Fetch found. Records are views of the store's memory: they stay valid as long as they
// are referenced, and must not be written to.
type FetchResult struct {
	Status  FetchStatus
	Next    message.QueueOffset // where to go on; see the statuses
	Min     message.QueueOffset
	Max     message.QueueOffset // one past the last visible message
	Records [][]byte
	Bytes   int   // the sum of the records' sizes
	Err     error // non-nil if and only if Status is Damaged or Unreadable
}

// Fetch reads records of a queue from an offset on. It sees exactly what is durable and applied. It does
// not wait; it may read from disk.
func (s *Store) Fetch(req *FetchRequest) FetchResult {
	idx := s.queues.index(req.Topic, req.QueueID)
	if idx == nil {
		return FetchResult{Status: NoMatchedLogicQueue, Records: req.Into}
	}
	f := fetch{
		store: s, req: req, entries: index.Reader{Queue: idx}, records: commitlog.Reader{Log: s.log},
	}
	res := &f.res // kept inside f: as two variables both would be allocated
	res.Min, res.Max, res.Records = idx.Min(s.log.First()), idx.Next(), req.Into
	switch {
	case res.Max == 0:
		res.Status, res.Next = NoMessageInQueue, 0
	case req.From < res.Min:
		res.Status, res.Next = OffsetTooSmall, res.Min
	case req.From == res.Max:
		res.Status, res.Next = OffsetOverflowOne, req.From
	case req.From > res.Max:
		res.Status, res.Next = OffsetOverflowBadly, res.Max
	default:
		f.run(req.MatchRecord != nil && req.Match == nil)
	}
	return f.res
}

// fetch is one walk over queue entries.
type fetch struct {
	store   *Store
	req     *FetchRequest
	entries index.Reader
	res     FetchResult
	chunk   [fetchChunk]index.Entry
	records commitlog.Reader

	maxCount, maxBytes int
	count              int // records found
	looked             int // bytes of records that the filter did not want
	done               bool
	gone               bool  // an entry's record was dropped by retention
	damage             error // of the first unreadable record
}

// run walks. When every record is looked at, few will be wanted: these are copied, and the others only pass.
func (f *fetch) run(passing bool) {
	defer f.entries.Close()
	if f.records.Passing = passing; passing {
		defer f.ended(debug.SetPanicOnFault(true))
	}
	f.maxCount = cmp.Or(max(f.req.MaxCount, 0), DefaultFetchCount)
	f.maxBytes = cmp.Or(max(f.req.MaxBytes, 0), DefaultFetchBytes)
	scan := max(cmp.Or(max(f.req.MaxScan, 0), DefaultFetchScan), f.maxCount)
	end := min(f.req.From+message.QueueOffset(scan), f.res.Max)
	f.res.Next = f.req.From
	for !f.done && f.res.Next < end {
		want := min(int(end-f.res.Next), fetchChunk)
		n, err := f.entries.Read(f.res.Next, f.chunk[:want])
		if err != nil || n == 0 {
			f.indexFailed(err)
			break
		}
		for i := 0; i < n && !f.done; i++ {
			f.take(&f.chunk[i])
		}
	}
	switch {
	case f.count > 0:
		f.res.Status = Found
	case f.res.Err != nil:
		// Status is set.
	case f.damage != nil:
		f.res.Status, f.res.Err = Damaged, f.damage
		if damage, ok := errors.AsType[*DamagedError](f.damage); ok {
			damage.End = f.res.Next
		}
	case f.gone:
		f.res.Status = MessageWasRemoving
		f.res.Min = f.entries.Queue.Min(f.store.log.First())
		f.res.Next = max(f.res.Next, f.res.Min)
	default:
		f.res.Status = NoMatchedMessage
	}
}

// ended ends a walk over mapped memory. If that was not there, or not what it was when it was verified, the walk begins
// again with reading.
func (f *fetch) ended(panicked bool) {
	debug.SetPanicOnFault(panicked)
	f.records.Close()
	if recover() == nil {
		return
	}
	*f = fetch{
		store: f.store, req: f.req, entries: f.entries, records: commitlog.Reader{Log: f.store.log},
		res: FetchResult{Min: f.res.Min, Max: f.res.Max, Records: f.req.Into},
	}
	f.run(false)
}

// take looks at one entry. It either moves Next past it, or ends the walk in front of it.
func (f *fetch) take(e *index.Entry) {
	if f.count >= f.maxCount || f.looked >= fetchScanBytes || (f.count > 0 && f.res.Bytes+int(e.Size) > f.maxBytes) {
		f.done = true
		return
	}
	if f.req.Match != nil && !f.req.Match(e.TagsCode) {
		f.res.Next = e.Offset + 1
		return
	}
	rec, err := f.store.readEntry(&f.records, f.entries.Queue, e)
	if err != nil {
		f.failed(e, err)
		return
	}
	if f.damage != nil {
		f.done = true // the damaged run ends here
		return
	}
	if f.req.MatchRecord != nil && !f.req.MatchRecord(rec) {
		f.looked += len(rec)
		f.res.Next = e.Offset + 1
		return
	}
	if f.records.Passing {
		if rec = bytes.Clone(rec); rec.Check() != nil { // it was damaged after its block was verified
			f.records.Close()
			f.records.Passing = false
			f.take(e)
			return
		}
	}
	f.res.Next = e.Offset + 1
	f.res.Records = append(f.res.Records, rec)
	f.res.Bytes += len(rec)
	f.count++
}

// failed deals with an entry whose record can not be read.
func (f *fetch) failed(e *index.Entry, err error) {
	dropped := f.store.isDropped(err, e.Pos)
	if f.count > 0 || (dropped && f.damage != nil) {
		f.done = true // what was found goes out first, with Next at the trouble
		return
	}
	f.res.Next = e.Offset + 1
	switch {
	case dropped:
		f.gone = true
	case f.damage == nil:
		f.damage = err
	}
}

// indexFailed ends the walk when the index has no entry where there should be one.
func (f *fetch) indexFailed(err error) {
	f.done = true
	switch {
	case f.count > 0 || f.damage != nil:
	case err == nil || errors.Is(err, index.ErrDropped):
		f.gone = true
	default:
		f.res.Status, f.res.Err = Unreadable, err
	}
}
