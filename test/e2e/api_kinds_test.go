package e2e

import (
	"fmt"
	"testing"

	"tessera.dev/e2e/harness"
)

// want is what a container must have been given.
type want struct {
	mode    string
	count   int
	request int64
	limit   int64
	profile string
	portion string
}

func container(c, key string) string { return harness.ContainerPrefix + c + "." + key }

// Every kind of pod gets what it asks for; node and allocation appear in one revision (the recorder
// looks at each).
func TestPodKinds(t *testing.T) {
	mig := harness.NewNode("mig", 1, 81559)
	inv, _ := mig.Inventory()
	inv.GPUs[0].MIG = harness.H100MIG()
	mig.SetInventory(inv)
	w := newWorld(t, setup{nodes: append(gpuNodes(6, 4, 81920), mig, harness.NewNode("plain", 0, 0))})
	pod := harness.NewPod
	ts := "time-slicing"
	for _, x := range []struct {
		name string
		pod  *harness.Pod
		want map[string]want
	}{
		{"fraction", pod("p").Annotate("gpu-fraction", "0.25"), map[string]want{"main": {ts, 1, 20480, 20480, "", ""}}},
		{"fraction exact", pod("p").Annotate("gpu-fraction", "0.125"), map[string]want{"main": {ts, 1, 10240, 10240, "", ""}}},
		{"fraction floor", pod("p").Annotate("gpu-fraction", "0.333"), map[string]want{"main": {ts, 1, 27279, 27279, "", ""}}},
		{"mib", pod("p").Annotate("gpu-memory", "20480"), map[string]want{"main": {ts, 1, 20480, 20480, "", ""}}},
		{"quantity", pod("p").Annotate("gpu-memory", "5Gi"), map[string]want{"main": {ts, 1, 5120, 5120, "", ""}}},
		{"limit", pod("p").Annotate("gpu-fraction", "0.25", "gpu-fraction.limit", "0.5"), map[string]want{"main": {ts, 1, 20480, 40960, "", ""}}},
		{"sm-sharing", pod("p").Annotate("gpu-fraction", "0.25", container("main", "gpu-compute.mode"), "sm-sharing",
			container("main", "gpu-compute.request"), "0.3"), map[string]want{"main": {"sm-sharing", 1, 20480, 20480, "", "0.3"}}},
		{"three devices", pod("p").Annotate("gpu-memory", "12288", "gpu-fraction-num-devices", "3"), map[string]want{"main": {ts, 3, 12288, 12288, "", ""}}},
		{"two containers", pod("p").With(harness.NewContainer("side")).Annotate(container("main", "gpu-memory.request"), "10Gi",
			container("side", "gpu-memory.request"), "4Gi", container("side", "gpu-memory.limit"), "6Gi"),
			map[string]want{"main": {ts, 1, 10240, 10240, "", ""}, "side": {ts, 1, 4096, 6144, "", ""}}},
		{"container by name", pod("p").With(harness.NewContainer("side")).Annotate("gpu-memory", "1024", "gpu-fraction-container-name", "side"),
			map[string]want{"side": {ts, 1, 1024, 1024, "", ""}}},
		{"whole", pod("p", harness.GPUResource+"=2"), map[string]want{"main": {"exclusive", 2, 0, 0, "", ""}}},
		{"mig", pod("p").Annotate(harness.TesseraContainers+"main.mig-profile", "1g.10gb"), map[string]want{"main": {"mig", 1, 0, 0, "1g.10gb", ""}}},
		{"mig large", pod("p").Annotate(harness.TesseraContainers+"main.mig-profile", "3g.40gb"), map[string]want{"main": {"mig", 1, 0, 0, "3g.40gb", ""}}},
		{"none", pod("p", "cpu=1"), nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.pod.Metadata.Name = fmt.Sprintf("p-%d", w.rng.Int63())
			makePod(t, w.cp, x.pod)
			p := waitBound(t, w.cp, x.pod.Metadata.Name)
			if x.want == nil {
				if a := p.Metadata.Annotations[harness.AllocationKey]; a != "" && p.WantsGPU() {
					t.Errorf("allocation %s", a)
				}
				return
			}
			got, err := harness.Grants(p)
			must(t, err)
			if len(got) != len(x.want) {
				t.Errorf("%d containers have something, not %d", len(got), len(x.want))
			}
			for c, g := range got {
				checkGrant(t, c, g, x.want[c])
			}
		})
	}
	books := w.verify()
	t.Logf("%d pods with an allocation", books.Allocated)
}

func checkGrant(t *testing.T, c string, g *harness.Grant, want want) {
	t.Helper()
	count := len(g.Devices) + len(g.Placement)
	if g.Mode != want.mode || count != want.count {
		t.Errorf("%s: %d GPUs in mode %s", c, count, g.Mode)
	}
	if want.request != 0 && (g.Request != want.request || g.Limit != want.limit) {
		t.Errorf("%s: %d MiB, limit %d", c, g.Request, g.Limit)
	}
	if want.profile != "" && (len(g.Placement) == 0 || g.Placement[0].Profile != want.profile) {
		t.Errorf("%s: %v", c, g.Placement)
	}
	if want.portion != "" && g.Portion.FloatString(1) != want.portion {
		t.Errorf("%s: portion %s", c, g.Portion)
	}
}

// What somebody else gave away is not given again: whole GPUs of the cluster's own scheduler.
func TestForeignPodsCount(t *testing.T) {
	nodes := gpuNodes(1, 2, 81920)
	w := newWorld(t, setup{nodes: nodes})
	other := harness.NewPod("other", harness.GPUResource+"=1")
	other.Spec.SchedulerName = "default-scheduler"
	w.make(other)
	must(t, w.cp.Admin.Post("/api/v1/namespaces/default/pods/other/binding", binding("other", "gpu-00"), nil))
	waitBound(t, w.cp, "other")
	w.make(harness.NewPod("one", harness.GPUResource+"=1"))
	waitBound(t, w.cp, "one")
	w.make(sharePod("share", 1000))
	c := waitRefused(t, w.cp, "share")
	t.Log(c.Message)
	must(t, w.cp.Admin.RemovePod(other))
	w.waitWoken(t, "share")
	w.verify()
}
