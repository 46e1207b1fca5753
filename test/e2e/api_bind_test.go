package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// postBind asks an extender to bind, as a scheduler does, and returns the Error of its answer.
func postBind(t *testing.T, url string, p *harness.Pod, node string) string {
	t.Helper()
	text, err := json.Marshal(map[string]string{"PodName": p.Metadata.Name,
		"PodNamespace": p.Metadata.Namespace, "PodUID": p.Metadata.UID, "Node": node})
	must(t, err)
	client := http.Client{Timeout: 30 * time.Second}
	resp, err := client.Post(url+"/v1/bind", harness.JSON, strings.NewReader(string(text)))
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return fmt.Sprintf("HTTP %d", resp.StatusCode)
	}
	var ret struct{ Error string }
	must(t, json.NewDecoder(resp.Body).Decode(&ret))
	return ret.Error
}

// gated is a pod that the scheduler leaves alone.
func gated(name string, mib int) *harness.Pod {
	p := sharePod(name, mib)
	p.Spec.SchedulingGates = []harness.Gate{{Name: "example.com/wait"}}
	return p
}

// unscheduled is a pod that no scheduler takes: the test binds it.
func unscheduled(name string, mib int) *harness.Pod {
	p := sharePod(name, mib)
	p.Spec.SchedulerName = "nobody"
	return p
}

// Odd binds, one by one: success only when the pod is bound by us to that node, and no room is lost.
func TestBindAnswers(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(2, 1, 81920)})
	bind := func(p *harness.Pod, node string) string { return postBind(t, w.exts[0].URL, p, node) }
	refused := func(what string, p *harness.Pod, node string) {
		t.Helper()
		if e := bind(p, node); e == "" {
			t.Errorf("%s: bind says it is done", what)
		} else {
			t.Logf("%s: %s", what, e)
		}
	}
	a := w.make(unscheduled("a", 1024))
	if e := bind(a, "gpu-00"); e != "" {
		t.Fatal(e)
	}
	if e := bind(a, "gpu-00"); e != "" {
		t.Errorf("the repeat of a bind that is done: %s", e)
	}
	refused("bound to another node", a, "gpu-01")
	wrong := *a
	wrong.Metadata.UID = "00000000-0000-0000-0000-000000000000"
	refused("another UID", &wrong, "gpu-00")
	refused("no such pod", unscheduledUID("nothing"), "gpu-00")
	refused("no such node", w.make(unscheduled("b", 1024)), "gpu-99")
	refused("gated", w.make(gated("c", 1024)), "gpu-00")
	refused("too large", w.make(unscheduled("d", 90000)), "gpu-00")
	other := w.make(unscheduled("e", 1024))
	must(t, w.cp.Admin.Post("/api/v1/namespaces/default/pods/e/binding", binding("e", "gpu-00"), nil))
	refused("bound by somebody else", other, "gpu-00")
	must(t, w.cp.Admin.RemovePod(other))
	done := w.make(unscheduled("f", 1024))
	must(t, w.cp.Admin.SetPhase(done, "Failed"))
	refused("failed", done, "gpu-00")
	// All the room but that of a is there.
	if e := bind(w.make(unscheduled("g", 80896)), "gpu-00"); e != "" {
		t.Error(e)
	}
	if e := bind(w.make(unscheduled("h", 81920)), "gpu-01"); e != "" {
		t.Error(e)
	}
	w.verify()
}

func unscheduledUID(name string) *harness.Pod {
	p := unscheduled(name, 1024)
	p.Metadata.UID = "11111111-0000-0000-0000-000000000000"
	return p
}

// A pod is deleted between filter and bind; the room is not lost.
func TestDeletedBetweenFilterAndBind(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920)})
	hold := w.front.Add(&harness.Fault{Match: binds, Delay: 2 * time.Second, Count: 1})
	p := w.make(sharePod("p", 81920))
	w.waitHit(hold)
	must(t, w.cp.Admin.RemovePod(p))
	w.make(sharePod("q", 81920))
	waitBound(t, w.cp, "q")
	w.verify()
}

