package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// install creates the shipped objects of these kinds; webhooks lead to the first extender by its
// address, for there is no Service, and trust the authority of its certificate. They go with the test.
func (w *world) install(t *testing.T, kinds ...string) {
	t.Helper()
	list, _ := kustomized(t)
	for _, kind := range kinds {
		found := false
		for _, o := range list {
			if o.Kind() != kind {
				continue
			}
			found = true
			if hooks, ok := o["webhooks"].([]any); ok {
				w.redirect(t, hooks)
			}
			m, err := o.Manifest()
			must(t, err)
			err = w.cp.Admin.Create(m, false)
			if harness.Code(err) == 409 && strings.HasPrefix(m.Name, "tessera-enforcer") {
				continue // of a test of the node agent, which leaves it
			}
			must(t, err)
			t.Cleanup(func() { must(t, w.cp.Admin.Remove(m)) })
		}
		if !found {
			t.Fatalf("deploy/ has no %s", kind)
		}
	}
}

func (w *world) redirect(t *testing.T, hooks []any) {
	t.Helper()
	ca, err := harness.Base64File(filepath.Join(w.certs, "ca.crt"))
	must(t, err)
	for _, h := range hooks {
		hook := h.(map[string]any)
		service := harness.Object(hook).At("clientConfig", "service").(map[string]any)
		if service["name"] != "tessera-extender" || service["namespace"] != "kube-system" {
			t.Errorf("the webhook goes to %v", service)
		}
		hook["clientConfig"] = map[string]any{"url": w.exts[0].URL + service["path"].(string), "caBundle": ca}
	}
}

const dryRun = "/api/v1/namespaces/default/pods?dryRun=All"

// until waits until the API server uses what was installed: what f returns is nil then.
func until(t *testing.T, f func() error) {
	t.Helper()
	must(t, harness.Poll(20*time.Second, 50*time.Millisecond, f))
}

// user is somebody who may do with pods what they like, in all their parts, and nothing else.
func (w *world) user(t *testing.T) *harness.Client {
	t.Helper()
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	for _, x := range []struct {
		path string
		body map[string]any
	}{
		{"/api/v1/namespaces/default/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "somebody"}}},
		{rbac + "clusterroles", map[string]any{"metadata": map[string]any{"name": "somebody"},
			"rules": []any{map[string]any{"apiGroups": []string{""}, "verbs": []string{"*"},
				"resources": []string{"pods", "pods/status", "pods/binding", "bindings"}}}}},
		{rbac + "clusterrolebindings", map[string]any{"metadata": map[string]any{"name": "somebody"},
			"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "somebody"},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "somebody",
				"namespace": "default"}}}},
	} {
		if err := w.cp.Admin.Post(x.path, x.body, nil); err != nil && harness.Code(err) != 409 {
			t.Fatal(err)
		}
	}
	var ret struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	must(t, w.cp.Admin.Post("/api/v1/namespaces/default/serviceaccounts/somebody/token",
		map[string]any{"spec": map[string]any{"expirationSeconds": 3600}}, &ret))
	return w.cp.Admin.WithToken(ret.Status.Token)
}

