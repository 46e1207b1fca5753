// Package e2e holds the end-to-end tests: the programs of the product with a real etcd, kube-apiserver
// and kube-scheduler. All of a run's random choices come from one seed, E2E_SEED.
package e2e

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

var seed = time.Now().UnixNano() % 1_000_000

func TestMain(m *testing.M) {
	if text := os.Getenv("E2E_SEED"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, "E2E_SEED:", err)
			os.Exit(2)
		}
		seed = n
	}
	fmt.Printf("seed: E2E_SEED=%d\n", seed)
	code := m.Run()
	stopRuntimes()
	if started {
		if cp, err := shared(); err == nil {
			cp.Stop()
		}
	}
	os.Exit(code)
}

var started bool

// shared is the control plane that the tests use one after the other.
var shared = sync.OnceValues(func() (*harness.ControlPlane, error) {
	started = true
	return harness.NewControlPlane()
})

// control returns the control plane without nodes and pods; they are removed after the test too.
func control(t *testing.T) *harness.ControlPlane {
	t.Helper()
	cp, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	wipe := func() {
		if err := cp.Admin.Wipe(); err != nil {
			t.Error(err)
		}
	}
	wipe()
	t.Cleanup(wipe)
	return cp
}

// random is a source for this test that depends on the seed and the test's name alone.
func random(t *testing.T) *rand.Rand {
	h := seed
	for _, c := range t.Name() {
		h = h*31 + int64(c)
	}
	return rand.New(rand.NewSource(h))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func makeNodes(t *testing.T, cp *harness.ControlPlane, nodes ...*harness.Node) {
	t.Helper()
	for _, n := range nodes {
		must(t, cp.Admin.CreateNode(n))
	}
}

func makePod(t *testing.T, cp *harness.ControlPlane, p *harness.Pod) *harness.Pod {
	t.Helper()
	ret, err := cp.Admin.CreatePod(p)
	must(t, err)
	return ret
}

// waitPod waits until cond holds for the pod and returns it.
func waitPod(t *testing.T, cp *harness.ControlPlane, name, what string, timeout time.Duration,
	cond func(*harness.Pod) bool) *harness.Pod {
	t.Helper()
	var p *harness.Pod
	err := harness.Poll(timeout, 20*time.Millisecond, func() (err error) {
		if p, err = cp.Admin.Pod(name); err == nil && !cond(p) {
			c := p.Condition("PodScheduled")
			err = fmt.Errorf("pod %s: %s: it is on %q, PodScheduled %s %s: %s", name, what,
				p.Spec.NodeName, c.Status, c.Reason, c.Message)
		}
		return err
	})
	must(t, err)
	return p
}

func waitBound(t *testing.T, cp *harness.ControlPlane, name string) *harness.Pod {
	t.Helper()
	return waitPod(t, cp, name, "to be bound", 20*time.Second, func(p *harness.Pod) bool {
		return p.Spec.NodeName != ""
	})
}

// waitRefused waits until the scheduler has said why the pod cannot be placed.
func waitRefused(t *testing.T, cp *harness.ControlPlane, name string) harness.Condition {
	t.Helper()
	p := waitPod(t, cp, name, "to be refused", 20*time.Second, func(p *harness.Pod) bool {
		return p.Condition("PodScheduled").Status == "False" || p.Spec.NodeName != ""
	})
	if p.Spec.NodeName != "" {
		t.Fatalf("pod %s was bound to %s", name, p.Spec.NodeName)
	}
	return p.Condition("PodScheduled")
}
