// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write deploy/k8s and the renders in testdata anew")

const (
	chartDir     = "../../deploy/helm/roquet"
	manifestsDir = "../../deploy/k8s"
)

// rendered is a chart's output, decoded strictly: a field that the API does not know is an error.
type rendered struct {
	set       apps.StatefulSet
	services  map[string]*core.Service
	config    core.ConfigMap
	account   core.ServiceAccount
	budget    *policy.PodDisruptionBudget
	monitor   *monitoring.ServiceMonitor
	network   *networking.NetworkPolicy
	test      core.Pod
	documents map[string]string // by file name
}

// render renders the chart with a values file, "" for the defaults.
func render(t *testing.T, values string) *rendered {
	t.Helper()
	r, err := tryRender(values)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryRender(values string) (*rendered, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	user, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(
		chart, user, chartutil.ReleaseOptions{Name: "roquet", Namespace: "default", Revision: 1, IsInstall: true}, nil,
	)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	r := &rendered{services: map[string]*core.Service{}, documents: map[string]string{}}
	for path, text := range files {
		if strings.HasSuffix(path, "NOTES.txt") || strings.HasSuffix(path, ".tpl") {
			continue
		}
		name := filepath.Base(path)
		if strings.TrimSpace(text) != "" {
			r.documents[name] = strings.TrimSpace(text) + "\n"
		}
		for _, doc := range strings.Split(text, "\n---\n") {
			if err := r.decode(doc); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", path, err, doc)
			}
		}
	}
	return r, nil
}

func (r *rendered) decode(doc string) error {
	var head struct {
		APIVersion, Kind string
	}
	if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
		return err
	}
	strict := func(into any) error { return yaml.UnmarshalStrict([]byte(doc), into) }
	switch head.APIVersion + " " + head.Kind {
	case " ":
		return nil // an option that is off
	case "apps/v1 StatefulSet":
		return strict(&r.set)
	case "v1 Service":
		s := &core.Service{}
		err := strict(s)
		r.services[s.Name] = s
		return err
	case "v1 ConfigMap":
		return strict(&r.config)
	case "v1 ServiceAccount":
		return strict(&r.account)
	case "v1 Pod":
		return strict(&r.test)
	case "policy/v1 PodDisruptionBudget":
		r.budget = &policy.PodDisruptionBudget{}
		return strict(r.budget)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		r.monitor = &monitoring.ServiceMonitor{}
		return strict(r.monitor)
	case "networking.k8s.io/v1 NetworkPolicy":
		r.network = &networking.NetworkPolicy{}
		return strict(r.network)
	}
	return fmt.Errorf("unexpected %s %s", head.APIVersion, head.Kind)
}

func readValues(t *testing.T, name string) string {
	t.Helper()
	if name == "default" {
		return ""
	}
	text, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryRender checks what must hold whatever the values are.
func TestEveryRender(t *testing.T) {
	for _, values := range []string{"default", "full", "bare"} {
		t.Run(values, func(t *testing.T) {
			r := render(t, readValues(t, values))
			pod := r.set.Spec.Template
			c := pod.Spec.Containers[0]
			checkSafety(t, &pod.Spec)
			checkSafety(t, &r.test.Spec)
			checkProbes(t, &c)
			checkPorts(t, r, &c)
			checkMounts(t, r, &c)
			// Kubernetes' variables for Services begin with ROQUET_, as settings do.
			if links := pod.Spec.EnableServiceLinks; links == nil || *links {
				t.Error("service links are on: ROQUET_PORT would be an unknown setting")
			}
			labels := pod.Labels
			if !within(r.set.Spec.Selector.MatchLabels, labels) {
				t.Error("the StatefulSet does not select its own pods")
			}
			for name, s := range r.services {
				selector := withoutPodName(s.Spec.Selector)
				if len(selector) == 0 || !within(selector, labels) {
					t.Errorf("Service %s selects %v, pods have %v", name, selector, labels)
				}
			}
			if within(r.services["roquet"].Spec.Selector, r.test.Labels) {
				t.Error("the Service sends clients to the test pod")
			}
			headless := r.services[r.set.Spec.ServiceName]
			if headless == nil || headless.Spec.ClusterIP != core.ClusterIPNone || !headless.Spec.PublishNotReadyAddresses {
				t.Errorf("serviceName %q: %+v", r.set.Spec.ServiceName, headless)
			}
			if grace, drain := *pod.Spec.TerminationGracePeriodSeconds, environment(&c)["ROQUET_DRAIN_DELAY"]; grace < 60 ||
				(drain != "") != (*r.set.Spec.Replicas > 1) {
				t.Errorf("%d replicas, drain delay %q, grace of %d s", *r.set.Spec.Replicas, drain, grace)
			}
			if r.budget != nil && !reflect.DeepEqual(r.budget.Spec.Selector, r.set.Spec.Selector) {
				t.Errorf("the budget protects %v, the pods are %v", r.budget.Spec.Selector, r.set.Spec.Selector)
			}
			golden(t, values, r)
		})
	}
}

// golden compares a whole render with the one that is committed.
func golden(t *testing.T, values string, r *rendered) {
	t.Helper()
	if values == "default" {
		return // deploy/k8s is its golden copy
	}
	var all bytes.Buffer
	for _, name := range slices.Sorted(keys(r.documents)) {
		fmt.Fprintf(&all, "---\n# %s\n%s", name, r.documents[name])
	}
	same(t, "testdata/"+values+".rendered.yaml", all.String())
}

func same(t *testing.T, path, want string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("%s is not what the chart renders; go test . -rewrite (-render +file):\n%s", path, diff)
	}
}

