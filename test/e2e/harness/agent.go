package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// FakeGPU of the node.
type FakeGPU struct {
	UUID   string
	MemMiB int64
	More   string // words of its line: "mig=on"
}

// Hardware is the fake driver of a node: test/lib/fake_nvml.h has the language of its script.
type Hardware struct {
	Script string // path; what limits were set is in Script.log
	GPUs   []FakeGPU
}

// NewHardware writes the script of a driver that can all, with these GPUs.
func NewHardware(dir string, gpus ...FakeGPU) (*Hardware, error) {
	h := &Hardware{Script: filepath.Join(dir, "nvml"), GPUs: gpus}
	return h, h.Set()
}

// Set writes the script anew, with these lines more.
func (h *Hardware) Set(lines ...string) error {
	var b strings.Builder
	b.WriteString("driver 615.71.09\n")
	for i, g := range h.GPUs {
		fmt.Fprintf(&b, "gpu uuid=%s name=NVIDIA_A100-SXM4-80GB mem=%d bus=00000000:%02x:00.0 minor=%d %s\n",
			g.UUID, g.MemMiB, i+1, i, g.More)
	}
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	if err := os.WriteFile(h.Script+".new", []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(h.Script+".new", h.Script)
}

// Limit is what was set on a cgroup, in bytes; Hard -1 is none.
type Limit struct {
	UUID, Cgroup string
	Soft, Hard   int64
}

// ParseLimits reads a log of the driver: one "set UUID CGROUP SOFT HARD" a line.
func ParseLimits(text string) ([]Limit, error) {
	var ret []Limit
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		if len(w) != 5 || w[0] != "set" {
			return nil, fmt.Errorf("%q is no line of the driver", line)
		}
		l := Limit{UUID: w[1], Cgroup: w[2], Hard: -1}
		var err, err2 error
		l.Soft, err = strconv.ParseInt(w[3], 10, 64)
		if w[4] != "-" {
			l.Hard, err2 = strconv.ParseInt(w[4], 10, 64)
		}
		if err = errors.Join(err, err2); err != nil {
			return nil, err
		}
		ret = append(ret, l)
	}
	return ret, nil
}

// Log is every limit that was set so far, in order.
func (h *Hardware) Log() ([]Limit, error) {
	text, err := os.ReadFile(h.Script + ".log")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ParseLimits(string(text))
}

// Limits are those in force now: the last one of each GPU and cgroup.
func (h *Hardware) Limits() (map[string]Limit, error) {
	log, err := h.Log()
	ret := map[string]Limit{}
	for _, l := range log {
		ret[l.UUID+" "+l.Cgroup] = l
	}
	return ret, err
}

// Agent is a running tessera-enforcer.
type Agent struct {
	*Process
	rt  *Runtime
	hw  *Hardware
	arg []string
	log int64 // where in the log this one's part begins
}

// AgentToken installs what deploy/ allows the node agent, and makes a token as the agent of that node has it:
// for a pod of its service account there.
func (c *ControlPlane) AgentToken(node string) (string, error) {
	for _, file := range []string{"enforcer.yaml", "enforcer-rbac.yaml", "enforcer-policy.yaml"} {
		list, err := Manifests(file)
		if err != nil {
			return "", err
		}
		for _, m := range list {
			if err := c.Admin.Create(m, false); err != nil && Code(err) != 409 {
				return "", err
			}
		}
	}
	const namespace = "/api/v1/namespaces/kube-system"
	var pod Pod
	err := c.Admin.Post(namespace+"/pods", map[string]any{
		"metadata": map[string]any{"generateName": "tessera-enforcer-"},
		"spec": map[string]any{"nodeName": node, "serviceAccountName": "tessera-enforcer",
			"containers": []Container{NewContainer("enforcer")}},
	}, &pod)
	if err != nil {
		return "", err
	}
	var ret struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	err = c.Admin.Post(namespace+"/serviceaccounts/tessera-enforcer/token", map[string]any{
		"spec": map[string]any{"expirationSeconds": 3600, "boundObjectRef": map[string]any{"kind": "Pod",
			"apiVersion": "v1", "name": pod.Metadata.Name, "uid": pod.Metadata.UID}}}, &ret)
	return ret.Status.Token, err
}

// AgentBinary is the program under test.
func AgentBinary() string { return filepath.Join(BuildDir(), "tessera-enforcer") }

