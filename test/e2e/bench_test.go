//go:build bench

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tessera.dev/e2e/harness"
)

// Figures, not expectations: bench/scheduler.sh runs these and says where a target was missed.

// number is a setting of the environment.
func number(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return def
}

// cpu is what the process has used so far, in seconds; pid 0 is this one.
func cpu(pid int) float64 {
	path := "/proc/self/stat"
	if pid != 0 {
		path = fmt.Sprintf("/proc/%d/stat", pid)
	}
	text, _ := os.ReadFile(path)
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100
}

// memory of a process: its largest resident set so far, and that of now, in MB.
func memory(pid int) (peak, now float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for _, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "VmHWM:" || f[0] == "VmRSS:") {
			kib, _ := strconv.ParseFloat(f[1], 64)
			if f[0] == "VmHWM:" {
				peak = kib * 1024 / 1e6
			} else {
				now = kib * 1024 / 1e6
			}
		}
	}
	return
}

// echo is an extender in Go that lets everything pass, scores nothing and binds without a thought.
func echo(client *harness.Client) http.Handler {
	type args struct {
		Pod       json.RawMessage
		NodeNames []string
	}
	reply := func(w http.ResponseWriter, v any) {
		text, _ := json.Marshal(v)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/filter", func(w http.ResponseWriter, r *http.Request) {
		var a args
		_ = json.NewDecoder(r.Body).Decode(&a)
		reply(w, map[string]any{"NodeNames": a.NodeNames, "FailedNodes": map[string]string{}, "Error": ""})
	})
	mux.HandleFunc("/v1/prioritize", func(w http.ResponseWriter, r *http.Request) {
		var a args
		_ = json.NewDecoder(r.Body).Decode(&a)
		scores := make([]hostPriority, len(a.NodeNames))
		for i, n := range a.NodeNames {
			scores[i].Host = n
		}
		reply(w, scores)
	})
	mux.HandleFunc("/v1/bind", bindAnything(client))
	return mux
}

func bindAnything(client *harness.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var a struct{ PodName, PodNamespace, PodUID, Node string }
		_ = json.NewDecoder(r.Body).Decode(&a)
		b := binding(a.PodName, a.Node)
		b["metadata"] = map[string]any{"name": a.PodName, "uid": a.PodUID}
		reply := map[string]string{"Error": ""}
		if err := client.Post("/api/v1/namespaces/"+a.PodNamespace+"/pods/"+a.PodName+"/binding", b, nil); err != nil {
			reply["Error"] = err.Error()
		}
		text, _ := json.Marshal(reply)
		_, _ = w.Write(text)
	}
}

// mirror sends the names back as they came, without reading them, and no scores: what is left of the
// throughput is the scheduler's own limit with an extender of these verbs, whoever answers.
func mirror(client *harness.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/filter", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		names := []byte("[]")
		if _, rest, found := bytes.Cut(body, []byte(`"NodeNames":[`)); found {
			names = append([]byte("["), rest[:bytes.IndexByte(rest, ']')+1]...)
		}
		text := append(append([]byte(`{"NodeNames":`), names...), '}')
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text)
	})
	mux.HandleFunc("/v1/prioritize", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte("[]"))
	})
	mux.HandleFunc("/v1/bind", bindAnything(client))
	return mux
}

