package e2e

import (
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// setup says what a scenario needs.
type setup struct {
	nodes    []*harness.Node
	sched    harness.SchedulerConfig
	args     []string // of the extender
	replicas int      // 0: 1
	proxied  bool     // a fault proxy between extender and API server
	tls      bool     // HTTPS with client certificates, as shipped; no front then
	check    harness.CheckOptions
}

// world is the whole thing: scheduler, front, extenders with the shipped rights, API server, and the
// recorder that looks at every revision.
type world struct {
	t          *testing.T
	cp         *harness.ControlPlane
	account    *harness.Account
	exts       []*harness.Extender
	front      *harness.Front
	api        *harness.Proxy // nil unless proxied
	sched      *harness.Scheduler
	rec        *harness.Recorder
	rng        *rand.Rand
	args       []string
	opt        harness.CheckOptions
	tokenFile  string
	revoke     func() error
	kubeconfig string
	dir        string
	certs      string // "": plain HTTP
}

func needAPIMode(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(harness.ExtenderBinary()); err != nil {
		t.Skip("the extender is not built:", err)
	}
	if !knows(t, "--kubeconfig") {
		t.Skip("the extender has no --kubeconfig yet")
	}
}

func knows(t *testing.T, option string) bool {
	t.Helper()
	known, err := harness.ExtenderKnows(option)
	must(t, err)
	return known
}

func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	needAPIMode(t)
	w := &world{t: t, cp: control(t), rng: random(t), args: s.args, opt: s.check, dir: t.TempDir()}
	makeNodes(t, w.cp, s.nodes...)
	var err error
	w.account, err = w.cp.InstallRights("serviceaccount.yaml", "rbac.yaml")
	must(t, err)
	w.tokenFile = filepath.Join(w.dir, "token")
	w.kubeconfig = filepath.Join(w.dir, "kubeconfig")
	w.newToken()
	server := w.cp.Base
	if s.proxied {
		w.api, err = w.cp.NewAPIProxy(w.rng.Int63())
		must(t, err)
		t.Cleanup(w.api.Close)
		server = w.api.URL
	}
	must(t, harness.WriteKubeconfig(w.kubeconfig, server, w.cp.CAFile, "", w.tokenFile))
	w.rec, err = harness.NewRecorder(w.cp.Admin, s.check)
	must(t, err)
	t.Cleanup(func() { w.rec.Stop() })
	w.dropLease()
	w.front, err = harness.NewFront(w.rng.Int63())
	must(t, err)
	t.Cleanup(w.front.Close)
	w.front.Record(func(r *http.Request) bool { return !strings.HasSuffix(r.URL.Path, "/prioritize") })
	t.Cleanup(func() {
		for _, e := range w.exts {
			e.Kill()
		}
	})
	if s.tls {
		w.certs = filepath.Join(w.dir, "tls")
		must(t, harness.Certificates(w.certs))
		w.args = append(slices.Clone(w.args), "--tls-cert="+filepath.Join(w.certs, "tls.crt"),
			"--tls-key="+filepath.Join(w.certs, "tls.key"), "--tls-client-ca="+filepath.Join(w.certs, "ca.crt"))
	}
	for i := range max(s.replicas, 1) {
		w.exts = append(w.exts, w.startExtender(i))
	}
	w.front.Set(w.exts...)
	w.waitLeader(60 * time.Second)
	s.sched.Extender = w.front.URL + "/v1"
	if s.tls {
		s.sched.Extender, s.sched.TLS = w.exts[0].URL+"/v1", w.certs
	}
	w.sched, err = w.cp.StartScheduler(s.sched)
	must(t, err)
	t.Cleanup(func() { w.sched.Stop() })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the extender:\n%s", w.exts[0].LogTail(40))
		}
	})
	return w
}

// newToken replaces the token in the file as the kubelet does, by a rename; the old one stays valid
// until revoke.
func (w *world) newToken() {
	w.t.Helper()
	token, revoke, err := w.account.Token()
	must(w.t, err)
	must(w.t, os.WriteFile(w.tokenFile+".new", []byte(token), 0o600))
	must(w.t, os.Rename(w.tokenFile+".new", w.tokenFile))
	w.revoke = revoke
}

func (w *world) startExtender(i int) *harness.Extender {
	w.t.Helper()
	args := []string{"--kubeconfig=" + w.kubeconfig}
	if knows(w.t, "--lease-seconds") { // a short one, so that the tests are short
		args = append(args, "--lease-seconds=4", "--renew-seconds=3", "--retry-seconds=1")
	}
	args = append(args, w.args...)
	name := strings.ReplaceAll(fmt.Sprintf("extender-%s-%d", w.t.Name(), i), "/", "-")
	e, err := harness.StartExtender(w.cp.Dir, name, args...)
	must(w.t, err)
	return e
}

// restart starts the i-th extender anew after it was killed.
func (w *world) restart(i int) {
	w.t.Helper()
	w.exts[i] = w.startExtender(i)
	w.front.Set(w.exts...)
}

// dropLease lets the next extender lead at once. Only for when the last holder is known to be dead.
func (w *world) dropLease() {
	w.t.Helper()
	err := w.cp.Admin.Delete("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tessera-extender", 0)
	if err != nil && harness.Code(err) != 404 {
		w.t.Fatal(err)
	}
}

// leader is the index of the extender that is ready, -1 without one.
func (w *world) leader() int {
	for i, e := range w.exts {
		if !e.Exited() && e.Ready() {
			return i
		}
	}
	return -1
}

