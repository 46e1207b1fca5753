package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// slip starts a container with an allocation while no agent is there, and lets the agent come back.
func (n *gpuNode) slip(name string) *harness.Created {
	n.t.Helper()
	p := n.pod(name, share(2048, 4096, "GPU-a"))
	n.agent.Kill()
	spec := n.main("main")
	var c *harness.Created
	must(n.t, harness.Poll(10*time.Second, 20*time.Millisecond, func() (err error) {
		c, err = p.Create(spec) // refused while the runtime has not noticed
		return err
	}))
	must(n.t, c.Start())
	if have, ok := variables(told(n.t, c))["NVIDIA_VISIBLE_DEVICES"]; ok {
		n.t.Fatalf("without the agent it has NVIDIA_VISIBLE_DEVICES=%q", have)
	}
	must(n.t, n.agent.Restart())
	n.waitAgent()
	must(n.t, n.agent.WaitLog(10*time.Second, "event=slipped", "default/"+name))
	return c
}

// By option, what slipped through is stopped.
func TestAgentStopsSlipped(t *testing.T) {
	c := newGPUNode(t, false, "--stop-slipped=yes").slip("stopped")
	must(t, harness.Poll(20*time.Second, 20*time.Millisecond, func() error {
		if state, _, err := c.Status(); err != nil || state != "CONTAINER_EXITED" {
			return fmt.Errorf("it is %s: %v", state, err)
		}
		return nil
	}))
}

// By option, what should be refused starts as it is, and is told of.
func TestAgentFailOpen(t *testing.T) {
	n := newGPUNode(t, true, "--fail-open=yes")
	forged := share(1024, 2048, "GPU-a")
	forged[harness.ContainerPrefix+"main.gpu-memory.limit"] = "81920Mi"
	lines := told(t, n.run(n.pod("open", forged), n.main("main")))
	if have, ok := variables(lines)["NVIDIA_VISIBLE_DEVICES"]; ok {
		t.Errorf("it has NVIDIA_VISIBLE_DEVICES=%q", have)
	}
	must(t, n.agent.WaitLog(time.Second, "event=let-go", "default/open", "digest"))
}

const staticFile = `{"allocations": [{"namespace": "default", "pod": "alone", "container": "main",
"gpus": ["GPU-b"], "memory": "2Gi", "memory-limit": "%s", "mode": "sm-sharing", "compute": "0.25"}]}`

// Without Kubernetes allocations come from a file; a higher limit in it is applied while the container runs.
func TestAgentStatic(t *testing.T) {
	file := filepath.Join(t.TempDir(), "static.json")
	must(t, os.WriteFile(file, fmt.Appendf(nil, staticFile, "4Gi"), 0o600))
	n := newGPUNode(t, true, "--static="+file)
	p := n.pod("alone")
	spec := n.main("main")
	c := n.run(p, spec)
	lines := told(t, c)
	if have := variables(lines); have["NVIDIA_VISIBLE_DEVICES"] != "GPU-b" ||
		have["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] != "25" {
		t.Errorf("it has %v", have)
	}
	n.wantStart(c, spec, 2048, 4096, "GPU-b")
	must(t, os.WriteFile(file, fmt.Appendf(nil, staticFile, "6Gi"), 0o600))
	must(t, n.agent.Signal(syscall.SIGHUP))
	must(t, harness.Poll(10*time.Second, 20*time.Millisecond, func() error {
		limits, err := n.hw.Limits()
		if l := limits["GPU-b "+n.rt.Mount+c.Cgroup()]; err == nil && l.Hard != 6144*mib {
			err = fmt.Errorf("the limit is %d MiB", l.Hard/mib)
		}
		return err
	}))
	_, err := n.create(p, sleeper("other"))
	must(t, err)
}

