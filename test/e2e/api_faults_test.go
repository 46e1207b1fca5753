package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// At least 200 faults of all kinds between extender and API server while 300 pods come and go: no GPU
// is given twice, nothing is lost, and in the end the books are right to the last MiB.
func TestFaults(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(10, 8, 81920), proxied: true})
	requests := func(r *http.Request) bool { return !harness.IsWatch(r) }
	for _, f := range []harness.Fault{
		{Match: harness.Binds, Prob: 0.10, Code: 500},
		{Match: harness.Binds, Prob: 0.10, Code: 500, After: true},
		{Match: harness.Binds, Prob: 0.10, Reset: true},
		{Match: harness.Binds, Prob: 0.10, Reset: true, After: true},
		{Match: harness.Binds, Prob: 0.05, Code: 409},
		{Match: harness.Binds, Prob: 0.05, Code: 409, After: true},
		{Match: harness.Binds, Prob: 0.05, Code: 429, RetryAfter: 1},
		{Match: harness.Binds, Prob: 0.05, Code: 504, After: true, Delay: 500 * time.Millisecond},
		{Match: requests, Prob: 0.05, Code: 500},
		{Match: requests, Prob: 0.05, Code: 429, RetryAfter: 1},
		{Match: requests, Prob: 0.05, Reset: true},
		{Match: requests, Prob: 0.05, Delay: 300 * time.Millisecond},
		{Match: harness.IsWatch, Prob: 0.05, Code: 410},
		{Match: harness.IsWatch, Prob: 0.05, Code: 429, RetryAfter: 1},
		{Match: harness.IsWatch, Prob: 0.05, Code: 200, Body: expired},
	} {
		w.api.Add(&f)
	}
	cuts := 0
	var live []*harness.Pod
	for i := 0; i < 300 || w.api.AllHits()+cuts < 220 && i < 2000; i++ {
		live = append(live, w.make(sharePod(fmt.Sprintf("p%03d", i), 10240)))
		if i%10 == 9 {
			cuts += w.api.CutWatches()
		}
		if i%3 == 2 || len(live) > 300 { // some go again, bound or not
			k := w.rng.Intn(len(live))
			must(t, w.cp.Admin.RemovePod(live[k]))
			live[k] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		time.Sleep(time.Duration(w.rng.Intn(40)) * time.Millisecond)
	}
	time.Sleep(time.Second)
	hits := w.api.Clear()
	t.Logf("%d faults and %d watches cut", hits, cuts)
	if hits+cuts < 200 {
		t.Errorf("only %d injections", hits+cuts)
	}
	w.waitCounts(len(live), 180*time.Second)
	all, refused := w.bindErrors()
	t.Logf("%d binds, %d of them refused", all, refused)
	w.verify()
	w.noBoundErrors(t)
	w.fill(t, 10*8*81920-len(live)*10240)
}

// Watches alone are cut, again and again, while pods come and go: nothing is missed.
func TestWatchCut(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(2, 4, 81920), proxied: true})
	cuts := 0
	for i := range 60 {
		w.make(sharePod(fmt.Sprint("p", i), 10240))
		if i >= 20 {
			must(t, w.cp.Admin.RemovePod(sharePod(fmt.Sprint("p", i-20), 0)))
		}
		if i%6 == 5 {
			cuts += w.api.CutWatches()
		}
		time.Sleep(time.Duration(50+w.rng.Intn(200)) * time.Millisecond)
	}
	t.Logf("%d watches cut", cuts)
	if cuts < 5 {
		t.Error("too few")
	}
	w.waitCounts(20, 60*time.Second)
	w.verify()
	w.fill(t, 2*4*81920-20*10240)
}

// The watches stay open and bring nothing more: that is noticed, and the books are right again.
func TestWatchOpenButDead(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920), proxied: true, args: []string{"--watch-silence=5"}})
	w.make(sharePod("first", 81920))
	waitBound(t, w.cp, "first")
	if n := w.api.SwallowWatches(); n < 2 {
		t.Fatalf("%d watches are open", n)
	}
	must(t, w.cp.Admin.RemovePod(sharePod("first", 0)))
	w.make(sharePod("second", 81920))
	start := time.Now()
	w.waitWoken(t, "second")
	t.Logf("bound after %v", time.Since(start).Round(time.Millisecond))
	if n, err := w.exts[0].Metric("tessera_watches_dead_total"); err != nil || n < 2 {
		t.Errorf("%v dead watches counted: %v", n, err)
	}
	w.verify()
}