// bindRate runs a scheduler over pods that are there already and returns pods/s between the first bind
// and the last, and the CPU that each process took meanwhile.
func bindRate(t *testing.T, cp *harness.ControlPlane, count int, cfg harness.SchedulerConfig, pids map[string]int) float64 {
	t.Helper()
	errs := make(chan error, 8)
	for k := range 8 {
		go func() {
			var err error
			for i := k; i < count && err == nil; i += 8 {
				_, err = cp.Admin.CreatePod(sharePod(fmt.Sprintf("p%05d", i), 1024))
			}
			errs <- err
		}()
	}
	for range 8 {
		must(t, <-errs)
	}
	var list harness.List[harness.Pod]
	must(t, cp.Admin.Get("/api/v1/namespaces/default/pods?limit=1", &list))
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Second)
	defer cancel()
	var first, last time.Time
	bound := map[string]bool{}
	done := make(chan error, 1)
	before := map[string]float64{}
	go func() {
		done <- cp.Admin.Watch(ctx, "/api/v1/namespaces/default/pods?watch=1&resourceVersion="+
			list.Metadata.ResourceVersion, func(e harness.Event) error {
			var p harness.Pod
			if err := json.Unmarshal(e.Object, &p); err != nil || p.Spec.NodeName == "" || bound[p.Metadata.Name] {
				return err
			}
			last = time.Now()
			if len(bound) == 0 {
				first = last
				for name, pid := range pids {
					before[name] = cpu(pid)
				}
			}
			if bound[p.Metadata.Name] = true; len(bound) == count {
				return io.EOF
			}
			return nil
		})
	}()
	s, err := cp.StartScheduler(cfg)
	must(t, err)
	defer s.Stop()
	if err := <-done; len(bound) < 2 {
		t.Fatalf("%d pods bound: %v", len(bound), err)
	}
	took := last.Sub(first).Seconds()
	line := fmt.Sprintf("scheduler %.0f %%", 100*cpu(s.Pid())/took)
	for name, pid := range pids {
		line += fmt.Sprintf(", %s %.0f %%", name, 100*(cpu(pid)-before[name])/took)
	}
	rate := float64(len(bound)-1) / took
	t.Logf("%d of %d pods bound in %.2f s: %.1f pods/s; CPU of one core: %s", len(bound), count, took, rate, line)
	return rate
}

// TestBenchScheduler (case 47e) compares a scheduler without an extender, with ours and with
// the two Go ones.
func TestBenchScheduler(t *testing.T) {
	nodes := number("BENCH_NODES", 1000)
	pods := number("BENCH_PODS", 1000)
	rates := map[string][]float64{}
	cp := control(t)
	for i := range nodes {
		must(t, cp.Admin.CreateNode(harness.NewNode(fmt.Sprintf("gpu-node-%04d.cluster.example.internal", i), 8, 81920)))
	}
	wipe := func() {
		var list harness.List[harness.Pod]
		must(t, cp.Admin.Get("/api/v1/namespaces/default/pods", &list))
		for _, p := range list.Items {
			must(t, cp.Admin.RemovePod(&p))
		}
	}
	kubeconfig := t.TempDir() + "/kubeconfig"
	must(t, harness.WriteKubeconfig(kubeconfig, cp.Base, cp.CAFile, harness.AdminToken, ""))
	for round := range number("BENCH_ROUNDS", 2) {
		pids := cp.Pids()
		rates["none"] = append(rates["none"], bindRate(t, cp, pods, harness.SchedulerConfig{}, pids))
		wipe()
		e, err := harness.StartExtender(cp.Dir, fmt.Sprint("bench-extender-", round), "--kubeconfig="+kubeconfig, "--leader-elect=no")
		must(t, err)
		must(t, e.WaitReady(60*time.Second))
		pids["extender"] = e.Pid()
		rates["tessera"] = append(rates["tessera"], bindRate(t, cp, pods, harness.SchedulerConfig{Extender: e.URL + "/v1"}, pids))
		e.Stop()
		wipe()
		delete(pids, "extender")
		for _, other := range []struct {
			name    string
			handler http.Handler
			pods    int
		}{
			{"mirror", mirror(cp.Admin), pods},
			{"echo", echo(cp.Admin), number("BENCH_ECHO_PODS", pods)},
		} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			server := &http.Server{Handler: other.handler}
			go func() { _ = server.Serve(l) }()
			mine := maps.Clone(pids)
			mine["Go "+other.name] = 0
			rates[other.name] = append(rates[other.name], bindRate(t, cp, other.pods,
				harness.SchedulerConfig{Extender: "http://" + l.Addr().String() + "/v1"}, mine))
			_ = server.Close()
			wipe()
		}
	}
	best := func(name string) float64 {
		m := 0.0
		for _, r := range rates[name] {
			m = max(m, r)
		}
		return m
	}
	ours := best("tessera")
	fmt.Printf("BENCH scheduler nodes=%d none=%.1f mirror=%.1f tessera=%.1f echo=%.1f pods/s, "+
		"tessera/none=%.2f tessera/mirror=%.2f tessera/echo=%.1f\n", nodes, best("none"), best("mirror"), ours,
		best("echo"), ours/best("none"), ours/best("mirror"), ours/best("echo"))
}

