package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// The profiles of an A100 of 80 GiB, for the first GPU.
var migProfiles = []string{
	"profile gpu=0 which=0 id=19 name=MIG_1g.10gb slices=1 max=7 mem=9856 size=1 starts=0,1,2,3,4,5,6",
	"profile gpu=0 which=1 id=14 name=MIG_2g.20gb slices=2 max=3 mem=19968 size=2 starts=0,2,4",
	"profile gpu=0 which=2 id=9 name=MIG_3g.40gb slices=3 max=2 mem=40320 size=4 starts=0,4",
	"profile gpu=0 which=3 id=5 name=MIG_4g.40gb slices=4 max=1 mem=40320 size=4 starts=0",
	"profile gpu=0 which=4 id=0 name=MIG_7g.80gb slices=7 max=1 mem=81008 size=8 starts=0",
}

// instances are those that the driver has, "profile-id:start".
func (n *gpuNode) instances() []string {
	text, err := os.ReadFile(n.hw.Script)
	must(n.t, err)
	var ret []string
	for _, line := range strings.Split(string(text), "\n") {
		f := map[string]string{}
		for _, w := range strings.Fields(line) {
			if k, v, ok := strings.Cut(w, "="); ok {
				f[k] = v
			}
		}
		if strings.HasPrefix(line, "instance ") {
			ret = append(ret, f["profile"]+":"+f["start"])
		}
	}
	slices.Sort(ret)
	return ret
}

func (n *gpuNode) wantInstances(timeout time.Duration, want ...string) {
	n.t.Helper()
	must(n.t, harness.Poll(timeout, 50*time.Millisecond, func() error {
		if have := n.instances(); !slices.Equal(have, want) {
			return fmt.Errorf("the driver has %v, not %v", have, want)
		}
		return nil
	}))
}

// teller is a container that writes its environment and goes on.
func teller() harness.ContainerSpec {
	return harness.ContainerSpec{Name: "main", Command: []string{"/bin/sh", "-c", "env; echo told; exec sleep 1000000"}}
}

func instance(at string) map[string]string {
	return harness.Allocation(nodeName, harness.Share{Container: "main", MIG: []string{at}, Request: 9856,
		Limit: 9856})
}

// An instance is made at its start before the container begins, which finds its UUID; it goes when the
// container is gone and it was idle for long enough, and others stay.
func TestAgentMakesInstances(t *testing.T) {
	n := newNodeOf(t, true, []harness.FakeGPU{{UUID: "GPU-a", MemMiB: 81920, More: "mig=on"},
		{UUID: "GPU-b", MemMiB: 81920}}, migProfiles, "--mig-linger=1")
	p := n.pod("six", instance("GPU-a/1g.10gb:6"))
	c := n.run(p, teller())
	if v := variables(told(t, c))["NVIDIA_VISIBLE_DEVICES"]; !strings.HasPrefix(v, "MIG-0-6-") {
		t.Errorf("NVIDIA_VISIBLE_DEVICES is %q", v)
	}
	n.wantInstances(0, "19:6")
	n.run(n.pod("four", instance("GPU-a/2g.20gb:4")), teller())
	n.wantInstances(0, "14:4", "19:6")
	must(t, c.Remove())
	n.wantInstances(30*time.Second, "14:4")
	// Resources are short by the driver's word: the container does not start, and its owner reads why.
	must(t, n.hw.Set(append(slices.Clone(migProfiles), "fail call=nvmlDeviceCreateGpuInstanceWithPlacement code=23")...))
	_, err := n.create(n.pod("none", instance("GPU-a/1g.10gb:0")), teller())
	if err == nil || !strings.Contains(err.Error(), "nsufficient resources") {
		t.Errorf("error %v", err)
	}
}

// waitInstances waits until the inventory of the node says of GPU-a that it has these, "profile:start", all ours.
func (c *gpuCluster) waitInstances(want ...string) {
	c.t.Helper()
	c.waitNode(fmt.Sprintf("instances %v", want), func(n *harness.Node) bool {
		inv, ok := n.Inventory()
		if !ok || len(inv.GPUs) == 0 || inv.GPUs[0].MIG == nil {
			return false
		}
		var have []string
		for _, i := range inv.GPUs[0].MIG.Instances {
			if !i.Ours {
				return false
			}
			have = append(have, fmt.Sprintf("%s:%d", i.Profile, i.Start))
		}
		slices.Sort(have)
		return slices.Equal(have, want)
	})
}

// From the annotation to the instance and back: what the user writes, what the extender decides, what the driver
// has, what the container sees and what the inventory says agree at every step; so do the extender's books.
func TestAgentMIGCluster(t *testing.T) {
	c := newClusterOf(t, []harness.FakeGPU{{UUID: "GPU-a", MemMiB: 81920, More: "mig=on"},
		{UUID: "GPU-b", MemMiB: 81920}}, migProfiles, "--mig-linger=1")
	c.waitReady("True")
	c.waitInstances()
	ids := map[string]string{"1g.10gb": "19", "2g.20gb": "14", "3g.40gb": "9"}
	var placed, driver []string
	var pods []*harness.Pod
	var containers []*harness.Created
	for i, profile := range []string{"3g.40gb", "2g.20gb", "1g.10gb"} {
		name := fmt.Sprintf("mig-%d", i)
		c.make(harness.NewPod(name).Annotate(harness.TesseraContainers+"main.mig-profile", profile))
		p := c.waitWoken(t, name)
		grants, err := harness.Grants(p)
		must(t, err)
		g := grants["main"]
		if g == nil || len(g.Placement) != 1 || g.Placement[0].UUID != "GPU-a" || g.Placement[0].Profile != profile {
			t.Fatalf("%s has %v", name, g)
		}
		start := g.Placement[0].Start
		running := c.kubelet(p, teller())
		if v := variables(told(t, running))["NVIDIA_VISIBLE_DEVICES"]; !strings.HasPrefix(v,
			fmt.Sprintf("MIG-0-%d-", start)) {
			t.Errorf("%s at %d sees %q", profile, start, v)
		}
		driver = append(driver, fmt.Sprintf("%s:%d", ids[profile], start))
		placed = append(placed, fmt.Sprintf("%s:%d", profile, start))
		slices.Sort(driver)
		slices.Sort(placed)
		c.node.wantInstances(0, driver...)
		c.waitInstances(placed...)
		pods, containers = append(pods, p), append(containers, running)
	}
	c.verify()
	for i := range pods {
		must(t, containers[i].Remove())
		must(t, c.cp.Admin.RemovePod(pods[i]))
	}
	c.node.wantInstances(30 * time.Second)
	c.waitInstances()
	// All of it is there again.
	c.make(harness.NewPod("whole").Annotate(harness.TesseraContainers+"main.mig-profile", "7g.80gb"))
	c.kubelet(c.waitWoken(t, "whole"), teller())
	c.node.wantInstances(0, "0:0")
	c.waitInstances("7g.80gb:0")
	c.verify()
}
