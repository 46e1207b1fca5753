package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tessera.dev/e2e/harness"
)

// kustomized renders deploy/ with fresh certificates; dir gets a copy of it.
func kustomized(t *testing.T) (objects []harness.Object, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(harness.BuildDir(), "e2e", "render")); err != nil {
		t.Skip("kustomize is not built:", err)
	}
	dir = t.TempDir()
	objects, err := harness.Kustomized(dir)
	must(t, err)
	return objects, dir
}

// Names that kustomize made from contents, as they are in the file.
var generated = regexp.MustCompile(`\b(tessera-tls|tessera-scheduler-tls|tessera-scheduler-config)-[a-z0-9]{10}\b`)

// plain makes objects comparable: generated names, line breaks in base64, and what is there only to
// start the pods anew are taken away.
func plain(t *testing.T, list []harness.Object) map[string]harness.Object {
	t.Helper()
	ret := map[string]harness.Object{}
	for _, o := range list {
		text, err := json.Marshal(o)
		must(t, err)
		var same harness.Object
		must(t, json.Unmarshal(generated.ReplaceAll(text, []byte("$1")), &same))
		for _, secret := range []any{same.At("data")} {
			if m, ok := secret.(map[string]any); ok && same.Kind() == "Secret" {
				for k, v := range m {
					m[k] = strings.ReplaceAll(v.(string), "\n", "")
				}
			}
		}
		if hooks, ok := same["webhooks"].([]any); ok {
			for _, h := range hooks {
				c := harness.Object(h.(map[string]any)).At("clientConfig").(map[string]any)
				c["caBundle"] = strings.ReplaceAll(c["caBundle"].(string), "\n", "")
			}
		}
		if m, ok := same.At("spec", "template", "metadata").(map[string]any); ok {
			delete(m, "annotations")
		}
		if ret[same.ID()] != nil {
			t.Errorf("%s is there twice", same.ID())
		}
		ret[same.ID()] = same
	}
	return ret
}

func keys(m map[string]harness.Object) []string {
	var ret []string
	for k := range m {
		ret = append(ret, k)
	}
	slices.Sort(ret)
	return ret
}

// The chart with its default values is, object by object, what kustomize makes.
func TestChartEqualsKustomization(t *testing.T) {
	list, dir := kustomized(t)
	tls, err := harness.ChartTLS(filepath.Join(dir, "tls"))
	must(t, err)
	charted, err := harness.Charted(t.TempDir(), "kube-system", map[string]any{"tls": tls})
	must(t, err)
	want, have := plain(t, list), plain(t, charted)
	if len(want) < 15 || !slices.Equal(keys(want), keys(have)) {
		t.Fatalf("kustomize makes %q, the chart %q", keys(want), keys(have))
	}
	for id, o := range want {
		if o.Kind() == "ConfigMap" { // a block of text: the chart's own comments may not differ either
			const file = "scheduler-config.yaml"
			if a, b := o.At("data", file), have[id].At("data", file); a != b {
				t.Errorf("%s: kustomize %s\nchart %s", id, a, b)
			}
		}
		if !reflect.DeepEqual(o, have[id]) {
			a, _ := json.MarshalIndent(o, "", " ")
			b, _ := json.MarshalIndent(have[id], "", " ")
			t.Errorf("%s differs: kustomize %s\nchart %s", id, a, b)
		}
	}
	t.Logf("%d objects", len(want))
}

// Another namespace, and every switch the other way: accepted by the API server, and nothing is left
// that speaks of the default.
func TestChartValues(t *testing.T) {
	_, dir := kustomized(t)
	cp := control(t)
	tls, err := harness.ChartTLS(filepath.Join(dir, "tls"))
	must(t, err)
	values := map[string]any{"tls": tls, "replicas": 3,
		"extender": map[string]any{"prefix": "example.com/c.", "args": []string{"--policy=fgd"},
			"image": map[string]any{"registry": "images.example/team", "tag": "7"}},
		"scheduler":     map[string]any{"enabled": false},
		"enforcer":      map[string]any{"runtimeClassName": "", "nodeSelector": map[string]any{"gpus": "yes"}},
		"webhooks":      map[string]any{"failurePolicy": "Ignore", "excludedNamespaces": []string{"infra"}},
		"networkPolicy": map[string]any{"enabled": false}, "nodeSelector": map[string]any{"pool": "system"}}
	list, err := harness.Charted(t.TempDir(), "gpu", values)
	must(t, err)
	all := plain(t, list)
	text, err := json.Marshal(list)
	must(t, err)
	for _, no := range []string{"nvidia.com/container.", "kube-scheduler", "tessera-scheduler-config",
		"system:serviceaccount:kube-system", "tessera-extender.kube-system"} {
		if strings.Contains(string(text), no) {
			t.Errorf("%q is still there", no)
		}
	}
	d, err := json.Marshal(all["Deployment/gpu/tessera"])
	must(t, err)
	for _, yes := range []string{`"replicas":3`, `"images.example/team/tessera-extender:7"`, `"--policy=fgd"`,
		`"--prefix=example.com/c."`, `"nodeSelector":{"pool":"system"}`} {
		if !strings.Contains(string(d), yes) {
			t.Errorf("no %s in %s", yes, d)
		}
	}
	hooks, err := json.Marshal(all["MutatingWebhookConfiguration//tessera"])
	must(t, err)
	for _, yes := range []string{`"Ignore"`, `["kube-system","gpu","infra"]`, `startsWith('example.com/c.')`} {
		if !strings.Contains(strings.ReplaceAll(string(hooks), `\u0027`, "'"), yes) {
			t.Errorf("no %s in %s", yes, hooks)
		}
	}
	accepted(t, cp, list, "gpu")
	if _, err := harness.Charted(t.TempDir(), "gpu", map[string]any{}); err == nil ||
		!strings.Contains(err.Error(), "tls.") {
		t.Errorf("without certificates: %v", err)
	}
}

// accepted creates every object as a test, field by field.
func accepted(t *testing.T, cp *harness.ControlPlane, list []harness.Object, namespace string) {
	t.Helper()
	if namespace != "kube-system" {
		err := cp.Admin.Post("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": namespace}}, nil)
		if err != nil && harness.Code(err) != 409 {
			t.Fatal(err)
		}
	}
	for _, o := range list {
		m, err := o.Manifest()
		must(t, err)
		if err := cp.Admin.Create(m, true); err != nil && harness.Code(err) != 409 {
			t.Error(err)
		}
	}
}