func binds(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/bind") }

func (w *world) waitHit(f *harness.Fault) {
	w.t.Helper()
	must(w.t, harness.Poll(20*time.Second, 5*time.Millisecond, func() error {
		if w.front.Hits(f) == 0 {
			return fmt.Errorf("no bind yet")
		}
		return nil
	}))
}

// A pod of the same name with a new UID takes the place of one that is about to be bound.
func TestUIDChange(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920)})
	hold := w.front.Add(&harness.Fault{Match: binds, Delay: 2 * time.Second, Count: 1})
	first := w.make(sharePod("p", 81920))
	w.waitHit(hold)
	must(t, w.cp.Admin.RemovePod(first))
	second := w.make(sharePod("p", 40960))
	p := waitBound(t, w.cp, "p")
	if p.Metadata.UID != second.Metadata.UID {
		t.Error("not the second one")
	}
	g, err := harness.Grants(p)
	must(t, err)
	if g["main"].Request != 40960 {
		t.Errorf("%d MiB", g["main"].Request)
	}
	// Now a bound one is replaced.
	must(t, w.cp.Admin.RemovePod(p))
	w.make(sharePod("p", 81920))
	waitBound(t, w.cp, "p")
	w.verify()
}

// Case 20: the bind to one node fails, the pod then goes to another: it carries that one's GPUs only.
func TestCase20OtherNodeAfterFailure(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(2, 1, 81920), proxied: true})
	w.api.Add(&harness.Fault{Match: harness.Binds, Code: 500, Count: 1})
	first := ""
	w.make(sharePod("p", 1024))
	must(t, harness.Poll(20*time.Second, 5*time.Millisecond, func() error {
		all := w.front.Exchanges("/bind")
		if len(all) == 0 {
			return fmt.Errorf("no bind yet")
		}
		var args struct{ Node string }
		must(t, json.Unmarshal(all[0].Request, &args))
		first = args.Node
		return nil
	}))
	must(t, w.cp.Admin.Merge("/api/v1/nodes/"+first, map[string]any{"spec": map[string]any{"unschedulable": true}}))
	p := waitBound(t, w.cp, "p")
	t.Logf("first %s, then %s", first, p.Spec.NodeName)
	w.verify() // the checker compares the node in the allocation with the pod's
}

// A pod with scheduling gates is left alone, and placed when the gates go.
func TestSchedulingGates(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920)})
	w.make(gated("p", 81920))
	w.make(sharePod("q", 40960))
	waitBound(t, w.cp, "q")
	must(t, w.cp.Admin.RemovePod(sharePod("q", 0)))
	must(t, w.cp.Admin.Do("PATCH", "/api/v1/namespaces/default/pods/p", harness.JSONPatch,
		`[{"op":"remove","path":"/spec/schedulingGates"}]`, nil))
	waitBound(t, w.cp, "p")
	w.verify()
}

// Case 9: a pod that is being deleted keeps its GPUs until it is gone.
func TestCase09TerminatingHolds(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920)})
	grace := int64(300)
	p := sharePod("p", 81920)
	p.Spec.TerminationGracePeriodSeconds = &grace
	w.make(p)
	waitBound(t, w.cp, "p")
	must(t, w.cp.Admin.SetPhase(p, "Running"))
	must(t, w.cp.Admin.Delete(harness.PodPath(p), -1))
	w.make(harness.NewPod("q").Annotate("gpu-memory", "81920"))
	c := waitRefused(t, w.cp, "q")
	t.Log(c.Message)
	must(t, w.cp.Admin.RemovePod(p))
	w.waitWoken(t, "q")
	// And one that has ended holds nothing, although it is there.
	must(t, w.cp.Admin.SetPhase(harness.NewPod("q"), "Succeeded"))
	w.make(sharePod("r", 81920))
	waitBound(t, w.cp, "r")
	w.verify()
}

