package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// wire is a real scheduler that asks an extender which has its cluster from a file. The extender does
// not bind: its binds would change its own model only.
type wire struct {
	cp    *harness.ControlPlane
	ext   *harness.Extender
	front *harness.Front
}

func newWire(t *testing.T, cfg harness.SchedulerConfig, nodes ...*harness.Node) *wire {
	t.Helper()
	if _, err := os.Stat(harness.ExtenderBinary()); err != nil {
		t.Skip("the extender is not built:", err)
	}
	if !knows(t, "--cluster") {
		t.Skip("the extender has no --cluster")
	}
	w := &wire{cp: control(t)}
	makeNodes(t, w.cp, nodes...)
	file := filepath.Join(t.TempDir(), "cluster.json")
	must(t, w.cp.Admin.WriteClusterFile(file))
	var err error
	w.ext, err = harness.StartExtender(w.cp.Dir, "extender-"+t.Name(), "--cluster="+file)
	must(t, err)
	t.Cleanup(func() {
		if !w.ext.Stop() {
			t.Error("the extender did not end by itself")
		}
	})
	must(t, w.ext.WaitReady(10*time.Second))
	w.front, err = harness.NewFront(seed)
	must(t, err)
	t.Cleanup(w.front.Close)
	w.front.Set(w.ext)
	w.front.Record(func(*http.Request) bool { return true })
	cfg.NoBind, cfg.Extender = true, w.front.URL+"/v1"
	s, err := w.cp.StartScheduler(cfg)
	must(t, err)
	t.Cleanup(func() { s.Stop() })
	return w
}

func shareNodes() []*harness.Node {
	return []*harness.Node{harness.NewNode("big", 2, 81920), harness.NewNode("plain", 0, 0),
		harness.NewNode("small", 4, 40960)}
}

// last decodes the last exchange of a verb.
func (w *wire) last(t *testing.T, verb string, request, reply any) {
	t.Helper()
	all := w.front.Exchanges("/" + verb)
	if len(all) == 0 {
		t.Fatalf("no %s", verb)
	}
	e := all[len(all)-1]
	if e.Code != 200 {
		t.Fatalf("%s: HTTP %d: %s", verb, e.Code, e.Reply)
	}
	must(t, json.Unmarshal(e.Request, request))
	if err := json.Unmarshal(e.Reply, reply); err != nil {
		t.Fatalf("%s: %v: %s", verb, err, e.Reply)
	}
}

type filterArgs struct {
	Pod       *harness.Pod
	Nodes     *struct{ Items []harness.Node }
	NodeNames *[]string
}

