// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/broker/transaction"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// immunitySeconds reads CHECK_IMMUNITY_TIME_IN_SECONDS. What is no age counts as none.
// Source: TransactionalMessageServiceImpl.java getImmunityTime.
func immunitySeconds(value string) int32 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return transaction.NoImmunity
	}
	return int32(min(n, math.MaxInt32))
}

// prepare turns m, the only message of w, into a half message, and adds the state record that lives until it
// is decided about. Source: TransactionalMessageBridge.java parseHalfMessageInner.
func prepare(w *store.Write, m *message.Message, uniqueKey string, immunity int32) {
	half := transaction.Half{Topic: m.Topic, Immunity: immunity}
	props := message.WithoutProperty(m.Properties, message.PropertyTransactionID)
	if uniqueKey == "" {
		m.Properties = withDestination(props, m.Topic, m.QueueID)
	} else {
		m.Properties = withDestination(props, m.Topic, m.QueueID, message.PropertyTransactionID, uniqueKey)
	}
	m.SysFlag &^= message.TransactionMask
	m.Topic, m.QueueID = TransHalfTopic, 0
	w.State = []message.State{openState(&half)}
	w.Assigned = setHalf
}

// openState is the state record of an open half message.
func openState(h *transaction.Half) message.State {
	return message.State{
		Space: message.SpaceTransaction, Key: transaction.AppendKey(nil, h.Offset), Value: h.AppendValue(nil),
	}
}

// closedState is the state record that ends it.
func closedState(offset message.QueueOffset) message.State {
	return message.State{Space: message.SpaceTransaction, Key: transaction.AppendKey(nil, offset), Delete: true}
}

// setHalf completes the state record that prepare made. It runs under the log's append lock.
func setHalf(w *store.Write) {
	transaction.SetKey(w.State[0].Key, w.Messages[0].QueueOffset)
	transaction.SetSince(w.State[0].Value, w.Messages[0].StoreTimestamp)
}

// TransactionLog is what Transactions needs of the store. *store.Store is one.
type TransactionLog interface {
	TimerLog
	KeyIndex
	Record(pos message.LogOffset) (message.Record, error)
}

// TransactionsConfig configures Transactions.
type TransactionsConfig struct {
	// Levels are those of the Sender: a committed message may ask for a delay.
	Levels DelayLevels
	// Send sends a check to a producer (CHECK_TRANSACTION_STATE, or the door's equivalent). An error means
	// that the connection is no good: the next producer of the group is tried. It must not block. Required.
	Send func(to Channel, check *TransactionCheck) error
	// Logger is required.
	Logger *slog.Logger
}

// Transactions decides about half messages: it commits them and rolls them back as producers say, asks
// producers that say nothing, and parks what nobody knows about. A half message is open as long as its state
// record lives; the real message and the end of that record are one Write, so that the first decision wins
// and a message is committed once, whenever the broker dies. All methods are safe for concurrent use.
//
// Source: EndTransactionProcessor.java, TransactionalMessageServiceImpl.java. Known differences: exactly one
// decision; no op messages; a half message stays where it is when its producer is asked, so that what the
// producer knows of it stays true; ages count from the broker's clock; each message is asked about at its own
// time; a check that nobody could be asked does not count.
type Transactions struct {
	cfg     TransactionsConfig
	topics  *Topics
	clients *Clients
	stats   *Stats
	log     TransactionLog
	logger  *slog.Logger
	bell    *due.Bell
	turn    atomic.Uint64 // whose turn it is to be asked

	mu struct {
		sync.Mutex
		core    *transaction.Core
		wake    int64 // ms, when Run looks again
		byTopic map[string]int64
	}
}