// Case 39: fields that nobody knows are left as they are by a bind.
func TestCase39UnknownFields(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(1, 1, 81920)})
	body := map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "p", "annotations": map[string]string{"gpu-memory": "1024",
			"example.com/odd": "\"<>&\u2028 {\"NodeNames\":[", "example.com/empty": ""}},
		"spec": map[string]any{"schedulerName": "tessera", "enableServiceLinks": false, "hostname": "h",
			"dnsPolicy": "None", "dnsConfig": map[string]any{"nameservers": []string{"10.0.0.1"}},
			"containers": []any{map[string]any{"name": "main", "image": "none",
				"resizePolicy": []any{map[string]any{"resourceName": "cpu", "restartPolicy": "NotRequired"}}}}}}
	const path = "/api/v1/namespaces/default/pods"
	var before, after map[string]any
	must(t, w.cp.Admin.Post(path, body, &before))
	waitBound(t, w.cp, "p")
	must(t, w.cp.Admin.Get(path+"/p", &after))
	spec := after["spec"].(map[string]any)
	delete(spec, "nodeName")
	want, _ := json.Marshal(before["spec"])
	got, _ := json.Marshal(spec)
	if string(want) != string(got) {
		t.Errorf("before %s\nafter  %s", want, got)
	}
	for k, v := range before["metadata"].(map[string]any)["annotations"].(map[string]any) {
		if after["metadata"].(map[string]any)["annotations"].(map[string]any)[k] != v {
			t.Errorf("annotation %s changed", k)
		}
	}
	w.verify()
}

// The rows of odd replies that can happen to us: between scheduler and extender something goes wrong
// once or twice. The pod is bound in the end, with the right books.
func TestOddReplies(t *testing.T) {
	w := newWorld(t, setup{nodes: gpuNodes(2, 2, 81920), sched: harness.SchedulerConfig{HTTPTimeout: "1s"}})
	filters := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/filter") }
	scores := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/prioritize") }
	for i, x := range []struct {
		name  string
		fault harness.Fault
		error bool // the pod may be bound and carry the mark of a failed bind
	}{
		{"filter 500", harness.Fault{Match: filters, Code: 500, Count: 2}, false},
		{"filter slow", harness.Fault{Match: filters, Delay: 1500 * time.Millisecond, Count: 1}, false},
		{"filter cut", harness.Fault{Match: filters, Reset: true, Count: 1}, false},
		{"filter not JSON", harness.Fault{Match: filters, Code: 200, Body: "hello", Count: 1}, false},
		{"filter Error", harness.Fault{Match: filters, Code: 200, Body: `{"Error":"not now"}`, Count: 1}, false},
		{"filter 204", harness.Fault{Match: filters, Code: 204, Count: 1}, false},
		{"prioritize 500", harness.Fault{Match: scores, Code: 500, Count: 1}, false},
		{"prioritize null", harness.Fault{Match: scores, Code: 200, Body: "null", Count: 1}, false},
		{"bind 500", harness.Fault{Match: binds, Code: 500, Count: 2}, false},
		{"bind cut before", harness.Fault{Match: binds, Reset: true, Count: 1}, false},
		{"bind cut after", harness.Fault{Match: binds, Reset: true, After: true, Count: 1}, true},
		{"bind slow", harness.Fault{Match: binds, Delay: 1500 * time.Millisecond, Count: 1}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			fault := w.front.Add(&x.fault)
			name := fmt.Sprint("p", i)
			makePod(t, w.cp, sharePod(name, 1024))
			p := waitBound(t, w.cp, name)
			if w.front.Hits(fault) == 0 {
				t.Error("the fault did not happen")
			}
			w.front.Clear()
			if c := p.Condition("PodScheduled"); c.Status != "True" && !x.error {
				t.Errorf("PodScheduled %s %s: %s", c.Status, c.Reason, c.Message)
			}
		})
	}
	books := w.verify()
	if books.Allocated != 12 {
		t.Errorf("%d pods have an allocation", books.Allocated)
	}
}
