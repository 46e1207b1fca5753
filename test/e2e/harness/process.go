package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process is a child whose output goes to a log file. It dies with the test program.
type Process struct {
	Name    string
	LogPath string
	cmd     *exec.Cmd
	inner   int // the process that matters, where the child only waits for it; else 0
	done    chan struct{}
}

// StartProcess runs argv; its output is appended to DIR/NAME.log.
func StartProcess(dir, name string, argv ...string) (*Process, error) {
	return startProcess(dir, name, nil, argv...)
}

// startProcess adds "KEY=VALUE" variables to the environment.
func startProcess(dir, name string, env []string, argv ...string) (*Process, error) {
	p := &Process{Name: name, LogPath: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	fmt.Fprintf(log, "+ %s\n", strings.Join(argv, " "))
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Pid of the child.
func (p *Process) Pid() int {
	if p.inner != 0 {
		return p.inner
	}
	return p.cmd.Process.Pid
}

// Exited tells whether the child has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill ends the child with SIGKILL and waits for it.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop ends the child with SIGTERM, after 10 s with SIGKILL, and waits for it. True: it went by itself.
func (p *Process) Stop() bool {
	if p == nil {
		return true
	}
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return true
	case <-time.After(10 * time.Second):
		p.Kill()
		return false
	}
}

// Signal sends sig, e.g. SIGSTOP and SIGCONT to freeze the child for a while.
func (p *Process) Signal(sig syscall.Signal) error {
	if p.inner == 0 || p.Exited() {
		return p.cmd.Process.Signal(sig)
	}
	if sig == syscall.SIGCONT {
		_ = p.cmd.Process.Signal(sig) // who waits for a stopped process stops too
	}
	return syscall.Kill(p.inner, sig)
}

// LogTail returns the last lines of the log.
func (p *Process) LogTail(lines int) string {
	text, err := os.ReadFile(p.LogPath)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