// TestBenchBindDelay: from the arrival of a bind to its POST. The API server takes its time, so that
// 300 binds are in flight while new ones come.
func TestBenchBindDelay(t *testing.T) {
	const count, inFlight, takes = 1500, 300, 1500 * time.Millisecond
	harness.ProxyHTTP2 = true
	defer func() { harness.ProxyHTTP2 = false }()
	w := newWorld(t, setup{nodes: gpuNodes(100, 8, 81920), proxied: true, args: []string{"--leader-elect=no"}})
	w.api.Add(&harness.Fault{Match: harness.Binds, Delay: takes})
	// Other work on the machine is not what is measured.
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", w.exts[0].Pid()))
	must(t, err)
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, -15)
		}
	}
	url := w.exts[0].URL + "/v1/"
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * inFlight}}
	post := func(verb string, body any) string {
		text, _ := json.Marshal(body)
		resp, err := client.Post(url+verb, harness.JSON, bytes.NewReader(text))
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		reply, _ := io.ReadAll(resp.Body)
		return string(reply)
	}
	pods := make([]*harness.Pod, count)
	for i := range pods {
		pods[i] = w.make(unscheduled(fmt.Sprintf("p%04d", i), 256))
		post("filter", map[string]any{"Pod": pods[i], "NodeNames": []string{fmt.Sprintf("gpu-%02d", i%100)}})
	}
	var wg sync.WaitGroup
	var failed, flying, most atomic.Int64
	tick := time.NewTicker(takes / inFlight)
	defer tick.Stop()
	for i, p := range pods {
		<-tick.C
		wg.Add(1)
		go func() {
			defer wg.Done()
			if n := flying.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer flying.Add(-1)
			if reply := post("bind", map[string]string{"PodName": p.Metadata.Name, "PodNamespace": "default",
				"PodUID": p.Metadata.UID, "Node": fmt.Sprintf("gpu-%02d", i%100)}); !strings.Contains(reply, `"Error":""`) {
				if failed.Add(1) == 1 {
					t.Logf("e.g. %s", reply)
				}
			}
		}()
	}
	wg.Wait()
	resp, err := http.Get(w.exts[0].URL + "/metrics")
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	posts, err := w.exts[0].Metric("tessera_bind_post_delay_seconds_count")
	must(t, err)
	p99 := "+Inf"
	for _, line := range strings.Split(string(text), "\n") {
		var le string
		var n float64
		if rest, ok := strings.CutPrefix(line, `tessera_bind_post_delay_seconds_bucket{le="`); ok {
			le, rest, _ = strings.Cut(rest, `"} `)
			n, _ = strconv.ParseFloat(rest, 64)
			t.Logf("<= %s s: %.0f of %.0f", le, n, posts)
			if n >= 0.99*posts && p99 == "+Inf" {
				p99 = le
			}
		}
	}
	longest, err := w.exts[0].Metric("tessera_bind_post_delay_max_seconds")
	must(t, err)
	fmt.Printf("BENCH bind-delay in_flight=%d binds=%.0f failed=%d p99<=%s s max=%.6f s\n", most.Load(), posts,
		failed.Load(), p99, longest)
}

// bigCluster is an API server that has nothing but these lists, and watches in which nothing happens
// until they are expired.
type bigCluster struct {
	nodes, pods int
	mu          sync.Mutex
	expired     chan struct{}
	lists       atomic.Int64
}

