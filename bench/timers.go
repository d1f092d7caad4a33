// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	lateBurst   = 20_000 // messages that are due within a second
	latePending = 1_000_000
	lateLead    = 3 * time.Second // after the last was sent: they are read ahead two seconds before

	storedBodyAt = 88 // where a stored message's body begins; its length is the word before
)

// lateRows measure how late messages reach a consumer that waits for them.
var lateRows = []doorRow{
	{
		row:     row{name: "kind timer lateness, 20,000 in a second", goalP99: 50},
		measure: func(ctx context.Context, d *doorRun) (map[string]float64, error) { return late(ctx, d, 0) },
	},
	{
		row:     row{name: "kind timer lateness, 1,000,000 pending", goalP99: 50},
		measure: func(ctx context.Context, d *doorRun) (map[string]float64, error) { return late(ctx, d, latePending) },
	},
}

// late sends messages that are due in a day, and then lateBurst that are due anywhere within a second, and measures from
// when each is due until a held pull brings it.
func late(ctx context.Context, d *doorRun, pending int64) (map[string]float64, error) {
	topic := fmt.Sprintf("kind-late-%d", pending)
	first, err := dialNative(ctx, d.b.addr)
	if err != nil {
		return nil, err
	}
	defer first.close()
	made, err := first.call(ctx, codeSend, sendExt(topic, 0, "0", "", false), make([]byte, bodyBytes)) // makes the topic
	if err := mustBe("make topic", made, err); err != nil {
		return nil, err
	}
	if err := d.sendTimers(ctx, topic, pending, func() time.Time { return time.Now().Add(24 * time.Hour) }); err != nil {
		return nil, err
	}
	start := time.Now().Add(lateLead + lateBurst*100*time.Microsecond)
	if err := d.sendTimers(ctx, topic, lateBurst, func() time.Time { return start.Add(rand.N(time.Second)) }); err != nil {
		return nil, err
	}
	if left := time.Until(start); left < lateLead/2 {
		return nil, fmt.Errorf("sending took so long that %v are left until the messages are due", left)
	}
	cpu := d.b.cpuSeconds()
	var left atomic.Int64
	left.Store(lateBurst)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	t, err := together(ctx, nativeQueues, func(_ context.Context, queue int) (t tally, err error) {
		n, err := dialNative(ctx, d.b.addr)
		if err != nil {
			return t, err
		}
		defer n.close()
		err = awaitTimers(ctx, n, topic, queue, &t, &left)
		if left.Load() <= 0 {
			err = nil // who got the last one ended the others' wait
		}
		if t.messages = len(t.rounds); left.Load() <= 0 {
			cancel()
		}
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("%d of %d timers are missing: %w", left.Load(), lateBurst, err)
	}
	t.took = time.Since(start)
	return d.perMessage(t.result(), float64(t.messages), cpu), nil
}

// sendTimers sends so many messages; each has in its body when it is due.
func (d *doorRun) sendTimers(ctx context.Context, topic string, count int64, due func() time.Time) error {
	var sent atomic.Int64
	for sent.Load() < count {
		if _, err := callers(ctx, d.b.addr, 1, func(ctx context.Context, n *native, i int64) (int, error) {
			number := sent.Add(1)
			if number > count {
				return 1, nil
			}
			at := due().UnixMilli()
			body := binary.BigEndian.AppendUint64(make([]byte, 0, bodyBytes), uint64(at))
			properties := fmt.Sprintf("TIMER_DELIVER_MS\x01%d\x02UNIQ_KEY\x01%032X", at, number)
			for {
				r, err := n.call(ctx, codeSend, sendExt(topic, int(i%nativeQueues), "0", properties, false), body[:bodyBytes])
				if err = mustBe("timer", r, err); !errors.Is(err, errBusy) {
					return 1, err
				}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// awaitTimers pulls from a queue until none is left in any, and notes how late each was.
func awaitTimers(ctx context.Context, n *native, topic string, queue int, t *tally, left *atomic.Int64) error {
	for offset := "0"; left.Load() > 0; {
		r, err := n.call(ctx, codePull, map[string]string{
			"consumerGroup": nativeGroup, "topic": topic, "queueId": fmt.Sprint(queue), "queueOffset": offset,
			"maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "1000", "subVersion": "0",
			"expressionType": "TAG", "subscription": "*",
		}, nil)
		if err != nil {
			return err
		}
		if r.Code != 0 && r.Code != pullNotFound && r.Code != pullRetry {
			return fmt.Errorf("pull: %d %s", r.Code, r.Remark)
		}
		now := time.Now()
		for rest := r.body; len(rest) > storedBodyAt+8; rest = rest[binary.BigEndian.Uint32(rest):] {
			due := int64(binary.BigEndian.Uint64(rest[storedBodyAt:]))
			if due == 0 {
				continue // the message that made the topic
			}
			if now.UnixMilli() < due {
				return errors.New("a message came before its time")
			}
			t.rounds = append(t.rounds, now.Sub(time.UnixMilli(due)))
			left.Add(-1)
		}
		if next := r.Ext["nextBeginOffset"]; next != "" {
			if _, err := strconv.ParseUint(next, 10, 63); err != nil {
				return fmt.Errorf("next offset %q", next)
			}
			offset = next
		}
	}
	return nil
}
