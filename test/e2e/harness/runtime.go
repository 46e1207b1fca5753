package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrNoContainers says why this machine cannot run containers.
var ErrNoContainers = errors.New("no containers here")

// Runtime is a containerd with its containers in mount and PID namespaces of their own: /run is its own, and
// all its processes end with the test program. Client and agent run there too.
type Runtime struct {
	*CRI
	Dir        string // logs
	Parent     string // cgroup of all pods
	Mount      string // of cgroup v2: /sys/fs/cgroup, or its folder unified
	holder     *exec.Cmd
	holderIn   io.Closer
	pid        int // of the namespaces' first process, seen from outside
	containerd *Process
	client     *exec.Cmd
	required   bool
	pods       atomic.Int64
}

// Reads its standard input for ever: bash collects orphans meanwhile, and the end of the test program ends
// it, and with it everything in the namespaces.
const holderScript = `set -eu
mount --make-rprivate /
if [ "$3" = /sys/fs/cgroup ] && ! echo "+cpu +memory +pids" >"$3/cgroup.subtree_control"; then
	echo "the controllers of cgroup v2 cannot be switched on" >&2
	exit 1
fi
mkdir "$3$1"
mount -t tmpfs run /run
mount -t tmpfs root "$2"
mkdir "$2/l" "$2/u" "$2/w" "$2/m" /run/containerd /run/tessera-bin
mount -t overlay -o "lowerdir=$2/l,upperdir=$2/u,workdir=$2/w" overlay "$2/m"
umount "$2/m"
echo ready
while read -r _; do :; done`

// missing says what of the tools is not here, "" when all are.
func missing() string {
	if os.Geteuid() != 0 {
		return "not root"
	}
	if _, err := busybox(); err != nil {
		return err.Error()
	}
	for _, name := range []string{"unshare", "nsenter", "bash"} {
		if _, err := exec.LookPath(name); err != nil {
			return "no " + name
		}
	}
	if len(OCIRuntimes()) == 0 {
		return "neither runc nor crun (make deps)"
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "cri"} {
		if _, err := os.Stat(filepath.Join(BuildDir(), "e2e", name)); err != nil {
			return err.Error()
		}
	}
	return ""
}

// cgroupMount is where cgroup v2 is; beside version 1, runtimes put containers into it as well.
func cgroupMount() string {
	const magic = 0x63677270 // CGROUP2_SUPER_MAGIC
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var s syscall.Statfs_t
		if syscall.Statfs(dir, &s) == nil && int64(s.Type) == magic {
			return dir
		}
	}
	return ""
}

// OCIRuntimes are the names of those that are installed.
func OCIRuntimes() []string {
	var ret []string
	for _, name := range []string{"runc", "crun"} {
		if _, err := exec.LookPath(name); err == nil {
			ret = append(ret, name)
		}
	}
	return ret
}

// NewRuntime starts it with an image. required: containers that were not shown to the plugin "tessera" are
// refused. ErrNoContainers: tools or privileges are missing.
func NewRuntime(dir string, required bool) (*Runtime, error) {
	if why := missing(); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrNoContainers, why)
	}
	r := &Runtime{Dir: dir, required: required,
		Parent: fmt.Sprintf("/tessera-e2e-%d-%d", os.Getpid(), time.Now().UnixNano()%1_000_000)}
	if r.Mount = cgroupMount(); r.Mount == "" {
		return nil, fmt.Errorf("%w: cgroup v2 is not mounted", ErrNoContainers)
	}
	err := os.Mkdir(r.file("root"), 0o700)
	if err == nil {
		err = r.hold()
	}
	if err == nil {
		err = r.writeConfig()
	}
	if err == nil {
		err = r.StartContainerd()
	}
	if err == nil {
		err = WriteImage(r.file("image.tar"))
	}
	if err == nil {
		err = r.Call("import", r.file("image.tar"), nil)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Runtime) file(name string) string { return filepath.Join(r.Dir, name) }

// hold makes the namespaces.
func (r *Runtime) hold() error {
	errors, err := os.Create(r.file("holder.log"))
	if err != nil {
		return err
	}
	defer errors.Close()
	r.holder = exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", holderScript, "holder", r.Parent, r.file("root"), r.Mount)
	r.holder.Stderr = errors
	r.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := r.holder.StdinPipe()
	if err != nil {
		return err
	}
	out, err := r.holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.holder.Start(); err != nil {
		r.holder = nil
		return fmt.Errorf("%w: %v", ErrNoContainers, err)
	}
	r.holderIn = in
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		text, _ := os.ReadFile(r.file("holder.log"))
		return fmt.Errorf("%w: %s", ErrNoContainers, strings.TrimSpace(string(text)))
	}
	r.pid, err = onlyChild(r.holder.Process.Pid)
	return err
}

// onlyChild waits until a process has a child.
func onlyChild(pid int) (int, error) {
	var child int
	err := Poll(5*time.Second, time.Millisecond, func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return err
		}
		child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err
	})
	return child, err
}

// inside is the command line that runs argv in the namespaces.
func (r *Runtime) inside(argv ...string) []string {
	return append([]string{"nsenter", "--mount", "--pid", "--target", strconv.Itoa(r.pid), "--"}, argv...)
}

