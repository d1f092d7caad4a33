// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// Request and response codes, and flags, that the kinds of messages need.
const (
	codePull           = 11
	codeMaxOffset      = 30
	codeEndTransaction = 37
	codeSend           = 310
	codeSendBatch      = 320

	systemBusy      = 2
	pullNotFound    = 19
	pullRetry       = 20
	prepared        = "4"
	commitDecision  = "8"
	bySubscription  = "4"
	nativeGroup     = "bench-kinds"
	nativeConns     = 8
	nativeCallers   = 32 // of each connection
	nativeQueues    = 8
	batchMessages   = 32
	shareOfPeer     = 1.0 / 3
	selectiveOneIn  = 100
	filteredBacklog = 1_000_000
)

// kindRows are the messages that are more than sent and pulled. Their CPU counts from the first request to the last
// effect: a decided transaction, a delivered timer, a message that the filter looked at.
var kindRows = []doorRow{
	{row: row{name: "kind transaction send+commit", goalShare: shareOfPeer}, peer: true, measure: transactions},
	{row: row{name: "kind timer enqueue+delivery", goalShare: shareOfPeer}, peer: true, measure: timers},
	{row: row{name: "kind sql92 pull 1 %", goalShare: shareOfPeer}, peer: true, measure: filtered},
}

// errBusy is a refusal of a broker that has too much to do: counted, and asked again.
var errBusy = errors.New("busy")

// mustBe turns an answer into an error unless it has the code 0.
func mustBe(what string, r nativeReply, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case r.Code == systemBusy:
		return errBusy
	case r.Code != 0:
		return fmt.Errorf("%s: %d %s", what, r.Code, r.Remark)
	}
	return nil
}

// callers runs work on connections that some share, until the time is up; work does one message and tells how many it was.
func callers(ctx context.Context, addr string, secs float64, work func(context.Context, *native, int64) (int, error)) (tally, error) {
	var number atomic.Int64
	conns := make([]*native, nativeConns)
	for i := range conns {
		var err error
		if conns[i], err = dialNative(ctx, addr); err != nil {
			return tally{}, err
		}
		defer conns[i].close()
	}
	end := time.Now().Add(seconds(secs))
	return together(ctx, nativeConns*nativeCallers, func(ctx context.Context, i int) (t tally, err error) {
		for time.Now().Before(end) {
			began := time.Now()
			n, err := work(ctx, conns[i%nativeConns], number.Add(1))
			if errors.Is(err, errBusy) {
				t.failed++
				continue
			}
			if err != nil {
				return t, err
			}
			t.messages += n
			t.rounds = append(t.rounds, time.Since(began))
		}
		return t, nil
	})
}

// warmed does the work twice, first for the peer's compiler, and measures the second.
func (d *doorRun) warmed(ctx context.Context, work func(ctx context.Context, secs float64) (tally, error)) (map[string]float64, error) {
	if _, err := work(ctx, d.warmSecs()); err != nil {
		return nil, err
	}
	cpu := d.b.cpuSeconds()
	t, err := work(ctx, d.o.secs)
	if err != nil {
		return nil, err
	}
	return d.perMessage(t.result(), float64(t.messages), cpu), nil
}

func transactions(ctx context.Context, d *doorRun) (map[string]float64, error) {
	body := bytes.Repeat([]byte("x"), bodyBytes)
	return d.warmed(ctx, func(ctx context.Context, secs float64) (tally, error) {
		return callers(ctx, d.b.addr, secs, func(ctx context.Context, n *native, i int64) (int, error) {
			id := fmt.Sprintf("%032X", i)
			properties := "TRAN_MSG\x01true\x02PGROUP\x01" + nativeGroup + "\x02UNIQ_KEY\x01" + id
			half, err := n.call(ctx, codeSend, sendExt("kind-tx", int(i%nativeQueues), prepared, properties, false), body)
			if err := mustBe("half message", half, err); err != nil {
				return 0, err
			}
			offsetID, err := hex.DecodeString(half.Ext["msgId"])
			if err != nil || len(offsetID) < 16 {
				return 0, fmt.Errorf("half message's id %q: %w", half.Ext["msgId"], err)
			}
			end, err := n.call(ctx, codeEndTransaction, map[string]string{
				"producerGroup": nativeGroup, "tranStateTableOffset": half.Ext["queueOffset"], "msgId": id,
				"commitLogOffset":  fmt.Sprint(binary.BigEndian.Uint64(offsetID[len(offsetID)-8:])),
				"commitOrRollback": commitDecision, "fromTransactionCheck": "false", "transactionId": id, "topic": "kind-tx",
			}, nil)
			return 1, mustBe("commit", end, err)
		})
	})
}