func (b *bigCluster) item(kind string, i int) string {
	pad := strings.Repeat(`{"name":"IMAGE","value":"0123456789abcdef0123456789abcdef"},`, 60)
	if kind == "nodes" {
		n := harness.NewNode(fmt.Sprintf("gpu-node-%04d.cluster.example.internal", i), 8, 81920)
		n.Metadata.UID, n.Metadata.ResourceVersion = fmt.Sprint("node-", i), "7"
		text, _ := json.Marshal(n)
		return strings.TrimSuffix(string(text), "}") + `,"spec":{"podCIDR":"10.0.0.0/24","x":[` + strings.TrimSuffix(pad, ",") + `]}}`
	}
	limits, node := `"cpu":"1","memory":"1Gi"`, fmt.Sprintf("gpu-node-%04d.cluster.example.internal", i%b.nodes)
	if i < 4*b.nodes { // half of the GPUs are held through the device plugin
		limits = `"nvidia.com/gpu":"1"`
	}
	return fmt.Sprintf(`{"metadata":{"name":"pod-%06d","namespace":"default","uid":"uid-%06d","resourceVersion":"7",`+
		`"labels":{"app":"some-deployment","pod-template-hash":"6d4cf56db6"}},"spec":{"nodeName":"%s","containers":[`+
		`{"name":"main","image":"none","env":[%s],"resources":{"limits":{%s},"requests":{%s}}}]},"status":{"phase":"Running"}}`,
		i, i, node, strings.TrimSuffix(pad, ","), limits, limits)
}

func (b *bigCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Content-Type", harness.JSON)
	if harness.IsWatch(r) {
		b.mu.Lock()
		expired := b.expired
		b.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-expired:
			_, _ = io.WriteString(w, expiredEvent)
		case <-r.Context().Done():
		}
		return
	}
	total := map[string]int{"nodes": b.nodes, "pods": b.pods}[kind]
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, err := strconv.Atoi(q.Get("limit"))
	if total == 0 {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		limit = total
	}
	to, next := min(from+limit, total), ""
	if to < total {
		next = strconv.Itoa(to)
	} else {
		b.lists.Add(1)
	}
	fmt.Fprintf(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"100","continue":"%s"},"items":[`, next)
	for i := from; i < to; i++ {
		if i > from {
			_, _ = io.WriteString(w, ",")
		}
		_, _ = io.WriteString(w, b.item(kind, i))
	}
	_, _ = io.WriteString(w, "]}")
}

const expiredEvent = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
	`"message":"too old resource version","reason":"Expired","code":410}}` + "\n"

// TestBenchMemory: the whole extender on a cluster of 5,000 nodes and 150,000 pods.
func TestBenchMemory(t *testing.T) {
	b := &bigCluster{nodes: number("BENCH_NODES", 5000), pods: number("BENCH_PODS", 150000), expired: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{Handler: b}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/ca.crt", nil, 0o600))
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n" +
		"clusters: [{name: a, cluster: {server: \"http://" + l.Addr().String() + "\"}}]\nusers: [{name: a, user: {token: x}}]\n"
	must(t, os.WriteFile(dir+"/kubeconfig", []byte(kubeconfig), 0o600))
	e, err := harness.StartExtender(dir, "extender", "--kubeconfig="+dir+"/kubeconfig", "--leader-elect=no", "--node-totals=no")
	must(t, err)
	defer e.Kill()
	start := time.Now()
	must(t, e.WaitReady(300*time.Second))
	peak, now := memory(e.Pid())
	first := cpu(e.Pid())
	t.Logf("ready after %.1f s, %.2f s of CPU; %.0f MB, at most %.0f MB", time.Since(start).Seconds(), first, now, peak)
	lists := b.lists.Load()
	b.mu.Lock()
	close(b.expired)
	b.expired = make(chan struct{})
	b.mu.Unlock()
	must(t, harness.Poll(300*time.Second, 100*time.Millisecond, func() error {
		synced, err := e.Metric("tessera_watch_synced")
		if err == nil && (b.lists.Load() < lists+2 || synced < 2) {
			err = fmt.Errorf("%d lists", b.lists.Load()-lists)
		}
		return err
	}))
	resync := cpu(e.Pid()) - first
	peak, now = memory(e.Pid())
	held, err := e.Metric("tessera_pods")
	must(t, err)
	fmt.Printf("BENCH memory nodes=%d pods=%d holding=%.0f first=%.2f s CPU resync=%.2f s CPU rss=%.0f MB peak=%.0f MB\n",
		b.nodes, b.pods, held, first, resync, now, peak)
}