func (w *world) waitLeader(timeout time.Duration) int {
	w.t.Helper()
	leader := -1
	err := harness.Poll(timeout, 20*time.Millisecond, func() error {
		if leader = w.leader(); leader < 0 {
			return fmt.Errorf("no extender is ready")
		}
		return nil
	})
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.exts[0].LogTail(30))
	}
	return leader
}

// make creates a pod.
func (w *world) make(p *harness.Pod) *harness.Pod {
	w.t.Helper()
	return makePod(w.t, w.cp, p)
}

// makeMany creates count pods, several at a time.
func (w *world) makeMany(count int, pod func(i int) *harness.Pod) {
	w.t.Helper()
	const workers = 8
	errs := make(chan error, workers)
	for k := range workers {
		go func() {
			var err error
			for i := k; i < count && err == nil; i += workers {
				_, err = w.cp.Admin.CreatePod(pod(i))
			}
			errs <- err
		}()
	}
	for range workers {
		must(w.t, <-errs)
	}
}

// waitWoken waits for a pod that was refused and now has room. The scheduler asks again on the event
// that made the room, which may be before the extender has seen it, and then not for minutes; here a
// later event helps out. TestCase48NoLostWakeUp is the test of that race itself.
func (w *world) waitWoken(t *testing.T, name string) *harness.Pod {
	t.Helper()
	nodes, err := w.cp.Admin.Nodes()
	must(t, err)
	nudges := 0
	next := time.Now().Add(5 * time.Second)
	return waitPod(t, w.cp, name, "to be bound", 30*time.Second, func(p *harness.Pod) bool {
		if p.Spec.NodeName == "" && time.Now().After(next) {
			nudges++
			next = time.Now().Add(5 * time.Second)
			t.Logf("%s is still waiting: nudge %d", name, nudges)
			must(t, w.cp.Admin.Merge("/api/v1/nodes/"+nodes[0].Metadata.Name, map[string]any{
				"metadata": map[string]any{"annotations": map[string]string{
					"example.com/nudge": fmt.Sprint(w.rng.Int63())}}}))
		}
		return p.Spec.NodeName != ""
	})
}

// counts of the pods there are.
func counts(pods []harness.Pod) (bound, refused, open int) {
	for _, p := range pods {
		c := p.Condition("PodScheduled")
		switch {
		case p.Spec.NodeName != "":
			bound++
		case c.Status == "False" && c.Reason == "Unschedulable":
			refused++
		default:
			open++
		}
	}
	return
}

// waitCounts waits until so many pods are bound and no pod is without an honest answer.
func (w *world) waitCounts(want int, timeout time.Duration) {
	w.t.Helper()
	start := time.Now()
	ok := w.rec.Wait(timeout, func(pods []harness.Pod) bool {
		bound, _, open := counts(pods)
		return bound == want && open == 0
	})
	bound, refused, open := counts(w.rec.Pods())
	w.t.Logf("%d bound, %d refused, %d open after %v", bound, refused, open,
		time.Since(start).Round(time.Millisecond))
	if !ok {
		for _, p := range w.rec.Pods() {
			if c := p.Condition("PodScheduled"); p.Spec.NodeName == "" {
				w.t.Logf("e.g. %s: %s: %s", p.Metadata.Name, c.Reason, c.Message)
				break
			}
		}
		w.t.Fatalf("%d should be bound", want)
	}
}

// verify recounts everything from the API objects and compares with what the leader believes.
func (w *world) verify() *harness.Books {
	w.t.Helper()
	nodes, err := w.cp.Admin.Nodes()
	must(w.t, err)
	pods, err := w.cp.Admin.Pods()
	must(w.t, err)
	books := harness.Check(nodes, pods, w.opt)
	for _, f := range append(books.Faults, w.rec.Faults()...) {
		w.t.Error(f)
	}
	if i := w.leader(); i >= 0 {
		var diffs []string
		err := harness.Poll(10*time.Second, 50*time.Millisecond, func() error {
			model, err := w.exts[i].Model()
			if err != nil {
				return err
			}
			if diffs = harness.CompareModel(books, model); len(diffs) > 0 {
				return fmt.Errorf("%d differences", len(diffs))
			}
			return nil
		})
		if err != nil {
			w.t.Errorf("the extender's books: %v: %q", err, diffs[:min(len(diffs), 5)])
		}
	}
	return books
}

// bindErrors counts the binds that went through the front, and those that were refused.
func (w *world) bindErrors() (all, refused int) {
	for _, e := range w.front.Exchanges("/bind") {
		all++
		if e.Code != 200 || strings.Contains(string(e.Reply), `"Error":"`) &&
			!strings.Contains(string(e.Reply), `"Error":""`) {
			refused++
		}
	}
	return
}

// gpuNodes are count nodes with so many GPUs each.
func gpuNodes(count, gpus int, memMiB int64) []*harness.Node {
	var ret []*harness.Node
	for i := range count {
		ret = append(ret, harness.NewNode(fmt.Sprintf("gpu-%02d", i), gpus, memMiB))
	}
	return ret
}

// sharePod asks for so many MiB, by annotation and, as admission adds it, by resource.
func sharePod(name string, mib int) *harness.Pod {
	return harness.NewPod(name, fmt.Sprintf("%s=%d", harness.MemoryResource, mib)).
		Annotate("gpu-memory", fmt.Sprint(mib))
}