// NewTransactions returns Transactions with the half messages that are open in the log. The store's OnState
// of message.SpaceTransaction must be given OnState, and its OnRetain CarryForward, before the store runs.
func NewTransactions(cfg TransactionsConfig, topics *Topics, clients *Clients, stats *Stats, log TransactionLog,
) (*Transactions, error) {
	cfg.Levels = cfg.Levels.orDefault()
	t := &Transactions{
		cfg: cfg, topics: topics, clients: clients, stats: stats,
		log: log, logger: cfg.Logger, bell: due.NewBell(),
	}
	t.mu.core, t.mu.byTopic = transaction.New(transaction.Config{}), map[string]int64{}
	for st, err := range log.StatesIn(message.SpaceTransaction, nil, nil) {
		if err != nil {
			return nil, err
		}
		t.OnState(st)
	}
	return t, nil
}

// OnState takes note of a half message that was stored, changed or ended. Applier only.
func (t *Transactions) OnState(st message.State) {
	if st.Delete {
		if offset, ok := transaction.ParseKey(st.Key); ok {
			t.step(transaction.Event{Kind: transaction.Deleted, Offset: offset})
		}
		return
	}
	half, err := transaction.Parse(st.Key, st.Value)
	if err != nil {
		t.logger.Error("state of a half message is malformed", "error", err)
		return
	}
	t.step(transaction.Event{Kind: transaction.Stored, Half: half})
}

// SetTiming says when producers are asked, from now on; before, it is by the original's defaults.
func (t *Transactions) SetTiming(timing transaction.Config) {
	t.mu.Lock()
	t.mu.core.Configure(timing)
	t.mu.Unlock()
	t.bell.Ring()
}

// ticket is who wants to hold a half message: it is called once, with whether it holds it now or the message
// is gone.
type ticket func(half transaction.Half, granted bool)

// step tells the core what happened and does what concerns tickets. What is left, checks and parkings, comes
// from a Tick alone.
func (t *Transactions) step(ev transaction.Event) (rest []transaction.Action) {
	t.mu.Lock()
	core := t.mu.core
	switch ev.Kind {
	case transaction.Stored:
		if _, known := core.Open(ev.Half.Offset); !known {
			t.mu.byTopic[ev.Half.Topic]++
		}
	case transaction.Deleted:
		if half, known := core.Open(ev.Offset); known {
			addTo(t.mu.byTopic, half.Topic, -1)
		}
	}
	actions := core.Step(time.Now(), ev)
	next, ok := core.Next()
	earlier := ok && next < t.mu.wake
	t.mu.Unlock()
	if earlier {
		t.bell.Ring()
	}
	for _, a := range actions {
		tell, isTicket := a.Ticket.(ticket)
		if !isTicket {
			return actions
		}
		tell(a.Half, a.Kind == transaction.Grant)
	}
	return nil
}

// claim asks for a half message; tell must not block.
func (t *Transactions) claim(offset message.QueueOffset, tell ticket) {
	t.step(transaction.Event{Kind: transaction.Claim, Offset: offset, Ticket: tell})
}

// finished gives a half message back.
func (t *Transactions) finished(offset message.QueueOffset, outcome transaction.Outcome) {
	t.step(transaction.Event{Kind: transaction.Finished, Offset: offset, Outcome: outcome})
}

// outcomeOf is the outcome of a Write.
func outcomeOf(err error) transaction.Outcome {
	if err != nil {
		return transaction.Failed
	}
	return transaction.Done
}

// openAt returns the open half message at offset.
func (t *Transactions) openAt(offset message.QueueOffset) (transaction.Half, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.core.Open(offset)
}

// Run asks producers, and parks, until ctx is done. What it has appended by then is settled by the store.
func (t *Transactions) Run(ctx context.Context) error {
	for {
		t.tick()
		t.mu.Lock()
		next, ok := t.mu.core.Next()
		if !ok {
			next = never
		}
		t.mu.wake = next
		t.mu.Unlock()
		if !t.bell.Sleep(ctx, next) {
			return nil
		}
	}
}

// OpenByTopic returns how many half messages are open, by the topic they would go to. Source:
// TransactionMetrics.java.
func (t *Transactions) OpenByTopic() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.mu.byTopic)
}
