// The client of the tests: speaks CRI to containerd, and imports an image archive. One JSON object a line
// on standard input, one a line as answer, in any order:
//
//	{"id":1,"method":"RunPodSandbox","request":{...}}     ->  {"id":1,"response":{...}}
//	{"id":2,"method":"import","request":"/a/image.tar"}   ->  {"id":2,"response":["name:tag"]}
//
// An error is {"id":1,"error":"text"}. Requests and responses are the messages of k8s.io/cri-api as JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const patience = 60 * time.Second

type request struct {
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Request json.RawMessage `json:"request"`
}

type answer struct {
	ID       int             `json:"id"`
	Response json.RawMessage `json:"response,omitempty"`
	Error    string          `json:"error,omitempty"`
}

type server struct {
	socket, snapshotter string
	conn                *grpc.ClientConn
}

// method finds one of CRI's methods by its short name; its service goes with it.
func method(name string) (protoreflect.MethodDescriptor, error) {
	services := cri.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		if m := services.Get(i).Methods().ByName(protoreflect.Name(name)); m != nil {
			return m, nil
		}
	}
	return nil, fmt.Errorf("CRI has no method %q", name)
}

func (s *server) call(ctx context.Context, r *request) (json.RawMessage, error) {
	m, err := method(r.Method)
	if err != nil {
		return nil, err
	}
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if len(r.Request) > 0 {
		if err := protojson.Unmarshal(r.Request, in); err != nil {
			return nil, err
		}
	}
	path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	if err := s.conn.Invoke(ctx, path, in, out); err != nil {
		return nil, err
	}
	return protojson.Marshal(out)
}

// load makes an archive's images known to containerd, and unpacks them.
func (s *server) load(ctx context.Context, r *request) (json.RawMessage, error) {
	var path string
	if err := json.Unmarshal(r.Request, &path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := client.New(s.socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx = namespaces.WithNamespace(ctx, "k8s.io")
	images, err := c.Import(ctx, f)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, image := range images {
		if err := client.NewImage(c, image).Unpack(ctx, s.snapshotter); err != nil {
			return nil, err
		}
		names = append(names, image.Name)
	}
	return json.Marshal(names)
}

func (s *server) serve(r *request) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	do := s.call
	if r.Method == "import" {
		do = s.load
	}
	response, err := do(ctx, r)
	if err != nil {
		return answer{ID: r.ID, Error: err.Error()}
	}
	return answer{ID: r.ID, Response: response}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: cri SOCKET SNAPSHOTTER")
	}
	conn, err := grpc.NewClient("unix://"+os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	s := &server{socket: os.Args[1], snapshotter: os.Args[2], conn: conn}
	out := json.NewEncoder(os.Stdout)
	var lock sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		go func() {
			a := s.serve(&r)
			lock.Lock()
			defer lock.Unlock()
			_ = out.Encode(a)
		}()
	}
	return lines.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
}
