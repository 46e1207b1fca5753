package e2e

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// guaranteed tells whether the last that was set on a cgroup guarantees memory: those above it would keep it
// reserved when it is gone. It is an error where nothing was set.
func (n *gpuNode) guaranteed(leaf string) (bool, error) {
	log, err := n.hw.Log()
	var last harness.Limit
	for _, l := range log {
		if l.Cgroup == n.rt.Mount+leaf {
			last = l
		}
	}
	if err == nil && last.UUID == "" {
		err = fmt.Errorf("nothing was ever set on %s", leaf)
	}
	return last.Soft != 0, err
}

// wantClean checks that nothing is left of any container: no namespace, folder, cgroup or holding.
func (n *gpuNode) wantClean() {
	n.t.Helper()
	n.wantNoNamespaces()
	entries, err := os.ReadDir(n.rt.Cgroup(n.rt.Parent))
	must(n.t, err)
	for _, e := range entries {
		if e.IsDir() {
			n.t.Errorf("cgroup %s is left", e.Name())
		}
	}
	spaces, err := os.ReadDir(n.rt.Path("/run/nvidia-mps/shared"))
	must(n.t, err)
	for _, e := range spaces {
		if e.IsDir() && e.Name() != "default" {
			n.t.Errorf("folder %s of MPS is left", e.Name())
		}
	}
	for _, gpu := range []string{"GPU-a", "GPU-b"} {
		p := n.pod("all", harness.Allocation(nodeName, harness.Share{Container: "main",
			GPUs: []string{gpu}, Request: 81920, Limit: 81920, Mode: "sm-sharing", Portion: "1"}))
		n.run(p, sleeper("main"))
		must(n.t, p.Remove())
		n.pods = n.pods[:len(n.pods)-1]
	}
}

// Nothing is left of a container that was stopped, of one that ended, and of one that was killed.
func TestAgentLeavesNothing(t *testing.T) {
	n := newGPUNode(t, true)
	for name, end := range map[string]func(c *harness.Created) error{
		"stopped": (*harness.Created).Stop,
		"ended": func(c *harness.Created) error {
			_, err := c.Wait(10 * time.Second)
			return err
		},
		"killed": func(c *harness.Created) error { c.KillProcesses(); return nil },
	} {
		p := n.pod(name, harness.Allocation(nodeName, harness.Share{Container: "main",
			GPUs: []string{"GPU-a"}, Request: 1024, Limit: 2048, Mode: "sm-sharing", Portion: "0.5"}))
		spec := sleeper("main")
		if name == "ended" {
			spec.Command = []string{"/bin/sleep", "0.2"}
		}
		c := n.run(p, spec)
		leaf := c.Cgroup()
		must(t, end(c))
		must(t, harness.Poll(10*time.Second, 10*time.Millisecond, func() error {
			if state, _, err := c.Status(); err != nil || state != "CONTAINER_EXITED" {
				return fmt.Errorf("%s is %s: %v", name, state, err)
			}
			return nil
		}))
		must(t, p.Remove())
		if kept, err := n.guaranteed(leaf); err != nil || kept {
			t.Errorf("%s: its cgroup went with its guarantee (%v)", name, err)
		}
	}
	n.pods = nil
	n.wantClean()
}

const stormWorkers = 4

// storm is many containers at a time, on a node whose agent is killed again and again.
type storm struct {
	*gpuNode
	want    int64 // containers
	started atomic.Int64
	refused atomic.Int64
	life    atomic.Int64 // of the agent: even while it is connected
	checked atomic.Int64 // containers whose end it saw
	mu      sync.Mutex
	fault   error
}

func (s *storm) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.fault == nil {
		s.fault = err
	}
}

func (s *storm) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault != nil
}

// unlimited says what is wrong with the limits of a container that runs.
func (s *storm) unlimited(c *harness.Created, want harness.Share) error {
	limits, err := s.hw.Limits()
	if err != nil {
		return err
	}
	if leaf := c.Cgroup(); leaf != "" {
		l := limits[want.GPUs[0]+" "+s.rt.Mount+leaf]
		if len(c.Pids()) > 0 && (l.Soft != want.Request*mib || l.Hard != want.Limit*mib) {
			return fmt.Errorf("container %s runs with %v, not with %v", c.ID, l, want)
		}
	}
	return nil
}