// The whole way as shipped: a pod that says what it wants by annotation alone is completed by /mutate
// and placed; nonsense is refused by /validate when it is made; all over TLS, the scheduler with its
// client certificate (cases 8, 27 and 28).
func TestCase08AdmissionWebhooks(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 2, 81920), tls: true, args: []string{"--privileged=refuse"}})
	w.install(t, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
	until(t, func() error { // both are in use
		err := w.cp.Admin.Post(dryRun, harness.NewPod("x").Annotate("gpu-fraction", "1.5"), nil)
		if harness.Code(err) != 422 {
			return fmt.Errorf("not refused yet: %v", err)
		}
		var made harness.Pod
		err = w.cp.Admin.Post(dryRun, harness.NewPod("x").Annotate("gpu-memory", "1024"), &made)
		if err == nil && made.Spec.Containers[0].Resources.Limits[harness.MemoryResource] == "" {
			err = fmt.Errorf("no request was added")
		}
		return err
	})
	p := w.make(harness.NewPod("share").Annotate("gpu-memory", "20480"))
	if r := p.Spec.Containers[0].Resources; r.Limits[harness.MemoryResource] != "20480" ||
		r.Requests[harness.MemoryResource] != "20480" {
		t.Errorf("the pod was made with %+v", r)
	}
	waitBound(t, w.cp, "share")
	w.make(harness.NewPod("half").Annotate("gpu-fraction", "0.5", "gpu-fraction-num-devices", "2"))
	if p := waitBound(t, w.cp, "half"); p.Spec.Containers[0].Resources.Limits[harness.MemoryResource] == "" {
		t.Error("nothing was added to a fraction")
	}
	// What a user writes under our keys is gone before the pod is there.
	p = w.make(forge(harness.NewPod("liar").Annotate("gpu-memory", "1024"), "gpu-77", "GPU-none", 70000))
	for key := range p.Metadata.Annotations {
		if key == harness.AllocationKey || strings.HasSuffix(key, ".gpus.devices") {
			t.Errorf("%s is still there", key)
		}
	}
	for _, x := range []struct{ key, value string }{
		{"gpu-fraction", "1.5"}, {"gpu-fraction", "NaN"}, {"gpu-memory", "3000000000"},
		{"gpu-memory", "9223372036854775808"}, {"gpu-memory", "-1"},
		{container("nobody", "gpu-memory.request"), "1Gi"},
		{harness.TesseraContainers + "main.mig-profile", "nine"},
	} {
		bad := harness.NewPod("").Annotate(x.key, x.value)
		bad.Metadata.GenerateName = "bad-"
		err := w.cp.Admin.Post(dryRun, bad, nil)
		if harness.Code(err) != 422 || !strings.Contains(err.Error(), x.key) ||
			!strings.Contains(err.Error(), x.value) && !strings.HasSuffix(x.key, ".request") {
			t.Errorf("%s=%s: %v", x.key, x.value, err)
		}
	}
	w.privileged(t)
	w.schedulerNames(t)
	w.whileDown(t)
	w.verify()
}

// privileged: a container that could use every GPU is refused in a new pod, and as what `kubectl debug`
// adds to the pod "share".
func (w *world) privileged(t *testing.T) {
	t.Helper()
	const word = "lets it use every GPU"
	all := map[string]any{"privileged": true}
	pod := map[string]any{"metadata": map[string]any{"name": "x", "annotations": map[string]string{"gpu-memory": "1024"}},
		"spec": map[string]any{"containers": []any{
			map[string]any{"name": "main", "image": "none", "securityContext": all}}}}
	if err := w.cp.Admin.Post(dryRun, pod, nil); harness.Code(err) != 422 || !strings.Contains(err.Error(), word) {
		t.Errorf("a privileged pod: %v", err)
	}
	debug := func(security map[string]any) error {
		return w.cp.Admin.Merge("/api/v1/namespaces/default/pods/share/ephemeralcontainers?dryRun=All",
			map[string]any{"spec": map[string]any{"ephemeralContainers": []any{map[string]any{
				"name": "debugger", "image": "none", "securityContext": security}}}})
	}
	if err := debug(all); harness.Code(err) != 422 || !strings.Contains(err.Error(), word) {
		t.Errorf("a privileged debug container: %v", err)
	}
	if err := debug(map[string]any{}); err != nil {
		t.Errorf("a debug container: %v", err)
	}
}

// schedulerNames: GPU pods of the default scheduler become ours where a label of the pod or of its
// namespace says so; a pod's own label goes before that of its namespace (case 32).
func (w *world) schedulerNames(t *testing.T) {
	t.Helper()
	const label = "tessera.dev/scheduler"
	ns := "labelled-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	must(t, w.cp.Admin.Post("/api/v1/namespaces", map[string]any{"metadata": map[string]any{
		"name": ns, "labels": map[string]any{label: "enabled"}}}, nil))
	t.Cleanup(func() { must(t, w.cp.Admin.Delete("/api/v1/namespaces/"+ns, 0)) })
	until(t, func() error { // a pod needs its namespace's service account, or none; the webhook the label
		made, err := w.dryScheduler(ns, "", "default-scheduler")
		if err == nil && made != "tessera" {
			err = fmt.Errorf("schedulerName %s", made)
		}
		return err
	})
	for _, x := range []struct{ ns, label, name, want string }{
		{ns, "disabled", "default-scheduler", "default-scheduler"},
		{ns, "enabled", "default-scheduler", "tessera"},
		{ns, "", "another", "another"},
		{"default", "", "default-scheduler", "default-scheduler"},
		{"default", "enabled", "default-scheduler", "tessera"},
		{"default", "enabled", "another", "another"},
	} {
		made, err := w.dryScheduler(x.ns, x.label, x.name)
		must(t, err)
		if made != x.want {
			t.Errorf("%+v: schedulerName %s", x, made)
		}
	}
}

