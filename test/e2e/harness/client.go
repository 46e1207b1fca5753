package harness

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Content types of request bodies.
const (
	JSON       = "application/json"
	YAML       = "application/yaml"
	MergePatch = "application/merge-patch+json"
	JSONPatch  = "application/json-patch+json"
)

// Client talks to an API server with a bearer token.
type Client struct {
	Base  string // https://127.0.0.1:PORT
	Token string
	HTTP  *http.Client
}

// StatusError is an answer that is not 2xx.
type StatusError struct {
	Code    int
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Code, e.Message) }

// Code returns the HTTP code of an error of this package, or 0.
func Code(err error) int {
	var s *StatusError
	if errors.As(err, &s) {
		return s.Code
	}
	return 0
}

// NewClient trusts the certificates in caFile.
func NewClient(base, token, caFile string) (*Client, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate", caFile)
	}
	tr := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 64,
	}
	return &Client{Base: base, Token: token, HTTP: &http.Client{Transport: tr}}, nil
}

// WithToken is the same client as another user.
func (c *Client) WithToken(token string) *Client {
	return &Client{Base: c.Base, Token: token, HTTP: c.HTTP}
}

func (c *Client) request(ctx context.Context, method, path, contentType string, body any) (*http.Response, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		r = bytes.NewReader(b)
	case string:
		r = bytes.NewReader([]byte(b))
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", JSON)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		e := &StatusError{Code: resp.StatusCode}
		if json.Unmarshal(text, e) != nil || e.Message == "" {
			e.Message = string(text)
		}
		e.Code = resp.StatusCode
		return nil, fmt.Errorf("%s %s: %w", method, path, e)
	}
	return resp, nil
}

// Do sends one request; body is nil, bytes, a string or something to marshal; out may be nil.
func (c *Client) Do(method, path, contentType string, body, out any) error {
	ctx, cancel := Timeout(60 * time.Second)
	defer cancel()
	resp, err := c.request(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// Get reads one object or list.
func (c *Client) Get(path string, out any) error { return c.Do("GET", path, "", nil, out) }

// Post creates an object.
func (c *Client) Post(path string, body, out any) error { return c.Do("POST", path, JSON, body, out) }

// Merge applies a merge patch.
func (c *Client) Merge(path string, patch any) error {
	return c.Do("PATCH", path, MergePatch, patch, nil)
}

// Delete removes an object; grace < 0 leaves the period to the object.
func (c *Client) Delete(path string, grace int) error {
	if grace < 0 {
		return c.Do("DELETE", path, "", nil, nil)
	}
	return c.Do("DELETE", path, JSON, map[string]any{"kind": "DeleteOptions", "apiVersion": "v1",
		"gracePeriodSeconds": grace}, nil)
}

// Event of a watch.
type Event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Watch calls f for each event until the stream ends, ctx is done or f returns an error.
func (c *Client) Watch(ctx context.Context, path string, f func(Event) error) error {
	resp, err := c.request(ctx, "GET", path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	for {
		var e Event
		if err := d.Decode(&e); err != nil {
			return err
		}
		if err := f(e); err != nil {
			return err
		}
	}
}
