package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Manifest is one object of deploy/.
type Manifest struct {
	File, APIVersion, Kind, Name, Namespace, Text string
}

var plurals = map[string]string{
	"ServiceAccount": "serviceaccounts", "ClusterRole": "clusterroles",
	"ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings",
	"Deployment": "deployments", "DaemonSet": "daemonsets", "Service": "services",
	"NetworkPolicy": "networkpolicies", "PodDisruptionBudget": "poddisruptionbudgets",
	"ConfigMap": "configmaps", "Secret": "secrets", "PriorityClass": "priorityclasses",
	"MutatingWebhookConfiguration":     "mutatingwebhookconfigurations",
	"ValidatingWebhookConfiguration":   "validatingwebhookconfigurations",
	"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}

// Manifests reads the objects of a file of deploy/. They are our own: one form is enough.
func Manifests(file string) ([]Manifest, error) {
	text, err := os.ReadFile(filepath.Join(Root(), "deploy", file))
	if err != nil {
		return nil, err
	}
	field := func(doc, pattern string) string {
		m := regexp.MustCompile(`(?m)^` + pattern + `: *(\S+)`).FindStringSubmatch(doc)
		if m == nil {
			return ""
		}
		return m[1]
	}
	var ret []Manifest
	for _, doc := range strings.Split(string(text), "\n---\n") {
		meta := regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n?)*`).FindString(doc)
		m := Manifest{file, field(doc, "apiVersion"), field(doc, "kind"), field(meta, "  name"),
			field(meta, "  namespace"), doc}
		if m.APIVersion == "" || m.Name == "" || plurals[m.Kind] == "" {
			return nil, fmt.Errorf("%s: apiVersion %q, kind %q, name %q", file, m.APIVersion, m.Kind, m.Name)
		}
		ret = append(ret, m)
	}
	return ret, nil
}

// KustomizationFiles lists the resources of deploy/kustomization.yaml.
func KustomizationFiles() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(Root(), "deploy", "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(string(text), "\nresources:\n")
	if !ok {
		return nil, fmt.Errorf("kustomization.yaml: no resources")
	}
	var ret []string
	for _, line := range strings.Split(rest, "\n") {
		name, ok := strings.CutPrefix(line, "- ")
		if !ok {
			break
		}
		ret = append(ret, name)
	}
	return ret, nil
}

// Path of the collection that the object is made in.
func (m Manifest) Path() string {
	base := "/apis/" + m.APIVersion
	if !strings.Contains(m.APIVersion, "/") {
		base = "/api/" + m.APIVersion
	}
	if m.Namespace != "" {
		base += "/namespaces/" + m.Namespace
	}
	return base + "/" + plurals[m.Kind]
}

// Create creates the object; dry: only as a test. Unknown fields are errors.
func (c *Client) Create(m Manifest, dry bool) error {
	path := m.Path() + "?fieldValidation=Strict"
	if dry {
		path += "&dryRun=All"
	}
	if err := c.Do("POST", path, YAML, m.Text, nil); err != nil {
		return fmt.Errorf("%s: %s %s: %w", m.File, m.Kind, m.Name, err)
	}
	return nil
}

// Remove deletes the object.
func (c *Client) Remove(m Manifest) error { return c.Delete(m.Path()+"/"+m.Name, 0) }

// Account is the service account of deploy/ with tokens of its own.
type Account struct {
	client *Client
	path   string
}

// InstallRights creates the service account and what the shipped files allow it, and takes away what
// the other files of deploy/ allow it.
func (c *ControlPlane) InstallRights(files ...string) (*Account, error) {
	all, err := KustomizationFiles()
	if err != nil {
		return nil, err
	}
	for _, file := range all {
		list, err := Manifests(file)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			wanted := slices.Contains(files, file)
			if wanted {
				err = c.Admin.Create(m, false)
			} else if strings.HasSuffix(m.Kind, "RoleBinding") {
				err = c.Admin.Delete(m.Path()+"/"+m.Name, -1)
			}
			if code := Code(err); err != nil && code != 409 && code != 404 {
				return nil, err
			}
		}
	}
	return &Account{client: c.Admin, path: "/api/v1/namespaces/kube-system"}, nil
}

// Token makes a token that ends to be valid when revoke is called; the API server may go on
// accepting it for 10 s, as long as it remembers the last look.
func (a *Account) Token() (token string, revoke func() error, err error) {
	var secret struct {
		Metadata Meta `json:"metadata"`
	}
	err = a.client.Post(a.path+"/secrets", map[string]any{"metadata": map[string]any{
		"generateName": "tessera-token-"}}, &secret)
	if err != nil {
		return "", nil, err
	}
	var ret struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	err = a.client.Post(a.path+"/serviceaccounts/tessera/token", map[string]any{"spec": map[string]any{
		"expirationSeconds": 3600, "boundObjectRef": map[string]any{"kind": "Secret", "apiVersion": "v1",
			"name": secret.Metadata.Name, "uid": secret.Metadata.UID}}}, &ret)
	revoke = func() error { return a.client.Delete(a.path+"/secrets/"+secret.Metadata.Name, 0) }
	return ret.Status.Token, revoke, err
}

// WriteClusterFile writes nodes and pods as `kubectl get nodes,pods -A -o json` would.
func (c *Client) WriteClusterFile(path string) error {
	var items []json.RawMessage
	for _, kind := range []string{"Node", "Pod"} {
		var l List[map[string]any]
		if err := c.Get("/api/v1/"+strings.ToLower(kind)+"s", &l); err != nil {
			return err
		}
		for _, o := range l.Items {
			o["apiVersion"], o["kind"] = "v1", kind
			text, err := json.Marshal(o)
			if err != nil {
				return err
			}
			items = append(items, text)
		}
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
