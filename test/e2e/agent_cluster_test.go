package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// gpuCluster is the whole product: scheduler and extender on a real control plane, and a node whose agent
// publishes what its driver has and applies what the pods are given. The test is the kubelet.
type gpuCluster struct {
	*world
	node *gpuNode
	t    *testing.T
}

func newGPUCluster(t *testing.T) *gpuCluster {
	t.Helper()
	return newClusterOf(t, []harness.FakeGPU{{UUID: "GPU-a", MemMiB: 81920}, {UUID: "GPU-b", MemMiB: 81920}}, nil)
}

// newClusterOf has a node with these GPUs, these lines more in its driver's script and arguments of its agent.
func newClusterOf(t *testing.T, gpus []harness.FakeGPU, lines []string, args ...string) *gpuCluster {
	t.Helper()
	bare := harness.NewNode(nodeName, 0, 0)
	w := newWorld(t, setup{nodes: []*harness.Node{bare}})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	token, err := w.cp.AgentToken(nodeName)
	must(t, err)
	must(t, harness.WriteKubeconfig(kubeconfig, w.cp.Base, w.cp.CAFile, token, ""))
	return &gpuCluster{w, newNodeOf(t, true, gpus, lines, append([]string{"--publish=yes",
		"--kubeconfig=" + kubeconfig, "--no-gate=host-pid"}, args...)...), t}
}

// waitNode waits until cond holds for the node.
func (c *gpuCluster) waitNode(what string, cond func(n *harness.Node) bool) *harness.Node {
	c.t.Helper()
	var n harness.Node
	must(c.t, harness.Poll(20*time.Second, 20*time.Millisecond, func() error {
		n = harness.Node{}
		if err := c.cp.Admin.Get("/api/v1/nodes/"+nodeName, &n); err != nil {
			return err
		}
		if !cond(&n) {
			return fmt.Errorf("the node has %s no %s: inventory %s, conditions %v", nodeName, what,
				n.Metadata.Annotations[harness.InventoryKey], n.Status.Conditions)
		}
		return nil
	}))
	return &n
}

func (c *gpuCluster) waitReady(status string) {
	c.t.Helper()
	c.waitNode("condition TesseraReady "+status, func(n *harness.Node) bool {
		for _, x := range n.Status.Conditions {
			if x.Type == "TesseraReady" {
				return x.Status == status
			}
		}
		return false
	})
}

// waitHealth waits until the inventory says of GPU-a and GPU-b that.
func (c *gpuCluster) waitHealth(a, b bool) {
	c.t.Helper()
	c.waitNode(fmt.Sprintf("GPUs with health %v, %v", a, b), func(n *harness.Node) bool {
		inv, ok := n.Inventory()
		return ok && len(inv.GPUs) == 2 && inv.GPUs[0].Healthy == a && inv.GPUs[1].Healthy == b
	})
}

// kubelet runs a bound pod: its sandbox has the pod's annotations as the API server has them.
func (c *gpuCluster) kubelet(p *harness.Pod, spec harness.ContainerSpec) *harness.Created {
	c.t.Helper()
	s := c.node.podWith(harness.PodOptions{Name: p.Metadata.Name, UID: p.Metadata.UID}, p.Metadata.Annotations)
	ret := c.node.run(s, spec)
	must(c.t, c.cp.Admin.SetPhase(p, "Running"))
	return ret
}

// From the driver to the container: inventory, placement, limits, health.
func TestAgentCluster(t *testing.T) {
	c := newGPUCluster(t)
	c.waitHealth(true, true)
	c.waitReady("True")
	c.make(sharePod("first", 8192))
	first := c.waitWoken(t, "first")
	grants, err := harness.Grants(first)
	must(t, err)
	gpu := grants["main"].Devices[0]
	spec := c.node.main("main")
	running := c.kubelet(first, spec)
	if have := variables(told(t, running))["NVIDIA_VISIBLE_DEVICES"]; have != gpu {
		t.Errorf("the container has NVIDIA_VISIBLE_DEVICES=%q, the pod %s", have, gpu)
	}
	c.node.wantStart(running, spec, 8192, 8192, gpu)

	c.raise(first, running, gpu)
	c.gate()
	c.fail()
	if len(running.Pids()) != 1 {
		t.Error("what runs was ended")
	}
	c.verify()
	c.overdo(first, gpu)
}

