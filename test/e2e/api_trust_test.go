package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// forge writes what an allocation of that share would look like.
func forge(p *harness.Pod, node, gpu string, mib int) *harness.Pod {
	amount := fmt.Sprintf("%dMi", mib)
	return p.Annotate(harness.AllocationKey, "v1;"+node+";0123456789abcdef;main=drlm",
		container("main", "gpus.devices"), gpu, container("main", "gpu-compute.mode"), "time-slicing",
		container("main", "gpu-memory.request"), amount, container("main", "gpu-memory.limit"), amount)
}

// Case 8: what a user writes under the extender's keys counts for nothing, and is overwritten.
func TestCase08ForgedAllocation(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 2, 81920)})
	// Unbound, and no scheduler takes it: it must not be counted.
	forged := forge(harness.NewPod("forged"), "gpu-00", "GPU-gpu-00-0", 81920)
	forged.Spec.SchedulerName = "nobody"
	w.make(forged)
	w.make(harness.NewPod("whole", harness.GPUResource+"=2"))
	waitBound(t, w.cp, "whole")
	must(t, w.cp.Admin.RemovePod(harness.NewPod("whole")))
	// Asks for 1 GiB, claims a GPU that is not there.
	p := forge(harness.NewPod("liar").Annotate("gpu-memory", "1024"), "gpu-77", "GPU-none", 70000)
	w.make(p)
	bound := waitBound(t, w.cp, "liar")
	g, err := harness.Grants(bound)
	must(t, err)
	if g["main"].Request != 1024 || !strings.HasPrefix(g["main"].Devices[0], "GPU-gpu-00-") {
		t.Errorf("%+v", g["main"])
	}
	w.verify()
}

// Case 6: a pod comes with a complete allocation for node A and is bound to node B.
func TestCase06LeftoverAllocation(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(2, 1, 81920)})
	w.make(sharePod("first", 40960))
	first := waitBound(t, w.cp, "first")
	must(t, w.cp.Admin.RemovePod(first))
	copied := sharePod("copied", 40960)
	copied.Metadata.Annotations = first.Metadata.Annotations
	other := "gpu-00"
	if first.Spec.NodeName == other {
		other = "gpu-01"
	}
	copied.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": other}
	w.make(copied)
	if p := waitBound(t, w.cp, "copied"); p.Spec.NodeName != other {
		t.Errorf("on %s", p.Spec.NodeName)
	}
	w.make(sharePod("second", 81920)) // A is empty
	waitBound(t, w.cp, "second")
	w.verify()
}

// Case 7: a bound pod's allocation cannot be read: nothing new on its node, an event on the pod; the
// end of it when it is mended or the pod is gone.
func TestCase07FencedNode(t *testing.T) {
	needAPIMode(t)
	for _, x := range []struct{ name, key, value string }{
		{"devices cut", container("main", "gpus.devices"), "GPU-gpu"},
		{"amount", container("main", "gpu-memory.request"), "abcMi"},
		{"less than given", container("main", "gpu-memory.request"), "1Mi"},
		{"digest", harness.AllocationKey, "v1;gpu-00;0000000000000000;main=drlm"},
		{"other node", harness.AllocationKey, "v1;gpu-01;0000000000000000;main=drlm"},
		{"garbage", harness.AllocationKey, "\u2028;;;;;=,=,"},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, setup{nodes: gpuNodes(1, 2, 81920)})
			makePod(t, w.cp, sharePod("p", 10240))
			p := waitBound(t, w.cp, "p")
			annotate := func(value string) {
				must(t, w.cp.Admin.Merge(harness.PodPath(p), map[string]any{"metadata": map[string]any{
					"annotations": map[string]string{x.key: value}}}))
			}
			annotate(x.value)
			makePod(t, w.cp, harness.NewPod("q").Annotate("gpu-memory", "1024"))
			c := waitRefused(t, w.cp, "q")
			t.Log(c.Message)
			must(t, harness.Poll(10*time.Second, 100*time.Millisecond, func() error {
				if w.eventsOf(t, p.Metadata.UID) == "" {
					return fmt.Errorf("no event on the pod")
				}
				return nil
			}))
			annotate(p.Metadata.Annotations[x.key])
			w.waitWoken(t, "q")
			annotate(x.value)
			must(t, w.cp.Admin.RemovePod(p))
			makePod(t, w.cp, sharePod("r", 81920))
			waitBound(t, w.cp, "r")
			// The recorder saw the broken allocation too: only what is left is checked.
			for _, f := range recount(t, w) {
				t.Error(f)
			}
		})
	}
}