// dryScheduler is the schedulerName that a GPU pod would be made with.
func (w *world) dryScheduler(ns, label, name string) (string, error) {
	p := harness.NewPod("x").Annotate("gpu-memory", "1024")
	p.Metadata.Namespace, p.Spec.SchedulerName = ns, name
	if label != "" {
		p.Metadata.Labels = map[string]string{"tessera.dev/scheduler": label}
	}
	var made harness.Pod
	err := w.cp.Admin.Post("/api/v1/namespaces/"+ns+"/pods?dryRun=All", p, &made)
	return made.Spec.SchedulerName, err
}

// whileDown: without the extender no GPU pod can be made (failurePolicy Fail); all others can, and
// those of kube-system, ours among them.
func (w *world) whileDown(t *testing.T) {
	t.Helper()
	w.exts[0].Kill()
	gpu := harness.NewPod("gpu").Annotate("gpu-memory", "1024")
	if err := w.cp.Admin.Post(dryRun, gpu, nil); err == nil || !strings.Contains(err.Error(), "tessera.dev") {
		t.Errorf("a GPU pod without an answer from the webhook: %v", err)
	}
	if err := w.cp.Admin.Post(dryRun, harness.NewPod("plain", "cpu=1"), nil); err != nil {
		t.Errorf("a pod that asks for no GPU: %v", err)
	}
	gpu.Metadata.Namespace = "kube-system"
	err := w.cp.Admin.Post("/api/v1/namespaces/kube-system/pods?dryRun=All", gpu, nil)
	if err != nil {
		t.Errorf("a pod of kube-system: %v", err)
	}
	w.dropLease()
	port := w.exts[0].URL[strings.LastIndex(w.exts[0].URL, ":"):]
	w.args = append(w.args, "--listen=127.0.0.1"+port) // where scheduler and webhooks look for it
	w.restart(0)
	w.exts[0].URL = "https://127.0.0.1" + port
	w.waitLeader(30 * time.Second)
	if err := w.cp.Admin.Post(dryRun, harness.NewPod("gpu").Annotate("gpu-memory", "1024"), nil); err != nil {
		t.Errorf("it answers again: %v", err)
	}
}