// timers sends messages that are due two to five seconds later, and waits until all are there.
func timers(ctx context.Context, d *doorRun) (map[string]float64, error) {
	body := bytes.Repeat([]byte("x"), bodyBytes)
	n, err := dialNative(ctx, d.b.addr)
	if err != nil {
		return nil, err
	}
	defer n.close()
	return d.warmed(ctx, func(ctx context.Context, secs float64) (tally, error) {
		topic := fmt.Sprintf("kind-timer-%d", time.Now().UnixMilli())
		first, err := n.call(ctx, codeSend, sendExt(topic, 0, "0", "", false), body) // makes the topic
		if err := mustBe("make topic", first, err); err != nil {
			return tally{}, err
		}
		t, err := callers(ctx, d.b.addr, secs, func(ctx context.Context, n *native, i int64) (int, error) {
			properties := fmt.Sprintf("TIMER_DELAY_MS\x01%d\x02UNIQ_KEY\x01%032X", 2000+i%4*1000, i)
			r, err := n.call(ctx, codeSend, sendExt(topic, int(i%nativeQueues), "0", properties, false), body)
			return 1, mustBe("timer", r, err)
		})
		if err != nil {
			return t, err
		}
		limit := time.Now().Add(2 * time.Minute)
		for there := 0; there < t.messages+1; {
			if time.Now().After(limit) {
				return t, fmt.Errorf("%d of %d timers were delivered within two minutes of the last one", there-1, t.messages)
			}
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return t, err
			}
			if there, err = stored(ctx, n, topic); err != nil {
				return t, err
			}
		}
		return t, nil
	})
}

// stored is how many messages of a topic consumers can see.
func stored(ctx context.Context, n *native, topic string) (total int, err error) {
	for q := range nativeQueues {
		r, err := n.call(ctx, codeMaxOffset, map[string]string{"topic": topic, "queueId": fmt.Sprint(q)}, nil)
		if err != nil {
			return 0, err
		}
		offset, _ := strconv.Atoi(r.Ext["offset"])
		total += offset
	}
	return total, nil
}

// filtered reads a backlog through an expression that one message in a hundred matches, again and again: in each round
// a group with an expression of its own reads every queue once from its start. What it costs is told for each message
// that the broker looked at.
func filtered(ctx context.Context, d *doorRun) (map[string]float64, error) {
	const topic = "kind-sql"
	var sent atomic.Int64
	for sent.Load() < filteredBacklog {
		if _, err := callers(ctx, d.b.addr, 1, func(ctx context.Context, n *native, i int64) (int, error) {
			if sent.Add(batchMessages) > filteredBacklog {
				return 1, nil
			}
			r, err := n.call(ctx, codeSendBatch, sendExt(topic, int(i%nativeQueues), "0", "", true), colouredBatch(i))
			return batchMessages, mustBe("batch", r, err)
		}); err != nil {
			return nil, err
		}
	}
	round := 0
	return d.warmed(ctx, func(ctx context.Context, secs float64) (all tally, err error) {
		for end := time.Now().Add(seconds(secs)); time.Now().Before(end); round++ {
			t, err := together(ctx, nativeQueues, func(ctx context.Context, queue int) (tally, error) {
				n, err := dialNative(ctx, d.b.addr)
				if err != nil {
					return tally{}, err
				}
				defer n.close()
				return scan(ctx, n, topic, queue, round)
			})
			if err != nil {
				return all, err
			}
			all.add(t)
			all.took += t.took
		}
		return all, nil
	})
}

// colouredBatch is the body of a batch whose messages have a number as property.
func colouredBatch(i int64) []byte {
	body := bytes.Repeat([]byte("x"), bodyBytes)
	var out []byte
	for k := range int64(batchMessages) {
		number := i*batchMessages + k
		properties := fmt.Sprintf("UNIQ_KEY\x01%032X\x02kind\x01order\x02a\x01%d", number, number%selectiveOneIn)
		out = binary.BigEndian.AppendUint32(out, uint32(22+len(body)+len(properties)))
		out = append(out, make([]byte, 12)...) // magic, CRC, flag
		out = binary.BigEndian.AppendUint32(out, uint32(len(body)))
		out = append(out, body...)
		out = binary.BigEndian.AppendUint16(out, uint16(len(properties)))
		out = append(out, properties...)
	}
	return out
}

// scan reads a queue from its start to its end.
func scan(ctx context.Context, n *native, topic string, queue, round int) (t tally, err error) {
	wanted := round % selectiveOneIn
	expression := fmt.Sprintf("kind = 'order' AND a BETWEEN %d AND %d", wanted, wanted)
	for offset := 0; ; {
		began := time.Now()
		r, err := n.call(ctx, codePull, map[string]string{
			"consumerGroup": fmt.Sprintf("%s-%d", nativeGroup, round), "topic": topic, "queueId": fmt.Sprint(queue),
			"queueOffset": fmt.Sprint(offset), "maxMsgNums": "32", "sysFlag": bySubscription, "commitOffset": "0",
			"suspendTimeoutMillis": "0", "subVersion": "0", "expressionType": "SQL92", "subscription": expression,
		}, nil)
		if err != nil {
			return t, err
		}
		next, convErr := strconv.Atoi(r.Ext["nextBeginOffset"])
		switch {
		case convErr != nil || (r.Code != 0 && r.Code != pullNotFound && r.Code != pullRetry):
			return t, fmt.Errorf("filtered pull: %d %s", r.Code, r.Remark)
		case next <= offset:
			return t, nil // all read
		}
		t.messages += next - offset
		offset = next
		t.rounds = append(t.rounds, time.Since(began))
	}
}
