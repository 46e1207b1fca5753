package harness

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Object is any object of the API.
type Object map[string]any

// At follows names and returns what is there, or nil.
func (o Object) At(names ...string) any {
	var v any = map[string]any(o)
	for _, name := range names {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

func (o Object) text(names ...string) string {
	s, _ := o.At(names...).(string)
	return s
}

// Kind and name of the object.
func (o Object) Kind() string { return o.text("kind") }

// Name of the object.
func (o Object) Name() string { return o.text("metadata", "name") }

// ID is what no two objects share.
func (o Object) ID() string {
	return strings.Join([]string{o.Kind(), o.text("metadata", "namespace"), o.Name()}, "/")
}

// Manifest is the object as something to create.
func (o Object) Manifest() (Manifest, error) {
	text, err := json.Marshal(o)
	m := Manifest{"rendered", o.text("apiVersion"), o.Kind(), o.Name(), o.text("metadata", "namespace"),
		string(text)}
	if err == nil && plurals[m.Kind] == "" {
		err = fmt.Errorf("kind %q is not known here", m.Kind)
	}
	return m, err
}

func render(args ...string) ([]Object, error) {
	out, err := exec.Command(filepath.Join(BuildDir(), "e2e", "render"), args...).Output()
	if err != nil {
		if e, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("render %v: %s", args, e.Stderr)
		}
		return nil, err
	}
	var ret []Object
	return ret, json.Unmarshal(out, &ret)
}

// Certificates runs deploy/certificates.sh; the extender is reached on loopback too.
func Certificates(dir string, args ...string) error {
	argv := append(args, dir, "IP:127.0.0.1")
	out, err := exec.Command(filepath.Join(Root(), "deploy", "certificates.sh"), argv...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("certificates.sh: %w: %s", err, out)
	}
	return nil
}

// Base64File is the contents of a file as Kubernetes takes bytes.
func Base64File(path string) (string, error) {
	text, err := os.ReadFile(path)
	return base64.StdEncoding.EncodeToString(text), err
}

// Kustomized is what `kubectl apply -k deploy/` would apply, with certificates made for this.
func Kustomized(dir string) ([]Object, error) {
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(Root(), "deploy"))); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(filepath.Join(dir, "tls")); err != nil {
		return nil, err
	}
	if err := Certificates(filepath.Join(dir, "tls")); err != nil {
		return nil, err
	}
	return render("kustomize", dir)
}

// Charted is what `helm install` would make of the chart with these values.
func Charted(dir, namespace string, values map[string]any) ([]Object, error) {
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "values.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	return render("helm", filepath.Join(Root(), "deploy", "helm", "tessera"), namespace, file)
}

// ChartTLS are the values of the files that certificates.sh wrote.
func ChartTLS(dir string) (map[string]any, error) {
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		return string(text)
	}
	tls := map[string]any{"ca": read("ca.crt"), "crt": read("tls.crt"), "key": read("tls.key"),
		"client": map[string]any{"crt": read("client.crt"), "key": read("client.key")}}
	if tls["ca"] == "" {
		return nil, fmt.Errorf("%s: no certificates", dir)
	}
	return tls, nil
}