// container lives through one container, and returns its cgroup; that it is refused is no fault.
func (s *storm) container(rng *rand.Rand, p *harness.Sandbox, want harness.Share) (string, error) {
	c, err := p.Create(sleeper(want.Container))
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		s.refused.Add(1)
		if c != nil && strings.Contains(err.Error(), "DeadlineExceeded") {
			// Nobody refused it: the runtime was not quick enough. It may run, with its limits.
			return "", s.unlimited(c, want)
		}
		if c != nil && len(c.Pids()) > 0 {
			return "", fmt.Errorf("container %s was refused and runs: %w", c.ID, err)
		}
		return "", nil
	}
	s.started.Add(1)
	leaf := c.Cgroup()
	if err := s.unlimited(c, want); err != nil {
		return "", err
	}
	switch rng.Intn(4) {
	case 0:
		return leaf, nil // goes with the pod
	case 1:
		c.KillProcesses()
	default:
		err = c.Stop()
	}
	if err == nil && rng.Intn(2) == 0 {
		err = c.Remove()
	}
	return leaf, err
}

func (s *storm) pod(rng *rand.Rand, name string) error {
	var shares []harness.Share
	for i := range 1 + rng.Intn(6) {
		share := harness.Share{Container: "c" + strconv.Itoa(i), GPUs: []string{"GPU-a"},
			Request: 1 + rng.Int63n(512)}
		share.Limit = share.Request + rng.Int63n(512)
		if i%2 == 1 {
			share.GPUs, share.Mode = []string{"GPU-b"}, "sm-sharing"
			share.Portion = []string{"0.05", "0.01", ""}[rng.Intn(3)]
		}
		shares = append(shares, share)
	}
	life := s.life.Load()
	p, err := s.rt.RunPod(harness.PodOptions{Name: name, Annotations: harness.Allocation(nodeName, shares...)})
	var leaves []string
	for _, share := range shares {
		if err == nil {
			var leaf string
			leaf, err = s.container(rng, p, share)
			leaves = append(leaves, leaf)
		}
	}
	if err == nil {
		err = p.Remove()
	}
	if life%2 != 0 || life != s.life.Load() {
		return err // it was away, and may not have seen the end of all
	}
	for _, leaf := range leaves {
		var kept bool
		if err == nil && leaf != "" {
			if kept, err = s.guaranteed(leaf); err == nil && kept {
				err = fmt.Errorf("%s went with its guarantee", leaf)
			}
			s.checked.Add(1)
		}
	}
	return err
}

func (s *storm) worker(rng *rand.Rand, id int) {
	for i := 0; s.started.Load() < s.want && !s.failed(); i++ {
		s.fail(s.pod(rng, fmt.Sprintf("storm-%d-%d", id, i)))
	}
}

// killer kills the agent that many times, evenly over the containers.
func (s *storm) killer(rng *rand.Rand, kills int64) {
	for k := int64(1); k <= kills && !s.failed(); k++ {
		for s.started.Load() < s.want*k/(kills+1) && !s.failed() {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rng.Intn(60)) * time.Millisecond)
		s.life.Add(1)
		s.agent.Kill()
		time.Sleep(time.Duration(rng.Intn(60)) * time.Millisecond)
		s.fail(s.agent.Restart())
		s.fail(s.agent.WaitLog(20*time.Second, "event=nri-connected"))
		s.life.Add(1)
	}
}

// Containers come and go while the agent is killed at random: none runs unlimited, and nothing is left.
// E2E_STORM is the number of containers; the agent is killed once for 20 of them.
func TestAgentStorm(t *testing.T) {
	want := int64(1000)
	if testing.Short() {
		want = 200
	}
	if text := os.Getenv("E2E_STORM"); text != "" {
		var err error
		want, err = strconv.ParseInt(text, 10, 64)
		must(t, err)
	}
	s := &storm{gpuNode: newGPUNode(t, true), want: want}
	rng := random(t)
	began := time.Now()
	var all sync.WaitGroup
	for id := range stormWorkers {
		own := rand.New(rand.NewSource(rng.Int63()))
		all.Add(1)
		go func() {
			defer all.Done()
			s.worker(own, id)
		}()
	}
	s.killer(rng, want/20)
	all.Wait()
	must(t, s.fault)
	t.Logf("seed %d: %d containers (%d ends seen by the agent), %d refused, %d kills of the agent in %.1f s",
		seed, s.started.Load(), s.checked.Load(), s.refused.Load(), want/20, time.Since(began).Seconds())
	if s.checked.Load() == 0 {
		t.Error("the agent saw no end")
	}
	if s.agent.Exited() {
		must(t, s.agent.Restart())
	}
	s.waitAgent()
	if strings.Contains(s.agent.Log(), "event=slipped") {
		t.Error("a container slipped through")
	}
	s.wantClean()
}
