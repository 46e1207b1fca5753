package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// classes makes the priority classes of the tests.
func classes(t *testing.T, cp *harness.ControlPlane) {
	t.Helper()
	for name, value := range map[string]int{"e2e-low": 10, "e2e-mid": 100, "e2e-high": 1000} {
		err := cp.Admin.Post("/apis/scheduling.k8s.io/v1/priorityclasses", map[string]any{
			"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value,
			"metadata": map[string]any{"name": name}}, nil)
		if err != nil && harness.Code(err) != 409 {
			t.Fatal(err)
		}
	}
}

func withClass(p *harness.Pod, class string) *harness.Pod {
	p.Spec.PriorityClassName = class
	return p
}

// evict plays the kubelet: pods that are being deleted go at once. What it returns ends it.
func (w *world) evict() (stop func() []string) {
	quit, done := make(chan struct{}), make(chan []string)
	go func() {
		var gone []string
		for {
			select {
			case <-quit:
				done <- gone
				return
			case <-time.After(20 * time.Millisecond):
			}
			for _, p := range w.rec.Pods() {
				if p.Metadata.DeletionTimestamp == "" {
					continue
				}
				if w.cp.Admin.RemovePod(&p) == nil {
					gone = append(gone, p.Metadata.Name)
				}
			}
		}
	}()
	return func() []string {
		close(quit)
		return <-done
	}
}

// A pod of higher priority takes the place of a fraction of lower priority; only as many go as must.
func TestCase47cPreemption(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 2, 81920)})
	classes(t, w.cp)
	// Two GPUs, each with two holders of 40,960: the node is full.
	for i := range 4 {
		w.make(withClass(sharePod(fmt.Sprint("low", i), 40960), "e2e-low"))
	}
	w.waitCounts(4, 30*time.Second)
	stop := w.evict()
	w.make(withClass(sharePod("high", 81920), "e2e-high"))
	p := waitBound(t, w.cp, "high")
	gone := stop()
	t.Logf("evicted %v, high is on %s", gone, p.Spec.NodeName)
	if len(gone) != 2 {
		t.Errorf("%d pods were evicted, 2 are enough", len(gone))
	}
	w.verify()
}

// The victims that the scheduler proposes lie on different GPUs: the extender's answer names those
// whose GPU really becomes free, and no pod of higher priority.
func TestPreemptionVictimsOfOneGPU(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 2, 81920)})
	classes(t, w.cp)
	w.make(withClass(sharePod("keep", 61440), "e2e-high"))
	waitBound(t, w.cp, "keep")
	for i := range 2 {
		w.make(withClass(sharePod(fmt.Sprint("low", i), 40960), "e2e-low"))
	}
	w.waitCounts(3, 30*time.Second)
	stop := w.evict()
	w.make(withClass(sharePod("mid", 81920), "e2e-mid"))
	waitBound(t, w.cp, "mid")
	gone := stop()
	slices.Sort(gone)
	if !slices.Equal(gone, []string{"low0", "low1"}) {
		t.Errorf("evicted %v", gone)
	}
	w.verify()
}

// Eviction that would not help is not done: the request is larger than any GPU.
func TestPreemptionThatCannotHelp(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 2, 81920)})
	classes(t, w.cp)
	for i := range 2 {
		w.make(withClass(sharePod(fmt.Sprint("low", i), 81920), "e2e-low"))
	}
	w.waitCounts(2, 30*time.Second)
	w.make(withClass(sharePod("huge", 100000), "e2e-high"))
	waitRefused(t, w.cp, "huge")
	time.Sleep(2 * time.Second)
	for _, p := range w.rec.Pods() {
		if p.Metadata.DeletionTimestamp != "" {
			t.Errorf("%s is being deleted for nothing", p.Metadata.Name)
		}
	}
	w.verify()
}

// Room made for a nominated pod is not given to one of lower priority that comes in between.
func TestNominatedRoomIsKept(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920)})
	classes(t, w.cp)
	w.make(withClass(sharePod("low", 81920), "e2e-low"))
	victim := waitBound(t, w.cp, "low")
	w.make(withClass(sharePod("high", 81920), "e2e-high"))
	waitPod(t, w.cp, "high", "to be nominated", 20*time.Second, func(p *harness.Pod) bool {
		return p.Status.NominatedNodeName == "gpu-00"
	})
	// The victim ends; before the scheduler comes round, another one is asked for directly.
	thief := w.make(withClass(unscheduled("thief", 1024), "e2e-low"))
	must(t, w.cp.Admin.RemovePod(victim))
	stolen := 0
	for range 20 {
		if postBind(t, w.exts[0].URL, thief, "gpu-00") == "" {
			stolen++
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if stolen != 0 {
		t.Error("the room was given to a pod of lower priority")
	}
	waitBound(t, w.cp, "high")
	w.verify()
}

// nodePatch writes an inventory as the node's agent does: annotation, and totals where they change.
func (w *world) nodePatch(t *testing.T, node string, inv *harness.Inventory) {
	t.Helper()
	var value any
	if inv != nil {
		text, err := json.Marshal(inv)
		must(t, err)
		value = string(text)
	}
	must(t, w.cp.Admin.Merge("/api/v1/nodes/"+node, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{harness.InventoryKey: value}}}))
}