// TestManifests holds deploy/k8s to the chart's default render.
func TestManifests(t *testing.T) {
	r := render(t, "")
	want := map[string]string{}
	for name, text := range r.documents {
		if name != "health.yaml" { // a hook of Helm
			text = strings.ReplaceAll(text, "app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl")
			want[name] = text
			same(t, filepath.Join(manifestsDir, name), text)
		}
	}
	files, err := filepath.Glob(manifestsDir + "/*.yaml")
	if err != nil || len(files) != len(want) {
		t.Errorf("%d files for %d of the chart: %v, %v", len(files), len(want), files, err)
	}
}

func checkSafety(t *testing.T, pod *core.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	s := pod.SecurityContext
	switch {
	case !*s.RunAsNonRoot, *s.RunAsUser != 65532:
		t.Error("runs as root")
	case s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
		t.Error("no seccomp profile")
	case *c.SecurityContext.AllowPrivilegeEscalation, !*c.SecurityContext.ReadOnlyRootFilesystem:
		t.Error("root file system writable, or privileges can grow")
	case !slices.Equal(c.SecurityContext.Capabilities.Drop, []core.Capability{"ALL"}):
		t.Error("keeps capabilities")
	case pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken:
		t.Error("mounts a token that it does not need")
	}
	if len(c.SecurityContext.Capabilities.Add) > 0 || pod.HostNetwork || pod.HostPID {
		t.Error("asks for more than it needs")
	}
}

func checkProbes(t *testing.T, c *core.Container) {
	t.Helper()
	grpc := port(c, "grpc")
	for name, p := range map[string]*core.Probe{
		"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe, "startup": c.StartupProbe,
	} {
		want := name
		if name == "startup" {
			want = "liveness"
		}
		if p == nil || p.GRPC == nil || p.GRPC.Port != grpc || p.GRPC.Service == nil || *p.GRPC.Service != want {
			t.Errorf("%s probe: %+v", name, p)
		}
	}
	if wait := c.StartupProbe.PeriodSeconds * c.StartupProbe.FailureThreshold; wait < 600 {
		t.Errorf("a recovery gets only %d s", wait)
	}
	if h := c.Lifecycle; h != nil && (h.PreStop == nil || h.PreStop.Sleep == nil || h.PreStop.Exec != nil) {
		t.Errorf("a hook other than a sleep: the image has no shell: %+v", h)
	}
}

func checkPorts(t *testing.T, r *rendered, c *core.Container) {
	t.Helper()
	env := environment(c)
	for name, variable := range map[string]string{
		"namesrv": "ROQUET_NAMESRV_PORT", "broker": "ROQUET_LISTEN_PORT", "fast": "ROQUET_FAST_PORT",
		"grpc": "ROQUET_GRPC_SERVER_PORT", "http": "ROQUET_HTTP_PORT",
	} {
		p := port(c, name)
		if env[variable] != fmt.Sprint(p) {
			t.Errorf("%s: %s is %q, the container's port %d", name, variable, env[variable], p)
		}
		for _, s := range r.services {
			i := slices.IndexFunc(s.Spec.Ports, func(sp core.ServicePort) bool { return sp.Name == name })
			if i < 0 || s.Spec.Ports[i].Port != p || s.Spec.Ports[i].TargetPort.StrVal != name {
				t.Errorf("Service %s: port %s: %+v", s.Name, name, s.Spec.Ports)
			}
		}
		if r.network != nil {
			for _, rule := range r.network.Spec.Ingress {
				if !slices.ContainsFunc(rule.Ports, func(n networking.NetworkPolicyPort) bool { return n.Port.StrVal == name }) {
					t.Errorf("the network policy closes %s", name)
				}
			}
		}
	}
}