// expired is what the API server sends in the stream when a version is too old.
const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
	`"message":"too old resource version: 1 (44930)","reason":"Expired","code":410}}` + "\n"

// noBoundErrors: a pod that is bound must not carry the mark of a failed bind. Where the API server answers
// neither the Binding nor the reads after it, nobody can know in time: that is said in these words.
func (w *world) noBoundErrors(t *testing.T) {
	t.Helper()
	for _, p := range w.rec.Pods() {
		c := p.Condition("PodScheduled")
		if strings.Contains(c.Message, "is not known yet; it is being read") {
			t.Logf("%s: %s", p.Metadata.Name, c.Message)
		} else if p.Spec.NodeName != "" && c.Status != "True" {
			t.Errorf("%s is on %s with PodScheduled %s %s: %s", p.Metadata.Name, p.Spec.NodeName,
				c.Status, c.Reason, c.Message)
		}
	}
}

// The answer to a bind is lost: the pod is bound, and the scheduler must be told so.
func TestBindAnswerLost(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(2, 4, 81920), proxied: true})
	for i, f := range []harness.Fault{
		{Match: harness.Binds, Count: 1, Reset: true, After: true},
		{Match: harness.Binds, Count: 1, Code: 500, After: true},
		{Match: harness.Binds, Count: 1, Code: 409, After: true},
		{Match: harness.Binds, Count: 1, Code: 504, After: true},
	} {
		w.api.Add(&f)
		name := fmt.Sprint("p", i)
		w.make(sharePod(name, 1024))
		waitBound(t, w.cp, name)
		w.api.Clear()
	}
	time.Sleep(500 * time.Millisecond) // a wrong condition would come now
	w.noBoundErrors(t)
	if all, refused := w.bindErrors(); refused != 0 {
		t.Errorf("%d of %d binds of bound pods were answered with an error", refused, all)
	}
	w.verify()
}

// Binds take longer than httpTimeout: each pod is bound once, and nothing is booked twice.
func TestBindSlowerThanTimeout(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920), proxied: true,
		sched: harness.SchedulerConfig{HTTPTimeout: "1s"}})
	w.api.Add(&harness.Fault{Match: harness.Binds, Delay: 3 * time.Second, Count: 4})
	w.makeMany(4, func(i int) *harness.Pod { return sharePod(fmt.Sprint("p", i), 20480) })
	w.waitCounts(4, 60*time.Second)
	w.verify()
	w.make(sharePod("more", 1))
	waitRefused(t, w.cp, "more")
}

// Case 16: the API refuses the bind of one pod ten times; free room is the same all the while.
func TestCase16BindFailsTenTimes(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920), proxied: true})
	fault := w.api.Add(&harness.Fault{Match: bindOf("x"), Code: 403, Body: denied})
	w.make(sharePod("x", 40960))
	for i := range 3 {
		name := fmt.Sprint("other", i)
		w.make(sharePod(name, 40960))
		waitBound(t, w.cp, name)
		w.make(sharePod(name+"b", 40960))
		waitBound(t, w.cp, name+"b")
		must(t, w.cp.Admin.RemovePod(sharePod(name, 0)))
		must(t, w.cp.Admin.RemovePod(sharePod(name+"b", 0)))
		hits := w.api.Hits(fault)
		must(t, harness.Poll(30*time.Second, 50*time.Millisecond, func() error {
			if n := w.api.Hits(fault); n < hits+3 {
				return fmt.Errorf("%d tries", n)
			}
			return nil
		}))
	}
	t.Logf("%d refused binds", w.api.Hits(fault))
	w.api.Clear()
	waitBound(t, w.cp, "x")
	w.make(sharePod("y", 40960))
	waitBound(t, w.cp, "y")
	w.verify()
}

const denied = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Forbidden","code":403,` +
	`"message":"admission webhook \"guard.example.com\" denied the request: not on a Friday"}`

func bindOf(pod string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return harness.Binds(r) && strings.HasSuffix(r.URL.Path, "/pods/"+pod+"/binding")
	}
}

