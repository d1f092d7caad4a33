// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	core "k8s.io/api/core/v1"
)

// cluster plays Kubernetes for the chart's pods: a network namespace and a root folder each, as the image lays it out; the
// names of the pods; kubelet's probes as rendered; and Services, whose connections go to a ready pod, as kube-proxy's do.
// The test's own namespace is the node: run it in one of its own (unshare -n).
type cluster struct {
	t      *testing.T
	r      *rendered
	dir    string
	prefix string // of namespaces' names
	names  []string
	gate   net.IP // the Service's address

	mu   sync.Mutex
	pods []*pod
	turn int
}

type pod struct {
	name  string
	netns string
	root  string
	ip    string
	logs  *os.File
	cmd   *exec.Cmd
	ended chan struct{}
	ready bool // the endpoint is in the Service
	leave bool // being deleted: out of the Service whatever the probe says
}

const (
	bridge = "roquet0"
	subnet = "10.77.0."
)

func newCluster(t *testing.T, r *rendered, binary string) *cluster {
	c := &cluster{t: t, r: r, dir: t.TempDir(), prefix: fmt.Sprintf("roquet-%d-", os.Getpid()), gate: net.ParseIP(subnet + "1")}
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "link", "add", bridge, "type", "bridge")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", bridge).Run() })
	run(t, "ip", "addr", "add", c.gate.String()+"/24", "dev", bridge)
	run(t, "ip", "link", "set", bridge, "up")
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// The folders above a test's are closed to others; the pods run as 65532.
	root, err := os.MkdirTemp("/tmp", "roquet-pods")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range int(*r.set.Spec.Replicas) {
		c.addPod(i, root, binary)
	}
	c.namespace("client", subnet+"200")
	c.writeHosts()
	for port := range map[int32]bool{c.port("namesrv"): true, c.port("grpc"): true, c.port("http"): true} {
		c.service(port)
	}
	ctx, stop := context.WithCancel(context.Background())
	var probing sync.WaitGroup
	for _, p := range c.pods {
		probing.Go(func() { c.probe(ctx, p) })
	}
	t.Cleanup(func() {
		stop()
		probing.Wait()
		for _, p := range c.pods {
			if p.cmd != nil {
				_ = p.cmd.Process.Kill()
				<-p.ended
			}
			if t.Failed() {
				text, _ := os.ReadFile(p.logs.Name())
				t.Logf("%s said:\n%s", p.name, text[max(0, len(text)-6000):])
			}
		}
	})
	return c
}

