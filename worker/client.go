package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// ErrProtocol: the worker answered with something that the protocol does not know. Asking again will not help.
var ErrProtocol = errors.New("worker protocol violated")

// Times that a client waits for an answer.
const (
	callTime     = 30 * time.Second
	longCallTime = openTime + callTime // bind and shutdown
)

// ClientOptions says whom to call, and as whom.
type ClientOptions struct {
	Socket    string // path of the worker's unix socket
	Secret    string
	Binding   harness.Binding
	LeaseGen  int64           // from 1, fixed for the client's life
	Isolation event.Isolation // as the backend knows it; the worker cannot
}

// Client speaks to one worker for one binding and lease generation. It implements harness.Runtime, and its methods
// return that package's errors, wrapped with the worker's *Error where there is one.
type Client struct {
	o        ClientOptions
	instance string
	http     *http.Client
	life     context.Context // ends with Close
	end      context.CancelFunc
	streams  sync.WaitGroup
}

var _ harness.Runtime = (*Client)(nil)

// Dial connects to a worker and learns its incarnation. It claims nothing: Bind or Attach does.
func Dial(ctx context.Context, o ClientOptions) (*Client, error) {
	if len(o.Socket) > MaxSocketPath {
		return nil, fmt.Errorf("failed to dial worker: socket path has %d bytes, at most %d fit", len(o.Socket), MaxSocketPath)
	}
	if err := (Caller{Binding: o.Binding, LeaseGen: o.LeaseGen}).validate(); err != nil {
		return nil, fmt.Errorf("failed to dial worker: %w", err)
	}
	c := &Client{o: o}
	c.life, c.end = context.WithCancel(context.Background())
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", o.Socket)
			},
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
			MaxIdleConns:           4,
			IdleConnTimeout:        time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r, err := c.Ready(ctx)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	if !slices.Contains(r.ProtocolVersions, ProtocolVersion) {
		_ = c.Close()
		return nil, fmt.Errorf("failed to dial worker: %w: it speaks versions %v", ErrProtocol, r.ProtocolVersions)
	}
	c.instance = r.Instance
	return c, nil
}

// Instance implements harness.Runtime.
func (c *Client) Instance() string { return c.instance }

// Isolation implements harness.Runtime.
func (c *Client) Isolation() event.Isolation { return c.o.Isolation }

// Ready asks the worker what it is and whom it serves. It does not claim the worker.
func (c *Client) Ready(ctx context.Context) (Ready, error) {
	var r Ready
	err := c.call(ctx, callTime, http.MethodGet, "/v1/ready", nil, &r)
	return r, err
}

// Bind makes the worker serve the binding with this lease. It returns when the harness is open, within two minutes.
// It is idempotent for the same construction.
func (c *Client) Bind(ctx context.Context, r BindRequest) error {
	return c.call(ctx, longCallTime, http.MethodPost, "/v1/bind", r, nil)
}

// Attach takes a bound worker over with this lease and tells it where the broker is now. harness.ErrGone when the
// worker was never bound.
func (c *Client) Attach(ctx context.Context, brokerSocket string) error {
	return c.Bind(ctx, BindRequest{BrokerSocket: brokerSocket})
}

// Shutdown ends the worker with everything that it started. It returns when that is done.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.call(ctx, longCallTime, http.MethodPost, "/v1/shutdown", shutdownRequest{}, nil)
}

