package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// The extender is killed at random moments while 300 pods are bound, and started again each time:
// nothing is given twice, nothing is lost.
func TestKilledDuringBinds(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(10, 8, 81920), proxied: true})
	// Binds take a while, so that a kill meets some of them in flight.
	w.api.Add(&harness.Fault{Match: harness.Binds, Delay: 30 * time.Millisecond})
	const count = 300
	kills := 0
	made := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < count && err == nil; i++ {
			_, err = w.cp.Admin.CreatePod(sharePod(fmt.Sprintf("p%03d", i), 10240))
			time.Sleep(10 * time.Millisecond)
		}
		made <- err
	}()
	for kills < 12 {
		time.Sleep(time.Duration(50+w.rng.Intn(400)) * time.Millisecond)
		w.exts[0].Kill()
		kills++
		w.dropLease()
		w.restart(0)
		w.waitLeader(30 * time.Second)
	}
	must(t, <-made)
	w.waitCounts(count, 120*time.Second)
	all, refused := w.bindErrors()
	t.Logf("%d kills, %d binds answered, %d of them refused", kills, all, refused)
	w.verify()
	w.fill(t, 10*8*81920-count*10240)
}

// fill proves that the room that should be left is really there: pods of 10 GiB fill it to the last.
func (w *world) fill(t *testing.T, leftMiB int) {
	t.Helper()
	const each = 10240
	had, _, _ := counts(w.rec.Pods())
	n := leftMiB / each
	w.makeMany(n+1, func(i int) *harness.Pod {
		return harness.NewPod(fmt.Sprintf("fill%03d", i)).Annotate("gpu-memory", fmt.Sprint(each))
	})
	w.waitCounts(had+n, 120*time.Second)
	w.verify()
}

// A crash loop of one bind each: kill -9 before, during and after the POST (case 17).
func TestCase17KilledAroundThePost(t *testing.T) {
	needAPIMode(t)
	for _, x := range []struct {
		name  string
		fault harness.Fault
		bound bool // by the POST that was under way
	}{
		{"before", harness.Fault{Match: harness.Binds, Delay: time.Hour}, false},
		{"after", harness.Fault{Match: harness.Binds, Delay: 0, Code: 504, After: true}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, setup{nodes: gpuNodes(1, 2, 81920), proxied: true})
			fault := w.api.Add(&x.fault)
			w.make(sharePod("p", 81920))
			must(t, harness.Poll(20*time.Second, 5*time.Millisecond, func() error {
				if w.api.Hits(fault) == 0 {
					return fmt.Errorf("no POST yet")
				}
				return nil
			}))
			w.exts[0].Kill()
			w.api.Clear()
			if p, err := w.cp.Admin.Pod("p"); err != nil || !x.bound && p.Spec.NodeName != "" {
				t.Errorf("bound already: %v", err)
			}
			w.dropLease()
			w.restart(0)
			w.waitLeader(30 * time.Second)
			waitBound(t, w.cp, "p")
			w.make(sharePod("q", 81920))
			waitBound(t, w.cp, "q")
			w.verify()
		})
	}
}

// Case 37: two replicas under load, the leader is killed: no double allocation, service again within
// the time of a lease.
func TestCase37LeaderFailover(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(10, 8, 81920), replicas: 2})
	stop := w.load(t, 400)
	for round := range 3 {
		time.Sleep(time.Duration(500+w.rng.Intn(500)) * time.Millisecond)
		old := w.waitLeader(60 * time.Second)
		w.exts[old].Kill()
		start := time.Now()
		leader := w.waitLeader(60 * time.Second)
		t.Logf("round %d: %d leads after %v", round, leader, time.Since(start).Round(time.Millisecond))
		if leader == old {
			t.Error("the dead one leads")
		}
		w.restart(old)
	}
	stop()
	w.waitCounts(400, 120*time.Second)
	w.verify()
}