// addPod lays out what the image holds and what the pod mounts.
func (c *cluster) addPod(i int, root, binary string) {
	t := c.t
	name := fmt.Sprintf("%s-%d", c.r.set.Name, i)
	p := &pod{name: name, root: filepath.Join(root, name), ip: fmt.Sprint(subnet, 10+i), ended: make(chan struct{})}
	for _, dir := range []string{"", "etc", "etc/roquet", "tmp", "var", "var/lib", "var/lib/roquet"} {
		if err := os.Mkdir(filepath.Join(p.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	user := int(*c.r.set.Spec.Template.Spec.SecurityContext.RunAsUser)
	for _, dir := range []string{"tmp", "var/lib/roquet"} {
		if err := os.Chown(filepath.Join(p.root, dir), user, user); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "cp", binary, filepath.Join(p.root, "roquet"))
	for key, text := range c.r.config.Data {
		if err := os.WriteFile(filepath.Join(p.root, "etc/roquet", key), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if p.logs, err = os.Create(filepath.Join(c.dir, name+".log")); err != nil {
		t.Fatal(err)
	}
	p.netns = c.namespace(name, p.ip)
	c.pods = append(c.pods, p)
}

// namespace makes a network namespace with an address on the bridge.
func (c *cluster) namespace(name, ip string) string {
	t := c.t
	ns, link := c.prefix+name, fmt.Sprintf("rq%d", len(c.names))
	c.names = append(c.names, ns)
	run(t, "ip", "netns", "add", ns)
	t.Cleanup(func() {
		_ = exec.Command("ip", "netns", "del", ns).Run()
		_ = os.RemoveAll("/etc/netns/" + ns)
	})
	run(t, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", ns)
	run(t, "ip", "link", "set", link, "master", bridge, "up")
	run(t, "ip", "-n", ns, "addr", "add", ip+"/24", "dev", "eth0")
	run(t, "ip", "-n", ns, "link", "set", "eth0", "up")
	run(t, "ip", "-n", ns, "link", "set", "lo", "up")
	return ns
}

// writeHosts is the cluster's DNS: the pods by their names in the headless Service, the client Service by its own.
func (c *cluster) writeHosts() {
	text := "127.0.0.1 localhost\n" + c.gate.String() + " roquet\n"
	for _, p := range c.pods {
		text += fmt.Sprintf("%s %s.%s.default.svc.cluster.local %s\n", p.ip, p.name, c.r.set.Spec.ServiceName, p.name)
	}
	client := "/etc/netns/" + c.prefix + "client"
	if err := os.MkdirAll(client, 0o755); err != nil {
		c.t.Fatal(err)
	}
	paths := []string{client + "/hosts"}
	for _, p := range c.pods {
		paths = append(paths, filepath.Join(p.root, "etc/hosts"))
	}
	for _, path := range paths { // in place: those who have it mounted see the change
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) port(name string) int32 {
	return port(&c.r.set.Spec.Template.Spec.Containers[0], name)
}

// start starts the pod's container with exactly its command, arguments, environment and user.
func (c *cluster) start(p *pod) {
	spec := c.r.set.Spec.Template.Spec
	k := spec.Containers[0]
	user := fmt.Sprint(*spec.SecurityContext.RunAsUser)
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		c.t.Fatal(err)
	}
	args := append([]string{"netns", "exec", p.netns, chroot, "--userspec=" + user + ":" + user, p.root}, k.Command...)
	cmd := exec.Command("ip", append(args, k.Args...)...)
	cmd.Env = podEnvironment(&k, p.name, "default")
	cmd.Stdout, cmd.Stderr = p.logs, p.logs
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // whoever stops it looks at the state
		close(ended)
	}()
	c.mu.Lock()
	p.cmd, p.ended, p.leave, p.ready = cmd, ended, false, false
	c.mu.Unlock()
}

// podEnvironment is what kubelet makes of the container's variables.
func podEnvironment(k *core.Container, name, namespace string) []string {
	known := map[string]string{}
	var env []string
	for _, e := range k.Env {
		value := e.Value
		switch {
		case e.ValueFrom == nil:
			for n, v := range known {
				value = strings.ReplaceAll(value, "$("+n+")", v)
			}
		case e.ValueFrom.FieldRef.FieldPath == "metadata.name":
			value = name
		case e.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
			value = namespace
		}
		known[e.Name] = value
		env = append(env, e.Name+"="+value)
	}
	return env
}

// delete is what `kubectl delete pod` does: the endpoint goes and the process is told to stop. It wants a clean end.
func (c *cluster) delete(p *pod) time.Duration {
	c.mu.Lock()
	p.ready, p.leave = false, true
	c.mu.Unlock()
	from := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	grace := time.Duration(*c.r.set.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	select {
	case <-p.ended:
	case <-time.After(grace):
		c.t.Fatalf("%s did not end within its grace of %v", p.name, grace)
	}
	if s := p.cmd.ProcessState; s.ExitCode() != 0 {
		c.t.Errorf("%s ended with %v", p.name, s)
	}
	return time.Since(from)
}

func (c *cluster) kill(p *pod) {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// move gives the pod another address, as a re-created one has.
func (c *cluster) move(p *pod, ip string) {
	run(c.t, "ip", "-n", p.netns, "addr", "del", p.ip+"/24", "dev", "eth0")
	run(c.t, "ip", "-n", p.netns, "addr", "add", ip+"/24", "dev", "eth0")
	c.mu.Lock()
	p.ip = ip
	c.mu.Unlock()
	c.writeHosts()
}

// probe asks as kubelet does, with the rendered probe, until ctx is done.
func (c *cluster) probe(ctx context.Context, p *pod) {
	k := c.r.set.Spec.Template.Spec.Containers[0]
	for failures := int32(0); ctx.Err() == nil; {
		c.mu.Lock()
		ip := p.ip
		c.mu.Unlock()
		if askHealth(ctx, ip, k.ReadinessProbe.GRPC) == nil {
			failures = 0
		} else {
			failures++
		}
		c.mu.Lock()
		if failures == 0 || failures >= k.ReadinessProbe.FailureThreshold {
			p.ready = failures == 0 && !p.leave
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond): // the rendered period is 2 s; the test is not that patient
		}
	}
}

func askHealth(ctx context.Context, ip string, g *core.GRPCAction) error {
	conn, err := grpc.NewClient(fmt.Sprintf("passthrough:///%s:%d", ip, g.Port),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: *g.Service})
	if err == nil && answer.Status != healthpb.HealthCheckResponse_SERVING {
		err = fmt.Errorf("%v", answer.Status)
	}
	return err
}

func (c *cluster) awaitReady(p *pod) time.Duration {
	from := time.Now()
	await(c.t, p.name+" is ready", func() bool {
		select {
		case <-p.ended:
			c.t.Fatalf("%s ended: %v", p.name, p.cmd.ProcessState)
		default:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return p.ready
	})
	return time.Since(from)
}

// service listens on the Service's address and hands each connection to a ready pod, in turn.
func (c *cluster) service(port int32) {
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", c.gate, port))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go c.forward(in.(*net.TCPConn), port)
		}
	}()
}

func (c *cluster) forward(in *net.TCPConn, port int32) {
	defer in.Close()
	c.mu.Lock()
	c.turn++
	to := ""
	for i := range c.pods {
		if p := c.pods[(c.turn+i)%len(c.pods)]; p.ready {
			to = p.ip
			break
		}
	}
	c.mu.Unlock()
	out, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", to, port), time.Second)
	if err != nil {
		_ = in.SetLinger(0) // refused
		return
	}
	defer out.Close()
	done := make(chan struct{}, 2)
	pipe := func(to, from *net.TCPConn) {
		if _, err := io.Copy(to, from); err != nil {
			_ = to.SetLinger(0)
			to.Close()
		} else {
			_ = to.CloseWrite()
		}
		done <- struct{}{}
	}
	go pipe(out.(*net.TCPConn), in)
	go pipe(in, out.(*net.TCPConn))
	<-done
	<-done
}

// put creates a topic or a group on every pod.
func (c *cluster) put(path, body string) {
	for _, p := range c.pods {
		url := fmt.Sprintf("http://%s:%d/v1/%s", p.ip, c.port("http"), path)
		req, err := http.NewRequest(http.MethodPut, url, strings.NewReader(body))
		if err != nil {
			c.t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			c.t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode >= 300 {
			c.t.Fatalf("PUT %s: %s %s", url, resp.Status, text)
		}
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// await waits for a condition, 60 s at most.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(60 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited 60 s in vain until %s", what)
		}
	}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(keys(m)) }
