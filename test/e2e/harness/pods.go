package harness

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Sandbox is a pod in the runtime, made as a kubelet makes it.
type Sandbox struct {
	ID, Name, UID string
	rt            *Runtime
	config        map[string]any
	parent        string
	made          []*Created // and not removed
	pid           int        // mode of its containers' PID namespaces
}

// Created is a container in it.
type Created struct {
	ID, Name string
	sandbox  *Sandbox
	log      string
}

// ContainerSpec says what to make.
type ContainerSpec struct {
	Name       string
	Command    []string
	Env        map[string]string
	Mounts     map[string]string // container path -> host path, read-write
	Privileged bool
}

// PodOptions say what the sandbox is called and how it is run.
type PodOptions struct {
	Name        string
	Annotations map[string]string
	Handler     string // "": the default runtime
	HostPID     bool
	UID         string // "": one is made
}

const (
	ofPod       = 0 // CRI's NamespaceMode
	ofContainer = 1
	ofNode      = 2
)

// RunPod starts a pod's sandbox.
func (r *Runtime) RunPod(o PodOptions) (*Sandbox, error) {
	number := r.pods.Add(1)
	s := &Sandbox{Name: o.Name, UID: o.UID, rt: r}
	if s.UID == "" {
		s.UID = fmt.Sprintf("%08d-0000-4000-8000-%012d", os.Getpid(), number)
	}
	s.parent = r.Parent + "/pod" + s.UID
	pid := ofPod
	s.pid = ofContainer
	if o.HostPID {
		pid, s.pid = ofNode, ofNode
	}
	annotations := map[string]string{"kubernetes.io/config.source": "api"}
	maps.Copy(annotations, o.Annotations)
	s.config = map[string]any{
		"metadata":      map[string]any{"name": o.Name, "uid": s.UID, "namespace": "default"},
		"log_directory": r.file("pods/" + s.UID),
		"annotations":   annotations,
		"labels": map[string]string{"io.kubernetes.pod.name": o.Name,
			"io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": s.UID},
		"linux": map[string]any{"cgroup_parent": s.parent, "security_context": map[string]any{
			"privileged":        true, // a container may be, only in such a pod
			"namespace_options": map[string]any{"network": ofNode, "pid": pid}}},
	}
	var ret struct {
		ID string `json:"podSandboxId"`
	}
	err := errors.Join(os.MkdirAll(r.file("pods/"+s.UID), 0o755), r.Call("RunPodSandbox",
		map[string]any{"config": s.config, "runtime_handler": o.Handler}, &ret))
	s.ID = ret.ID
	return s, err
}

// Create makes a container, without starting it.
func (s *Sandbox) Create(spec ContainerSpec) (*Created, error) {
	c := &Created{Name: spec.Name, sandbox: s, log: spec.Name + ".log"}
	var envs, mounts []map[string]any
	for k, v := range spec.Env {
		envs = append(envs, map[string]any{"key": k, "value": []byte(v)})
	}
	for to, from := range spec.Mounts {
		mounts = append(mounts, map[string]any{"container_path": to, "host_path": from})
	}
	var ret struct {
		ID string `json:"containerId"`
	}
	err := s.rt.Call("CreateContainer", map[string]any{
		"pod_sandbox_id": s.ID,
		"sandbox_config": s.config,
		"config": map[string]any{
			"metadata": map[string]any{"name": spec.Name},
			"image":    map[string]any{"image": ImageName},
			"command":  spec.Command,
			"envs":     envs,
			"mounts":   mounts,
			"log_path": c.log,
			"labels": map[string]string{"io.kubernetes.container.name": spec.Name,
				"io.kubernetes.pod.uid": s.UID},
			"linux": map[string]any{"security_context": map[string]any{
				"privileged":        spec.Privileged,
				"namespace_options": map[string]any{"network": ofNode, "pid": s.pid}}},
		},
	}, &ret)
	c.ID = ret.ID
	if err == nil {
		s.made = append(s.made, c)
	}
	return c, err
}

// Start lets its process run.
func (c *Created) Start() error {
	return c.sandbox.rt.Call("StartContainer", map[string]any{"container_id": c.ID}, nil)
}

// Run makes a container and starts it.
func (s *Sandbox) Run(spec ContainerSpec) (*Created, error) {
	c, err := s.Create(spec)
	if err != nil {
		return nil, err
	}
	return c, c.Start()
}

