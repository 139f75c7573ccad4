package resolvers

import (
	"context"
	"errors"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/integrity"
)

// isDamaged reports whether one document is at fault, and nothing else.
func isDamaged(err error) bool {
	return errors.Is(err, integrity.ErrDamaged) || errors.Is(err, agent.ErrNotFound)
}

// leftOut tells of a document that a list goes on without.
func (r *Root) leftOut(ctx context.Context, noun, id string, err error) {
	r.Logger.ErrorContext(ctx, "a document cannot be shown and is left out of a list: see admin verify", "document", noun, "id", id, "error", err)
}

// allowedEach asks for each object. Where the document of one is damaged, nobody knows whom it belongs to: that one fails,
// and the others are asked for one by one.
func (r *Root) allowedEach(ctx context.Context, permission string, objects []authz.Object) ([]bool, []error) {
	errs := make([]error, len(objects))
	ok, err := r.Guard.Allowed(ctx, permission, objects)
	if err == nil {
		return ok, errs
	}
	ok = make([]bool, len(objects))
	for i, o := range objects {
		errs[i] = err
		if !errors.Is(err, integrity.ErrDamaged) || len(objects) == 1 {
			continue
		}
		var one []bool
		if one, errs[i] = r.Guard.Allowed(ctx, permission, []authz.Object{o}); errs[i] == nil {
			ok[i] = one[0]
		}
	}
	return ok, errs
}