// The policy alone, without a webhook: nobody but the extender writes, changes or removes allocation
// keys, on a pod, its status or a Binding; everybody else's updates go through (case 8).
func TestCase08AllocationPolicy(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 2, 81920)})
	w.install(t, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	user := w.user(t)
	refused := func(what, key string, err error) {
		t.Helper()
		if harness.Code(err) != 403 || !strings.Contains(err.Error(), "tessera-allocation") ||
			!strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", what, err)
		}
	}
	devices := container("main", "gpus.devices")
	until(t, func() error {
		err := user.Post(dryRun, harness.NewPod("x").Annotate(devices, "GPU-1"), nil)
		if err == nil || !strings.Contains(err.Error(), "tessera-allocation") {
			return fmt.Errorf("not refused yet: %v", err)
		}
		return nil
	})
	for _, key := range []string{devices, container("main", "gpu-compute.portion"), harness.AllocationKey,
		harness.TesseraContainers + "main.mig-placement"} {
		refused("made with "+key, key, user.Post(dryRun, harness.NewPod("x").Annotate(key, "x"), nil))
		refused("made by admin", key, w.cp.Admin.Post(dryRun, harness.NewPod("x").Annotate(key, "x"), nil))
	}
	unbound := sharePod("unbound", 1024)
	unbound.Spec.SchedulerName = "nobody"
	_, err := user.CreatePod(unbound)
	must(t, err)
	annotate := func(p *harness.Pod, sub, key string, value any) error {
		return user.Merge(harness.PodPath(p)+sub, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{key: value}}})
	}
	refused("forged later", devices, annotate(unbound, "", devices, "GPU-1"))
	refused("forged by the status", devices, annotate(unbound, "/status", devices, "GPU-1"))
	must(t, annotate(unbound, "", container("main", "gpu-memory.request"), "2Gi")) // the user's own
	b := binding("unbound", "gpu-00")
	b["metadata"] = map[string]any{"name": "unbound", "annotations": map[string]string{devices: "GPU-1"}}
	refused("forged in a Binding", devices, user.Post(harness.PodPath(unbound)+"/binding", b, nil))
	refused("forged in a Binding", devices, user.Post("/api/v1/namespaces/default/bindings", b, nil))
	must(t, user.Post(harness.PodPath(unbound)+"/binding?dryRun=All", binding("unbound", "gpu-00"), nil))
	// The extender's own bind goes through, with its annotations.
	w.make(sharePod("p", 1024))
	p := waitBound(t, w.cp, "p")
	if p.Metadata.Annotations[devices] == "" {
		t.Errorf("bound with %v", p.Metadata.Annotations)
	}
	for key := range p.Metadata.Annotations {
		if key == "gpu-memory" {
			continue
		}
		refused("changed", key, annotate(p, "", key, "else"))
		refused("removed", key, annotate(p, "", key, nil))
	}
	must(t, annotate(p, "", "example.com/mine", "x"))
	must(t, user.Merge(harness.PodPath(p)+"/status", map[string]any{"status": map[string]any{"phase": "Running"}}))
	must(t, user.Delete(harness.PodPath(p), 0))
	must(t, user.Delete(harness.PodPath(unbound), 0))
	w.verify()
}

// A scheduler's verbs take a certificate of the authority, made for clients; nothing else does.
func TestExtenderTLS(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920), tls: true})
	w.make(sharePod("p", 1024))
	waitBound(t, w.cp, "p")
	file := func(name string) string { return filepath.Join(w.certs, name) }
	other := filepath.Join(w.dir, "other")
	must(t, harness.Certificates(other))
	body, err := json.Marshal(map[string]any{"Pod": sharePod("q", 1024), "NodeNames": []string{"gpu-00"}})
	must(t, err)
	for _, x := range []struct {
		name, cert, key string
		code            int
	}{
		{"none", "", "", 403},
		{"the scheduler's", file("client.crt"), file("client.key"), 200},
		{"the extender's own, made for servers", file("tls.crt"), file("tls.key"), 403},
		{"another authority's", filepath.Join(other, "client.crt"), filepath.Join(other, "client.key"), 403},
	} {
		c, err := harness.TLSClient(file("ca.crt"), x.cert, x.key)
		must(t, err)
		for _, verb := range []string{"filter", "prioritize", "bind", "preempt"} {
			code := 0
			resp, err := c.Post(w.exts[0].URL+"/v1/"+verb, harness.JSON, strings.NewReader(string(body)))
			if err == nil {
				code = resp.StatusCode
				resp.Body.Close()
			}
			// A certificate that is refused may end the handshake, or the request.
			if code != x.code && (x.code == 200 || code != 0) {
				t.Errorf("certificate %s: %s: HTTP %d, %v", x.name, verb, code, err)
			}
		}
		if resp, err := c.Get(w.exts[0].URL + "/readyz"); x.cert == "" && (err != nil || resp.StatusCode != 200) {
			t.Errorf("readyz: %v", err)
		}
	}
	if resp, err := http.Get(strings.Replace(w.exts[0].URL, "https", "http", 1) + "/readyz"); err == nil && resp.StatusCode == 200 {
		t.Error("plain HTTP is answered on the TLS port")
	}
	w.verify()
}

// A scheduler without a certificate gets nothing: the pod waits with the reason, and is not bound.
func TestExtenderTLSWithoutCertificate(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920), tls: true})
	w.sched.Stop()
	s, err := w.cp.StartScheduler(harness.SchedulerConfig{Extender: w.exts[0].URL + "/v1", TLS: w.certs, NoCertificate: true})
	must(t, err)
	defer s.Stop()
	w.make(sharePod("p", 1024))
	c := waitRefused(t, w.cp, "p")
	if c.Reason != "SchedulerError" || !strings.Contains(c.Message, "403") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	w.verify()
}
