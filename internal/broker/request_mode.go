// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// RequestMode says how a group of native push consumers gets the messages of a topic: it pulls the queues that
// it is assigned, or pops from those that it shares.
type RequestMode struct {
	Pop bool `json:"pop"`
	// ShareQueueNum is with how many others a member shares its queues when it pops; 0: everybody pops everything.
	ShareQueueNum int32 `json:"popShareQueueNum"`
}

// requestModePrefix begins the keys of request modes among the small settings.
const requestModePrefix = "\x00requestMode\x00"

// requestModeMark stands between group and topic in a key; neither can contain it.
const requestModeMark = "@"

// RequestModes is the table of request modes by group and topic. All methods are safe for concurrent use.
// Source: MessageRequestModeManager.java.
type RequestModes struct{ table *table[RequestMode] }

// NewRequestModes returns the modes that are in the log.
func NewRequestModes(journal store.Journal, log *slog.Logger) (*RequestModes, error) {
	t, err := openTable[RequestMode](message.SpaceKV, requestModePrefix, journal, log, nil)
	return &RequestModes{t}, err
}

// Lookup returns the mode that was set for a group and a topic.
func (m *RequestModes) Lookup(group, topic string) (RequestMode, bool) {
	mode, ok := m.table.live.Load(group + requestModeMark + topic)
	if !ok {
		return RequestMode{}, false
	}
	return *mode, true
}

// Put sets a mode; done is called once, when that is durable.
func (m *RequestModes) Put(group, topic string, mode RequestMode, done func(error)) {
	m.table.change(group+requestModeMark+topic, func(cur *RequestMode) (*RequestMode, error) {
		if cur != nil && *cur == mode {
			return cur, nil
		}
		return &mode, nil
	}, done)
}

// All calls fn for every mode that was set.
func (m *RequestModes) All(fn func(group, topic string, mode RequestMode)) {
	names, modes := m.table.sorted()
	for _, name := range names {
		group, topic, _ := strings.Cut(name, requestModeMark)
		fn(group, topic, *modes[name])
	}
}

// AllocateAveragely gives the member with that id its share of the queues when each gets as many that follow
// each other as the others, or one more. Both lists are ordered. Source: AllocateMessageQueueAveragely.java.
func AllocateAveragely(clientID string, queues []MessageQueue, members []string) []MessageQueue {
	index := slices.Index(members, clientID)
	if index < 0 || len(queues) == 0 {
		return nil
	}
	share, rest := len(queues)/len(members), len(queues)%len(members)
	start := index*share + min(index, rest)
	if index < rest {
		share++
	}
	return queues[start : start+share]
}

// AllocateByCircle gives the member with that id its share of the queues when they are dealt out in turn.
// Source: AllocateMessageQueueAveragelyByCircle.java.
func AllocateByCircle(clientID string, queues []MessageQueue, members []string) []MessageQueue {
	index := slices.Index(members, clientID)
	var share []MessageQueue
	for i := index; index >= 0 && i < len(queues); i += len(members) {
		share = append(share, queues[i])
	}
	return share
}

// AllocatePop gives the member with that id what it pops from: with few members to share with, its own share
// (by allocate) and those of the next shareQueueNum members; else everything, which a queue id of -1 on each
// broker stands for.
// Source: QueryAssignmentProcessor.java allocate4Pop.
func AllocatePop(
	clientID string, queues []MessageQueue, members []string, shareQueueNum int32,
	allocate func(clientID string, queues []MessageQueue, members []string) []MessageQueue,
) []MessageQueue {
	if shareQueueNum <= 0 || int(shareQueueNum) >= len(members)-1 {
		var all []MessageQueue
		for _, q := range queues {
			if q.QueueID = AllQueues; !slices.Contains(all, q) {
				all = append(all, q)
			}
		}
		return all
	}
	index := slices.Index(members, clientID)
	switch {
	case index < 0 || len(queues) == 0:
		return nil
	case len(members) > len(queues):
		return []MessageQueue{queues[index%len(queues)]}
	}
	share := slices.Clone(allocate(clientID, queues, members))
	for i := 1; i <= int(shareQueueNum); i++ {
		share = append(share, allocate(members[(index+i)%len(members)], queues, members)...)
	}
	return share
}
