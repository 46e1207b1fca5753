package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// The control plane itself: a plain kube-scheduler places a pod.
func TestControlPlane(t *testing.T) {
	cp := control(t)
	makeNodes(t, cp, harness.NewNode("n1", 0, 0))
	s, err := cp.StartScheduler(harness.SchedulerConfig{})
	must(t, err)
	defer s.Stop()
	makePod(t, cp, harness.NewPod("p1", "cpu=1"))
	if p := waitBound(t, cp, "p1"); p.Spec.NodeName != "n1" {
		t.Errorf("on %s", p.Spec.NodeName)
	}
	makePod(t, cp, harness.NewPod("p2", "nvidia.com/gpu=1"))
	c := waitRefused(t, cp, "p2")
	if c.Reason != "Unschedulable" {
		t.Errorf("reason %s: %s", c.Reason, c.Message)
	}
}

// All that `kubectl apply -k deploy/` creates is accepted, field by field; no file is forgotten.
func TestManifestsAccepted(t *testing.T) {
	files, err := harness.KustomizationFiles()
	must(t, err)
	// The configurations of schedulers are those that StartScheduler() takes; of the others, each has a test.
	others := []string{"kustomization.yaml", "scheduler-config.yaml", "extender-block.yaml", "enforcer/uninstall.yaml"}
	deploy := os.DirFS(filepath.Join(harness.Root(), "deploy"))
	must(t, fs.WalkDir(deploy, ".", func(name string, d fs.DirEntry, err error) error {
		if name == "helm" {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".yaml") && !slices.Contains(files, name) && !slices.Contains(others, name) {
			t.Errorf("deploy/%s is applied by no test", name)
		}
		return err
	}))
	list, _ := kustomized(t)
	accepted(t, control(t), list, "kube-system")
	t.Logf("%d objects of %d files", len(list), len(files))
}

// The scheduler runs with what rbac-scheduler.yaml allows it, leader election included.
func TestSchedulerRights(t *testing.T) {
	cp := control(t)
	account, err := cp.InstallRights("serviceaccount.yaml", "rbac-scheduler.yaml")
	must(t, err)
	token, revoke, err := account.Token()
	must(t, err)
	defer func() { must(t, revoke()) }()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, harness.WriteKubeconfig(kubeconfig, cp.Base, cp.CAFile, token, ""))
	makeNodes(t, cp, harness.NewNode("n1", 0, 0))
	s, err := cp.StartScheduler(harness.SchedulerConfig{Kubeconfig: kubeconfig, LeaderElect: true})
	must(t, err)
	defer s.Stop()
	makePod(t, cp, harness.NewPod("p1", "cpu=1"))
	waitBound(t, cp, "p1")
	var lease struct {
		Spec struct {
			HolderIdentity string `json:"holderIdentity"`
		} `json:"spec"`
	}
	must(t, cp.Admin.Get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tessera-scheduler", &lease))
	if lease.Spec.HolderIdentity == "" {
		t.Error("nobody holds the lease")
	}
	log, err := os.ReadFile(s.LogPath)
	must(t, err)
	for _, line := range strings.Split(string(log), "\n") {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			t.Error(line)
		}
	}
}

// The extender's account may do what it must, and not more.
func TestExtenderRights(t *testing.T) {
	cp := control(t)
	account, err := cp.InstallRights("serviceaccount.yaml", "rbac.yaml")
	must(t, err)
	token, revoke, err := account.Token()
	must(t, err)
	defer func() { must(t, revoke()) }()
	c := cp.Admin.WithToken(token)
	const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	for _, x := range []struct {
		method, path string
		body         any
		allowed      bool
	}{
		{"GET", "/api/v1/pods?limit=1", nil, true},
		{"GET", "/api/v1/nodes?limit=1", nil, true},
		{"GET", lease + "/tessera-extender", nil, true},
		{"POST", "/api/v1/namespaces/default/pods/none/binding", binding("none", "n1"), true},
		{"GET", "/api/v1/namespaces/kube-system/secrets", nil, false},
		{"GET", lease + "/tessera-scheduler", nil, false},
		{"DELETE", "/api/v1/namespaces/default/pods/none", nil, false},
		{"PATCH", "/api/v1/namespaces/default/pods/none", map[string]any{}, false},
		{"PATCH", "/api/v1/namespaces/default/pods/none/status", map[string]any{}, true},
		{"PATCH", "/api/v1/nodes/none", map[string]any{}, false},
		{"PATCH", "/api/v1/nodes/none/status", map[string]any{}, true},
		{"POST", "/api/v1/namespaces/default/pods", harness.NewPod("x"), false},
	} {
		contentType := harness.JSON
		if x.method == "PATCH" {
			contentType = harness.MergePatch
		}
		// Rights that were just given or taken count after a moment.
		must(t, harness.Poll(5*time.Second, 20*time.Millisecond, func() error {
			err := c.Do(x.method, x.path, contentType, x.body, nil)
			if code := harness.Code(err); (code == 403) == x.allowed || code == 401 {
				return fmt.Errorf("%s %s: allowed should be %v: %w", x.method, x.path, x.allowed, err)
			}
			return nil
		}))
	}
}

func binding(pod, node string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Binding", "metadata": map[string]any{"name": pod},
		"target": map[string]any{"kind": "Node", "name": node}}
}
