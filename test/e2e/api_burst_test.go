package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// Case 1: sixteen halves at once on eight GPUs, two on each, never three.
func TestCase01BurstOfHalves(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 8, 81920)})
	w.makeMany(16, func(i int) *harness.Pod {
		return harness.NewPod(fmt.Sprint("half-", i), harness.MemoryResource+"=40960").Annotate("gpu-fraction", "0.5")
	})
	w.waitCounts(16, 30*time.Second)
	for uuid, g := range w.verify().GPUs {
		if len(g.Holders) != 2 {
			t.Errorf("%s: %q", uuid, g.Holders)
		}
	}
}

// mixedPod is one of the kinds that a busy cluster sees, by number.
func mixedPod(i int) *harness.Pod {
	name := fmt.Sprintf("p%03d", i)
	switch i % 6 {
	case 0:
		return sharePod(name, 10240)
	case 1:
		return sharePod(name, 5120)
	case 2:
		return harness.NewPod(name, harness.MemoryResource+"=20480").Annotate("gpu-fraction", "0.25",
			container("main", "gpu-compute.mode"), "sm-sharing")
	case 3:
		return harness.NewPod(name, harness.MemoryResource+"=16384").Annotate("gpu-memory", "8192",
			"gpu-fraction-num-devices", "2")
	case 4:
		return sharePod(name, 20480).Annotate("gpu-memory.limit", "24576")
	default:
		return harness.NewPod(name, harness.GPUResource+"=1")
	}
}

// 600 pods at once on 20 nodes: all are placed or told why not, no GPU is over-booked at any moment.
func TestBurst600(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(20, 8, 81920)})
	start := time.Now()
	w.makeMany(600, mixedPod)
	if !w.rec.Wait(180*time.Second, func(pods []harness.Pod) bool {
		_, _, open := counts(pods)
		return len(pods) == 600 && open == 0
	}) {
		t.Error("some pods have no answer")
	}
	took := time.Since(start)
	bound, refused, open := counts(w.rec.Pods())
	binds, refusedBinds := w.bindErrors()
	t.Logf("%d bound, %d refused, %d open in %v (%.0f pods/s)", bound, refused, open,
		took.Round(time.Millisecond), float64(bound)/took.Seconds())
	t.Logf("%d binds, %d of them refused: %.1f per 1,000", binds, refusedBinds,
		1000*float64(refusedBinds)/float64(max(binds, 1)))
	w.verify()
	if bound < 400 {
		t.Errorf("only %d bound", bound)
	}
	if refusedBinds*1000 > 10*binds {
		t.Errorf("more than 10 of 1,000 binds were refused")
	}
}

// Case 24: 100 small pods to one node at once: all bound, none refused, in parallel.
func TestCase24BurstOnOneNode(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 8, 81920)})
	w.makeMany(100, func(i int) *harness.Pod { return sharePod(fmt.Sprint("p", i), 4096) })
	w.waitCounts(100, 60*time.Second)
	if all, refused := w.bindErrors(); refused != 0 {
		t.Errorf("%d of %d binds were refused", refused, all)
	}
	w.verify()
}

// Case 22: a bind takes no lock on any object: the node stays as it was, and the next bind does not
// wait for anybody.
func TestCase22NoLockOnObjects(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920)})
	version := func() string {
		nodes, err := w.cp.Admin.Nodes()
		must(t, err)
		return nodes[0].Metadata.ResourceVersion
	}
	before := version()
	for i := range 3 {
		name := fmt.Sprint("p", i)
		start := time.Now()
		w.make(sharePod(name, 1024))
		waitBound(t, w.cp, name)
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	if after := version(); after != before {
		t.Errorf("the node was written: version %s, then %s", before, after)
	}
	w.verify()
}

// Case 23: 2,000 pods on 200 nodes: no bind times out, 99 of 100 take less than a second.
func TestCase23ManyPods(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short runs")
	}
	w := newWorld(t, setup{nodes: gpuNodes(200, 4, 81920)})
	w.makeMany(2000, func(i int) *harness.Pod { return sharePod(fmt.Sprintf("p%04d", i), 20480) })
	w.waitCounts(2000, 300*time.Second)
	var times []time.Duration
	for _, e := range w.front.Exchanges("/bind") {
		times = append(times, e.End.Sub(e.Start))
	}
	slices.Sort(times)
	p99 := times[len(times)*99/100]
	t.Logf("bind: median %v, p99 %v, largest %v", times[len(times)/2], p99, times[len(times)-1])
	if p99 > time.Second {
		t.Errorf("p99 of bind is %v", p99)
	}
	w.verify()
}

