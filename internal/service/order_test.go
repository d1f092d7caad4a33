// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/protocol"
)

// What one connection sends without waiting for answers is stored in the order it was sent: while the first message
// creates the topic, or the retry topic and its group, and while the topic is changed by somebody else.
func TestPipelinedSendsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	const rounds, many = 24, 100
	for round := range rounds {
		topic := fmt.Sprint("t", round)
		if round%4 == 3 {
			topic = broker.RetryTopic(fmt.Sprint("g", round))
		}
		client, admin := w.dial(), w.dial()
		var g errgroup.Group
		g.Go(func() error {
			conn, err := client.Conn(t.Context())
			for i := 0; i < many && err == nil; i++ {
				err = conn.OneWay(protocol.SendMessageV2, sendHeader(topic, 0, ""), fmt.Append(nil, i))
			}
			return err
		})
		g.Go(func() error {
			for i := range int32(4 * (round % 2)) { // every other topic is changed
				_, err := admin.Invoke(t.Context(), protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequestHeader{
					Topic: topic, DefaultTopic: "TBW102", ReadQueueNums: 1 + i, WriteQueueNums: 1 + i, Perm: 6,
					TopicFilterType: "SINGLE_TAG",
				}, nil)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		w.callBy(client, protocol.SendMessageV2, sendHeader(topic, 0, ""), fmt.Append(nil, many)) // the last one
		for from := int64(0); from <= many; {
			got, answer := w.pull("reader", topic, 0, from, "*")
			if len(got) == 0 {
				t.Fatalf("%s: nothing at %d: %d %s", topic, from, answer.Code, answer.Remark)
			}
			for i := range got {
				if string(got[i].Body) != fmt.Sprint(from) {
					t.Fatalf("%s: message %d is %s", topic, from, got[i].Body)
				}
				from++
			}
		}
	}
}
