package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// CRI speaks to containerd through build/e2e/cri (test/e2e/runtime), one JSON object a line.
type CRI struct {
	mu      sync.Mutex
	in      io.WriteCloser
	next    int
	waiting map[int]chan criAnswer
	ended   bool
}

type criAnswer struct {
	ID       int             `json:"id"`
	Response json.RawMessage `json:"response"`
	Error    string          `json:"error"`
}

func newCRI(in io.WriteCloser, out io.Reader) *CRI {
	c := &CRI{in: in, waiting: map[int]chan criAnswer{}}
	go c.read(out)
	return c
}

func (c *CRI) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var a criAnswer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			continue
		}
		c.mu.Lock()
		ch := c.waiting[a.ID]
		delete(c.waiting, a.ID)
		c.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for id, ch := range c.waiting {
		ch <- criAnswer{ID: id, Error: "the CRI client has ended"}
	}
}

func (c *CRI) send(method string, request any) (chan criAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, errors.New("the CRI client has ended")
	}
	c.next++
	line, err := json.Marshal(map[string]any{"id": c.next, "method": method, "request": request})
	if err != nil {
		return nil, err
	}
	ch := make(chan criAnswer, 1)
	c.waiting[c.next] = ch
	_, err = c.in.Write(append(line, '\n'))
	return ch, err
}

// Call does one call of CRI, or "import"; ret may be nil. Safe for several callers at once.
func (c *CRI) Call(method string, request, ret any) error {
	ch, err := c.send(method, request)
	if err != nil {
		return err
	}
	a := <-ch
	if a.Error != "" {
		return fmt.Errorf("%s: %s", method, a.Error)
	}
	if ret == nil {
		return nil
	}
	return json.Unmarshal(a.Response, ret)
}
