package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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

// podSpec is what a workload makes of its pods.
func podSpec(o harness.Object) harness.Object {
	m, _ := o.At("spec", "template", "spec").(map[string]any)
	return m
}

// parts are the objects of a list.
func parts(o harness.Object, name string) []harness.Object {
	list, _ := o.At(name).([]any)
	var ret []harness.Object
	for _, x := range list {
		ret = append(ret, x.(map[string]any))
	}
	return ret
}

// helps tells whether our program takes these arguments, in that environment, by asking it for help as well.
func helps(program string, env []string, args ...string) error {
	cmd := exec.Command(filepath.Join(harness.BuildDir(), program), append(args, "--help")...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w: %s", program, args, err, out)
	}
	return nil
}

// The programs take all that the manifests and the unit of systemd tell them, by argument and environment.
func TestManifestArguments(t *testing.T) {
	list, _ := kustomized(t)
	uninstall, err := harness.Manifests(filepath.Join("enforcer", "uninstall.yaml"))
	must(t, err)
	for _, m := range uninstall {
		var o harness.Object
		must(t, control(t).Admin.Do("POST", m.Path()+"?dryRun=All", harness.YAML, m.Text, &o))
		list = append(list, o)
	}
	found := map[string]int{}
	for _, o := range list {
		spec := podSpec(o)
		for _, c := range append(parts(spec, "initContainers"), parts(spec, "containers")...) {
			image, _ := c["image"].(string)
			program, _, _ := strings.Cut(image, ":")
			if !strings.HasPrefix(program, "tessera-") {
				continue
			}
			var args, env []string
			for _, a := range c["args"].([]any) {
				args = append(args, a.(string))
			}
			for _, e := range parts(c, "env") {
				name := e["name"].(string)
				env = append(env, name+"=all")
				if !strings.HasPrefix(name, "NVIDIA_") { // theirs are for the runtime
					help, err := exec.Command(filepath.Join(harness.BuildDir(), program), "run", "--help").Output()
					if err != nil || !strings.Contains(string(help), "("+name+")") {
						t.Errorf("%s: %s does not know %s (%v)", o.ID(), program, name, err)
					}
				}
			}
			if err := helps(program, env, args...); err != nil {
				t.Errorf("%s: %v", o.ID(), err)
			}
			if err := helps(program, env, append(args, "--no-such-option")...); err == nil {
				t.Errorf("%s takes everything", program)
			}
			found[program+" "+args[0]]++
		}
	}
	if found["tessera-enforcer run"] != 1 || found["tessera-enforcer uninstall"] != 1 || len(found) != 3 {
		t.Errorf("the manifests run %v", found)
	}
	unit, err := os.ReadFile(filepath.Join(harness.Root(), "deploy", "enforcer", "tessera-enforcer.service"))
	must(t, err)
	line := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/(\S+) ((?:.*\\\n)*.*)$`).FindStringSubmatch(
		string(unit))
	if line == nil {
		t.Fatalf("no command in %s", unit)
	}
	must(t, helps(line[1], nil, strings.Fields(strings.ReplaceAll(line[2], "\\\n", " "))...))
}