// Case 25: node events in a storm while pods come: nothing stalls, the last state wins.
func TestCase25NodeEventStorm(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(10, 4, 81920)})
	const rounds = 200
	done := make(chan error, 10)
	for n := range 10 {
		go func() {
			path := fmt.Sprintf("/api/v1/nodes/gpu-%02d", n)
			var err error
			for i := 0; i < rounds && err == nil; i++ {
				err = w.cp.Admin.Merge(path, map[string]any{"metadata": map[string]any{
					"labels": map[string]string{"storm": fmt.Sprint(i)}}})
			}
			if err == nil && n == 9 { // the last word about this one
				err = w.cp.Admin.Merge(path, map[string]any{"spec": map[string]any{"unschedulable": true}})
			}
			done <- err
		}()
	}
	w.makeMany(40, func(i int) *harness.Pod { return sharePod(fmt.Sprint("p", i), 4096) })
	for range 10 {
		must(t, <-done)
	}
	w.waitCounts(40, 60*time.Second)
	w.make(sharePod("late", 4096))
	if p := waitBound(t, w.cp, "late"); p.Spec.NodeName == "gpu-09" {
		t.Error("bound to a node that is cordoned")
	}
	w.verify()
}

// Case 47b: two GPU nodes among 1,000 plain ones are found at once with the shipped configuration.
func TestCase47bFewGPUNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short runs")
	}
	var nodes []*harness.Node
	for i := range 1000 {
		nodes = append(nodes, harness.NewNode(fmt.Sprintf("plain-%04d", i), 0, 0))
	}
	nodes = append(nodes, gpuNodes(2, 8, 81920)...)
	w := newWorld(t, setup{nodes: nodes})
	w.make(harness.NewPod("p").Annotate("gpu-fraction", "0.5"))
	p := waitBound(t, w.cp, "p")
	if n := len(w.front.Exchanges("/filter")); n > 2 {
		t.Errorf("%d tries", n)
	}
	t.Logf("on %s", p.Spec.NodeName)
	w.verify()
}

// Case 47d: both forms of bodies are answered whatever is configured.
func TestCase47aNodesMode(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(3, 2, 81920), sched: harness.SchedulerConfig{NodesMode: true}})
	w.makeMany(12, func(i int) *harness.Pod { return sharePod(fmt.Sprint("p", i), 20480) })
	w.waitCounts(12, 30*time.Second)
	w.verify()
}

// Case 47f: what runs beside us is placed while no extender is there.
func TestCase47fPlacedWithoutUs(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(2, 2, 81920)})
	s, err := w.cp.StartScheduler(harness.SchedulerConfig{Block: true})
	must(t, err)
	defer s.Stop()
	w.exts[0].Kill()
	own := harness.NewPod("own", "cpu=1")
	own.Spec.SchedulerName = "default-scheduler"
	w.make(own)
	waitBound(t, w.cp, "own")
	// Pods that need us wait, with a reason, and are not bound by anybody else.
	w.make(sharePod("share", 1024))
	c := waitRefused(t, w.cp, "share")
	if c.Reason != "SchedulerError" {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	w.dropLease()
	w.restart(0)
	w.waitLeader(30 * time.Second)
	waitBound(t, w.cp, "share")
	w.verify()
}

// Odd replies, one node kept: the scheduler skips prioritize when one node is left.
func TestOneNodeLeft(t *testing.T) {
	w := newWorld(t, setup{nodes: []*harness.Node{harness.NewNode("gpu", 2, 81920), harness.NewNode("plain", 0, 0)}})
	w.front.Record(func(*http.Request) bool { return true })
	w.make(sharePod("p", 1024))
	waitBound(t, w.cp, "p")
	if n := len(w.front.Exchanges("/prioritize")); n != 0 {
		t.Errorf("%d prioritize calls", n)
	}
	w.verify()
}
