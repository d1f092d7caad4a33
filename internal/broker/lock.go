// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/nested"
)

const (
	// lockLife is how long a queue lock holds without renewal. Clients renew every 20 s.
	// Source: RebalanceLockManager.java REBALANCE_LOCK_MAX_LIVE_TIME.
	lockLife = 60 * time.Second
	// lockGrace is how long a lock holds after the connection of its holder ended, unless the holder is back
	// by then.
	lockGrace = 3 * time.Second
	// lockSweep is the time between two looks for locks that ran out.
	lockSweep = 10 * time.Second
)

// MessageQueue names a queue as clients do. An empty BrokerName means this broker.
type MessageQueue struct {
	BrokerName string
	QueueID    int32
	Topic      string
}

// QueueLocks says which client of a group may read a queue in order. Nothing of it is stored: clients lock
// again. All methods are safe for concurrent use. The owner calls Disconnected when a connection ended and
// Sweep every second or so. Source: RebalanceLockManager.java. Known difference: there the lock of a killed
// client holds for its full life.
type QueueLocks struct {
	alive func(group, clientID string) bool
	log   *slog.Logger

	mu struct {
		sync.Mutex
		groups    nested.Map[string, lockedQueue, *queueLock]
		byChannel nested.Map[uint64, *queueLock, struct{}]
		orphans   map[*queueLock]struct{} // locks whose connection ended
		swept     time.Time
	}
}

type lockedQueue struct {
	topic   string
	queueID int32
}

type queueLock struct {
	group    string
	queue    lockedQueue
	clientID string
	channel  uint64
	renewed  time.Time
	orphaned time.Time // zero while the connection lives
}

// NewQueueLocks returns an empty table. alive tells whether a client of a group is connected; it is called
// with the table's lock held and must not call back.
func NewQueueLocks(alive func(group, clientID string) bool, log *slog.Logger) *QueueLocks {
	l := &QueueLocks{alive: alive, log: log}
	l.mu.groups = nested.Map[string, lockedQueue, *queueLock]{}
	l.mu.byChannel = nested.Map[uint64, *queueLock, struct{}]{}
	l.mu.orphans = map[*queueLock]struct{}{}
	return l
}

// Lock locks or renews what it can of queues for the client and returns that, in the order given.
func (l *QueueLocks) Lock(group, clientID string, ch Channel, queues []MessageQueue,
	now time.Time,
) []MessageQueue {
	locked := make([]MessageQueue, 0, len(queues))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, mq := range queues {
		if l.lockLocked(group, clientID, ch, lockedQueue{mq.Topic, mq.QueueID}, now) {
			locked = append(locked, mq)
		}
	}
	return locked
}

func (l *QueueLocks) lockLocked(group, clientID string, ch Channel, q lockedQueue, now time.Time) bool {
	lock := l.mu.groups[group][q]
	switch {
	case lock == nil:
		lock = l.addLocked(group, clientID, q)
	case lock.clientID == clientID:
	case l.freeLocked(lock, now):
		l.log.Info("queue lock taken over", "group", group, "topic", q.topic, "queue_id", q.queueID,
			"client_id", clientID, "old_client_id", lock.clientID)
		lock.clientID = strings.Clone(clientID)
	default:
		l.log.Debug("queue lock refused", "group", group, "topic", q.topic, "queue_id", q.queueID,
			"client_id", clientID, "holder", lock.clientID)
		return false
	}
	l.attachLocked(lock, ch.ID())
	lock.renewed = now
	return true
}

func (l *QueueLocks) addLocked(group, clientID string, q lockedQueue) *queueLock {
	q.topic = strings.Clone(q.topic)
	lock := &queueLock{group: strings.Clone(group), queue: q, clientID: strings.Clone(clientID)}
	l.mu.groups.Put(lock.group, q, lock)
	return lock
}

// attachLocked binds the lock to the connection that it was last asked for on.
func (l *QueueLocks) attachLocked(lock *queueLock, channel uint64) {
	if _, bound := l.mu.byChannel[channel][lock]; bound && lock.orphaned.IsZero() {
		return
	}
	l.mu.byChannel.Delete(lock.channel, lock)
	lock.channel, lock.orphaned = channel, time.Time{}
	delete(l.mu.orphans, lock)
	l.mu.byChannel.Put(channel, lock, struct{}{})
}

// freeLocked tells whether another client may take the lock.
func (l *QueueLocks) freeLocked(lock *queueLock, now time.Time) bool {
	if now.Sub(lock.renewed) > lockLife {
		return true
	}
	return !lock.orphaned.IsZero() && now.Sub(lock.orphaned) >= lockGrace &&
		!l.alive(lock.group, lock.clientID)
}

// Unlock gives back what the client holds of queues.
func (l *QueueLocks) Unlock(group, clientID string, queues []MessageQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, mq := range queues {
		lock := l.mu.groups[group][lockedQueue{mq.Topic, mq.QueueID}]
		if lock != nil && lock.clientID == clientID {
			l.removeLocked(lock)
		}
	}
}

func (l *QueueLocks) removeLocked(lock *queueLock) {
	l.mu.groups.Delete(lock.group, lock.queue)
	delete(l.mu.orphans, lock)
	l.mu.byChannel.Delete(lock.channel, lock)
}

// Locked tells whether any client holds a lock in the group: its consumers read in order.
// Source: RebalanceLockManager.java isLockAllExpired.
func (l *QueueLocks) Locked(group string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lock := range l.mu.groups[group] {
		if now.Sub(lock.renewed) <= lockLife {
			return true
		}
	}
	return false
}

// Disconnected starts the grace of the locks that were taken on the channel.
func (l *QueueLocks) Disconnected(ch Channel, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lock := range l.mu.byChannel[ch.ID()] {
		lock.orphaned = now
		l.mu.orphans[lock] = struct{}{}
	}
	delete(l.mu.byChannel, ch.ID())
}

// Sweep removes locks that ran out and returns the groups, in order, in which one came free because its
// holder is gone: their members have to be told, so that one of them takes the queue now and not with its
// next turn.
func (l *QueueLocks) Sweep(now time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var freed []string
	for lock := range l.mu.orphans {
		if l.freeLocked(lock, now) {
			l.removeLocked(lock)
			freed = append(freed, lock.group)
		}
	}
	if now.Sub(l.mu.swept) >= lockSweep {
		l.mu.swept = now
		for _, of := range l.mu.groups {
			for _, lock := range of {
				if now.Sub(lock.renewed) > lockLife {
					l.removeLocked(lock)
				}
			}
		}
	}
	slices.Sort(freed)
	return slices.Compact(freed)
}
