package e2e

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// wantNotStarted checks that a call failed with that reason, and that no process of the container is there.
func wantNotStarted(t *testing.T, c *harness.Created, err error, reason string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("the runtime says: %v; not %q", err, reason)
	}
	if c != nil && c.ID != "" && len(c.Pids()) > 0 {
		t.Errorf("container %s has processes %v", c.Name, c.Pids())
	}
}

// An agent that is killed between making and starting a container leaves nothing unlimited: the hook fails.
// What runs keeps its limits; those that were lost meanwhile are found by value when the agent is back.
func TestAgentKilled(t *testing.T) {
	n := newGPUNode(t, true)
	running := n.run(n.pod("running", share(1024, 2048, "GPU-a")), sleeper("main"))
	lost := n.run(n.pod("lost", share(512, 1024, "GPU-b")), sleeper("main"))
	p := n.pod("between", share(4096, 8192, "GPU-a"))
	c, err := n.create(p, sleeper("main"))
	must(t, err)
	n.agent.Kill()
	wantNotStarted(t, c, c.Start(), "the agent does not answer")
	n.wantLimits(running.Cgroup(), 1024, 2048, "GPU-a")
	must(t, n.hw.Clear("GPU-b", n.rt.Mount+lost.Cgroup()))
	must(t, n.agent.Restart())
	n.waitAgent()
	must(t, n.agent.WaitLog(10*time.Second, "event=limits-repaired", "default/lost"))
	n.wantLimits(lost.Cgroup(), 512, 1024, "GPU-b")
	n.wantLimits(running.Cgroup(), 1024, 2048, "GPU-a")
	// What did not start holds nothing; what runs does.
	n.run(n.pod("again", share(80896, 80896, "GPU-a")), sleeper("main"))
	_, err = n.create(n.pod("beyond", share(1, 1, "GPU-a")), sleeper("main"))
	wantNotStarted(t, nil, err, "other pods hold 81920 of 81920 MiB")
}

// An agent that hangs is no way around it either.
func TestAgentHangs(t *testing.T) {
	n := newGPUNode(t, true)
	p := n.pod("hangs", share(4096, 8192, "GPU-a"))
	made, err := n.create(p, sleeper("main"))
	must(t, err)
	must(t, n.agent.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = n.agent.Signal(syscall.SIGCONT) })
	started := make(chan error)
	go func() { started <- made.Start() }() // the hook waits for 8 s
	c, err := n.create(n.pod("late", share(4096, 8192, "GPU-a")), sleeper("main"))
	wantNotStarted(t, c, err, "tessera")
	wantNotStarted(t, made, <-started, "tessera-hook")
	must(t, n.agent.Signal(syscall.SIGCONT))
	must(t, harness.Poll(20*time.Second, 100*time.Millisecond, func() error {
		if strings.Count(n.agent.Log(), "event=nri-connected") < 2 {
			return errors.New("not connected again")
		}
		return nil
	}))
	c = n.run(n.pod("after", share(4096, 8192, "GPU-a")), sleeper("main"))
	n.wantLimits(c.Cgroup(), 4096, 8192, "GPU-a")
}

// Without the agent no container starts where the runtime was told to require it.
func TestAgentDown(t *testing.T) {
	n := newGPUNode(t, true)
	p := n.pod("down", share(1024, 1024, "GPU-a"))
	n.agent.Kill()
	// The runtime may find out only when it calls: then it is the agent's validation that is missing.
	c, err := p.Create(sleeper("main"))
	wantNotStarted(t, c, err, "tessera")
	c, err = p.Create(sleeper("main"))
	wantNotStarted(t, c, err, `required plugin "tessera"`)
	must(t, n.agent.Restart())
	n.waitAgent()
	c = n.run(p, sleeper("main"))
	n.wantLimits(c.Cgroup(), 1024, 1024, "GPU-a")
}

// Where it is not required, a container starts without the agent; the agent finds it when it is back, says so,
// counts it, and limits its memory.
func TestAgentAway(t *testing.T) {
	n := newGPUNode(t, false)
	p := n.pod("slipped", share(2048, 4096, "GPU-a"))
	n.agent.Kill()
	spec := n.main("main")
	var c *harness.Created
	must(t, harness.Poll(10*time.Second, 20*time.Millisecond, func() (err error) {
		c, err = p.Create(spec) // refused while the runtime has not noticed
		return err
	}))
	must(t, c.Start())
	if have, ok := variables(told(t, c))["NVIDIA_VISIBLE_DEVICES"]; ok {
		t.Fatalf("without the agent it has NVIDIA_VISIBLE_DEVICES=%q", have)
	}
	must(t, n.agent.Restart())
	n.waitAgent()
	must(t, n.agent.WaitLog(10*time.Second, "event=slipped", "default/slipped"))
	must(t, harness.Poll(10*time.Second, 20*time.Millisecond, func() error {
		limits, err := n.hw.Limits()
		if l := limits["GPU-a "+n.rt.Mount+c.Cgroup()]; err == nil && l.Hard != 4096*mib {
			err = errors.New("no limit")
		}
		return err
	}))
	n.wantLimits(c.Cgroup(), 2048, 4096, "GPU-a")
	_, err := n.create(n.pod("beyond", share(79873, 79873, "GPU-a")), sleeper("main"))
	wantNotStarted(t, nil, err, "other pods hold 2048 of 81920 MiB")
}

// containerd is restarted: the agent comes back, and knows what is held.
func TestAgentRuntimeRestart(t *testing.T) {
	n := newGPUNode(t, true)
	c := n.run(n.pod("holder", share(40960, 40960, "GPU-a")), sleeper("main"))
	shares := n.run(n.pod("shares", harness.Allocation(nodeName, harness.Share{Container: "main",
		GPUs: []string{"GPU-b"}, Request: 1024, Limit: 1024, Mode: "sm-sharing", Portion: "0.5"})),
		sleeper("main"))
	must(t, n.rt.Restart())
	must(t, harness.Poll(20*time.Second, 20*time.Millisecond, func() error {
		if strings.Count(n.agent.Log(), "event=nri-connected") < 2 {
			return errors.New("not connected again")
		}
		return nil
	}))
	if strings.Contains(n.agent.Log(), "event=slipped") {
		t.Error("what runs is taken for one that slipped through")
	}
	n.wantLimits(c.Cgroup(), 40960, 40960, "GPU-a")
	if spaces, err := n.agent.Namespaces(); err != nil || len(spaces) != 1 {
		t.Errorf("namespaces %v (%v)", spaces, err)
	}
	_, err := n.create(n.pod("beyond", share(40961, 40961, "GPU-a")), sleeper("main"))
	wantNotStarted(t, nil, err, "other pods hold 40960 of 81920 MiB")
	must(t, shares.Stop())
	must(t, shares.Remove())
	n.wantNoNamespaces()
	must(t, c.Stop())
	must(t, c.Remove())
	c = n.run(n.pod("all", share(81920, 81920, "GPU-a")), sleeper("main"))
	n.wantLimits(c.Cgroup(), 81920, 81920, "GPU-a")
}