// Case 18: a webhook refuses every bind of one pod that comes first; the others are bound, and the
// pod is told the webhook's words.
func TestCase18ImpossiblePod(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920), proxied: true})
	w.api.Add(&harness.Fault{Match: bindOf("x"), Code: 403, Body: denied})
	w.make(sharePod("x", 61440))
	waitRefused(t, w.cp, "x")
	for i := range 4 {
		w.make(sharePod(fmt.Sprint("p", i), 20480))
	}
	w.waitBoundNames(t, 60*time.Second, "p0", "p1", "p2", "p3")
	p, err := w.cp.Admin.Pod("x")
	must(t, err)
	events := w.eventsOf(t, p.Metadata.UID)
	if !strings.Contains(events+p.Condition("PodScheduled").Message, "not on a Friday") {
		t.Errorf("the webhook's text is neither in the condition nor in an event: %s", events)
	}
	w.verify()
}

func (w *world) waitBoundNames(t *testing.T, timeout time.Duration, names ...string) {
	t.Helper()
	if !w.rec.Wait(timeout, func(pods []harness.Pod) bool {
		missing := len(names)
		for _, p := range pods {
			for _, n := range names {
				if p.Metadata.Name == n && p.Spec.NodeName != "" {
					missing--
				}
			}
		}
		return missing == 0
	}) {
		t.Errorf("not all of %v are bound", names)
	}
}

// eventsOf returns the messages of all events about an object.
func (w *world) eventsOf(t *testing.T, uid string) string {
	t.Helper()
	var l struct {
		Items []struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"items"`
	}
	must(t, w.cp.Admin.Get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid="+uid, &l))
	var all []string
	for _, e := range l.Items {
		all = append(all, e.Reason+": "+e.Message)
	}
	return strings.Join(all, "\n")
}

// Case 13: pods are deleted while the watch is down and binds fail; after that the room is there again
// without a restart.
func TestCase13DeletedWhileWatchIsDown(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 8, 81920), proxied: true})
	w.make(harness.NewPod("all", harness.GPUResource+"=8"))
	waitBound(t, w.cp, "all")
	w.api.Add(&harness.Fault{Match: func(*http.Request) bool { return true }, Code: 503})
	w.api.CutWatches()
	must(t, w.cp.Admin.RemovePod(harness.NewPod("all")))
	w.make(harness.NewPod("next", harness.GPUResource+"=8"))
	time.Sleep(2 * time.Second)
	w.api.Clear()
	w.waitWoken(t, "next")
	w.verify()
}

// Case 14 and the watch past its end: everything is held up, things happen, the API server forgets
// its past (410), and the books are right again.
func TestCase14WatchExpired(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(2, 4, 81920), proxied: true})
	w.makeMany(8, func(i int) *harness.Pod { return sharePod(fmt.Sprint("p", i), 20480) })
	w.waitCounts(8, 60*time.Second)
	w.api.Pause()
	for i := range 4 {
		must(t, w.cp.Admin.RemovePod(sharePod(fmt.Sprint("p", i), 0)))
	}
	for i := range 20 { // versions that nobody will remember
		must(t, w.cp.Admin.Merge("/api/v1/nodes/gpu-00", map[string]any{"metadata": map[string]any{
			"labels": map[string]string{"round": fmt.Sprint(i)}}}))
	}
	w.cp.StopAPIServer(false)
	must(t, w.cp.StartAPIServer())
	w.api.Resume()
	w.waitLeader(90 * time.Second)
	w.makeMany(4, func(i int) *harness.Pod { return sharePod(fmt.Sprint("q", i), 81920) })
	w.waitCounts(8, 90*time.Second)
	w.verify()
}

// Case 15: filter and failed binds, again and again for one UID, leave nothing behind.
func TestCase15RepeatedFailures(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920), proxied: true})
	w.api.Add(&harness.Fault{Match: bindOf("p"), Code: 500, Count: 3})
	w.make(sharePod("p", 81920))
	waitBound(t, w.cp, "p")
	if n := len(w.front.Exchanges("/filter")); n < 2 {
		t.Logf("%d filter calls", n)
	}
	w.verify()
	must(t, w.cp.Admin.RemovePod(sharePod("p", 0)))
	w.make(sharePod("q", 81920))
	waitBound(t, w.cp, "q")
	w.verify()
}
