package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"tessera.dev/e2e/harness"
)

// What a pod's author can write besides the allocation gives no more than the allocation.
func TestAgentNoWayAround(t *testing.T) {
	n := newGPUNode(t, true)
	victim := n.pod("victim", harness.Allocation(nodeName, harness.Share{Container: "main",
		GPUs: []string{"GPU-b"}, Request: 1024, Limit: 1024, Mode: "sm-sharing", Portion: "0.5"}))
	n.run(victim, sleeper("main"))
	spaces, err := n.agent.Namespaces()
	must(t, err)
	for name := range spaces {
		for what, mount := range map[string][2]string{
			"the victim's namespace": {"/mnt", "/run/nvidia-mps/shared/" + name},
			"all of MPS":             {"/mnt", "/run/nvidia-mps"},
			"under its other name":   {"/mnt", "/var/run/nvidia-mps"},
			"all of run":             {"/mnt", "/run"},
			"a wish for a GPU":       {"/var/run/nvidia-container-devices/GPU-b", "/dev/null"},
		} {
			p := n.pod("thief", share(1024, 1024, "GPU-a"))
			for _, container := range []string{"main", "other"} {
				spec := sleeper(container)
				spec.Mounts = map[string]string{mount[0]: mount[1]}
				c, err := n.create(p, spec)
				wantNotStarted(t, c, err, "a volume mounts")
				if t.Failed() {
					t.Fatalf("%s: %s", container, what)
				}
			}
			must(t, p.Remove())
			n.pods = n.pods[:len(n.pods)-1]
		}
	}
	// One in the place of ours gives way to ours.
	p := n.pod("covers", share(1024, 1024, "GPU-a"))
	spec := n.main("main")
	spec.Mounts["/run/nvidia-mps"] = t.TempDir()
	c := n.run(p, spec)
	if lines := told(t, c); !slices.Contains(lines, "/run/nvidia-mps/control") {
		t.Errorf("the user's own folder is there:\n%s", strings.Join(lines, "\n"))
	}
	// Init, side and debugging containers are containers: none but the one of the allocation has a GPU.
	for _, name := range []string{"init", "debugger-x7k2p"} {
		other := n.main(name)
		other.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a", "CUDA_MPS_PIPE_DIRECTORY": "/run/nvidia-mps"}
		lines := told(t, n.run(p, other))
		if have := variables(lines)["NVIDIA_VISIBLE_DEVICES"]; have != "void" {
			t.Errorf("%s has NVIDIA_VISIBLE_DEVICES=%q", name, have)
		}
	}
	// A pod that shares the host's processes is limited like others, on its own cgroup.
	host := n.podWith(harness.PodOptions{Name: "host", HostPID: true}, share(2048, 2048, "GPU-a"))
	spec = n.main("main")
	c = n.run(host, spec)
	told(t, c)
	n.wantStart(c, spec, 2048, 2048, "GPU-a")
	if _, err := os.Stat(n.rt.Cgroup(c.Cgroup())); err != nil {
		t.Error(err)
	}
}
