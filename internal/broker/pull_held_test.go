// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/roquetmq/roquet/internal/message"
)

// runPuller runs a world's puller in a bubble.
func runPuller(t *testing.T, w *world) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.puller.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := w.st.waiting(); n != 0 {
			t.Errorf("%d waiters are left", n)
		}
	}
}

// answer is what a held pull was answered with, and when.
type answer struct {
	result PullResult
	err    error
	at     time.Time
}

// held pulls and returns where the answer will come.
func (w *world) held(off message.QueueOffset, change ...func(*PullRequest)) chan answer {
	got := make(chan answer, 2)
	req := pullRequest(off, &outcome{})
	req.SysFlag |= PullSuspend
	req.Suspend = 15 * time.Second
	req.Done = func(req *PullRequest, err error) { got <- answer{*req.Result(), err, time.Now()} }
	for _, fn := range change {
		fn(req)
	}
	w.puller.Pull(req)
	return got
}

// now returns the answer that must be there.
func now(t *testing.T, got chan answer) answer {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-got:
		return a
	default:
		t.Fatal("no answer")
		return answer{}
	}
}

// notYet fails when there is an answer.
func notYet(t *testing.T, got chan answer) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-got:
		t.Fatalf("answer %+v", a)
	default:
	}
}

func TestHeldPull(t *testing.T) {
	t.Parallel()
	wants := func(tags string) func(*PullRequest) {
		return func(r *PullRequest) { r.Subscription.Text = tags }
	}
	tests := []struct {
		name string
		run  func(t *testing.T, w *world)
	}{
		{"C058 is answered when a message comes", func(t *testing.T, w *world) {
			got := w.held(0)
			notYet(t, got)
			pass(3 * time.Second)
			sent := time.Now()
			w.mustSend(t, "T", "b")
			if a := now(
				t,
				got,
			); a.err != nil || a.result.Outcome != PullFound || a.result.Next != 1 ||
				!a.at.Equal(sent) {
				t.Errorf("answer %+v", a)
			}
		}},
		{"is answered when its time is up", func(t *testing.T, w *world) {
			start := time.Now()
			got := w.held(0)
			pass(14900 * time.Millisecond)
			notYet(t, got)
			pass(300 * time.Millisecond)
			a := now(t, got)
			if a.err != nil || a.result.Outcome != PullNotFound || a.result.Next != 0 {
				t.Errorf("answer %+v", a)
			}
			if late := a.at.Sub(start) - 15*time.Second; late < 0 || late > holdTick {
				t.Errorf("late by %v", late)
			}
		}},
		{"does not wait without the flag", func(t *testing.T, w *world) {
			got := w.held(0, func(r *PullRequest) { r.SysFlag &^= PullSuspend })
			if a := now(t, got); a.result.Outcome != PullNotFound {
				t.Errorf("answer %+v", a)
			}
		}},
		{"does not wait when the offset is wrong", func(t *testing.T, w *world) {
			if a := now(t, w.held(9)); a.result.Outcome != PullOffsetMoved || a.result.Next != 0 {
				t.Errorf("answer %+v", a)
			}
		}},
		{"C059 waits on over messages it does not want", func(t *testing.T, w *world) {
			got := w.held(0, wants("a"))
			for range 3000 {
				w.mustSend(t, "T", "b", withProps("TAGS", "b"))
			}
			notYet(t, got)
			w.mustSend(t, "T", "wanted", withProps("TAGS", "a"))
			if a := now(
				t,
				got,
			); a.result.Outcome != PullFound || a.result.Next != 3001 ||
				len(a.result.Records) != 1 {
				t.Errorf("answer %+v", a)
			}
		}},
		{"tells how far it came when its time is up", func(t *testing.T, w *world) {
			got := w.held(0, wants("a"))
			for range 10 {
				w.mustSend(t, "T", "b", withProps("TAGS", "b"))
			}
			pass(16 * time.Second)
			if a := now(
				t,
				got,
			); a.result.Outcome != PullRetryImmediately || a.result.Status != "NO_MATCHED_MESSAGE" ||
				a.result.Next != 10 {
				t.Errorf("answer %+v", a)
			}
			if off, _ := w.offsets.QueryPull("g", "T", 0); off != 10 {
				t.Errorf("pull offset %d", off)
			}
		}},
		{"C063 collision of tags does not answer it", func(t *testing.T, w *world) {
			got := w.held(0, wants("Aa"))
			w.mustSend(t, "T", "b", withProps("TAGS", "BB"))
			notYet(t, got)
			w.mustSend(t, "T", "b", withProps("TAGS", "Aa"))
			if a := now(t, got); a.result.Outcome != PullFound || len(a.result.Records) != 1 {
				t.Errorf("answer %+v", a)
			}
		}},
		{"is canceled when its connection ends", func(t *testing.T, w *world) {
			mine, other := w.held(0), w.held(0, func(r *PullRequest) { r.Peer = 2 })
			w.puller.Disconnected(1)
			if a := now(t, mine); !errors.Is(a.err, ErrCanceled) {
				t.Errorf("answer %+v", a)
			}
			notYet(t, other)
			if n := w.puller.Held(); n != 1 {
				t.Errorf("%d are held", n)
			}
		}},
		{"is refused when its topic is deleted", func(t *testing.T, w *world) {
			got := w.held(0)
			var o outcome
			w.topics.Delete("T", o.done)
			w.st.apply()
			w.st.remove("T")
			if a := now(t, got); !errors.Is(a.err, TopicNotExist) {
				t.Errorf("answer %+v", a)
			}
		}},
		{"meets a reset at its end", func(t *testing.T, w *world) {
			w.mustSend(t, "T", "b")
			got := w.held(1)
			var o outcome
			w.offsets.Reset("g", "T", map[int32]message.QueueOffset{0: 0}, o.done)
			w.st.apply()
			pass(16 * time.Second)
			if a := now(t, got); a.result.Status != "OFFSET_RESET" || a.result.Next != 0 {
				t.Errorf("answer %+v", a)
			}
		}},
		{"commits once, when it comes", func(t *testing.T, w *world) {
			w.mustSend(t, "T", "b")
			got := w.held(1, func(r *PullRequest) { r.SysFlag |= PullCommitOffset; r.CommitOffset = 1 })
			if off, _ := w.offsets.Query("g", "T", 0); off != 1 {
				t.Errorf("committed %d", off)
			}
			w.offsets.Commit("g", "T", 0, 2)
			w.mustSend(t, "T", "b")
			now(t, got)
			if off, _ := w.offsets.Query("g", "T", 0); off != 2 {
				t.Errorf("committed %d by the answer", off)
			}
		}},
		{"a group is created on its first pull", func(t *testing.T, w *world) {
			got := w.held(0, func(r *PullRequest) { r.Group = "new" })
			notYet(t, got)
			w.st.apply()
			notYet(t, got)
			w.mustSend(t, "T", "b")
			if a := now(t, got); a.result.Outcome != PullFound {
				t.Errorf("answer %+v", a)
			}
		}},
		{"commits nothing over what was committed while its group was created", func(t *testing.T, w *world) {
			commit := func(r *PullRequest) { r.Group, r.SysFlag, r.CommitOffset = "new", r.SysFlag|PullCommitOffset, 1 }
			w.groups.OnChange(func([]string) { w.offsets.Commit("new", "T", 0, 2) })
			got := w.held(0, commit)
			w.st.apply()
			notYet(t, got)
			if off, _ := w.offsets.Query("new", "T", 0); off != 2 {
				t.Errorf("committed %d", off)
			}
			other := w.held(0, commit, func(r *PullRequest) { r.Group = "newer" })
			w.st.apply()
			notYet(t, other)
			if off, _ := w.offsets.Query("newer", "T", 0); off != 1 {
				t.Errorf("committed %d by the first pull", off)
			}
			w.mustSend(t, "T", "b")
			now(t, got)
			now(t, other)
		}},
		{"lets go of the request's buffers", func(t *testing.T, w *world) {
			var kept *PullRequest
			got := w.held(0, wants("a||b"), func(r *PullRequest) { kept = r; r.Topic = string([]byte("T")) })
			notYet(t, got)
			topic, _ := w.topics.Lookup("T")
			if kept.Subscription.Text != "" || unsafe.StringData(kept.Topic) != unsafe.StringData(topic.Name) {
				t.Errorf("keeps %+v", kept.Subscription)
			}
			w.mustSend(t, "T", "b", withProps("TAGS", "b"))
			if a := now(t, got); a.result.Outcome != PullFound {
				t.Errorf("answer %+v", a)
			}
		}},
		{"many wait for one message", func(t *testing.T, w *world) {
			var all []chan answer
			for i := range 100 {
				all = append(all, w.held(0, func(r *PullRequest) { r.Peer = uint64(i) }))
			}
			w.mustSend(t, "T", "b")
			for _, got := range all {
				if a := now(t, got); a.result.Outcome != PullFound {
					t.Fatalf("answer %+v", a)
				}
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newPullWorld(t)
				stop := runPuller(t, w)
				defer stop()
				tt.run(t, w)
			})
		})
	}
}

func TestC210HeldPullsReturnOnStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newPullWorld(t)
		stop := runPuller(t, w)
		got := w.held(0)
		notYet(t, got)
		stop()
		if a := now(t, got); a.err != nil || a.result.Outcome != PullNotFound {
			t.Errorf("answer %+v", a)
		}
		if a := now(t, w.held(0)); a.result.Outcome != PullNotFound {
			t.Errorf("after the stop: %+v", a)
		}
	})
}

func TestShortPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		flushes := 0
		w := newPullWorld(t, func(c *worldConfig) {
			c.puller.LongPollingDisabled, c.puller.Flush = true, func() { flushes++ }
		})
		stop := runPuller(t, w)
		got := w.held(0)
		pass(1200 * time.Millisecond)
		if a := now(t, got); a.result.Outcome != PullNotFound {
			t.Errorf("answer %+v", a)
		}
		stop()
		if flushes != 1 {
			t.Errorf("%d flushes", flushes)
		}
	})
}