// gate: without the agent the node's condition keeps new pods away.
func (c *gpuCluster) gate() {
	c.node.agent.Stop()
	c.waitReady("Unknown")
	c.make(sharePod("gated", 1024))
	if r := waitRefused(c.t, c.cp, "gated"); !strings.Contains(r.Message, "TesseraReady") {
		c.t.Errorf("the scheduler says: %s", r.Message)
	}
	must(c.t, c.node.agent.Restart())
	c.waitReady("True")
	c.waitWoken(c.t, "gated")
}

// fail lets one GPU and then the other fall off the bus: no pod is placed there any more.
func (c *gpuCluster) fail() {
	must(c.t, c.node.hw.Set("xid gpu=0 code=79"))
	c.waitHealth(false, true)
	for i := range 2 {
		name := fmt.Sprintf("avoids-%d", i)
		c.make(sharePod(name, 20480))
		grants, err := harness.Grants(c.waitWoken(c.t, name))
		must(c.t, err)
		if devices := grants["main"].Devices; devices[0] != "GPU-b" {
			c.t.Errorf("%s is on %v", name, devices)
		}
	}
	must(c.t, c.node.hw.Set("xid gpu=0 code=79", "xid gpu=1 code=79"))
	c.waitHealth(false, false)
	c.make(sharePod("nowhere", 1024))
	waitRefused(c.t, c.cp, "nowhere")
}

// wish is what the user of a pod does: kubectl annotate --overwrite.
func (c *gpuCluster) wish(p *harness.Pod, limit string) {
	must(c.t, c.cp.Admin.Merge(harness.PodPath(p), map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{"tessera.dev/container.main.memory-limit": limit}}}))
}

// waitEvent waits until an event on the pod has the text.
func (c *gpuCluster) waitEvent(p *harness.Pod, text string) {
	c.t.Helper()
	must(c.t, harness.Poll(20*time.Second, 50*time.Millisecond, func() error {
		var events struct {
			Items []struct {
				Reason, Message string
				InvolvedObject  struct{ UID string }
			}
		}
		err := c.cp.Admin.Get("/api/v1/namespaces/default/events", &events)
		for _, e := range events.Items {
			if e.InvolvedObject.UID == p.Metadata.UID && strings.Contains(e.Message, text) {
				return nil
			}
		}
		if err == nil {
			err = fmt.Errorf("no event on the pod says %q", text)
		}
		return err
	}))
}

// raise: the user of a running pod wishes a higher limit, the extender makes it the allocation's, the agent
// the driver's. More than the GPU has is refused in words, and changes nothing.
func (c *gpuCluster) raise(p *harness.Pod, running *harness.Created, gpu string) {
	c.wish(p, "16Gi")
	must(c.t, harness.Poll(20*time.Second, 20*time.Millisecond, func() error {
		limits, err := c.node.hw.Limits()
		if l := limits[gpu+" "+c.node.rt.Mount+running.Cgroup()]; err == nil && l.Hard != 16384*mib {
			err = fmt.Errorf("the limit is %d MiB", l.Hard/mib)
		}
		return err
	}))
	c.node.wantLimits(running.Cgroup(), 8192, 16384, gpu)
	c.waitEvent(p, "from 8192/8192 to 8192/16384 MiB")
	c.wish(p, "900Gi")
	c.waitEvent(p, "tessera.dev/container.main.memory-limit: \"900Gi\" is more than the")
	c.node.wantLimits(running.Cgroup(), 8192, 16384, gpu)
}

// overdo asks for more than the GPU has: that is refused in words, and changes nothing.
func (c *gpuCluster) overdo(p *harness.Pod, gpu string) {
	before, err := c.node.hw.Log()
	must(c.t, err)
	must(c.t, c.cp.Admin.Merge(harness.PodPath(p), map[string]any{
		"metadata": map[string]any{"annotations": harness.Allocation(nodeName, harness.Share{Container: "main",
			GPUs: []string{gpu}, Request: 8192, Limit: 99999})}}))
	must(c.t, c.node.agent.WaitLog(10*time.Second, "99999"))
	after, err := c.node.hw.Log()
	must(c.t, err)
	if len(after) != len(before) {
		c.t.Errorf("limits were set: %v", after[len(before):])
	}
}
