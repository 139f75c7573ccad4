package openfga

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	sdk "github.com/openfga/go-sdk"
	"github.com/openfga/go-sdk/client"

	"github.com/harness-engine/harness-engine/engine/authz"
)

const (
	// maxWrite is the most tuples that one write takes, added and deleted together.
	maxWrite = 100
	// readPage is the most tuples that one read returns.
	readPage = 100
	// maxPresent bounds the tuples that are read of one object: more than authz.MaxTuples, for what others wrote.
	maxPresent = 10 * authz.MaxTuples
	// maxConflicts bounds how often Apply starts anew after the server saw two writes of one tuple at once.
	maxConflicts = 4
)

type writeRequest struct {
	Writes               *tupleKeys `json:"writes,omitempty"`
	Deletes              *tupleKeys `json:"deletes,omitempty"`
	AuthorizationModelID string     `json:"authorization_model_id"`
}

// Apply implements authz.Tuples: it reads the object's tuples, deletes those that are not desired, then writes those
// that are missing. Up to 100 changes are one transaction; more are several, deletions first. It is serial per object
// within this client. An error may leave the object in between; a later call finishes.
func (c *Client) Apply(ctx context.Context, object authz.Object, desired []authz.Tuple) error {
	if err := authz.ValidateTuples(object, desired); err != nil {
		return err
	}
	unlock, err := c.locks.Lock(ctx, object)
	if err != nil {
		return fmt.Errorf("failed to apply tuples of %s: %w", object, unavailable(err))
	}
	defer unlock()
	desired = authz.Canonical(desired)
	for attempt := 0; ; attempt++ {
		err := c.apply(ctx, object, desired)
		if err == nil {
			return nil
		}
		if status, ok := statusOf(err); attempt == maxConflicts || !ok || status != http.StatusConflict {
			return fmt.Errorf("failed to apply tuples of %s: %w", object, err)
		}
	}
}

func (c *Client) apply(ctx context.Context, object authz.Object, desired []authz.Tuple) error {
	present, err := c.present(ctx, object)
	if err != nil {
		return err
	}
	deletes, writes := difference(present, desired), difference(desired, present)
	for len(deletes)+len(writes) > 0 {
		d := min(len(deletes), maxWrite)
		w := min(len(writes), maxWrite-d)
		request := writeRequest{AuthorizationModelID: c.model}
		if d > 0 {
			request.Deletes = &tupleKeys{TupleKeys: keys(deletes[:d]), OnMissing: "ignore"}
		}
		if w > 0 {
			request.Writes = &tupleKeys{TupleKeys: keys(writes[:w]), OnDuplicate: "ignore"}
		}
		// Plain HTTP: SDK v0.6.3 cannot say what to do about tuples that are there, or gone, already.
		if err := c.write(ctx, func(ctx context.Context) error {
			return c.call(ctx, http.MethodPost, "/stores/"+c.store+"/write", request, nil)
		}); err != nil {
			return err
		}
		deletes, writes = deletes[d:], writes[w:]
	}
	return nil
}

// present reads the object's tuples as they are.
func (c *Client) present(ctx context.Context, object authz.Object) ([]authz.Tuple, error) {
	var tuples []authz.Tuple
	token := ""
	for len(tuples) <= maxPresent {
		var page *client.ClientReadResponse
		err := c.read(ctx, func(ctx context.Context) (err error) {
			page, err = c.sdk.Read(ctx).Body(client.ClientReadRequest{Object: sdk.PtrString(object.String())}).
				Options(client.ClientReadOptions{
					PageSize: sdk.PtrInt32(readPage), ContinuationToken: &token, Consistency: consistency(true),
				}).Execute()
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, t := range page.GetTuples() {
			tuples = append(tuples, authz.Tuple{User: t.Key.GetUser(), Relation: t.Key.GetRelation(), Object: t.Key.GetObject()})
		}
		if token = page.GetContinuationToken(); token == "" {
			return authz.Canonical(tuples), nil
		}
	}
	return nil, fmt.Errorf("openfga: %s has more than %d tuples", object, maxPresent)
}

// difference is what a has and b has not; both are canonical.
func difference(a, b []authz.Tuple) []authz.Tuple {
	in := make(map[authz.Tuple]struct{}, len(b))
	for _, t := range b {
		in[t] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(a), func(t authz.Tuple) bool { _, ok := in[t]; return ok })
}