// load creates count pods over some seconds; what it returns waits for the end of it.
func (w *world) load(t *testing.T, count int) (wait func()) {
	errs := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < count && err == nil; i++ {
			_, err = w.cp.Admin.CreatePod(sharePod(fmt.Sprintf("load%03d", i), 10240))
			time.Sleep(10 * time.Millisecond)
		}
		errs <- err
	}()
	return func() {
		t.Helper()
		must(t, <-errs)
	}
}

// A leader that hangs loses the lease; when it goes on it must not bind any more.
func TestCase37FrozenLeader(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(4, 8, 81920), replicas: 2})
	w.makeMany(20, func(i int) *harness.Pod { return sharePod(fmt.Sprint("p", i), 10240) })
	w.waitCounts(20, 60*time.Second)
	old := w.waitLeader(time.Second)
	must(t, w.exts[old].Signal(syscall.SIGSTOP))
	defer func() { _ = w.exts[old].Signal(syscall.SIGCONT) }()
	w.front.Set(w.exts[1-old])
	must(t, harness.Poll(60*time.Second, 50*time.Millisecond, func() error {
		if !w.exts[1-old].Ready() {
			return fmt.Errorf("the other one does not take over")
		}
		return nil
	}))
	w.makeMany(20, func(i int) *harness.Pod { return sharePod(fmt.Sprint("q", i), 10240) })
	w.waitCounts(40, 60*time.Second)
	must(t, w.exts[old].Signal(syscall.SIGCONT))
	// Asked directly, as a scheduler with an open connection would: it must refuse.
	p := sharePod("r", 1024)
	p.Spec.SchedulerName = "nobody"
	p = w.make(p)
	for range 50 {
		if reply := postBind(t, w.exts[old].URL, p, "gpu-00"); reply == "" {
			t.Fatal("a replica that does not lead answered bind with success")
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.verify()
}

// The API server is restarted while pods come.
func TestAPIServerRestart(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(5, 8, 81920)})
	w.makeMany(50, func(i int) *harness.Pod { return sharePod(fmt.Sprint("a", i), 10240) })
	time.Sleep(time.Duration(w.rng.Intn(300)) * time.Millisecond)
	w.cp.StopAPIServer(true)
	time.Sleep(2 * time.Second)
	must(t, w.cp.StartAPIServer())
	w.makeMany(50, func(i int) *harness.Pod { return sharePod(fmt.Sprint("b", i), 10240) })
	w.waitCounts(100, 120*time.Second)
	t.Logf("%d gaps in the recorder's watch", w.rec.Gaps())
	w.verify()
}

// Case 38: the token is replaced in its file and the old one revoked: work goes on, and a token that
// stays wrong makes the replica not ready.
func TestCase38TokenRotation(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short runs: takes minutes")
	}
	w := newWorld(t, setup{nodes: gpuNodes(2, 8, 81920)})
	w.make(sharePod("before", 1024))
	waitBound(t, w.cp, "before")
	old := w.revoke
	w.newToken()
	must(t, old())
	// The API server remembers a good token for 10 s.
	time.Sleep(11 * time.Second)
	w.make(sharePod("after", 1024))
	waitBound(t, w.cp, "after")
	must(t, w.revoke())
	must(t, harness.Poll(120*time.Second, 200*time.Millisecond, func() error {
		if w.exts[0].Ready() {
			return fmt.Errorf("still ready with a token that is revoked")
		}
		return nil
	}))
	log, err := os.ReadFile(w.exts[0].LogPath)
	must(t, err)
	if !strings.Contains(string(log), "401") {
		t.Error("the log does not mention 401")
	}
	if token, err := os.ReadFile(w.tokenFile); err != nil || strings.Contains(string(log), string(token)) {
		t.Error("the token is in the log")
	}
	w.newToken()
	w.waitLeader(120 * time.Second)
	w.make(sharePod("again", 1024))
	waitBound(t, w.cp, "again")
	w.verify()
}
