package openfga

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	sdk "github.com/openfga/go-sdk"
	"github.com/openfga/go-sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/harness-engine/harness-engine/engine/authz"
)

// Limits of a Client.
const (
	// DefaultTimeout bounds one request to OpenFGA, with its repetitions.
	DefaultTimeout = 5 * time.Second
	// DefaultStore is the name of the store that is found or made when no store id is given.
	DefaultStore = "harness-engine"
	// maxBatch is the most checks in one batch-check request; 50 is what a server accepts unless told otherwise.
	maxBatch = 50
	// parallelBatches bounds the batch-check requests of one CheckAll that are under way at once.
	parallelBatches = 2
)

// ClientOptions configure a Client. Endpoint is required.
type ClientOptions struct {
	Endpoint string // URL of the server's HTTP API: http or https, no query
	Token    string // bearer token, where the server wants one
	// StoreID is the store to use. Empty: the oldest store named StoreName, made when there is none. Engines that share
	// a server and start at the same time should be given the id.
	StoreID   string
	StoreName string // empty: DefaultStore
	// ModelID is the model to use; it must have every relation of authz.Relations. Empty: the engine's own model,
	// written when the store does not have it.
	ModelID string
	Timeout time.Duration // of one request; 0: DefaultTimeout
	Logger  *slog.Logger  // nil: slog.Default()
}

// Client is authz.Checker and authz.Tuples on an OpenFGA server. Its methods may be called concurrently.
type Client struct {
	sdk     *client.OpenFgaClient
	http    *http.Client
	base    string // endpoint without a slash at its end
	store   string
	model   string
	timeout time.Duration
	logger  *slog.Logger
	locks   authz.Locks
}

var (
	_ authz.Checker = (*Client)(nil)
	_ authz.Tuples  = (*Client)(nil)
)