// start runs argv in the namespaces, with a log outside.
func (r *Runtime) start(name string, env []string, argv ...string) (*Process, error) {
	p, err := startProcess(r.Dir, name, env, r.inside(argv...)...)
	if err != nil {
		return nil, err
	}
	if p.inner, err = onlyChild(p.Pid()); err != nil {
		err = fmt.Errorf("%s: %w\n%s", name, err, p.LogTail(20))
	}
	return p, err
}

// Path of a file in the namespaces, as seen from outside.
func (r *Runtime) Path(path string) string { return fmt.Sprintf("/proc/%d/root%s", r.pid, path) }

// Cgroup is the folder of a cgroup, seen from outside.
func (r *Runtime) Cgroup(path string) string { return r.Path(r.Mount + path) }

const containerdConfig = `version = 3
root = %q
state = "/run/containerd"
disabled_plugins = ["io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
	"io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
	"io.containerd.snapshotter.v1.native", "io.containerd.nri-unused"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = %q
%s
[plugins."io.containerd.nri.v1.nri"]
  socket_path = "/run/nri/nri.sock"
  plugin_path = "/run/nri-plugins"
  plugin_config_path = "/run/nri-conf"
%s`

const requiredConfig = `  [plugins."io.containerd.nri.v1.nri".default_validator]
    enable = true
    required_plugins = ["tessera"]
`

func (r *Runtime) writeConfig() error {
	var runtimes strings.Builder
	for _, name := range OCIRuntimes() {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&runtimes, "    [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.%s]\n"+
			"      runtime_type = \"io.containerd.runc.v2\"\n"+
			"      [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.%s.options]\n"+
			"        BinaryName = %q\n        SystemdCgroup = false\n", name, name, path)
	}
	validator := ""
	if r.required {
		validator = requiredConfig
	}
	text := fmt.Sprintf(containerdConfig, r.file("root"), ImageName, OCIRuntimes()[0], runtimes.String(),
		validator)
	return os.WriteFile(r.file("config.toml"), []byte(text), 0o600)
}

// StartContainerd starts it, and a client, and waits until it answers.
func (r *Runtime) StartContainerd() error {
	e2e := filepath.Join(BuildDir(), "e2e")
	p, err := r.start("containerd", []string{"PATH=" + e2e + ":" + os.Getenv("PATH")},
		filepath.Join(e2e, "containerd"), "--config", r.file("config.toml"))
	if err != nil {
		return err
	}
	r.containerd = p
	if err := r.startClient(); err != nil {
		return err
	}
	var exited bool
	err = Poll(30*time.Second, 50*time.Millisecond, func() error {
		if exited = p.Exited(); exited {
			return nil
		}
		return r.Call("Version", map[string]any{}, nil)
	})
	if exited {
		err = errors.New("has ended")
	}
	if err != nil {
		return fmt.Errorf("containerd: %w\n%s", err, p.LogTail(20))
	}
	return nil
}

func (r *Runtime) startClient() error {
	argv := r.inside(filepath.Join(BuildDir(), "e2e", "cri"), "/run/containerd/containerd.sock", "overlayfs")
	r.client = exec.Command(argv[0], argv[1:]...)
	r.client.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := r.client.StdinPipe()
	if err != nil {
		return err
	}
	out, err := r.client.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.client.Start(); err != nil {
		return err
	}
	r.CRI = newCRI(in, out)
	return nil
}

// stopContainerd ends it and the client; containers go on.
func (r *Runtime) stopContainerd() {
	if r.CRI != nil {
		r.CRI.in.Close()
		_ = r.client.Wait()
		r.CRI = nil
	}
	if r.containerd != nil {
		r.containerd.Kill()
		r.containerd = nil
	}
}

// Restart kills containerd and starts it again.
func (r *Runtime) Restart() error {
	r.stopContainerd()
	return r.StartContainerd()
}

// LogTail of containerd.
func (r *Runtime) LogTail(lines int) string { return r.containerd.LogTail(lines) }

// Close ends everything and removes the cgroups.
func (r *Runtime) Close() {
	if r.holder == nil {
		return
	}
	root := r.Cgroup(r.Parent)
	_ = os.WriteFile(filepath.Join(root, "cgroup.kill"), []byte("1"), 0)
	_ = Poll(10*time.Second, 10*time.Millisecond, func() error { return r.removeCgroup(r.Parent) })
	r.stopContainerd()
	r.holderIn.Close()
	_ = r.holder.Wait()
	r.holder = nil
}

// removeCgroup removes a cgroup without processes and those in it, from all hierarchies.
func (r *Runtime) removeCgroup(path string) error {
	err := removeCgroups(r.Cgroup(path))
	if r.Mount == "/sys/fs/cgroup" {
		return err
	}
	old, _ := filepath.Glob(r.Path("/sys/fs/cgroup/*" + path))
	for _, dir := range old {
		err = errors.Join(err, removeCgroups(dir))
	}
	return err
}

// removeCgroups removes a cgroup without processes and those in it.
func removeCgroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeCgroups(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, os.Remove(dir))
}

// Command runs argv in the namespaces and returns what it printed.
func (r *Runtime) Command(env []string, argv ...string) (string, error) {
	all := r.inside(argv...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// InnerPid is a process's number in the namespaces.
func (r *Runtime) InnerPid(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	f := strings.Fields(line)
	if len(f) < 2 {
		return 0, fmt.Errorf("process %d is in no other PID namespace", pid)
	}
	return strconv.Atoi(f[1])
}
