package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tessera.dev/e2e/harness"
)

// A compute share is an MPS namespace of the container's own with that ceiling; it goes with the container.
func TestAgentComputeShare(t *testing.T) {
	n := newGPUNode(t, true)
	p := n.pod("sharing", harness.Allocation(nodeName, harness.Share{Container: "main", GPUs: []string{"GPU-b"},
		Request: 2048, Limit: 4096, Mode: "sm-sharing", Portion: "0.25"}))
	spec := n.main("main")
	// A folder of the user's above ours must not cover it.
	spec.Mounts["/tmp"] = t.TempDir()
	spec.Env = map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}
	c := n.run(p, spec)
	lines := told(t, c)
	for k, v := range map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-b",
		"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"} {
		if have := variables(lines)[k]; have != v {
			t.Errorf("%s is %q, not %q", k, have, v)
		}
	}
	n.wantStart(c, spec, 2048, 4096, "GPU-b")
	spaces, err := n.agent.Namespaces()
	must(t, err)
	if len(spaces) != 1 {
		t.Fatalf("namespaces: %v", spaces)
	}
	for name, share := range spaces {
		if share != "25.00" && share != "25" {
			t.Errorf("namespace %s has a share of %s", name, share)
		}
		mounted := slices.ContainsFunc(lines, func(l string) bool {
			return strings.Contains(l, " /tmp/nvidia-mps ")
		})
		if !mounted {
			t.Errorf("the namespace's folder is not in the container:\n%s", strings.Join(lines, "\n"))
		}
		must(t, os.WriteFile(n.rt.Path("/run/nvidia-mps/shared/"+name+"/mark"), nil, 0o600))
		if _, err := os.Stat(filepath.Join(c.Root(), "tmp/nvidia-mps/mark")); err != nil {
			t.Errorf("another folder than that of %s is mounted: %v", name, err)
		}
		must(t, os.Remove(n.rt.Path("/run/nvidia-mps/shared/"+name+"/mark")))
	}
	must(t, c.Stop())
	must(t, c.Remove())
	n.wantNoNamespaces()
}

const cdiSpec = `{"cdiVersion":"0.6.0","kind":"k8s.device-plugin.nvidia.com/gpu","devices":[
{"name":"GPU-a","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0","hostPath":"/dev/zero"}]}},
{"name":"GPU-b","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia1","hostPath":"/dev/full"}]}}]}`

// With CDI the container has the device files of its GPU, and no others.
func TestAgentDevices(t *testing.T) {
	n := newGPUNode(t, true, "--cdi-devices=yes")
	must(t, os.MkdirAll(n.rt.Path("/run/cdi"), 0o755))
	must(t, os.WriteFile(n.rt.Path("/run/cdi/gpu.json"), []byte(cdiSpec), 0o600))
	t.Cleanup(func() { os.Remove(n.rt.Path("/run/cdi/gpu.json")) })
	p := n.pod("devices", share(1024, 1024, "GPU-b"))
	lines := told(t, n.run(p, n.main("main")))
	if !slices.Contains(lines, "/dev/nvidia1") || slices.Contains(lines, "/dev/nvidia0") ||
		variables(lines)["NVIDIA_VISIBLE_DEVICES"] != "void" {
		t.Errorf("not the device of GPU-b alone:\n%s", strings.Join(lines, "\n"))
	}
	lines = told(t, n.run(p, n.main("other")))
	if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "/dev/nvidia") }) {
		t.Errorf("the other container has a device:\n%s", strings.Join(lines, "\n"))
	}
}

// A whole GPU has no limits and no MPS; a value that the user set for them is of no use.
func TestAgentWholeGPU(t *testing.T) {
	n := newGPUNode(t, true)
	p := n.pod("whole", harness.Allocation(nodeName, harness.Share{Container: "main", GPUs: []string{"GPU-a"},
		Mode: "exclusive"}))
	lines := told(t, n.run(p, n.main("main")))
	if have := variables(lines)["NVIDIA_VISIBLE_DEVICES"]; have != "GPU-a" {
		t.Errorf("NVIDIA_VISIBLE_DEVICES is %q", have)
	}
	limits, err := n.hw.Limits()
	must(t, err)
	if len(limits) != 0 || slices.ContainsFunc(lines, func(l string) bool {
		return strings.Contains(l, "nvidia-mps")
	}) {
		t.Errorf("limits %v, or MPS:\n%s", limits, strings.Join(lines, "\n"))
	}
	other := n.pod("late", share(1024, 1024, "GPU-a"))
	if _, err := n.create(other, sleeper("main")); err == nil ||
		!strings.Contains(err.Error(), "other pods use the GPU in exclusive") {
		t.Errorf("a share of a GPU that is given as a whole: %v", err)
	}
}
