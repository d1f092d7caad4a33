// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	binary  = flag.String("roquet", "", "roquet binary to run as the chart's pods")
	interop = flag.String("interop", "", "folder of the built clients of the interoperability suite")
)

// client is a process of a released client: what it said so far.
type client struct {
	name  string
	stdin io.Closer
	ended chan struct{}
	logs  *os.File

	mu     sync.Mutex
	acked  map[string]string // key → broker
	got    map[string]bool
	failed []failure
	extra  int // messages received once more
}

type failure struct {
	at    time.Time
	cause string
}

// spawn runs a client of e2e/deploy/clients in the clients' namespace.
func (c *cluster) spawn(name, jars, source string, args ...string) *client {
	t := c.t
	all := append([]string{
		"netns", "exec", c.prefix + "client", "java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m",
		// Names are looked up anew after a second (30 otherwise), so that the test need not wait for a moved pod.
		"-Dsun.net.inetaddr.ttl=1", "-Duser.home=" + c.dir, "-Drocketmq.client.logRoot=" + c.dir, "-Drocketmq.log.root=" + c.dir,
		"-cp", *interop + "/" + jars + "/lib/*", "clients/" + source,
	}, args...)
	cmd := exec.Command("ip", all...)
	logs, err := os.Create(c.dir + "/" + name + ".client.log")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = logs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k := &client{
		name: name, stdin: in, ended: make(chan struct{}), logs: logs, acked: map[string]string{}, got: map[string]bool{},
	}
	go func() {
		defer close(k.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			k.take(strings.SplitN(lines.Text(), " ", 4))
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-k.ended
		if t.Failed() {
			text, _ := os.ReadFile(logs.Name())
			t.Logf("client %s said:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
	return k
}

func (k *client) take(words []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case words[0] == "ok" && len(words) == 3:
		k.acked[words[1]] = words[2]
	case words[0] == "got" && len(words) == 2:
		if k.got[words[1]] {
			k.extra++
		}
		k.got[words[1]] = true
	case words[0] == "fail" && len(words) == 4:
		ms, _ := strconv.ParseInt(words[2], 10, 64)
		k.failed = append(k.failed, failure{at: time.UnixMilli(ms), cause: words[3]})
	}
}

// sent is how many sends were acknowledged, and by broker ("-" for 5.x, which does not say).
func (k *client) sent(broker string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, b := range k.acked {
		if broker == "" || b == broker {
			n++
		}
	}
	return n
}

func (k *client) end() {
	k.stdin.Close()
	<-k.ended
}

// phase is a stretch of the test whose failed calls are counted by themselves.
type phase struct {
	name string
	from time.Time
}

// TestRollingRestart restarts the chart's pods under the load of released 4.x and 5.x clients: C210, C182. Each pod comes
// back with another address, as re-created pods do. Nothing acknowledged is lost, and no call fails after the clients' own
// retries. After kill -9 (the container starts again where it was) calls may fail, and are counted; nothing is lost.
func TestRollingRestart(t *testing.T) {
	if *binary == "" || *interop == "" {
		t.Skip("no -roquet and -interop: .ci/run gives them")
	}
	// The delay is to the 4.x clients' interval (3 s here) as the chart's 35 s are to their default of 30.
	c := newCluster(t, render(t, "replicas: 2\ndrainDelaySeconds: 4"), *binary)
	began := time.Now()
	for _, p := range c.pods {
		c.start(p)
	}
	for _, p := range c.pods {
		c.awaitReady(p)
	}
	t.Logf("2 pods ready after %v", time.Since(began).Round(time.Millisecond))
	c.put("topics/rolling4", `{"queues": 4}`)
	c.put("topics/rolling5", `{"queues": 4}`)

	p4 := c.spawn("p4", "java-remoting-4.9", "Client4.java", "produce", "roquet:9876", "rolling4", "4", "5")
	p5 := c.spawn("p5", "java-grpc", "Client5.java", "produce", "roquet:8081", "rolling5", "4", "5")
	reader := c.spawn("c4", "java-remoting-4.9", "Client4.java", "consume", "roquet:9876", "rolling4", "rolling5")
	more := func(n int) {
		t.Helper()
		a, b := p4.sent("")+n, p5.sent("")+n
		await(t, fmt.Sprintf("both producers have sent %d more", n), func() bool { return p4.sent("") >= a && p5.sent("") >= b })
	}
	c.put("groups/rolling5-readers", `{}`)
	var readers5 []*client
	for _, p := range c.pods { // a 5.x consumer has the messages of the broker that it dials
		readers5 = append(readers5, c.spawn("c5-"+p.name, "java-grpc", "Client5.java", "consume",
			fmt.Sprintf("%s.%s.default.svc.cluster.local:8081", p.name, c.r.set.Spec.ServiceName), "rolling5", "rolling5-readers"))
	}
	more(200)

	var phases []phase
	enter := func(name string) { phases = append(phases, phase{name, time.Now()}) }
	back := func(p *pod) {
		t.Helper()
		before := p4.sent(p.name)
		await(t, "the 4.x producer is back at "+p.name, func() bool { return p4.sent(p.name) > before+20 })
	}
	enter("rolling restart")
	for i, p := range slices.Backward(c.pods) { // a StatefulSet begins with the last
		took := c.delete(p)
		c.move(p, fmt.Sprint(subnet, 110+i))
		more(50)
		c.start(p)
		t.Logf("%s: SIGTERM to exit %v, start to ready %v", p.name, took.Round(time.Millisecond), c.awaitReady(p).Round(time.Millisecond))
		back(p)
		more(100)
	}
	enter("kill -9")
	killed := c.pods[1]
	c.kill(killed)
	more(50)
	c.start(killed)
	t.Logf("%s: kill -9, start to ready %v", killed.name, c.awaitReady(killed).Round(time.Millisecond))
	back(killed)
	more(100)

	p4.end()
	p5.end()
	read := map[string]func() int{
		"a 4.x consumer, sent by 4.x": func() int { return unread(p4, reader) },
		"a 4.x consumer, sent by 5.x": func() int { return unread(p5, reader) },
		"5.x consumers, sent by 5.x":  func() int { return unread(p5, readers5...) },
	}
	deadline := time.Now().Add(60 * time.Second)
	for _, who := range sorted(read) {
		for read[who]() > 0 && time.Now().Before(deadline) {
			<-time.After(100 * time.Millisecond)
		}
		if n := read[who](); n > 0 {
			t.Errorf("%s: %d acknowledged messages are lost", who, n)
		}
	}
	for _, k := range append(readers5, reader) {
		t.Logf("%s: %d messages read, %d of them again", k.name, len(k.got), k.extra)
	}
	for _, k := range []*client{p4, p5} {
		counts := map[string]int{}
		for _, f := range k.failed {
			in := "start"
			for _, ph := range phases {
				if !f.at.Before(ph.from) {
					in = ph.name
				}
			}
			if counts[in]++; in != "kill -9" || counts[in] == 1 {
				t.Logf("%s, %s: %s", k.name, in, f.cause)
			}
		}
		t.Logf("%s: %d sends acknowledged, failed after the client's retries: %v", k.name, len(k.acked), counts)
		for _, in := range sorted(counts) {
			if in != "kill -9" {
				t.Errorf("%s: %d calls failed in the phase %q", k.name, counts[in], in)
			}
		}
	}
}

// unread is how many acknowledged messages of a producer none of the readers has.
func unread(producer *client, readers ...*client) (n int) {
	have := map[string]bool{}
	for _, r := range readers {
		r.mu.Lock()
		for key := range r.got {
			have[key] = true
		}
		r.mu.Unlock()
	}
	for key := range producer.acked { // it has ended
		if !have[key] {
			n++
		}
	}
	return n
}
