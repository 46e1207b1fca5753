package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tessera.dev/e2e/harness"
)

// What a container finds is what its allocation promised, whatever the user set; its limits are in force on
// its own cgroup before its first instruction; the other container of the pod has nothing.
func TestAgentGives(t *testing.T) {
	for _, handler := range []string{"runc", "crun"} {
		t.Run(handler, func(t *testing.T) {
			n := newGPUNode(t, true)
			if !slices.Contains(harness.OCIRuntimes(), handler) {
				t.Skip(handler, "is not here")
			}
			p := n.podWith(harness.PodOptions{Name: "gives", Handler: handler},
				share(4096, 8192, "GPU-a", "GPU-b"))
			spec := n.main("main")
			spec.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_MPS_PIPE_DIRECTORY": "/none",
				"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "9=1G", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "1",
				"NVIDIA_GPU_MEMORY_LIMIT": "999999", "NVIDIA_GPU_MEMORY_REQUEST": "999999"}
			c := n.run(p, spec)
			lines := told(t, c)
			want := map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
				"NVIDIA_GPU_MEMORY_REQUEST": "4096", "NVIDIA_GPU_MEMORY_LIMIT": "8192",
				"CUDA_MPS_PIPE_DIRECTORY":           "/run/nvidia-mps",
				"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
				"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT":  "0=8192M,1=8192M"}
			for k, v := range want {
				if have := variables(lines)[k]; have != v {
					t.Errorf("%s is %q, not %q", k, have, v)
				}
			}
			if !slices.Contains(lines, "/run/nvidia-mps/control") {
				t.Errorf("no control socket in the container:\n%s", strings.Join(lines, "\n"))
			}
			n.wantStart(c, spec, 4096, 8192, "GPU-a", "GPU-b")
			other := n.main("other")
			other.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}
			lines = told(t, n.run(p, other))
			if have := variables(lines)["NVIDIA_VISIBLE_DEVICES"]; have != "void" {
				t.Errorf("the other container has NVIDIA_VISIBLE_DEVICES=%q", have)
			}
			if slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "nvidia-mps") }) {
				t.Errorf("the other container has MPS:\n%s", strings.Join(lines, "\n"))
			}
			limits, err := n.hw.Limits()
			must(t, err)
			if len(limits) != 2 {
				t.Errorf("there are other limits: %v", limits)
			}
		})
	}
}

// wantStart checks the limits that the first command of a container found, and where its process is.
func (n *gpuNode) wantStart(c *harness.Created, spec harness.ContainerSpec, soft, hard int64, gpus ...string) {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(spec.Mounts["/out"], "limits"))
	must(n.t, err)
	found, err := harness.ParseLimits(string(text))
	must(n.t, err)
	pids := c.Pids()
	if len(pids) != 1 {
		n.t.Fatalf("processes %v in cgroup %q", pids, c.Cgroup())
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pids[0]))
	must(n.t, err)
	leaf := c.Cgroup()
	if !strings.Contains(string(own), "0::"+leaf+"\n") {
		n.t.Errorf("its process is in %q, not in %q", own, leaf)
	}
	for _, gpu := range gpus {
		want := harness.Limit{UUID: gpu, Cgroup: n.rt.Mount + leaf, Soft: soft * mib, Hard: hard * mib}
		if !slices.Contains(found, want) {
			n.t.Errorf("no %v when the process began: %v", want, found)
		}
	}
}
