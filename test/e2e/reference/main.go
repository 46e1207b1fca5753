// Command reference is a plain extender that keeps to the contract by the simplest means: it counts
// everything anew for each question. The scenarios are tried with it (E2E_EXTENDER=...), so that a
// test that fails with the real one can be believed. It has no fragmentation measure, no admission,
// and picks no victims of its own.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"sync"
	"time"

	"tessera.dev/e2e/harness"
)

type server struct {
	base      *harness.Client
	tokenFile string
	identity  string

	mu       sync.Mutex
	nodes    map[string]*harness.Node
	pods     map[string]*harness.Pod // by UID
	reserved map[string]*harness.Pod // bound soon, or perhaps already
	synced   [2]bool
	leads    bool
	until    time.Time                // of the lease
	denied   time.Time                // last 401
	changed  chan struct{}            // closed and replaced when anything changes
	refused  map[string]chan struct{} // by UID: what changed was when it was refused everywhere
}

func (s *server) client() *harness.Client {
	token, _ := os.ReadFile(s.tokenFile)
	return s.base.WithToken(string(token))
}

func kubeconfig(path string) (*server, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	field := func(name string) string {
		m := regexp.MustCompile(`(?m)^ *` + name + `: (\S+)$`).FindSubmatch(text)
		if m == nil {
			return ""
		}
		return string(m[1])
	}
	client, err := harness.NewClient(field("server"), "", field("certificate-authority"))
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	return &server{base: client, tokenFile: field("tokenFile"), nodes: map[string]*harness.Node{},
		pods: map[string]*harness.Pod{}, reserved: map[string]*harness.Pod{},
		changed: make(chan struct{}), refused: map[string]chan struct{}{},
		identity: fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())}, nil
}

func (s *server) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced[0] && s.synced[1] && s.leads && time.Now().Before(s.until) &&
		time.Since(s.denied) > 3*time.Second
}

func main() {
	config := flag.String("kubeconfig", "", "`FILE` with server, CA and tokenFile")
	listen := flag.String("listen", "127.0.0.1:0", "`ADDR:PORT` to serve HTTP at")
	flag.Usage = func() {
		fmt.Println("usage: reference --kubeconfig FILE --listen ADDR:PORT")
		flag.PrintDefaults()
		os.Exit(0)
	}
	flag.Parse()
	s, err := kubeconfig(*config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	go s.follow(0, "/api/v1/nodes")
	go s.follow(1, "/api/v1/pods")
	go s.lead()
	http.HandleFunc("/v1/filter", serve(s.filter))
	http.HandleFunc("/v1/prioritize", serve(s.prioritize))
	http.HandleFunc("/v1/bind", serve(s.bind))
	http.HandleFunc("/v1/preempt", serve(s.preempt))
	http.HandleFunc("/api/v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.view())
	})
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready() {
			w.WriteHeader(503)
		}
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(*listen, nil))
	os.Exit(1)
}

// serve decodes the arguments and encodes what f answers.
func serve[A any](f func(*A) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var args A
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text, err := json.Marshal(f(&args))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", harness.JSON)
		_, _ = w.Write(text)
	}
}

// ---- the API server ----

// follow lists and watches one kind; after any break it lists again.
func (s *server) follow(kind int, path string) {
	for {
		version, err := s.list(kind, path)
		if err == nil {
			ctx, cancel := harness.Timeout(time.Minute)
			err = s.client().Watch(ctx, path+"?watch=true&resourceVersion="+version, func(e harness.Event) error {
				if e.Type == "ERROR" {
					return fmt.Errorf("%s", e.Object)
				}
				return s.event(kind, e)
			})
			cancel()
		}
		s.noteDenied(err)
		time.Sleep(50 * time.Millisecond)
	}
}

// noteDenied makes the replica not ready for a while when its token is refused.
func (s *server) noteDenied(err error) {
	if harness.Code(err) == 401 {
		fmt.Fprintln(os.Stderr, "401 from the API server")
		s.mu.Lock()
		s.denied = time.Now()
		s.mu.Unlock()
	}
}

