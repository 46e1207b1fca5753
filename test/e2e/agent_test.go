package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

const mib = int64(1) << 20

// runtimes are started once, and used by one test after the other.
var runtimes = map[bool]func() (*harness.Runtime, error){
	true:  sync.OnceValues(func() (*harness.Runtime, error) { return newRuntime(true) }),
	false: sync.OnceValues(func() (*harness.Runtime, error) { return newRuntime(false) }),
}

var runtimesStarted []*harness.Runtime

func newRuntime(required bool) (*harness.Runtime, error) {
	dir, err := os.MkdirTemp("", "tessera-node-")
	if err != nil {
		return nil, err
	}
	rt, err := harness.NewRuntime(dir, required)
	if err == nil {
		runtimesStarted = append(runtimesStarted, rt)
	}
	return rt, err
}

func stopRuntimes() {
	for _, rt := range runtimesStarted {
		rt.Close()
		if os.Getenv("E2E_KEEP") == "" {
			os.RemoveAll(rt.Dir)
		} else {
			fmt.Println("logs of containerd and agent:", rt.Dir)
		}
	}
}

// gpuNode is a node with containerd, a fake driver and the agent.
type gpuNode struct {
	t     *testing.T
	rt    *harness.Runtime
	hw    *harness.Hardware
	agent *harness.Agent
	pods  []*harness.Sandbox
}

const nodeName = "gpu-node"

// newGPUNode has two GPUs of 80 GiB, GPU-a and GPU-b. required: no container starts without the agent.
func newGPUNode(t *testing.T, required bool, args ...string) *gpuNode {
	t.Helper()
	if _, err := os.Stat(harness.AgentBinary()); err != nil {
		t.Skip("the agent is not built:", err)
	}
	rt, err := runtimes[required]()
	if errors.Is(err, harness.ErrNoContainers) {
		t.Skip(err)
	}
	must(t, err)
	n := &gpuNode{t: t, rt: rt}
	n.hw, err = harness.NewHardware(t.TempDir(), harness.FakeGPU{UUID: "GPU-a", MemMiB: 81920},
		harness.FakeGPU{UUID: "GPU-b", MemMiB: 81920})
	must(t, err)
	n.agent, err = rt.StartAgent(n.hw, nodeName, append([]string{"--publish=no"}, args...)...)
	must(t, err)
	t.Cleanup(n.close)
	n.waitAgent()
	return n
}

// waitAgent waits until the runtime calls the agent, and MPS answers.
func (n *gpuNode) waitAgent() {
	n.t.Helper()
	must(n.t, n.agent.WaitLog(20*time.Second, "event=nri-connected"))
	must(n.t, n.agent.WaitLog(20*time.Second, "event=mps_state", "to=ready"))
}

func (n *gpuNode) close() {
	for _, p := range n.pods {
		if err := p.Remove(); err != nil && !strings.Contains(err.Error(), "not found") {
			n.t.Error(err)
		}
	}
	n.agent.Kill()
	if n.t.Failed() {
		n.t.Logf("log of the agent:\n%s\nlog of containerd:\n%s", n.agent.Log(), n.rt.LogTail(10))
	}
}

// pod runs a pod's sandbox that is removed after the test.
func (n *gpuNode) pod(name string, annotations ...map[string]string) *harness.Sandbox {
	n.t.Helper()
	return n.podWith(harness.PodOptions{Name: name}, annotations...)
}

func (n *gpuNode) podWith(o harness.PodOptions, annotations ...map[string]string) *harness.Sandbox {
	n.t.Helper()
	o.Annotations = map[string]string{}
	for _, a := range annotations {
		maps.Copy(o.Annotations, a)
	}
	p, err := n.rt.RunPod(o)
	if err != nil && strings.Contains(err.Error(), "unknown version specified") {
		n.t.Skip(o.Handler, "is too old for this containerd:", err)
	}
	must(n.t, err)
	n.pods = append(n.pods, p)
	return p
}