// Case 48: room appears through something that only the inventory tells: the waiting pod is bound
// within seconds.
func TestCase48InventoryWakesPods(t *testing.T) {
	n := harness.NewNode("gpu-00", 1, 81920)
	inv, _ := n.Inventory()
	inv.GPUs[0].Healthy = false
	n.SetInventory(inv)
	w := newWorld(t, setup{nodes: []*harness.Node{n}})
	w.make(sharePod("p", 1024))
	c := waitRefused(t, w.cp, "p")
	t.Log(c.Message)
	time.Sleep(3 * time.Second) // well into the scheduler's list of those that cannot be placed
	inv.GPUs[0].Healthy = true
	start := time.Now()
	w.nodePatch(t, "gpu-00", &inv)
	waitBound(t, w.cp, "p")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("after %v", took)
	}
	w.verify()
}

// Case 48, the race in it: the scheduler hears of new room and asks at once, perhaps before the
// extender has heard of it. Refused then, the pod would wait for minutes.
func TestCase48NoLostWakeUp(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920)})
	const rounds = 24
	lost := 0
	w.make(harness.NewPod("p0").Annotate("gpu-memory", "81920"))
	holder := waitBound(t, w.cp, "p0")
	for i := range rounds {
		name := fmt.Sprint("p", i+1)
		w.make(harness.NewPod(name).Annotate("gpu-memory", "81920"))
		waitRefused(t, w.cp, name)
		if i%3 == 2 { // its back-off is over: the next event brings it up at once
			time.Sleep(1500 * time.Millisecond)
		}
		must(t, w.cp.Admin.RemovePod(holder))
		if !w.rec.Wait(4*time.Second, func(pods []harness.Pod) bool {
			bound, _, _ := counts(pods)
			return bound == 1 && len(pods) == 1
		}) {
			lost++
		}
		holder = w.waitWoken(t, name)
	}
	t.Logf("%d of %d were not woken", lost, rounds)
	if lost > 0 {
		t.Errorf("%d of %d pods were asked about too early and then forgotten", lost, rounds)
	}
}

// Case 19: the inventory goes and comes back: nothing new in between, bound pods still count, pending
// ones are retried without a manual step.
func TestCase19InventoryGoesAndComes(t *testing.T) {
	n := harness.NewNode("gpu-00", 1, 81920)
	inv, _ := n.Inventory()
	w := newWorld(t, setup{nodes: []*harness.Node{n}})
	w.make(sharePod("a", 40960))
	waitBound(t, w.cp, "a")
	w.nodePatch(t, "gpu-00", nil)
	w.make(sharePod("b", 20480))
	waitRefused(t, w.cp, "b")
	w.nodePatch(t, "gpu-00", &inv)
	w.waitWoken(t, "b")
	w.make(harness.NewPod("c").Annotate("gpu-memory", "40960")) // 20,480 are left
	waitRefused(t, w.cp, "c")
	w.make(sharePod("d", 20480))
	waitBound(t, w.cp, "d")
	w.verify()
}

// Case 47g: some nodes are refused by us, the rest in-tree; room appears: bound within seconds.
func TestCase47gMixedRefusal(t *testing.T) {
	w := newWorld(t, setup{nodes: append(gpuNodes(1, 1, 81920), harness.NewNode("plain", 0, 0))})
	w.make(sharePod("a", 40960))
	a := waitBound(t, w.cp, "a")
	w.make(harness.NewPod("b", harness.MemoryResource+"=40960").Annotate("gpu-memory", "61440"))
	waitRefused(t, w.cp, "b")
	time.Sleep(3 * time.Second)
	start := time.Now()
	must(t, w.cp.Admin.RemovePod(a))
	waitBound(t, w.cp, "b")
	t.Logf("after %v", time.Since(start).Round(time.Millisecond))
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("after %v", took)
	}
	w.verify()
}

// Case 2: 46,068 MiB by label and no inventory: 23 pods of 2,000 MiB, and the last is told what is left.
func TestCase02LabelsWithoutUnits(t *testing.T) {
	n := harness.NewNode("labels", 0, 0)
	n.Metadata.Labels["nvidia.com/gpu.count"] = "1"
	n.Metadata.Labels["nvidia.com/gpu.memory"] = "46068"
	n.Metadata.Labels["nvidia.com/gpu.product"] = "NVIDIA-L40S"
	n.Status.Capacity[harness.GPUResource] = "1"
	w := newWorld(t, setup{nodes: []*harness.Node{n}})
	for i := range 24 {
		w.make(harness.NewPod(fmt.Sprintf("p%02d", i)).Annotate("gpu-memory", "2000"))
	}
	w.waitCounts(23, 60*time.Second)
	for _, p := range w.rec.Pods() {
		if c := p.Condition("PodScheduled"); p.Spec.NodeName == "" {
			t.Log(c.Message)
		}
	}
	w.verify()
}