type filterReply struct {
	Nodes                      *struct{ Items []harness.Node }
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type hostPriority struct {
	Host  string
	Score int64
}

func (r *filterReply) names() []string {
	var ret []string
	if r.NodeNames != nil {
		ret = slices.Clone(*r.NodeNames)
	} else if r.Nodes != nil {
		for _, n := range r.Nodes.Items {
			ret = append(ret, n.Metadata.Name)
		}
	}
	slices.Sort(ret)
	return ret
}

// Both forms of bodies give the same answers, and the scheduler takes them.
func testWireMode(t *testing.T, nodesMode bool) {
	w := newWire(t, harness.SchedulerConfig{NodesMode: nodesMode}, shareNodes()...)
	var args filterArgs
	var reply filterReply
	makePod(t, w.cp, harness.NewPod("large").Annotate("gpu-memory", "50000"))
	if p := waitBound(t, w.cp, "large"); p.Spec.NodeName != "big" {
		t.Errorf("large is on %s", p.Spec.NodeName)
	}
	w.last(t, "filter", &args, &reply)
	if nodesMode != (args.Nodes != nil) || nodesMode != (args.NodeNames == nil) {
		t.Errorf("the scheduler sent nodes: %v, names: %v", args.Nodes != nil, args.NodeNames != nil)
	}
	if !slices.Equal(reply.names(), []string{"big"}) {
		t.Errorf("filter let pass %v", reply.names())
	}
	for _, node := range []string{"plain", "small"} {
		if reply.FailedAndUnresolvableNodes[node] == "" {
			t.Errorf("no reason for %s", node)
		}
	}
	if n := len(w.front.Exchanges("/prioritize")); n != 0 {
		t.Errorf("%d prioritize calls for one node", n)
	}
	makePod(t, w.cp, harness.NewPod("half").Annotate("gpu-fraction", "0.5"))
	p := waitBound(t, w.cp, "half")
	var scores []hostPriority
	w.last(t, "filter", &args, &reply)
	if !slices.Equal(reply.names(), []string{"big", "small"}) {
		t.Errorf("filter let pass %v", reply.names())
	}
	w.last(t, "prioritize", &args, &scores)
	best := slices.MaxFunc(scores, func(a, b hostPriority) int { return int(a.Score - b.Score) })
	if best.Score != 10 || best.Host != p.Spec.NodeName || len(scores) != 1 { // the other one has 0
		t.Errorf("half is on %s, scores were %v", p.Spec.NodeName, scores)
	}
	makePod(t, w.cp, harness.NewPod("none", "cpu=1"))
	waitBound(t, w.cp, "none")
}

func TestWireCacheMode(t *testing.T) { testWireMode(t, false) }

func TestWireNodesMode(t *testing.T) { testWireMode(t, true) }

// What the user reads when a pod cannot be placed.
func TestWireReasons(t *testing.T) {
	w := newWire(t, harness.SchedulerConfig{}, shareNodes()...)
	for _, x := range []struct {
		name string
		pod  *harness.Pod
		want []string
	}{
		{"too large", harness.NewPod("a").Annotate("gpu-memory", "100000"),
			[]string{"0/3 nodes are available", "node has no GPU", "Preemption is not helpful"}},
		{"wrong value", harness.NewPod("b").Annotate("gpu-fraction", "1.5"),
			[]string{"gpu-fraction", "1.5"}},
		{"product", harness.NewPod("c").Annotate("gpu-memory", "1000", "tessera.dev/gpu-product", "T4"),
			[]string{"product"}},
		{"two shares", harness.NewPod("d").Annotate("gpu-fraction", "0.5", "gpu-memory", "1000"),
			[]string{"gpu-fraction", "gpu-memory"}},
		{"too many", harness.NewPod("e").Annotate("gpu-memory", "1000", "gpu-fraction-num-devices", "5"),
			[]string{"GPUs"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			makePod(t, w.cp, x.pod)
			c := waitRefused(t, w.cp, x.pod.Metadata.Name)
			t.Log(c.Message)
			if c.Reason != "Unschedulable" {
				t.Errorf("reason %s: %s", c.Reason, c.Message)
			}
			for _, want := range x.want {
				if !strings.Contains(c.Message, want) {
					t.Errorf("%q does not say %q", c.Message, want)
				}
			}
			if len(c.Message) > 1024 {
				t.Errorf("%d bytes", len(c.Message))
			}
		})
	}
}

// A pod that waits because GPUs are busy is told so, and preemption stays possible.
func TestWireBusy(t *testing.T) {
	w := newWire(t, harness.SchedulerConfig{}, harness.NewNode("n1", 1, 81920), harness.NewNode("n2", 0, 0))
	// Book most of the GPU in the extender's model, the way a scheduler would.
	holder := harness.NewPod("holder").Annotate("gpu-memory", "80000")
	holder.Metadata.UID = "holder-uid"
	w.post(t, "filter", map[string]any{"Pod": holder, "Nodes": nil, "NodeNames": []string{"n1"}})
	reply := w.post(t, "bind", map[string]any{"PodName": "holder", "PodNamespace": "default",
		"PodUID": "holder-uid", "Node": "n1"})
	if reply["Error"] != nil && reply["Error"] != "" {
		t.Fatal(reply)
	}
	makePod(t, w.cp, harness.NewPod("waits").Annotate("gpu-memory", "8192"))
	c := waitRefused(t, w.cp, "waits")
	t.Log(c.Message)
	if c.Reason != "Unschedulable" || !strings.Contains(c.Message, "memory") ||
		!strings.Contains(c.Message, "No preemption victims found") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	var args filterArgs
	var r filterReply
	w.last(t, "filter", &args, &r)
	if r.FailedNodes["n1"] == "" || r.FailedAndUnresolvableNodes["n2"] == "" {
		t.Errorf("%+v", r)
	}
}

func (w *wire) post(t *testing.T, verb string, body any) map[string]any {
	t.Helper()
	text, err := json.Marshal(body)
	must(t, err)
	resp, err := http.Post(w.ext.URL+"/v1/"+verb, harness.JSON, strings.NewReader(string(text)))
	must(t, err)
	defer resp.Body.Close()
	var ret map[string]any
	must(t, json.NewDecoder(resp.Body).Decode(&ret))
	if resp.StatusCode != 200 {
		t.Fatalf("%s: HTTP %d: %v", verb, resp.StatusCode, ret)
	}
	return ret
}

// A node that the extender has not heard of is refused by name, not left out.
func TestWireUnknownNode(t *testing.T) {
	w := newWire(t, harness.SchedulerConfig{}, harness.NewNode("n1", 0, 0))
	makeNodes(t, w.cp, harness.NewNode("later", 1, 81920))
	makePod(t, w.cp, harness.NewPod("p").Annotate("gpu-memory", "1000"))
	c := waitRefused(t, w.cp, "p")
	if c.Reason != "Unschedulable" || !strings.Contains(c.Message, "not known") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

// The block for a scheduler that is there already: only pods that name a resource of the list come.
func TestWireExistingScheduler(t *testing.T) {
	w := newWire(t, harness.SchedulerConfig{Block: true}, shareNodes()...)
	pod := func(name string, limits ...string) *harness.Pod {
		p := harness.NewPod(name, limits...)
		p.Spec.SchedulerName = "default-scheduler"
		return p
	}
	makePod(t, w.cp, pod("plain", "cpu=1"))
	waitBound(t, w.cp, "plain")
	if n := len(w.front.Exchanges("/filter")); n != 0 {
		t.Errorf("%d filter calls for a pod that asks for nothing", n)
	}
	makePod(t, w.cp, pod("share", harness.MemoryResource+"=50000").Annotate("gpu-memory", "50000"))
	if p := waitBound(t, w.cp, "share"); p.Spec.NodeName != "big" {
		t.Errorf("share is on %s", p.Spec.NodeName)
	}
	makePod(t, w.cp, pod("whole", harness.GPUResource+"=3"))
	if p := waitBound(t, w.cp, "whole"); p.Spec.NodeName != "small" {
		t.Errorf("whole is on %s", p.Spec.NodeName)
	}
	if n := len(w.front.Exchanges("/filter")); n != 2 {
		t.Errorf("%d filter calls", n)
	}
}

// 100 pods, one after the other as the scheduler sends them: no call fails, none is slow.
func TestWireHundredPods(t *testing.T) {
	var nodes []*harness.Node
	for i := range 50 {
		nodes = append(nodes, harness.NewNode(fmt.Sprintf("n%02d", i), 4, 81920))
	}
	w := newWire(t, harness.SchedulerConfig{}, nodes...)
	const count = 100
	for i := range count {
		makePod(t, w.cp, harness.NewPod(fmt.Sprintf("p%d", i)).Annotate("gpu-fraction", "0.25"))
	}
	must(t, harness.Poll(60*time.Second, 100*time.Millisecond, func() error {
		pods, err := w.cp.Admin.Pods()
		bound := 0
		for _, p := range pods {
			if p.Spec.NodeName != "" {
				bound++
			}
		}
		if err == nil && bound < count {
			err = fmt.Errorf("%d of %d bound", bound, count)
		}
		return err
	}))
	for _, verb := range []string{"/filter", "/prioritize"} {
		var times []time.Duration
		for _, e := range w.front.Exchanges(verb) {
			if e.Code != 200 {
				t.Errorf("%s: HTTP %d", verb, e.Code)
			}
			times = append(times, e.End.Sub(e.Start))
		}
		slices.Sort(times)
		t.Logf("%s: %d calls, median %v, largest %v", verb, len(times), times[len(times)/2], times[len(times)-1])
		if len(times) < count {
			t.Errorf("%s: %d calls", verb, len(times))
		}
	}
}