// StartAgent runs it beside the runtime over the fake driver and the fake MPS; it is not waited for.
func (r *Runtime) StartAgent(hw *Hardware, node string, args ...string) (*Agent, error) {
	fakes := filepath.Join(BuildDir(), "release")
	argv := append([]string{AgentBinary(), "run", "--node=" + node, "--nri-socket=/run/nri/nri.sock",
		"--hook-path=/run/tessera-bin/tessera-hook", "--hook-source=" + filepath.Join(BuildDir(), "tessera-hook"),
		"--nvml=" + filepath.Join(fakes, "libnvidia-ml.so.1"),
		"--mps-control=" + filepath.Join(fakes, "nvidia-cuda-mps-control"),
		"--mps-log-dir=" + r.file("mps-log"), "--state-dir=" + r.file("state"), "--listen=",
		"--nvidia-smi=" + filepath.Join(fakes, "nvidia-smi"), "--probe-seconds=1", "--log-level=debug"},
		args...)
	a := &Agent{rt: r, hw: hw, arg: argv}
	return a, a.Restart()
}

// Restart starts it again where it has ended.
func (a *Agent) Restart() error {
	if err := os.MkdirAll(a.rt.file("mps-log"), 0o755); err != nil {
		return err
	}
	if info, err := os.Stat(a.rt.file("enforcer.log")); err == nil {
		a.log = info.Size()
	}
	p, err := a.rt.start("enforcer", []string{"TESSERA_FAKE_NVML=" + a.hw.Script,
		"TESSERA_FAKE_MPS=" + a.rt.file("mps-script"), "MALLOC_PERTURB_=165"}, a.arg...)
	a.Process = p
	return err
}

// Uninstall takes from the node what it brought: with its own options, and these. What it prints.
func (a *Agent) Uninstall(args ...string) (string, error) {
	argv := append([]string{a.arg[0], "uninstall"}, a.arg[2:]...)
	return a.rt.Command([]string{"TESSERA_FAKE_NVML=" + a.hw.Script,
		"TESSERA_FAKE_MPS=" + a.rt.file("mps-script")}, append(argv, args...)...)
}

// Places are files and folders of its node, as the test sees them.
func (a *Agent) Places() []string {
	return []string{a.rt.Path("/run/tessera"), a.rt.Path("/run/nvidia-mps"), a.rt.Path("/run/tessera-bin"),
		a.rt.file("mps-log"), a.rt.file("state")}
}

// Log is what it wrote since it was started.
func (a *Agent) Log() string {
	text, err := os.ReadFile(a.LogPath)
	if err != nil || int64(len(text)) < a.log {
		return ""
	}
	return string(text[a.log:])
}

// WaitLog waits until it has written that since it was started.
func (a *Agent) WaitLog(timeout time.Duration, words ...string) error {
	var ended error
	err := Poll(timeout, 5*time.Millisecond, func() error {
		exited := a.Exited()
		for _, line := range strings.Split(a.Log(), "\n") {
			found := true
			for _, w := range words {
				found = found && strings.Contains(line, w)
			}
			if found {
				return nil
			}
		}
		if exited {
			ended = fmt.Errorf("the agent has ended:\n%s", a.LogTail(20))
			return nil
		}
		return fmt.Errorf("no %q in:\n%s", words, a.LogTail(20))
	})
	return errors.Join(err, ended)
}

// Namespaces are the containers' namespaces of MPS, by name, with their compute shares in percent ("25.00").
func (a *Agent) Namespaces() (map[string]string, error) {
	out, err := a.rt.Command([]string{"CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps",
		"TESSERA_FAKE_MPS=" + a.rt.file("mps-script")},
		filepath.Join(BuildDir(), "release", "nvidia-cuda-mps-control"), "-p", "3",
		"namespace", "list", "--server=shared", "--format=csv,noheader")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	ret := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if f := strings.Split(line, ","); len(f) >= 5 && f[0] != "default" {
			ret[f[0]] = f[4]
		}
	}
	return ret, nil
}

// Clear takes a cgroup's limits away behind the agent's back.
func (h *Hardware) Clear(gpu, cgroup string) error {
	f, err := os.OpenFile(h.Script+".log", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "set %s %s 0 -\n", gpu, cgroup)
	return err
}