func checkMounts(t *testing.T, r *rendered, c *core.Container) {
	t.Helper()
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.MountPath] = m.Name
	}
	want := map[string]string{"/var/lib/roquet": "data", "/etc/roquet": "config", "/tmp": "tmp"}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Error(diff)
	}
	if environment(c)["ROQUET_STORE_PATH_ROOT_DIR"] != "/var/lib/roquet" {
		t.Error("the data does not go to the volume")
	}
	if len(r.set.Spec.VolumeClaimTemplates) != 1 || r.set.Spec.VolumeClaimTemplates[0].Name != "data" {
		t.Error("no claim for the data")
	}
	if keep := r.set.Spec.PersistentVolumeClaimRetentionPolicy; keep.WhenDeleted != "Retain" || keep.WhenScaled != "Retain" {
		t.Errorf("volumes go with their pods: %+v", keep)
	}
	if !slices.Equal(c.Args, []string{"serve", "--config", "/etc/roquet/roquet.yaml"}) || r.config.Data["roquet.yaml"] == "" {
		t.Errorf("args %v, config %v", c.Args, r.config.Data)
	}
}

// TestOptions checks what single values do.
func TestOptions(t *testing.T) {
	r := render(t, readValues(t, "full"))
	c := r.set.Spec.Template.Spec.Containers[0]
	env := environment(&c)
	for name, want := range map[string]string{
		"GOMEMLIMIT":                  "3GiB",
		"ROQUET_BROKER_NAME":          "$(POD_NAME)",
		"ROQUET_BROKER_IP1":           "$(POD_NAME).mq.example.test",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317",
		"ROQUET_NAMESRV_ADDR": "roquet-0.roquet-headless.$(POD_NAMESPACE).svc.k8s.test:19876;" +
			"roquet-1.roquet-headless.$(POD_NAMESPACE).svc.k8s.test:19876;" +
			"roquet-2.roquet-headless.$(POD_NAMESPACE).svc.k8s.test:19876",
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	for i, s := range []string{"roquet-0", "roquet-1", "roquet-2"} {
		service := r.services[s]
		if service == nil || service.Spec.Selector["statefulset.kubernetes.io/pod-name"] != s {
			t.Errorf("Service of pod %d: %+v", i, service)
		}
	}
	if got := c.Resources.Limits.Memory().String(); got != "4Gi" {
		t.Errorf("memory limit %s", got)
	}
	if c.Lifecycle.PreStop.Sleep.Seconds != 5 {
		t.Error("no sleep before the stop")
	}
	headless := r.services["roquet-headless"]
	scraped := 0
	for _, s := range r.services {
		if within(r.monitor.Spec.Selector.MatchLabels, s.Labels) && s.Labels["roquet/scrape"] != "" {
			scraped++
		}
	}
	if scraped != 1 || headless.Labels["roquet/scrape"] == "" || r.monitor.Spec.Endpoints[0].Port != "http" {
		t.Errorf("the monitor scrapes %d Services: every pod once is wanted", scraped)
	}
	if from := r.network.Spec.Ingress[1].From; len(from) != 1 || from[0].NamespaceSelector == nil {
		t.Errorf("the network policy lets in %+v", from)
	}
	if bare := render(t, readValues(t, "bare")); bare.budget != nil || bare.network == nil || bare.monitor != nil {
		t.Error("options that are off were rendered, or the other way round")
	}
	if _, err := tryRender("drainDelaySeconds: 80"); err == nil || !strings.Contains(err.Error(), "must be 100 at least") {
		t.Errorf("a drain longer than the grace: %v", err)
	}
	a, b := render(t, "config: {logLevel: info}"), render(t, "config: {logLevel: debug}")
	if a.set.Spec.Template.Annotations["checksum/config"] == b.set.Spec.Template.Annotations["checksum/config"] {
		t.Error("another configuration does not roll the pods")
	}
}

// TestWrongValues are refused by the chart's schema.
func TestWrongValues(t *testing.T) {
	for _, values := range []string{
		"replicas: three", "replicas: 0", "replica: 3", "ports: {grpc: 0}", "ports: {rest: 80}", "persistence: {size: big}",
		"service: {type: ExternalName}", "goMemLimit: 2Gi", "terminationGracePeriodSeconds: 5",
		"persistence: {accessModes: [ReadWriteMany]}", "config: {a: {b: c}}",
	} {
		if _, err := tryRender(values); err == nil || !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

func port(c *core.Container, name string) int32 {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	return 0
}

func environment(c *core.Container) map[string]string {
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return env
}

func within(part, whole map[string]string) bool {
	for k, v := range part {
		if whole[k] != v {
			return false
		}
	}
	return true
}

func withoutPodName(selector map[string]string) map[string]string {
	rest := map[string]string{}
	for k, v := range selector {
		if k != "statefulset.kubernetes.io/pod-name" {
			rest[k] = v
		}
	}
	return rest
}