// Status is its state as CRI names it, and its exit code.
func (c *Created) Status() (string, int, error) {
	var ret struct {
		Status struct {
			State    string `json:"state"`
			ExitCode int    `json:"exitCode"`
		} `json:"status"`
	}
	err := c.sandbox.rt.Call("ContainerStatus", map[string]any{"container_id": c.ID}, &ret)
	return ret.Status.State, ret.Status.ExitCode, err
}

// Wait waits until its process has ended, and returns what it printed.
func (c *Created) Wait(timeout time.Duration) (string, error) {
	err := Poll(timeout, 20*time.Millisecond, func() error {
		state, code, err := c.Status()
		if err == nil && state != "CONTAINER_EXITED" {
			err = fmt.Errorf("it is %s", state)
		} else if err == nil && code != 0 {
			return nil
		}
		return err
	})
	return c.Output(), err
}

// Output is what it printed so far.
func (c *Created) Output() string {
	text, _ := os.ReadFile(filepath.Join(c.sandbox.rt.file("pods/"+c.sandbox.UID), c.log))
	var b strings.Builder
	for _, line := range strings.SplitAfter(string(text), "\n") {
		// time stream F text
		if parts := strings.SplitN(line, " ", 4); len(parts) == 4 {
			b.WriteString(parts[3])
		}
	}
	return b.String()
}

// Cgroup is the path of the cgroup that its processes are in, without mount; "" where there is none.
func (c *Created) Cgroup() string {
	dir := c.sandbox.parent + "/" + c.ID
	if c.ID == "" {
		return ""
	}
	if _, err := os.Stat(c.sandbox.rt.Cgroup(dir)); err != nil {
		return ""
	}
	if _, err := os.Stat(c.sandbox.rt.Cgroup(dir + "/container")); err == nil {
		return dir + "/container" // crun makes one more for some configurations
	}
	return dir
}

// Pids are the host's numbers of its processes.
func (c *Created) Pids() []int {
	var ret []int
	leaf := c.Cgroup()
	if leaf == "" {
		return nil
	}
	text, _ := os.ReadFile(c.sandbox.rt.Cgroup(leaf + "/cgroup.procs"))
	for _, word := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			ret = append(ret, pid)
		}
	}
	return ret
}

// Root is its root folder, seen from outside, while a process runs.
func (c *Created) Root() string {
	if pids := c.Pids(); len(pids) > 0 {
		return fmt.Sprintf("/proc/%d/root", pids[0])
	}
	return "/nonexistent"
}

// KillProcesses ends them with SIGKILL behind the runtime's back.
func (c *Created) KillProcesses() {
	for _, pid := range c.Pids() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// Stop ends its process, at once.
func (c *Created) Stop() error {
	return c.sandbox.rt.Call("StopContainer", map[string]any{"container_id": c.ID, "timeout": 0}, nil)
}

// Remove removes it.
func (c *Created) Remove() error {
	err := c.sandbox.rt.Call("RemoveContainer", map[string]any{"container_id": c.ID}, nil)
	if err == nil {
		c.sandbox.made = slices.DeleteFunc(c.sandbox.made, func(o *Created) bool { return o == c })
	}
	return err
}

// Remove stops and removes the pod with all in it, its cgroup too, as a kubelet does: containers first.
// RemovePodSandbox removes them as well, but locks up in containerd 2.3.4 when a plugin of NRI connects
// meanwhile: it takes a lock for reading a second time, with a writer waiting in between.
func (s *Sandbox) Remove() error {
	id := map[string]any{"pod_sandbox_id": s.ID}
	err := s.rt.Call("StopPodSandbox", id, nil)
	for i := 0; i < 2 && err != nil && strings.Contains(err.Error(), "DeadlineExceeded"); i++ {
		err = s.rt.Call("StopPodSandbox", id, nil) // a busy machine; a kubelet tries again, too
	}
	for err == nil && len(s.made) > 0 {
		err = s.made[0].Remove()
	}
	if err == nil {
		err = s.rt.Call("RemovePodSandbox", id, nil)
	}
	if err == nil {
		err = Poll(5*time.Second, 5*time.Millisecond, func() error {
			return s.rt.removeCgroup(s.parent)
		})
	}
	return err
}
