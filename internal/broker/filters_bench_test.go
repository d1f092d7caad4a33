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
// message costs that was looked at. Each operation is a pull: it looks at up to 800 messages.
func BenchmarkPullSelectively(b *testing.B) {
	const messages = 32_000
	disk := openDisk(b, store.Config{Dir: b.TempDir()})
	defer disk.stop()
	disk.send(b, plain("T", "create the topic"))
	body := make([]byte, 200)
	for sent := 0; sent < messages; {
		req := plain("T", "")
		req.Batch = true
		for range 1000 {
			req.Body = message.AppendBatchEntry(req.Body, 0, body, props(
				"UNIQ_KEY",
				fmt.Sprintf("7F0000010B0418B4AAC2154E%08X", sent),
				"WAIT",
				"true",
				"TAGS",
				fmt.Sprint("tag", sent%100),
				"KEYS",
				fmt.Sprint("order-", sent),
				"amount",
				fmt.Sprint(sent%1000),
				"region",
				"eu",
				"bucket",
				fmt.Sprint(sent%100),
			))
			sent++
		}
		disk.send(b, req)
	}
	for _, tt := range []struct {
		name   string
		filter PullExpression
	}{
		{"SQL92", PullExpression{Text: "bucket = 7", Type: filter.TypeSQL92}},
		{"SQL92 of three properties", PullExpression{Text: "region IN ('eu', 'us') AND amount BETWEEN 500 AND 509", Type: filter.TypeSQL92}},
		{"tag", PullExpression{Text: "tag7"}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			done := make(chan error, 1)
			req := &PullRequest{Group: "g", Topic: "T", Done: func(_ *PullRequest, err error) { done <- err }}
			var looked, found int
			b.ReportAllocs()
			for b.Loop() {
				if req.Offset >= messages {
					req.Offset = 0
				}
				req.MaxCount, req.SysFlag, req.Subscription = 32, PullSubscription, tt.filter
				disk.puller.Pull(req)
				if err := <-done; err != nil {
					b.Fatal(err)
				}
				looked += int(req.Result().Next - req.Offset)
				found += len(req.Result().Records)
				req.Offset = req.Result().Next
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(looked), "ns/message")
			b.ReportMetric(100*float64(found)/float64(looked), "%wanted")
		})
	}
}