// MPS is killed: it is started again, and the namespaces of containers that run are there again, at the same
// place; containers that come meanwhile wait for it.
func TestAgentMPSRestart(t *testing.T) {
	n := newGPUNode(t, true)
	sharing := harness.Allocation(nodeName, harness.Share{Container: "main", GPUs: []string{"GPU-b"}, Request: 1024,
		Limit: 1024, Mode: "sm-sharing", Portion: "0.5"})
	n.run(n.pod("runs", sharing), sleeper("main"))
	before, err := n.agent.Namespaces()
	must(t, err)
	// The agent is a new one: it took over the daemon, and the namespace.
	n.agent.Kill()
	must(t, n.agent.Restart())
	n.waitAgent()
	text, err := os.ReadFile(n.rt.Path("/run/tessera/mps/daemon.pid"))
	must(t, err)
	_, err = n.rt.Command(nil, "/bin/kill", "-9", strings.Fields(string(text))[0])
	must(t, err)
	must(t, n.agent.WaitLog(20*time.Second, "event=mps_state", "from=starting", "to=ready"))
	must(t, harness.Poll(20*time.Second, 50*time.Millisecond, func() error {
		after, err := n.agent.Namespaces()
		if err == nil && (len(after) != 1 || fmt.Sprint(after) != fmt.Sprint(before)) {
			err = fmt.Errorf("namespaces were %v, are %v", before, after)
		}
		return err
	}))
	n.run(n.pod("next", sharing), sleeper("main"))
	_, err = n.create(n.pod("beyond", sharing), sleeper("main"))
	wantNotStarted(t, nil, err, "compute shares on GPU-b")
}

func get(url string) (int, string, error) {
	r, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

// metric is the value of the sample whose line has all of these words.
func metric(text string, words ...string) (float64, error) {
lines:
	for _, line := range strings.Split(text, "\n") {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		if !strings.HasPrefix(line, "#") {
			return strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		}
	}
	return 0, fmt.Errorf("no sample with %v", words)
}

// What a container has is in the metrics, and what was refused, too.
func TestAgentMetrics(t *testing.T) {
	port, err := harness.FreePort()
	must(t, err)
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	n := newGPUNode(t, true, fmt.Sprintf("--listen=127.0.0.1:%d", port), "--no-gate=host-pid")
	c := n.run(n.pod("measured", share(2048, 4096, "GPU-a")), sleeper("main"))
	_, err = n.create(n.pod("refused", share(1, 1, "GPU-x")), sleeper("main"))
	wantNotStarted(t, nil, err, "GPU-x")
	// The driver counts processes as the agent's PID namespace does.
	inside, err := n.rt.InnerPid(c.Pids()[0])
	must(t, err)
	must(t, n.hw.Set(fmt.Sprintf("process gpu=0 pid=%d kind=compute mem=1024", inside)))
	must(t, harness.Poll(15*time.Second, 100*time.Millisecond, func() error {
		code, text, err := get(base + "/metrics")
		if err != nil || code != 200 {
			return fmt.Errorf("%d %v", code, err)
		}
		for _, row := range []struct {
			want  float64
			words []string
		}{
			{float64(2048 * mib), []string{"tessera_container_memory_request_bytes{", `pod="measured"`, `gpu_uuid="GPU-a"`}},
			{float64(4096 * mib), []string{"tessera_container_memory_limit_bytes{", `pod="measured"`, `gpu_uuid="GPU-a"`}},
			{float64(1024 * mib), []string{"tessera_container_memory_used_bytes{", `pod="measured"`, `gpu_uuid="GPU-a"`}},
			{1, []string{"tessera_container_reports_total", `"refused"`}},
		} {
			if have, err := metric(text, row.words...); err != nil || have != row.want {
				return fmt.Errorf("%v is %v, not %v (%v)", row.words, have, row.want, err)
			}
		}
		return nil
	}))
	must(t, harness.Poll(10*time.Second, 100*time.Millisecond, func() error {
		code, text, err := get(base + "/readyz")
		if err == nil && code != 200 {
			err = fmt.Errorf("%d %s", code, text)
		}
		return err
	}))
}
