// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"testing"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// BenchmarkPullSelectively pulls a queue on disk of which one message in 100 is wanted, and reports what one
// message costs that was looked at. Each operation is a pull: it looks at up to 3,200 messages.
func BenchmarkPullSelectively(b *testing.B) {
	const messages, queues, batch = 800_000, 8, 32
	disk := openDisk(b, store.Config{Dir: b.TempDir()})
	defer disk.stop()
	created := make(chan error, 1)
	disk.topics.Put(TopicConfig{
		Name: "T", ReadQueueNums: queues, WriteQueueNums: queues, Perm: PermRead | PermWrite,
	}, func(err error) { created <- err })
	if err := <-created; err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 128)
	for sent := 0; sent < messages; {
		req := plain("T", "")
		req.Batch, req.QueueID = true, int32(sent/batch%queues)
		for range batch {
			req.Body = message.AppendBatchEntry(req.Body, 0, body, props(
				"UNIQ_KEY",
				fmt.Sprintf("%032X", sent),
				"kind", "order", "a", fmt.Sprint(sent%100),
			))
			sent++
		}
		disk.send(b, req)
	}
	for _, tt := range []struct {
		name   string
		filter PullExpression
	}{
		{"SQL92", PullExpression{Text: "kind = 'order' AND a BETWEEN 7 AND 7", Type: filter.TypeSQL92}},
		{"none", PullExpression{Text: "a = 107", Type: filter.TypeSQL92}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			done := make(chan error, 1)
			req := &PullRequest{Group: "g", Topic: "T", Done: func(_ *PullRequest, err error) { done <- err }}
			var looked, found, turn int
			var offsets [queues]message.QueueOffset
			b.ReportAllocs()
			for b.Loop() {
				turn = (turn + 1) % queues
				offset := &offsets[turn]
				if *offset >= messages/queues {
					*offset = 0
				}
				req.QueueID, req.Offset = int32(turn), *offset
				req.MaxCount, req.SysFlag, req.Subscription = 32, PullSubscription, tt.filter
				disk.puller.Pull(req)
				if err := <-done; err != nil {
					b.Fatal(err)
				}
				looked += int(req.Result().Next - req.Offset)
				found += len(req.Result().Records)
				*offset = req.Result().Next
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(looked), "ns/message")
			b.ReportMetric(100*float64(found)/float64(looked), "%wanted")
		})
	}
}