// NewClient connects to a server and makes sure that the store and the model are there. It returns
// authz.ErrUnavailable (wrapped) when the server does not answer. Close frees its connections.
func NewClient(ctx context.Context, o ClientOptions) (*Client, error) {
	base, err := validEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.StoreName == "" {
		o.StoreName = DefaultStore
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c := &Client{http: newHTTPClient(o.Token), base: base, timeout: o.Timeout, logger: o.Logger}
	if err := c.bootstrap(ctx, o); err != nil {
		c.http.CloseIdleConnections()
		return nil, err
	}
	return c, nil
}

// StoreID is the store in use.
func (c *Client) StoreID() string { return c.store }

// ModelID is the model in use.
func (c *Client) ModelID() string { return c.model }

// Close frees idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Ready returns nil when the server answers for the store.
func (c *Client) Ready(ctx context.Context) error {
	err := c.read(ctx, func(ctx context.Context) error {
		_, err := c.sdk.GetStore(ctx).Execute()
		return err
	})
	if err != nil {
		return fmt.Errorf("failed to read authorization store %s: %w", c.store, err)
	}
	return nil
}

// Check implements authz.Checker.
func (c *Client) Check(ctx context.Context, check authz.Check) (bool, error) {
	contextual := make([]client.ClientContextualTupleKey, len(check.Contextual))
	for i, t := range check.Contextual {
		contextual[i] = client.ClientContextualTupleKey{User: t.User, Relation: t.Relation, Object: t.Object}
	}
	allowed := false
	err := c.read(ctx, func(ctx context.Context) error {
		response, err := c.sdk.Check(ctx).Body(client.ClientCheckRequest{
			User: check.User, Relation: check.Relation, Object: check.Object.String(), ContextualTuples: contextual,
		}).Options(client.ClientCheckOptions{Consistency: consistency(check.Fresh)}).Execute()
		if err != nil {
			return err
		}
		answer, ok := response.GetAllowedOk()
		if !ok {
			return errors.New("response without an answer")
		}
		allowed = *answer
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("failed to check %s of %s: %w", check.Relation, check.Object, err)
	}
	return allowed, nil
}

// CheckAll implements authz.Checker with the server's own batch-check, which the SDK does not have. When one check
// wants to be fresh, all are.
func (c *Client) CheckAll(ctx context.Context, checks []authz.Check) ([]bool, error) {
	fresh := false
	for _, check := range checks {
		fresh = fresh || check.Fresh
	}
	results := make([]bool, len(checks))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelBatches)
	for from := 0; from < len(checks); from += maxBatch {
		to := min(from+maxBatch, len(checks))
		group.Go(func() error { return c.checkBatch(ctx, checks[from:to], results[from:to], fresh) })
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("failed to check %d objects: %w", len(checks), err)
	}
	return results, nil
}

type tupleKey struct {
	User     string `json:"user"`
	Relation string `json:"relation"`
	Object   string `json:"object"`
}

type tupleKeys struct {
	TupleKeys   []tupleKey `json:"tuple_keys"`
	OnDuplicate string     `json:"on_duplicate,omitempty"`
	OnMissing   string     `json:"on_missing,omitempty"`
}

type batchRequest struct {
	Checks               []batchItem               `json:"checks"`
	AuthorizationModelID string                    `json:"authorization_model_id"`
	Consistency          sdk.ConsistencyPreference `json:"consistency"`
}

type batchItem struct {
	TupleKey         tupleKey   `json:"tuple_key"`
	ContextualTuples *tupleKeys `json:"contextual_tuples,omitempty"`
	CorrelationID    string     `json:"correlation_id"`
}

type batchResponse struct {
	Result map[string]struct {
		Allowed bool `json:"allowed"`
		Error   *struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"result"`
}

func (c *Client) checkBatch(ctx context.Context, checks []authz.Check, results []bool, fresh bool) error {
	request := batchRequest{AuthorizationModelID: c.model, Consistency: *consistency(fresh)}
	for i, check := range checks {
		item := batchItem{
			TupleKey:      tupleKey{User: check.User, Relation: check.Relation, Object: check.Object.String()},
			CorrelationID: strconv.Itoa(i),
		}
		if len(check.Contextual) > 0 {
			item.ContextualTuples = &tupleKeys{TupleKeys: keys(check.Contextual)}
		}
		request.Checks = append(request.Checks, item)
	}
	var response batchResponse
	if err := c.read(ctx, func(ctx context.Context) error {
		response = batchResponse{}
		return c.call(ctx, http.MethodPost, "/stores/"+c.store+"/batch-check", request, &response)
	}); err != nil {
		return err
	}
	for i := range checks {
		r, ok := response.Result[strconv.Itoa(i)]
		if !ok {
			return fmt.Errorf("batch without answer %d: %w", i, authz.ErrUnavailable)
		}
		if r.Error != nil {
			return fmt.Errorf("batch answer %d: %s: %w", i, r.Error.Message, authz.ErrUnavailable)
		}
		results[i] = r.Allowed
	}
	return nil
}

func keys(tuples []authz.Tuple) []tupleKey {
	out := make([]tupleKey, len(tuples))
	for i, t := range tuples {
		out[i] = tupleKey(t)
	}
	return out
}

func consistency(fresh bool) *sdk.ConsistencyPreference {
	if fresh {
		return sdk.CONSISTENCYPREFERENCE_HIGHER_CONSISTENCY.Ptr()
	}
	return sdk.CONSISTENCYPREFERENCE_MINIMIZE_LATENCY.Ptr()
}

func validEndpoint(endpoint string) (string, error) {
	base := strings.TrimRight(endpoint, "/")
	u, err := parseURL(base)
	if err != nil {
		return "", fmt.Errorf("openfga: endpoint: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("openfga: endpoint: the scheme must be http or https")
	case u.Host == "":
		return "", errors.New("openfga: endpoint: no host")
	case u.User != nil:
		return "", errors.New("openfga: endpoint: credentials belong in the token")
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("openfga: endpoint: no query or fragment may be given")
	}
	return base, nil
}
