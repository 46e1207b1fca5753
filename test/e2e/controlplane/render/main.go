// Command render prints, as a JSON array, the objects that kustomize and Helm make of deploy/. It is
// in the module of the control plane because both share most of what has to be compiled.
//
//	render kustomize DIR
//	render helm DIR NAMESPACE [VALUES.json]
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func kustomize(dir string) ([]json.RawMessage, error) {
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	var ret []json.RawMessage
	for _, r := range m.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			return nil, err
		}
		ret = append(ret, text)
	}
	return ret, nil
}

func helm(dir, namespace, file string) ([]json.RawMessage, error) {
	values := chartutil.Values{}
	c, err := loader.LoadDir(dir)
	if err == nil && file != "" {
		values, err = chartutil.ReadValuesFile(file)
	}
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "tessera",
		Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range files {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var ret []json.RawMessage
	for _, name := range names {
		for _, doc := range strings.Split("\n"+files[name], "\n---\n") {
			text, err := yaml.YAMLToJSONStrict([]byte(doc))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if string(text) != "null" {
				ret = append(ret, text)
			}
		}
	}
	return ret, nil
}

func main() {
	var list []json.RawMessage
	err := fmt.Errorf("usage: render kustomize DIR | render helm DIR NAMESPACE [VALUES]")
	args := append(os.Args[1:], "", "")
	switch {
	case len(os.Args) == 3 && args[0] == "kustomize":
		list, err = kustomize(args[1])
	case len(os.Args) >= 4 && args[0] == "helm":
		list, err = helm(args[1], args[2], args[3])
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(list)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}