// EndIdle ends the worker behind a socket, whomever it serves, if nobody has needed it for a time. It returns
// harness.ErrConflict when the worker is not idle. State that the harness keeps in its folder stays.
func EndIdle(ctx context.Context, socket, secret string, idle time.Duration) error {
	o := ClientOptions{Socket: socket, Secret: secret, LeaseGen: 1, Binding: harness.Binding{SessionID: "none", Epoch: 1, SandboxGen: 1}}
	c, err := Dial(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	r, err := c.Ready(ctx)
	if err != nil {
		return err
	}
	if r.Bound != nil { // speak as whoever serves it now; a higher lease meanwhile refuses this
		c.o.Binding, c.o.LeaseGen = r.Bound.Binding, r.Bound.LeaseGen
	}
	return c.call(ctx, longCallTime, http.MethodPost, "/v1/shutdown", shutdownRequest{IfIdleMs: max(1, idle.Milliseconds())}, nil)
}

// StartTurn implements harness.Runtime.
func (c *Client) StartTurn(ctx context.Context, t harness.Turn) error {
	if err := validateTurn(t); err != nil {
		return fmt.Errorf("failed to start run %s: %w", t.RunID, err)
	}
	return c.call(ctx, callTime, http.MethodPost, "/v1/runs", t, nil)
}

// Cancel implements harness.Runtime.
func (c *Client) Cancel(ctx context.Context, runID string, reason event.CancelReason) error {
	return c.call(ctx, callTime, http.MethodPost, runPath(runID, "cancel"), cancelRequest{Reason: string(reason)}, nil)
}

// Ack implements harness.Runtime.
func (c *Client) Ack(ctx context.Context, runID string, seq int64) error {
	return c.call(ctx, callTime, http.MethodPost, runPath(runID, "ack"), ackRequest{Seq: seq}, nil)
}

// Close implements harness.Runtime. Open streams end with harness.ErrUnreachable.
func (c *Client) Close() error {
	c.end()
	c.streams.Wait()
	c.http.CloseIdleConnections()
	return nil
}

func runPath(runID, call string) string { return "/v1/runs/" + url.PathEscape(runID) + "/" + call }

// call makes one call. in and out may be nil.
func (c *Client) call(ctx context.Context, limit time.Duration, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v: %w", limit, harness.ErrUnreachable))
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("failed to call worker %s: %w", path, err)
		}
		body = bytes.NewReader(raw)
	}
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBody+1))
	if err != nil {
		return c.lost(ctx, path, err)
	}
	if len(raw) > maxAnswerBody {
		return fmt.Errorf("failed to call worker %s: %w: the answer is too long", path, ErrProtocol)
	}
	if out != nil {
		if err := decodeStrict(bytes.NewReader(raw), out); err != nil {
			return fmt.Errorf("failed to call worker %s: %w: %w", path, ErrProtocol, err)
		}
	}
	return nil
}

// send sends one call and returns its answer, whose status is 200. The caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	return c.do(req)
}

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://worker"+path, body)
	if err != nil {
		return nil, fmt.Errorf("failed to call worker %s: %w", path, err)
	}
	for k, v := range map[string]string{
		headerProtocol:   strconv.Itoa(ProtocolVersion),
		headerSecret:     c.o.Secret,
		headerSession:    c.o.Binding.SessionID,
		headerEpoch:      strconv.FormatInt(c.o.Binding.Epoch, 10),
		headerSandboxGen: strconv.FormatInt(c.o.Binding.SandboxGen, 10),
		headerLeaseGen:   strconv.FormatInt(c.o.LeaseGen, 10),
	} {
		req.Header.Set(k, v)
	}
	return req, nil
}

func (c *Client) do(req *http.Request) (*http.Response, error) {
	ctx, path := req.Context(), req.URL.Path
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(ctx, path, err)
	}
	if resp.StatusCode == http.StatusOK {
		if got := resp.Header.Get(headerInstance); c.instance != "" && got != c.instance {
			resp.Body.Close()
			return nil, fmt.Errorf("failed to call worker %s: %w: another worker answers", path, harness.ErrGone)
		}
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, fmt.Errorf("failed to call worker %s: %w", path, decodeError(resp))
}

func decodeError(resp *http.Response) error {
	e := new(Error)
	if err := decodeStrict(io.LimitReader(resp.Body, maxAnswerBody), e); err != nil || statusOf[e.Code] == 0 {
		return fmt.Errorf("%w: status %d without a known code", ErrProtocol, resp.StatusCode)
	}
	return e
}

// lost says why there was no answer. The caller's own cancellation stays what it is; everything else means that the
// worker could not be reached.
func (c *Client) lost(ctx context.Context, path string, err error) error {
	if cause := context.Cause(ctx); cause != nil && c.life.Err() == nil {
		return fmt.Errorf("failed to call worker %s: %w", path, cause)
	}
	return fmt.Errorf("failed to call worker %s: %w: %w", path, harness.ErrUnreachable, err)
}