// create makes a container; while MPS starts it is tried again, as a kubelet does.
func (n *gpuNode) create(p *harness.Sandbox, spec harness.ContainerSpec) (*harness.Created, error) {
	var c *harness.Created
	var last error
	err := harness.Poll(10*time.Second, 50*time.Millisecond, func() error {
		c, last = p.Create(spec)
		if last != nil && strings.Contains(last.Error(), "MPS does not run on this node") {
			return last
		}
		return nil
	})
	return c, errors.Join(err, last)
}

// run makes a container and starts it.
func (n *gpuNode) run(p *harness.Sandbox, spec harness.ContainerSpec) *harness.Created {
	n.t.Helper()
	c, err := n.create(p, spec)
	must(n.t, err)
	must(n.t, c.Start())
	return c
}

// share is an allocation on this node for the container "main".
func share(request, limit int64, gpus ...string) map[string]string {
	return harness.Allocation(nodeName, harness.Share{Container: "main", GPUs: gpus, Request: request,
		Limit: limit})
}

// main is a container that writes what it sees, first of all what limits the driver knows, and goes on.
func (n *gpuNode) main(name string) harness.ContainerSpec {
	n.t.Helper()
	out := filepath.Join(n.t.TempDir(), name)
	must(n.t, os.MkdirAll(out, 0o777))
	return harness.ContainerSpec{Name: name,
		Command: []string{"/bin/sh", "-c", "cp /fake/nvml.log /out/limits 2>/dev/null; env; cat /proc/self/mounts; " +
			"ls -d /dev/nvidia* /run/nvidia-mps/control /tmp/nvidia-mps/control 2>/dev/null; " +
			"echo told; exec sleep 1000000"},
		Mounts: map[string]string{"/fake": filepath.Dir(n.hw.Script), "/out": out}}
}

// sleeper is a container that does nothing.
func sleeper(name string) harness.ContainerSpec {
	return harness.ContainerSpec{Name: name, Command: []string{"/bin/sleep", "1000000"}}
}

// told waits until a container of main() has written all, and returns its lines.
func told(t *testing.T, c *harness.Created) []string {
	t.Helper()
	must(t, harness.Poll(10*time.Second, 10*time.Millisecond, func() error {
		if out := c.Output(); !strings.HasSuffix(out, "\ntold\n") {
			return fmt.Errorf("%s wrote %q", c.Name, out)
		}
		return nil
	}))
	return strings.Split(strings.TrimSpace(c.Output()), "\n")
}

// variables are the environment that those lines show.
func variables(lines []string) map[string]string {
	ret := map[string]string{}
	for _, l := range lines {
		if k, v, ok := strings.Cut(l, "="); ok && strings.ToUpper(k) == k && !strings.Contains(k, " ") {
			ret[k] = v
		}
	}
	return ret
}

// wantLimits checks what is in force now, by value: exactly these on that cgroup.
func (n *gpuNode) wantLimits(cgroup string, soft, hard int64, gpus ...string) {
	n.t.Helper()
	limits, err := n.hw.Limits()
	must(n.t, err)
	for _, gpu := range gpus {
		l, ok := limits[gpu+" "+n.rt.Mount+cgroup]
		if !ok || l.Soft != soft*mib || l.Hard != hard*mib {
			n.t.Errorf("%s of %s: limits %v (%v), not %d and %d MiB; all: %v", gpu, cgroup, l, ok, soft,
				hard, limits)
		}
	}
}

// wantNoNamespaces waits until MPS has none of containers.
func (n *gpuNode) wantNoNamespaces() {
	n.t.Helper()
	must(n.t, harness.Poll(10*time.Second, 20*time.Millisecond, func() error {
		spaces, err := n.agent.Namespaces()
		if err == nil && len(spaces) > 0 {
			err = fmt.Errorf("namespaces are left: %v", spaces)
		}
		return err
	}))
}
