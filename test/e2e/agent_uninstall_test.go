package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// uninstalled checks that nothing is left on the node, and nothing at the Node.
func (c *gpuCluster) uninstalled() {
	c.t.Helper()
	for _, path := range c.node.agent.Places() {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			c.t.Errorf("%s is left (%v)", path, err)
		}
	}
	var n harness.Node
	must(c.t, c.cp.Admin.Get("/api/v1/nodes/"+nodeName, &n))
	for key := range n.Metadata.Annotations {
		if strings.HasPrefix(key, "tessera.dev/") {
			c.t.Errorf("annotation %s is left", key)
		}
	}
	for _, x := range n.Status.Conditions {
		if x.Type == "TesseraReady" {
			c.t.Errorf("condition %v is left", x)
		}
	}
	if _, err := c.node.agent.Namespaces(); err == nil {
		c.t.Error("the MPS control daemon answers")
	}
}

// What the agent brought goes again: not while it runs, and by force alone while a container has a share.
func TestAgentUninstall(t *testing.T) {
	c := newGPUCluster(t)
	t.Cleanup(func() { must(t, os.MkdirAll(c.node.rt.Path("/run/tessera-bin"), 0o755)) })
	c.waitHealth(true, true)
	c.waitReady("True")
	c.make(sharePod("holder", 4096))
	p := c.waitWoken(t, "holder")
	grants, err := harness.Grants(p)
	must(t, err)
	gpu := grants["main"].Devices[0]
	running := c.kubelet(p, c.node.main("main"))
	told(t, running)
	c.node.wantLimits(running.Cgroup(), 4096, 4096, gpu)

	for _, x := range []struct{ state, refusal string }{
		{"the agent runs", "end the agent first"},
		{"a container has a share", "1 containers have a share"},
	} {
		if out, err := c.node.agent.Uninstall(); err == nil || !strings.Contains(out, x.refusal) {
			t.Fatalf("%s: %v %s", x.state, err, out)
		}
		c.node.wantLimits(running.Cgroup(), 4096, 4096, gpu)
		c.waitNode("inventory", func(n *harness.Node) bool {
			return n.Metadata.Annotations[harness.InventoryKey] != ""
		})
		c.node.agent.Stop()
	}
	if out, err := c.node.agent.Uninstall("--force"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	c.uninstalled()
	limits, err := c.node.hw.Limits()
	must(t, err)
	if l := limits[gpu+" "+c.node.rt.Mount+running.Cgroup()]; l.Soft != 0 || l.Hard != -1 {
		t.Errorf("the container's limits are %v", l)
	}
	if len(running.Pids()) != 1 {
		t.Error("what runs was ended")
	}
	// Where nothing is, nothing is in the way.
	if out, err := c.node.agent.Uninstall("--force"); err != nil {
		t.Errorf("again: %v %s", err, out)
	}
	c.uninstalled()
}

// The agent's account may do what it must on its own Node, and nothing more, as deploy/ has it.
func TestAgentRights(t *testing.T) {
	cp := control(t)
	makeNodes(t, cp, harness.NewNode("own", 0, 0), harness.NewNode("other", 0, 0))
	token, err := cp.AgentToken("own")
	must(t, err)
	c := cp.Admin.WithToken(token)
	type m = map[string]any
	annotation := func(key string) m { return m{"metadata": m{"annotations": m{key: "x"}}} }
	condition := func(kind string) m {
		return m{"status": m{"conditions": []m{{"type": kind, "status": "True", "reason": "R", "message": "m",
			"lastHeartbeatTime":  time.Now().UTC().Format(time.RFC3339),
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}}
	}
	const strategic = "application/strategic-merge-patch+json"
	const node, pods = "/api/v1/nodes/own", "/api/v1/namespaces/default/pods"
	for _, x := range []struct {
		what, method, path, kind string
		body                     any
		allowed                  bool
	}{
		{"its Node", "GET", node, "", nil, true},
		{"nodes", "GET", "/api/v1/nodes?limit=1", "", nil, true},
		{"pods", "GET", "/api/v1/pods?limit=1", "", nil, true},
		{"inventory", "PATCH", node, harness.MergePatch, annotation(harness.InventoryKey), true},
		{"condition", "PATCH", node + "/status", strategic, condition("TesseraReady"), true},
		{"event", "POST", "/api/v1/namespaces/default/events", harness.JSON, m{"metadata": m{"generateName": "e-"},
			"involvedObject": m{"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "R"}, true},

		{"another's inventory", "PATCH", "/api/v1/nodes/other", harness.MergePatch,
			annotation(harness.InventoryKey), false},
		{"another's condition", "PATCH", "/api/v1/nodes/other/status", strategic, condition("TesseraReady"), false},
		{"another annotation", "PATCH", node, harness.MergePatch, annotation("example.com/x"), false},
		{"a label", "PATCH", node, harness.MergePatch, m{"metadata": m{"labels": m{"a": "b"}}}, false},
		{"a taint", "PATCH", node, harness.MergePatch, m{"spec": m{"taints": []m{{"key": "a",
			"effect": "NoSchedule"}}}}, false},
		{"unschedulable", "PATCH", node, harness.MergePatch, m{"spec": m{"unschedulable": true}}, false},
		{"another condition", "PATCH", node + "/status", strategic, condition("Ready2"), false},
		{"capacity", "PATCH", node + "/status", harness.MergePatch, m{"status": m{"capacity": m{
			"nvidia.com/gpu": "8"}}}, false},
		{"deleting its Node", "DELETE", node, "", nil, false},
		{"secrets", "GET", "/api/v1/namespaces/kube-system/secrets", "", nil, false},
		{"a pod's annotations", "PATCH", pods + "/none", harness.MergePatch, m{}, false},
		{"a pod's status", "PATCH", pods + "/none/status", harness.MergePatch, m{}, false},
		{"deleting pods", "DELETE", pods + "/none", "", nil, false},
		{"making pods", "POST", pods, harness.JSON, harness.NewPod("x"), false},
		{"binding", "POST", pods + "/none/binding", harness.JSON, binding("none", "own"), false},
	} {
		// Rights and policies that were just made count after a moment.
		if err := harness.Poll(10*time.Second, 20*time.Millisecond, func() error {
			err := c.Do(x.method, x.path, x.kind, x.body, nil)
			code := harness.Code(err)
			if refused := code == 403 || code == 422; refused == x.allowed || x.allowed && err != nil {
				return fmt.Errorf("%s: allowed should be %v: %w", x.what, x.allowed, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}
