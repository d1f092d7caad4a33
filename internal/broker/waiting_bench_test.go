// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// inFlight sends with so many on their way at once.
type inFlight struct {
	b     *waitingDisk
	slots chan struct{}
	err   error
	mu    sync.Mutex
}

func (f *inFlight) send(body []byte, properties string) {
	f.slots <- struct{}{}
	req := &SendRequest{Topic: "T", Body: body, Properties: properties, MaxReconsumeTimes: GroupMaxReconsumeTimes}
	req.Done = func(_ *SendRequest, err error) {
		if err != nil {
			f.mu.Lock()
			f.err = err
			f.mu.Unlock()
		}
		<-f.slots
	}
	f.b.sender.Send(req)
}

func (f *inFlight) wait(tb testing.TB) {
	tb.Helper()
	for range cap(f.slots) {
		f.slots <- struct{}{}
	}
	for range cap(f.slots) {
		<-f.slots
	}
	if f.err != nil {
		tb.Fatal(f.err)
	}
}

// benchTimers stores pending timers that are due in hours, and among them, anywhere, burst that are due
// within spread, and reports how late those leave.
func benchTimers(b *testing.B, pending, burst int, spread time.Duration) {
	b.Helper()
	disk := openWaitingDisk(b, store.Config{Dir: b.TempDir()})
	defer disk.stop()
	disk.send(b, "create the topic")
	body := make([]byte, 128)
	f := &inFlight{b: disk, slots: make(chan struct{}, 2048)}
	lead := 3*time.Second + time.Duration(pending+burst)*20*time.Microsecond
	start := time.Now().Add(lead)
	far := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
	enqueue := time.Now()
	for i := range pending + burst {
		due := far
		if i*burst/(pending+burst) != (i+1)*burst/(pending+burst) {
			due = strconv.FormatInt(start.Add(time.Duration(rand.Int64N(int64(spread)+1))).UnixMilli(), 10)
		}
		f.send(body, props("UNIQ_KEY", fmt.Sprintf("0A000001000100020003%012d", i), "TIMER_DELIVER_MS", due))
	}
	f.wait(b)
	took := time.Since(enqueue)
	if took > lead-time.Second {
		b.Fatalf("storing took %v: the burst is due already", took)
	}
	atDue := make(chan time.Duration, 1)
	time.AfterFunc(time.Until(start), func() { atDue <- cpuTime() })
	b.ResetTimer()
	disk.awaitCount(b, "T", message.QueueOffset(burst+1))
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-<-atDue).Microseconds())/float64(burst), "cpu-µs/delivery")
	late := make([]int64, 0, burst)
	for off := range message.QueueOffset(burst) {
		rec, err := disk.store.At("T", 0, off+1)
		if err != nil {
			b.Fatal(err)
		}
		due, _ := message.Property(rec.Properties(), message.PropertyTimerOutMillis)
		n, err := strconv.ParseInt(due, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		late = append(late, rec.StoreTimestamp()-n)
	}
	slices.Sort(late)
	st := disk.delays.Stats()
	within := int64(0)
	for i, bound := range LatenessBounds() {
		if bound <= 50*time.Millisecond {
			within += st.Lateness[i]
		}
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(pending+burst), "ns/enqueue")
	b.ReportMetric(float64(late[len(late)/2]), "p50-late-ms")
	b.ReportMetric(float64(late[len(late)*99/100]), "p99-late-ms")
	b.ReportMetric(float64(late[len(late)-1]), "max-late-ms")
	b.ReportMetric(100*float64(within)/float64(burst), "%durable-within-50ms")
}

func BenchmarkTimersSpread(b *testing.B)        { benchTimers(b, 20_000, 20_000, time.Second) }
func BenchmarkTimersAtOnce(b *testing.B)        { benchTimers(b, 20_000, 20_000, 0) }
func BenchmarkTimersAmongMillion(b *testing.B)  { benchTimers(b, 1_000_000, 20_000, time.Second) }
func BenchmarkTimersMillionAtOnce(b *testing.B) { benchTimers(b, 1_000_000, 20_000, 0) }

// BenchmarkHalfAndCommit sends half messages and commits each when it is stored, many at a time.
func BenchmarkHalfAndCommit(b *testing.B) {
	disk := openWaitingDisk(b, store.Config{Dir: b.TempDir()})
	defer disk.stop()
	disk.send(b, "create the topic")
	body := make([]byte, 128)
	slots := make(chan struct{}, 512)
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		slots <- struct{}{}
		req := &SendRequest{
			Topic:             "T",
			Body:              body,
			MaxReconsumeTimes: GroupMaxReconsumeTimes,
			Properties: props(
				"UNIQ_KEY",
				fmt.Sprintf("0A000001000100020003%012d", i),
				"TRAN_MSG",
				"true",
				"PGROUP",
				"p",
			),
		}
		end := &EndRequest{Group: "p", Decision: Commit, Done: func(_ *EndRequest, err error) {
			if err != nil {
				fail(err)
			}
			<-slots
		}}
		req.Done = func(req *SendRequest, err error) {
			if err != nil {
				fail(err)
			}
			res := req.Result()
			end.LogOffset, end.QueueOffset = res.Messages[0].LogOffset, res.QueueOffset
			end.TransactionID = res.UniqueKey
			disk.tx.End(end)
		}
		disk.sender.Send(req)
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	b.StopTimer()
	select {
	case err := <-failed:
		b.Fatal(err)
	default:
	}
	if open := openHalves(disk.tx); open != 0 {
		b.Fatalf("%d are open", open)
	}
}

// BenchmarkTimerAndDelivery sends timers that are due at once, as far as that goes, and waits until all have
// come.
func BenchmarkTimerAndDelivery(b *testing.B) {
	disk := openWaitingDisk(b, store.Config{Dir: b.TempDir()})
	defer disk.stop()
	disk.send(b, "create the topic")
	body := make([]byte, 128)
	f := &inFlight{b: disk, slots: make(chan struct{}, 512)}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		f.send(body, props("UNIQ_KEY", fmt.Sprintf("0A000001000100020003%012d", i), "TIMER_DELAY_MS", "50"))
	}
	f.wait(b)
	disk.awaitCount(b, "T", message.QueueOffset(b.N+1))
	b.StopTimer()
	st := disk.delays.Stats()
	b.ReportMetric(float64(st.LateSum.Microseconds())/float64(b.N)/1000, "mean-late-ms")
}