func recount(t *testing.T, w *world) []string {
	t.Helper()
	nodes, err := w.cp.Admin.Nodes()
	must(t, err)
	pods, err := w.cp.Admin.Pods()
	must(t, err)
	return harness.Check(nodes, pods, w.opt).Faults
}

// Requests that make no sense are refused with key and value; the pod is never bound.
func TestMalformedRequests(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 4, 81920)})
	for i, x := range []struct{ key, value string }{
		{"gpu-fraction", "0"}, {"gpu-fraction", "1"}, {"gpu-fraction", "-0.5"}, {"gpu-fraction", "NaN"},
		{"gpu-fraction", "inf"}, {"gpu-fraction", ""}, {"gpu-fraction", "0.5x"}, {"gpu-fraction", " 0.5"},
		{"gpu-memory", "0"}, {"gpu-memory", "-1"}, {"gpu-memory", "9223372036854775808"},
		{"gpu-memory", "1e400"}, {"gpu-memory", "3000000000"}, {"gpu-memory", "many"},
		{container("nobody", "gpu-memory.request"), "1Gi"},
		{container("main", "gpu-memory.request"), "12"},
		{harness.TesseraContainers + "main.mig-profile", "9g.999gb"},
		{harness.TesseraContainers + "main.mig-profile", "one"},
	} {
		name := fmt.Sprint("p", i)
		w.make(harness.NewPod(name).Annotate(x.key, x.value))
		c := waitRefused(t, w.cp, name)
		if c.Reason != "Unschedulable" {
			t.Errorf("%s=%q: %s: %s", x.key, x.value, c.Reason, c.Message)
		}
		must(t, w.cp.Admin.RemovePod(harness.NewPod(name)))
	}
	w.make(harness.NewPod("good", harness.GPUResource+"=4"))
	waitBound(t, w.cp, "good")
	w.verify()
}

// The user's annotations leave no room for the allocation: the API server would take the bind and
// refuse every later update of the pod. So the pod must not be bound, and says why.
func TestOversizedAnnotations(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920)})
	w.make(sharePod("big", 1024).Annotate("example.com/blob", strings.Repeat("x", 262000)))
	p := waitPod(t, w.cp, "big", "an answer", 20*time.Second, func(p *harness.Pod) bool {
		return p.Condition("PodScheduled").Status != ""
	})
	time.Sleep(2 * time.Second)
	p, err := w.cp.Admin.Pod(p.Metadata.Name)
	must(t, err)
	c := p.Condition("PodScheduled")
	if p.Spec.NodeName != "" || !strings.Contains(c.Message, "annotations") {
		t.Errorf("on %q, %s: %s", p.Spec.NodeName, c.Reason, c.Message)
	}
	// One that just fits is bound, and can be updated afterwards.
	w.make(sharePod("fits", 1024).Annotate("example.com/blob", strings.Repeat("x", 260000)))
	fits := waitBound(t, w.cp, "fits")
	must(t, w.cp.Admin.SetPhase(fits, "Running"))
	w.make(sharePod("rest", 80896))
	waitBound(t, w.cp, "rest")
	w.verify()
}

// Case 21: no mark of any kind before the bind, in the whole life of a pod that fails once.
func TestCase21NoMarkBeforeBind(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920), proxied: true})
	w.api.Add(&harness.Fault{Match: harness.Binds, Code: 500, Count: 2})
	p := w.make(sharePod("p", 1024))
	waitBound(t, w.cp, "p")
	must(t, w.cp.Admin.SetPhase(p, "Running"))
	must(t, w.cp.Admin.SetPhase(p, "Succeeded"))
	for _, r := range w.rec.History(p.Metadata.UID) {
		if (r.Allocation != "") != (r.Node != "") {
			t.Errorf("revision %s: node %q, allocation %q", r.Version, r.Node, r.Allocation)
		}
	}
	w.verify()
}
