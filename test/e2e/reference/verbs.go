package main

import (
	"fmt"
	"time"

	"tessera.dev/e2e/harness"
)

type filterArgs struct {
	Pod       *harness.Pod
	Nodes     *struct{ Items []harness.Node }
	NodeNames []string
}

func (a *filterArgs) names() []string {
	names := a.NodeNames
	if a.Nodes != nil {
		names = nil
		for _, n := range a.Nodes.Items {
			names = append(names, n.Metadata.Name)
		}
	}
	return names
}

// filter answers; a pod that was refused everywhere and is asked about again although nothing has
// changed since: the scheduler has heard of something that is still on its way to us.
func (s *server) filter(a *filterArgs) any {
	s.mu.Lock()
	changed := s.changed
	early := s.refused[a.Pod.Metadata.UID] == changed
	s.mu.Unlock()
	if early {
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		}
	}
	return s.judge(a)
}

func (s *server) judge(a *filterArgs) any {
	names, failed, never := []string{}, map[string]string{}, map[string]string{}
	items, err := asks(a.Pod)
	if err == nil && !s.ready() {
		return map[string]any{"Error": "this replica does not lead"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range a.names() {
		if err != nil {
			never[name] = err.Error()
			continue
		}
		_, why := s.choose(name, a.Pod.Metadata.UID, items)
		if why == "" {
			names = append(names, name)
		} else {
			failed[name] = why
		}
	}
	delete(s.refused, a.Pod.Metadata.UID)
	if len(names) == 0 {
		s.refused[a.Pod.Metadata.UID] = s.changed
	}
	reply := map[string]any{"NodeNames": names, "FailedNodes": failed, "FailedAndUnresolvableNodes": never}
	if a.Nodes != nil {
		nodes := []harness.Node{}
		for _, n := range a.Nodes.Items {
			if failed[n.Metadata.Name] == "" && never[n.Metadata.Name] == "" {
				nodes = append(nodes, n)
			}
		}
		reply["NodeNames"], reply["Nodes"] = nil, map[string]any{"metadata": map[string]any{}, "items": nodes}
	}
	return reply
}

// prioritize: the first one wins, so that nodes fill up in turn.
func (s *server) prioritize(a *filterArgs) any {
	ret := []map[string]any{}
	names := a.names()
	best := 0
	for i := range names {
		if names[i] < names[best] {
			best = i
		}
	}
	for i, name := range names {
		score := 0
		if i == best {
			score = 10
		}
		ret = append(ret, map[string]any{"Host": name, "Score": score})
	}
	return ret
}

type preemptArgs struct {
	NodeNameToMetaVictims map[string]any
	NodeNameToVictims     map[string]struct {
		Pods             []harness.Pod
		NumPDBViolations int
	}
}

func (s *server) preempt(a *preemptArgs) any {
	if a.NodeNameToMetaVictims != nil {
		return map[string]any{"NodeNameToMetaVictims": a.NodeNameToMetaVictims}
	}
	ret := map[string]any{}
	for node, v := range a.NodeNameToVictims {
		pods := []map[string]string{}
		for _, p := range v.Pods {
			pods = append(pods, map[string]string{"UID": p.Metadata.UID})
		}
		ret[node] = map[string]any{"Pods": pods, "NumPDBViolations": v.NumPDBViolations}
	}
	return map[string]any{"NodeNameToMetaVictims": ret}
}

type bindArgs struct{ PodName, PodNamespace, PodUID, Node string }

func (s *server) bind(a *bindArgs) any {
	if err := s.bindPod(a); err != nil {
		return map[string]string{"Error": err.Error()}
	}
	return map[string]string{"Error": ""}
}

func (s *server) bindPod(a *bindArgs) error {
	deadline := time.Now().Add(4 * time.Second)
	path := "/api/v1/namespaces/" + a.PodNamespace + "/pods/" + a.PodName
	var p harness.Pod
	if err := s.client().Get(path, &p); err != nil {
		return err
	}
	if p.Metadata.UID != a.PodUID || p.Metadata.DeletionTimestamp != "" || p.Finished() {
		return fmt.Errorf("the pod is gone")
	}
	if p.Spec.NodeName != "" {
		return boundHere(&p, a.Node)
	}
	if !s.ready() {
		return fmt.Errorf("this replica does not lead")
	}
	items, err := asks(&p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	annotations, why := s.choose(a.Node, a.PodUID, items)
	if why != "" {
		s.mu.Unlock()
		return fmt.Errorf("%s: %s", a.Node, why)
	}
	size := 0
	held := p
	held.Spec.NodeName = a.Node
	held.Metadata.Annotations = map[string]string{}
	for _, from := range []map[string]string{p.Metadata.Annotations, annotations} {
		for k, v := range from {
			held.Metadata.Annotations[k] = v
			size += len(k) + len(v)
		}
	}
	if size > 262144 {
		s.mu.Unlock()
		return fmt.Errorf("annotations would be %d bytes together", size)
	}
	s.reserved[a.PodUID] = &held
	s.mu.Unlock()
	return s.post(a, path, annotations, deadline)
}

func boundHere(p *harness.Pod, node string) error {
	if p.Spec.NodeName == node && p.Metadata.Annotations[harness.AllocationKey] != "" && tampered(p) == "" {
		return nil
	}
	return fmt.Errorf("the pod is bound to %s", p.Spec.NodeName)
}

// post sends the Binding and finds out what became of it.
func (s *server) post(a *bindArgs, path string, annotations map[string]string, deadline time.Time) error {
	err := s.client().Post(path+"/binding", map[string]any{"apiVersion": "v1", "kind": "Binding",
		"metadata": map[string]any{"name": a.PodName, "uid": a.PodUID, "annotations": annotations},
		"target":   map[string]any{"apiVersion": "v1", "kind": "Node", "name": a.Node}}, nil)
	if err == nil {
		return nil
	}
	for first := true; first || time.Now().Before(deadline); first = false {
		var p harness.Pod
		switch read := s.client().Get(path, &p); {
		case harness.Code(read) == 404 || read == nil && p.Metadata.UID != a.PodUID:
			s.drop(a.PodUID)
			return err
		case read == nil && p.Spec.NodeName != "":
			return boundHere(&p, a.Node)
		case read == nil && harness.Code(err) != 0:
			s.drop(a.PodUID) // the server answered, so no POST is under way
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("outcome unknown: %w", err)
}

func (s *server) drop(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, uid)
}
