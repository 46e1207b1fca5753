package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Recorder watches all pods and nodes from its start and looks at every revision: node and allocation
// must appear in the same one, and at no moment may a GPU be over-booked.
type Recorder struct {
	client *Client
	opt    CheckOptions
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu      sync.Mutex
	pods    map[string]*Pod // by UID
	nodes   map[string]*Node
	history map[string][]Revision // by UID
	created map[string]*Pod       // first revision, by UID
	faults  []string
	changed chan struct{} // closed and replaced at each event
	gaps    int
}

// Revision is what is kept of one state of a pod.
type Revision struct {
	At         time.Time
	Type       string // ADDED, MODIFIED, DELETED
	Version    string
	Node       string
	Allocation string
	Nominated  string
	Phase      string
}

// NewRecorder starts to watch.
func NewRecorder(client *Client, opt CheckOptions) (*Recorder, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recorder{client: client, opt: opt, cancel: cancel, pods: map[string]*Pod{},
		nodes: map[string]*Node{}, history: map[string][]Revision{}, created: map[string]*Pod{},
		changed: make(chan struct{})}
	podVersion, err := r.listPods()
	if err != nil {
		cancel()
		return nil, err
	}
	nodeVersion, err := r.listNodes()
	if err != nil {
		cancel()
		return nil, err
	}
	r.wait.Add(2)
	go r.follow(ctx, "/api/v1/pods", podVersion, r.listPods, r.podEvent)
	go r.follow(ctx, "/api/v1/nodes", nodeVersion, r.listNodes, r.nodeEvent)
	return r, nil
}

// Stop ends the watches and returns what was found wrong.
func (r *Recorder) Stop() []string {
	r.cancel()
	r.wait.Wait()
	return r.Faults()
}

// Faults found so far.
func (r *Recorder) Faults() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.faults)
}

// Gaps counts how often the watch had to start over with a list: revisions may be missing.
func (r *Recorder) Gaps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaps
}

// History of a pod by UID.
func (r *Recorder) History(uid string) []Revision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.history[uid])
}

// Pods as they are now.
func (r *Recorder) Pods() []Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return values(r.pods)
}

func values[T any](m map[string]*T) []T {
	ret := make([]T, 0, len(m))
	for _, v := range m {
		ret = append(ret, *v)
	}
	return ret
}

// Wait until cond holds for the pods there are; it is asked again after events.
func (r *Recorder) Wait(timeout time.Duration, cond func(pods []Pod) bool) bool {
	deadline := time.After(timeout)
	for {
		r.mu.Lock()
		changed := r.changed
		pods := values(r.pods)
		r.mu.Unlock()
		if cond(pods) {
			return true
		}
		select {
		case <-changed:
			time.Sleep(10 * time.Millisecond) // a burst of events is one question
		case <-deadline:
			return false
		}
	}
}

func (r *Recorder) listPods() (string, error) {
	var l List[Pod]
	if err := r.client.Get("/api/v1/pods", &l); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for i := range l.Items {
		seen[l.Items[i].Metadata.UID] = true
		r.take("ADDED", &l.Items[i])
	}
	for uid, p := range r.pods {
		if !seen[uid] {
			r.take("DELETED", p)
		}
	}
	return l.Metadata.ResourceVersion, nil
}

func (r *Recorder) listNodes() (string, error) {
	var l List[Node]
	if err := r.client.Get("/api/v1/nodes", &l); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes = map[string]*Node{}
	for i := range l.Items {
		r.nodes[l.Items[i].Metadata.Name] = &l.Items[i]
	}
	return l.Metadata.ResourceVersion, nil
}

// follow watches from a version; after a break it goes on from the last one seen, or lists again.
func (r *Recorder) follow(ctx context.Context, path, version string, list func() (string, error),
	event func(Event) (string, error)) {
	defer r.wait.Done()
	for ctx.Err() == nil {
		expired := false
		_ = r.client.Watch(ctx, path+"?watch=true&allowWatchBookmarks=true&resourceVersion="+version,
			func(e Event) error {
				if e.Type == "ERROR" {
					expired = true
					return context.Canceled
				}
				v, err := event(e)
				if err == nil {
					version = v
				}
				return err
			})
		if ctx.Err() != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
		if expired {
			if v, err := list(); err == nil {
				version = v
				r.mu.Lock()
				r.gaps++
				r.mu.Unlock()
			}
		}
	}
}

func (r *Recorder) nodeEvent(e Event) (string, error) {
	var n Node
	if err := json.Unmarshal(e.Object, &n); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Type {
	case "DELETED":
		delete(r.nodes, n.Metadata.Name)
	case "BOOKMARK":
	default:
		r.nodes[n.Metadata.Name] = &n
	}
	return n.Metadata.ResourceVersion, nil
}

func (r *Recorder) podEvent(e Event) (string, error) {
	var p Pod
	if err := json.Unmarshal(e.Object, &p); err != nil {
		return "", err
	}
	if e.Type != "BOOKMARK" {
		r.mu.Lock()
		r.take(e.Type, &p)
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
	}
	return p.Metadata.ResourceVersion, nil
}

// take in one revision; the lock is held.
func (r *Recorder) take(kind string, p *Pod) {
	uid := p.Metadata.UID
	old := r.pods[uid]
	if old != nil && kind == "ADDED" && old.Metadata.ResourceVersion == p.Metadata.ResourceVersion {
		return
	}
	r.history[uid] = append(r.history[uid], Revision{time.Now(), kind, p.Metadata.ResourceVersion,
		p.Spec.NodeName, p.Metadata.Annotations[AllocationKey], p.Status.NominatedNodeName,
		p.Status.Phase})
	if kind == "DELETED" {
		delete(r.pods, uid)
		return
	}
	if old == nil {
		r.created[uid] = p
	}
	r.pods[uid] = p
	if old != nil {
		r.checkStep(old, p)
	}
	if old == nil || old.Spec.NodeName != p.Spec.NodeName ||
		!maps.Equal(old.Metadata.Annotations, p.Metadata.Annotations) {
		r.checkNode(p.Spec.NodeName)
	}
}

func (r *Recorder) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// checkStep compares two revisions of a pod that follow each other.
func (r *Recorder) checkStep(old, p *Pod) {
	was, is := old.Metadata.Annotations[AllocationKey], p.Metadata.Annotations[AllocationKey]
	who := p.Metadata.Key() + " at revision " + p.Metadata.ResourceVersion
	switch {
	case old.Spec.NodeName == "" && p.Spec.NodeName == "":
		if was != is {
			r.fault("%s: allocation %q before the bind", who, is)
		}
	case old.Spec.NodeName == "" && p.Spec.SchedulerName == "tessera" && p.WantsGPU():
		if is == "" || is == was {
			r.fault("%s: bound to %s with no allocation of that moment", who, p.Spec.NodeName)
		}
	}
}

// checkNode recounts one node.
func (r *Recorder) checkNode(name string) {
	n := r.nodes[name]
	if n == nil {
		return
	}
	var pods []Pod
	for _, p := range r.pods {
		if p.Spec.NodeName == name {
			pods = append(pods, *p)
		}
	}
	for _, f := range Check([]Node{*n}, pods, r.opt).Faults {
		if !slices.Contains(r.faults, f) {
			r.faults = append(r.faults, f)
		}
	}
}
