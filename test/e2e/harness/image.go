package harness

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// ImageName of the only image there is: busybox, which also is the pods' pause container.
const ImageName = "tessera.test/busybox:1"

// busybox finds a busybox that needs no libraries.
func busybox() (string, error) {
	for _, path := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		f, err := elf.Open(path)
		if err != nil {
			continue
		}
		libraries, err := f.ImportedLibraries()
		f.Close()
		if err == nil && len(libraries) == 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("no static busybox (package busybox-static)")
}

type tarFile struct {
	name, link string
	mode       int64
	kind       byte
	data       []byte
}

func tarOf(files []tarFile) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Linkname: f.link, Mode: f.mode, Typeflag: f.kind,
			Size: int64(len(f.data))}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// rootfs has busybox under the names that the tests use.
func rootfs() ([]byte, error) {
	path, err := busybox()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := []tarFile{{name: "bin/", mode: 0o755, kind: tar.TypeDir},
		{name: "tmp/", mode: 0o1777, kind: tar.TypeDir},
		{name: "bin/busybox", mode: 0o755, kind: tar.TypeReg, data: data}}
	for _, name := range []string{"sh", "cat", "cp", "env", "sleep", "ls", "kill", "true", "touch"} {
		files = append(files, tarFile{name: "bin/" + name, link: "busybox", mode: 0o777,
			kind: tar.TypeSymlink})
	}
	return tarOf(files)
}

// WriteImage writes an archive of the OCI image layout with the one image.
func WriteImage(path string) error {
	layer, err := rootfs()
	if err != nil {
		return err
	}
	files := []tarFile{{name: "blobs/", mode: 0o755, kind: tar.TypeDir},
		{name: "blobs/sha256/", mode: 0o755, kind: tar.TypeDir}}
	blob := func(mediaType string, data []byte) map[string]any {
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		files = append(files, tarFile{name: "blobs/sha256/" + sum, mode: 0o644, kind: tar.TypeReg, data: data})
		return map[string]any{"mediaType": mediaType, "digest": "sha256:" + sum, "size": len(data)}
	}
	object := func(v any) []byte {
		data, e := json.Marshal(v)
		if e != nil {
			err = e
		}
		return data
	}
	const oci = "application/vnd.oci.image."
	layerAt := blob(oci+"layer.v1.tar", layer)
	config := blob(oci+"config.v1+json", object(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"/bin/sleep", "1000000"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layerAt["digest"]}},
	}))
	manifest := blob(oci+"manifest.v1+json", object(map[string]any{
		"schemaVersion": 2, "mediaType": oci + "manifest.v1+json", "config": config, "layers": []any{layerAt},
	}))
	manifest["annotations"] = map[string]string{"io.containerd.image.name": ImageName}
	files = append(files,
		tarFile{name: "oci-layout", mode: 0o644, kind: tar.TypeReg, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		tarFile{name: "index.json", mode: 0o644, kind: tar.TypeReg, data: object(map[string]any{
			"schemaVersion": 2, "manifests": []any{manifest}})})
	archive, e := tarOf(files)
	if err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, archive, 0o600)
}
