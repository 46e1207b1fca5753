package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
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
	out, err := c.node.agent.Uninstall("--force")
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, gone := range []string{"memory limits of container ", "inventory and condition of node " + nodeName,
		"folder "} {
		if !strings.Contains(out, "removed: "+gone) {
			t.Errorf("%q is not said to be removed: %s", gone, out)
		}
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

// places says where a pod's containers have folders of the host: by the path in the container, but only those
// that they may write to.
func places(spec harness.Object) map[string]string {
	host := map[string]string{}
	for _, v := range parts(spec, "volumes") {
		if path, ok := v.At("hostPath", "path").(string); ok {
			host[v["name"].(string)] = path
		}
	}
	ret := map[string]string{}
	for _, c := range append(parts(spec, "initContainers"), parts(spec, "containers")...) {
		for _, m := range parts(c, "volumeMounts") {
			if path := host[m["name"].(string)]; path != "" && m["readOnly"] != true {
				ret[m["mountPath"].(string)] = path
			}
		}
	}
	return ret
}

// deploy/enforcer/uninstall.yaml is accepted, and so are its pods; they come to every node that the agent is on,
// as what the agent is, and see what it brought at the same places. That the account's rights are enough,
// TestAgentUninstall shows.
func TestUninstallManifest(t *testing.T) {
	cp := control(t)
	_, err := cp.AgentToken("n1") // the account, its rights and the policy; as `apply -k` makes them
	must(t, err)
	class := map[string]any{"metadata": map[string]any{"name": "nvidia"}, "handler": "nvidia"}
	const classes = "/apis/node.k8s.io/v1/runtimeclasses"
	must(t, cp.Admin.Post(classes, class, nil))
	defer func() { must(t, cp.Admin.Delete(classes+"/nvidia", 0)) }()
	list, err := harness.Manifests(filepath.Join("enforcer", "uninstall.yaml"))
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%d objects", len(list))
	}
	must(t, cp.Admin.Create(list[0], false))
	var set harness.Object
	must(t, cp.Admin.Get(list[0].Path()+"/"+list[0].Name, &set))
	pod := harness.Object{"apiVersion": "v1", "kind": "Pod", "metadata": set.At("spec", "template", "metadata"),
		"spec": set.At("spec", "template", "spec")}
	pod["metadata"].(map[string]any)["generateName"] = set.Name() + "-"
	text, err := json.Marshal(pod)
	must(t, err)
	must(t, cp.Admin.Do("POST", "/api/v1/namespaces/kube-system/pods?fieldValidation=Strict&dryRun=All", harness.JSON,
		string(text), nil))
	must(t, cp.Admin.Remove(list[0]))

	var agent harness.Object
	objects, _ := kustomized(t)
	for _, o := range objects {
		if o.ID() == "DaemonSet/kube-system/tessera-enforcer" {
			agent = o
		}
	}
	have, want := podSpec(set), podSpec(agent)
	for _, same := range []string{"serviceAccountName", "runtimeClassName", "hostPID", "tolerations"} {
		if !reflect.DeepEqual(have[same], want[same]) || have[same] == nil {
			t.Errorf("%s is %v, the agent's %v", same, have[same], want[same])
		}
	}
	selector, _ := have["nodeSelector"].(map[string]any)
	for key, value := range selector {
		if of, _ := want["nodeSelector"].(map[string]any); of[key] != value {
			t.Errorf("not on nodes without %s=%s, where the agent is", key, value)
		}
	}
	if reflect.DeepEqual(set.At("spec", "selector"), agent.At("spec", "selector")) {
		t.Error("it takes the agent's pods for its own")
	}
	first, its := parts(have, "initContainers")[0], parts(want, "containers")[0]
	for _, same := range []string{"image", "securityContext", "env"} {
		a, _ := json.Marshal(first[same])
		b, _ := json.Marshal(its[same])
		// The API server writes down what is so by default.
		if strings.ReplaceAll(string(a), `"apiVersion":"v1",`, "") != string(b) {
			t.Errorf("%s is %s, the agent's %s", same, a, b)
		}
	}
	help, err := exec.Command(harness.AgentBinary(), "run", "--help").Output()
	must(t, err)
	seen := places(have)
	for path, host := range places(want) {
		if path == "/var/run/nri" {
			continue // the runtime's
		}
		reached := false
		for above, of := range seen {
			rest, ok := strings.CutPrefix(path+"/", above+"/")
			reached = reached || ok && filepath.Join(of, rest) == host
		}
		if !reached {
			t.Errorf("%s of the host is not at %s, as the agent has it: %v", host, path, seen)
		}
		// Without options of its own it means these.
		if path != "/sys/fs/cgroup" && !strings.Contains(string(help), "["+path) {
			t.Errorf("%s is no default of the agent's options", path)
		}
	}
	for _, path := range []string{"/run/tessera", "/run/nvidia-mps", "/opt/tessera/bin", "/sys/fs/cgroup"} {
		if places(want)[path] == "" {
			t.Errorf("the agent has no %s", path)
		}
	}
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