func (s *server) list(kind int, path string) (string, error) {
	var nodes harness.List[harness.Node]
	var pods harness.List[harness.Pod]
	var err error
	if kind == 0 {
		err = s.client().Get(path, &nodes)
	} else {
		err = s.client().Get(path, &pods)
	}
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced[kind] = true
	if kind == 0 {
		s.nodes = map[string]*harness.Node{}
		for i := range nodes.Items {
			s.nodes[nodes.Items[i].Metadata.Name] = &nodes.Items[i]
		}
		return nodes.Metadata.ResourceVersion, nil
	}
	s.pods = map[string]*harness.Pod{}
	for i := range pods.Items {
		s.podSeen(&pods.Items[i])
	}
	for uid := range s.reserved {
		if s.pods[uid] == nil {
			delete(s.reserved, uid)
		}
	}
	return pods.Metadata.ResourceVersion, nil
}

// podSeen takes in what the API says; a reservation ends when the pod is bound.
func (s *server) podSeen(p *harness.Pod) {
	s.pods[p.Metadata.UID] = p
	if p.Spec.NodeName != "" {
		delete(s.reserved, p.Metadata.UID)
		s.report(p)
	}
}

func (s *server) event(kind int, e harness.Event) error {
	var n harness.Node
	var p harness.Pod
	var err error
	if kind == 0 {
		err = json.Unmarshal(e.Object, &n)
	} else {
		err = json.Unmarshal(e.Object, &p)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
	switch {
	case kind == 0 && e.Type == "DELETED":
		delete(s.nodes, n.Metadata.Name)
	case kind == 0:
		s.nodes[n.Metadata.Name] = &n
	case e.Type == "DELETED":
		delete(s.refused, p.Metadata.UID)
		delete(s.pods, p.Metadata.UID)
		delete(s.reserved, p.Metadata.UID)
	default:
		s.podSeen(&p)
	}
	return nil
}

// report tells about a bound pod whose allocation cannot be read.
func (s *server) report(p *harness.Pod) {
	if fault := tampered(p); fault != "" && !p.Finished() {
		go func() {
			_ = s.client().Post("/api/v1/namespaces/"+p.Metadata.Namespace+"/events", map[string]any{
				"metadata": map[string]any{"generateName": p.Metadata.Name + "."}, "type": "Warning",
				"reason": "AllocationUnreadable", "message": fault, "involvedObject": map[string]any{
					"kind": "Pod", "apiVersion": "v1", "namespace": p.Metadata.Namespace,
					"name": p.Metadata.Name, "uid": p.Metadata.UID}}, nil)
		}()
	}
}

// ---- leadership ----

const (
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	leaseTime = 4 * time.Second
)

type lease struct {
	Metadata harness.Meta `json:"metadata"`
	Spec     struct {
		HolderIdentity       string `json:"holderIdentity,omitempty"`
		LeaseDurationSeconds int    `json:"leaseDurationSeconds,omitempty"`
		RenewTime            string `json:"renewTime,omitempty"`
	} `json:"spec"`
}

// lead takes and renews the lease. Another holder counts as gone when it was not seen to renew for
// the time of a lease by our own clock.
func (s *server) lead() {
	seen, seenAt := "", time.Now()
	for {
		start := time.Now()
		var l lease
		c := s.client()
		err := c.Get(leasePath+"/tessera-extender", &l)
		s.noteDenied(err)
		if state := l.Spec.HolderIdentity + l.Spec.RenewTime; err == nil && state != seen {
			seen, seenAt = state, start
		}
		free := l.Spec.HolderIdentity == s.identity || start.Sub(seenAt) > leaseTime
		if err == nil && free || harness.Code(err) == 404 {
			missing := err != nil
			l.Metadata.Name = "tessera-extender"
			l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = s.identity, int(leaseTime/time.Second)
			l.Spec.RenewTime = start.UTC().Format("2006-01-02T15:04:05.000000Z")
			if missing {
				err = c.Post(leasePath, &l, nil)
			} else {
				err = c.Do("PUT", leasePath+"/tessera-extender", harness.JSON, &l, nil)
			}
			s.mu.Lock()
			if err == nil {
				won := !s.leads || time.Now().After(s.until)
				if won { // what another leader did must be seen before the first answer
					s.synced = [2]bool{}
				}
				s.leads, s.until = true, start.Add(leaseTime-time.Second)
				s.mu.Unlock()
				if won {
					_, _ = s.list(0, "/api/v1/nodes")
					_, _ = s.list(1, "/api/v1/pods")
				}
				s.mu.Lock()
			}
			s.mu.Unlock()
		} else if err == nil {
			s.mu.Lock()
			s.leads = false
			s.mu.Unlock()
		}
		time.Sleep(500 * time.Millisecond)
	}
}
